"""Worlds of JAX, which step all copies at once: those of JaxMARL, and users' classes."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from remuda.envs.adapters.jax_description import (
    WorldSpec,
    describe,
    describe_by_name,
    world_of,
)
from remuda.envs.adapters.jax_interfaces import JaxWorld, one_hots
from remuda.envs.adapters.jax_library import import_jax, make_world
from remuda.envs.adapters.jax_metrics import metrics_of
from remuda.envs.adapters.jax_pictures import picture
from remuda.envs.adapters.jax_steps import Carry, Groups, JaxSteps, Views, enough_memory
from remuda.envs.games.array_game import TurnArrays
from remuda.errors import ConfigError, ContractError
from remuda.system.checkpoint.fitting import branch, fitting
from remuda.types import Array, Bools, Floats, Integers, State, TurnResult

SHAPED_REWARD = "shaped_reward"  # the option


def make_jaxmarl(
    name: str, /, num_envs: int = 1, *, shaped_reward: float = 0.0, **options: Any
) -> JaxWorlds:
    """Make copies of a world of JaxMARL, such as `overcooked`, with its options.

    `shaped_reward` is the part of the world's shaped rewards that is added to its rewards; a run
    may change it, for a curriculum.
    """
    spec = describe_by_name(name, options)
    worlds = JaxWorlds(partial(_compiled, name, pickle.dumps(options), num_envs), spec, num_envs)
    worlds.given = {**spec.options, **options}
    if spec.has_shaped_rewards:
        worlds.given[SHAPED_REWARD] = shaped_reward
        worlds.set_option(SHAPED_REWARD, shaped_reward)
    elif shaped_reward:
        raise ConfigError(f"env.options.{SHAPED_REWARD}: jaxmarl:{name} has no shaped rewards")
    return worlds


@lru_cache(maxsize=8)
def _compiled(name: str, options: bytes, num_envs: int) -> JaxSteps:
    """Return the functions of a world, which are compiled once in a process: they have no state."""
    return steps_of(world_of(make_world(name, pickle.loads(options))), f"jaxmarl:{name}", num_envs)


def steps_of(world: JaxWorld, name: str, num_envs: int) -> JaxSteps:
    """Return the functions of a world for a number of copies; they compile at their first call."""
    import_jax()
    metrics = list(metrics_of(world.env).values())
    return JaxSteps(world, describe(world, name).agents, metrics, num_envs)


def copies_of_jax(env: Any, num_envs: int, name: str) -> JaxWorlds:
    """Return copies of a user's environment with JaxMARL's or gymnax's interface."""
    world = world_of(env)
    return JaxWorlds(partial(steps_of, world, name, num_envs), describe(world, name), num_envs)


