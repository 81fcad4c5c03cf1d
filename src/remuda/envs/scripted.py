"""Play without learning: random actions, hand-written policies, and a loop over turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space

from remuda.envs.vector_env import VectorEnv
from remuda.types import AgentSpec, Array, Bools, Integers, TurnResult

ScriptedPolicy = Callable[[VectorEnv, int, Array, np.random.Generator], Array]
"""Chooses one agent's actions in all copies: (env, agent, observations, rng) -> actions.

Observations are [num_envs, *observation_shape], actions [num_envs, *action_shape]. A policy may
read the environment, and must draw random numbers from `rng` only."""


def at_random(env: VectorEnv, agent: int, observations: Array, rng: np.random.Generator) -> Array:
    """Choose uniformly among allowed actions (a scripted policy)."""
    return sample_actions(
        env.agents[agent].action_space, len(observations), rng, masks_of(env, agent)
    )


def masks_of(env: VectorEnv, agent: int) -> Bools | None:
    """Return an agent's masks, [num_envs, possibilities]; None if it is not masked."""
    spec = env.agents[agent]
    if not spec.masked:
        return None
    masks: Bools = np.zeros((env.num_envs, possibilities(spec)), np.bool_)
    env.mask(agent, masks)
    return masks


def choice_sizes(space: Space[Any]) -> list[int]:
    """Return the number of actions of each choice; a `Discrete` is one choice."""
    if isinstance(space, MultiDiscrete):
        sizes: list[int] = space.nvec.ravel().tolist()
        return sizes
    assert isinstance(space, Discrete), f"actions in {space} are not discrete"
    return [int(space.n)]


def possibilities(spec: AgentSpec) -> int:
    """Return the number of actions, summed over the choices of a `MultiDiscrete`."""
    return sum(choice_sizes(spec.action_space))


def allows_something(spec: AgentSpec, masks: Bools) -> Bools:
    """Return whether every choice in a row has an allowed action: [num_envs] bool."""
    starts = np.cumsum([0, *choice_sizes(spec.action_space)[:-1]])
    allowed: Bools = np.all(np.logical_or.reduceat(masks, starts, axis=1), axis=1)
    return allowed


def sample_actions(
    space: Space[object], count: int, rng: np.random.Generator, masks: Bools | None = None
) -> Array:
    """Draw actions uniformly from those that the masks allow: [count, *action_shape].

    Unbounded entries of a Box are drawn from the standard normal distribution.
    """
    if isinstance(space, Discrete | MultiDiscrete):
        chosen, begin = [], 0
        for size in choice_sizes(space):
            lots = rng.random((count, size))
            if masks is not None:
                lots[~masks[:, begin : begin + size]] = -1.0
            chosen.append(lots.argmax(1))
            begin += size
        actions: Integers = np.stack(chosen, axis=1).reshape(count, *(space.shape or ()))
        return actions + space.start
    assert isinstance(space, Box), f"no action can be drawn from {space}"
    bounded = np.isfinite(space.low) & np.isfinite(space.high)
    low, high = np.where(bounded, space.low, 0.0), np.where(bounded, space.high, 0.0)
    shape = (count, *space.shape)
    values = np.where(bounded, rng.uniform(low, high, shape), rng.normal(size=shape))
    return values.clip(space.low, space.high).astype(space.dtype)


def room_for(env: VectorEnv, agent: int) -> Array:
    """Return a zeroed buffer for an agent's observations: [num_envs, *observation_shape]."""
    space = env.agents[agent].observation_space
    return np.zeros((env.num_envs, *(space.shape or ())), space.dtype)


def turns(
    env: VectorEnv, policies: Sequence[ScriptedPolicy], rng: np.random.Generator
) -> Iterator[tuple[TurnResult, Bools, Bools]]:
    """Play forever, with a policy for each agent.

    Yields after each turn its result, the copies that have finished, [num_envs], and the agents
    that acted, [num_envs, num_agents]. Finished copies are reset before the next turn.
    """
    acted: Bools = np.zeros((env.num_envs, env.num_agents), np.bool_)
    over: Bools = np.ones(env.num_envs, np.bool_)
    observations = [room_for(env, agent) for agent in range(env.num_agents)]
    while True:
        if over.any():
            env.reset(rng.integers(2**62, size=env.num_envs), over)
        env.begin_turn()
        for group in env.turn_groups:
            for agent in group:
                env.observe(agent, observations[agent])
                acted[:, agent] = env.active[:, agent]
            chosen = [policies[agent](env, agent, observations[agent], rng) for agent in group]
            for agent, actions in zip(group, chosen, strict=True):
                env.act(agent, actions)
        result = env.end_turn()
        over = ~np.any(env.active, axis=1)
        yield result, over, acted
