"""Users' environments with the interfaces of JaxMARL and gymnax, for tests of their adapter."""

import jax
import jax.numpy as jnp
from flax import struct
from gymnax.environments.environment import Environment as GymnaxEnvironment
from gymnax.environments.environment import EnvParams
from gymnax.environments.spaces import Discrete as GymnaxDiscrete

from remuda.envs.adapters.jax_library import quiet

with quiet():
    from jaxmarl.environments.multi_agent_env import MultiAgentEnv
    from jaxmarl.environments.spaces import Box, Discrete, Tuple


@struct.dataclass
class Places:
    at: jax.Array
    step: int


class Meeting(MultiAgentEnv):
    """Two agents walk along a line; the episode ends where they meet, or at its limit."""

    def __init__(self, length=9, max_steps=6):
        super().__init__(2)
        self.length, self.max_steps = length, max_steps
        self.observation_spaces = {each: Box(0, length, (2,), jnp.int32) for each in self.agents}
        self.action_spaces = {each: Discrete(3) for each in self.agents}

    def reset(self, key):
        state = Places(jax.random.randint(key, (2,), 0, self.length), 0)
        return self.get_obs(state), state

    def get_obs(self, state):
        return {each: jnp.roll(state.at, -i) for i, each in enumerate(self.agents)}

    def step_env(self, key, state, actions):
        moves = jnp.stack([actions[each] for each in self.agents]) - 1
        state = Places(jnp.clip(state.at + moves, 0, self.length - 1), state.step + 1)
        met = state.at[0] == state.at[1]
        done = met | (state.step >= self.max_steps)
        rewards = dict.fromkeys(self.agents, met * 1.0)
        dones = dict.fromkeys([*self.agents, "__all__"], done)
        return self.get_obs(state), state, rewards, dones, {}


class Odd(Meeting):
    """A meeting whose actions have no space that policies know."""

    def __init__(self):
        super().__init__()
        self.action_spaces = {each: Tuple([Discrete(3)]) for each in self.agents}


class Broken(Meeting):
    """A meeting whose step fails."""

    def step_env(self, key, state, actions):
        raise ValueError("no step today")


class Leaving(Meeting):
    """A meeting without an end but its limit, whose second agent is done in its second step."""

    def __init__(self):
        super().__init__(max_steps=4)

    def step_env(self, key, state, actions):
        state = Places(state.at, state.step + 1)
        over = state.step >= self.max_steps
        dones = {"agent_0": over, "agent_1": over | (state.step == 2), "__all__": over}
        return self.get_obs(state), state, {"agent_0": 1.0, "agent_1": 2.0}, dones, {}


class Vast(Meeting):
    """A meeting whose state is larger than any memory."""

    def reset(self, key):
        observations, state = super().reset(key)
        return observations, (state, jnp.zeros(2**46, jnp.int8))

    def step_env(self, key, state, actions):
        observations, own, *results = super().step_env(key, state[0], actions)
        return observations, (own, state[1]), *results


class Busy(Meeting):
    """A meeting whose reset needs more than any memory."""

    def reset(self, key):
        observations, state = super().reset(key)
        least = jnp.sort(jax.random.uniform(key, (2**42,)))[0]
        return observations, state.replace(at=state.at + jnp.int32(least))


@struct.dataclass
class Clock:
    time: int


class Counting(GymnaxEnvironment):
    """One agent; action 1 pays 1 and ends the episode, and its limit is 4 steps."""

    @property
    def default_params(self):
        return EnvParams(max_steps_in_episode=4)

    def reset_env(self, key, params):
        return jnp.zeros(1), Clock(0)

    def step_env(self, key, state, action, params):
        state = Clock(state.time + 1)
        done = (action == 1) | (state.time >= params.max_steps_in_episode)
        observation = jnp.float32(state.time).reshape(1)
        return observation, state, jnp.float32(action == 1), done, {}

    def observation_space(self, params):
        return Box(0.0, 4.0, (1,))

    def action_space(self, params):
        return GymnaxDiscrete(2)