class JaxWorlds(TurnArrays):
    """Copies of a JAX world, stepped together by one compiled function.

    1. JAX is imported by the first observation, or `warm_up`: a process that only describes a
       world, or tries an option, never imports it. A reset is done when its result is needed.
    2. A turn passes one array of actions to JAX. Observations are read where JAX wrote them.
    3. Episodes are restarted by `reset` and not within a step, so the final observation is seen.
    4. An agent that the world reports as done before the others, such as a dead unit, is inactive
       until their episode ends, and then has terminated. Rewards that the world gives it meanwhile
       count: JaxMARL pays a dead unit for what its team does.
    """

    checker = ""

    def __init__(self, make: Callable[[], JaxSteps], spec: WorldSpec, num_envs: int) -> None:
        """Allocate the arrays; `make` returns the compiled functions."""
        self._make_arrays(num_envs, spec.agents)
        self._make, self._spec = make, spec
        self.turn_groups = (tuple(range(self.num_agents)),)
        self.episode_metrics = spec.episode_metrics
        self.given: dict[str, Any] = {}  # all options, with the values that it was made with
        if spec.has_shaped_rewards:
            self.changeable_options = (SHAPED_REWARD,)
        groups = Groups(spec.agents)
        self._places = {
            "observations": Groups.places(groups.observations),
            "masks": Groups.places(groups.masks),
            "critic_states": Groups.places(groups.critic_states),
        }
        self._one_hots = [
            one_hots(agent.env_observation_space or agent.observation_space)
            for agent in spec.agents
        ]
        self._steps: JaxSteps | None = None
        self._carry: Carry | None = None
        self._seeds: Integers = np.zeros(num_envs, np.int64)
        self._waiting: Bools = np.zeros(num_envs, np.bool_)  # copies to restart
        self._is_stale = False  # True if any copy waits
        self._views: dict[str, list[Array]] = {}  # of each group: [members, num_envs, ...]
        self._actions: Array = np.zeros((num_envs, 0))
        self._shaped: Floats = np.zeros(num_envs, np.float32)  # in force in each copy
        self._next_shaped = 0.0
        self._metrics = np.zeros((len(self.episode_metrics), num_envs))
        metrics = dict(zip(self.episode_metrics, self._metrics, strict=True))
        self._result = TurnResult(self._rewards, self._terminated, self._truncated, metrics)
        # Never written, so it takes no memory; it shows what the state of all copies will take.
        with enough_memory(num_envs):
            self._room = np.empty((num_envs, 2 * spec.copy_bytes), np.uint8)

    def warm_up(self) -> None:
        self._ready().warm_up()

    def _ready(self) -> JaxSteps:
        if self._steps is None:
            self._steps = self._make()
            columns = self._steps.columns
            self._actions = np.zeros((self.num_envs, columns.size), columns.dtype)
        return self._steps

    def reset(self, seeds: Integers, mask: Bools) -> None:
        self._seeds[mask] = seeds[mask]
        self._waiting |= mask
        self._is_stale = True
        self.active[mask] = True
        self._terminated[mask] = self._truncated[mask] = False
        self._shaped[mask] = self._next_shaped

    def _playing(self) -> tuple[JaxSteps, Carry]:
        """Restart the copies that wait for it; return the functions, and the state of all."""
        steps, waiting = self._ready(), self._waiting
        if self._carry is not None and not self._is_stale:
            return steps, self._carry
        if self._carry is None or waiting.all():
            self._carry, views = steps.start(self._seeds)
            self._look(views)
        else:
            self._carry, found = steps.restart(self._carry, self._seeds, waiting)
            for copies, views in found:
                self._replace(copies, views)
        self._is_stale = waiting[:] = False
        return steps, self._carry

    def observe(self, agent: int, out: Array) -> None:
        self._write("observations", agent, out)
        for place, values in self._one_hots[agent]:
            if (self.active[:, agent] & ~out[:, place].any(1)).any():
                raise ContractError(
                    f"{self.agents[agent].name} of {type(self._ready().env).__name__} observes a "
                    f"number outside of its space Discrete({values}); allowed are 0 to {values - 1}"
                )

    def mask(self, agent: int, out: Bools) -> None:
        self._write("masks", agent, out)

    def observe_state(self, agent: int, out: Array) -> None:
        self._write("critic_states", agent, out)

    def act(self, agent: int, actions: Array) -> None:
        self._ready().columns.write(agent, actions, self._actions)

    def end_turn(self) -> TurnResult:
        (steps, carry), count = self._playing(), self.num_agents
        self._carry, views, results = steps.step(carry, self._actions)
        self._look(views)
        numbers, flags = np.asarray(results.numbers), np.asarray(results.flags)
        is_playing = np.logical_or.reduce(self.active, axis=1, keepdims=True)  # [num_envs, 1]
        np.multiply(numbers[:, :count], is_playing, out=self._rewards)
        if self._spec.has_shaped_rewards:
            shares = self._shaped[:, None] * is_playing
            self._rewards += numbers[:, count : 2 * count] * shares
        self._metrics[...] = numbers[:, numbers.shape[1] - len(self._metrics) :].T
        np.logical_and(flags[:, 1], self.active, out=self._truncated)
        self.active &= ~flags[:, 0]
        is_over = is_playing & ~np.logical_or.reduce(self.active, axis=1, keepdims=True)
        self._truncated &= is_over
        np.logical_and(is_over, ~self._truncated, out=self._terminated)
        return self._result

    def _look(self, views: Views) -> None:
        """Read what agents observe, without copying it."""
        self._views = {
            name: [np.asarray(group) for group in groups]
            for name, groups in views._asdict().items()
        }

    def _replace(self, copies: Integers, views: Views) -> None:
        """Replace what agents of restarted copies observe; `views` may hold more copies."""
        for name, groups in views._asdict().items():
            own = self._views[name]
            for g, group in enumerate(groups):
                if not own[g].flags.writeable:
                    own[g] = own[g].copy()
                own[g][:, copies] = np.asarray(group)[:, : len(copies)]

    def _write(self, what: str, agent: int, out: Array) -> None:
        self._playing()
        group, member = self._places[what][agent]
        out[...] = self._views[what][group][member]

    def set_option(self, name: str, value: Any) -> None:
        if name not in self.changeable_options:
            super().set_option(name, value)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value):
            raise ConfigError(
                f"env.options.{SHAPED_REWARD} is {value!r}; allowed is a finite number, by which "
                "the world's shaped rewards are multiplied"
            )
        self._next_shaped = float(value)

    def render(self, env: int = 0) -> Array:
        import jax

        steps, carry = self._playing()
        stored = jax.tree.map(lambda leaf: np.asarray(leaf)[env], carry.state)
        return picture(steps.env, steps.state_of(stored))

    def state(self) -> State:
        import jax

        leaves = jax.tree.leaves(self._playing()[1])
        return {
            "leaves": {str(i): np.array(leaf) for i, leaf in enumerate(leaves)},
            "views": {
                name: {str(g): np.array(group) for g, group in enumerate(groups)}
                for name, groups in self._views.items()
            },
            "active": self.active.copy(),
            "shaped": self._shaped.copy(),
        }

    def restore(self, state: State) -> None:
        import jax

        self._is_stale = self._waiting[:] = True
        leaves, tree = jax.tree.flatten(self._playing()[1])
        saved = branch(state, "leaves")
        new = [fitting(saved, str(i), np.asarray(leaf)) for i, leaf in enumerate(leaves)]
        self._carry = jax.tree.unflatten(tree, new)
        views = branch(state, "views")
        self._views = {
            name: [fitting(branch(views, name), str(g), own) for g, own in enumerate(groups)]
            for name, groups in self._views.items()
        }
        self.active[...] = fitting(state, "active", self.active)
        self._shaped[...] = fitting(state, "shaped", self._shaped)

    def options(self) -> dict[str, Any]:
        return dict(self.given)
