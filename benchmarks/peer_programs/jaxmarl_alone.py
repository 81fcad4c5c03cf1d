"""A world of JaxMARL alone: turns of all copies a second with random actions, in one `lax.scan`.

Argument, as JSON: `world`, `options`, `copies`, `turns`, `scenario` (of SMAX) and `layout` (of
Overcooked). Prints the agent-steps a second, without compilation.
"""

import json
import sys
import time

import jax
import jaxmarl

asked = json.loads(sys.argv[1])
options = dict(asked["options"])
if "layout" in options:
    from jaxmarl.environments.overcooked import overcooked_layouts

    options["layout"] = overcooked_layouts[options["layout"]]
if "scenario" in options:
    from jaxmarl.environments.smax import map_name_to_scenario

    options["scenario"] = map_name_to_scenario(options["scenario"])
env = jaxmarl.make(asked["world"], **options)
copies, turns = asked["copies"], asked["turns"]


def turn(carry, _):
    state, key = carry
    key, to_act, to_step = jax.random.split(key, 3)
    draws = dict(zip(env.agents, jax.random.split(to_act, env.num_agents), strict=True))
    actions = {
        agent: jax.vmap(env.action_space(agent).sample)(jax.random.split(draw, copies))
        for agent, draw in draws.items()
    }
    found = jax.vmap(env.step)(jax.random.split(to_step, copies), state, actions)
    observations, state, rewards = found[:3]
    return (state, key), (observations, rewards)


@jax.jit
def play(key):
    _, state = jax.vmap(env.reset)(jax.random.split(key, copies))

    def read(carry, _):  # whatever a turn makes is used, so that none of it is left out
        carry, made = turn(carry, None)
        return carry, sum(leaf.sum() for leaf in jax.tree.leaves(made))

    return jax.lax.scan(read, (state, key), None, turns)[1].sum()


compiled = play.lower(jax.random.PRNGKey(0)).compile()
begun = time.perf_counter()
jax.block_until_ready(compiled(jax.random.PRNGKey(1)))
print(copies * turns * env.num_agents / (time.perf_counter() - begun))
