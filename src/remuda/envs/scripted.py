"""Play without learning: actions at random, policies written by hand, and episodes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space

from remuda.envs.vector_env import VectorEnv
from remuda.types import AgentSpec, Array, Bools, Integers, TurnResult

ScriptedPolicy = Callable[[VectorEnv, int, Array, np.random.Generator], Array]
"""Chooses for one agent in all copies: (env, agent, observations, random) to actions.

Observations are [num_envs, *observation_shape], actions [num_envs, *action_shape]. It may look into
the environment, and draws from `random` alone.
"""


def at_random(
    env: VectorEnv, agent: int, observations: Array, random: np.random.Generator
) -> Array:
    """A scripted policy: uniform over all that is allowed."""
    return sample_actions(
        env.agents[agent].action_space, len(observations), random, masks_of(env, agent)
    )


def masks_of(env: VectorEnv, agent: int) -> Bools | None:
    """What an agent may do now, [num_envs, possibilities]; None: anything."""
    spec = env.agents[agent]
    if not spec.masked:
        return None
    masks: Bools = np.zeros((env.num_envs, possibilities(spec)), np.bool_)
    env.mask(agent, masks)
    return masks


def possibilities(spec: AgentSpec) -> int:
    """How many actions there are; with several choices at once, those of each added up."""
    space = spec.action_space
    if isinstance(space, MultiDiscrete):
        return int(space.nvec.sum())
    assert isinstance(space, Discrete), f"actions in {space} are not counted"
    return int(space.n)


def allows_something(spec: AgentSpec, masks: Bools) -> Bools:
    """In which rows each of an agent's choices has something that is allowed: [num_envs] bool."""
    space = spec.action_space
    sizes = (
        space.nvec.ravel().tolist() if isinstance(space, MultiDiscrete) else [possibilities(spec)]
    )
    ends = np.cumsum(sizes)
    parts = [masks[:, end - size : end].any(1) for size, end in zip(sizes, ends, strict=True)]
    allowed: Bools = np.all(parts, axis=0)
    return allowed


def sample_actions(
    space: Space[object], count: int, random: np.random.Generator, masks: Bools | None = None
) -> Array:
    """So many actions, uniform over what the masks allow: [count, *action_shape].

    Where a box has no bounds, actions are drawn from the normal distribution.
    """
    if isinstance(space, Discrete | MultiDiscrete):
        sizes = [int(space.n)] if isinstance(space, Discrete) else space.nvec.ravel().tolist()
        chosen, begin = [], 0
        for size in sizes:
            lots = random.random((count, size))
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
    drawn = np.where(bounded, random.uniform(low, high, shape), random.normal(size=shape))
    return drawn.clip(space.low, space.high).astype(space.dtype)


def room_for(env: VectorEnv, agent: int) -> Array:
    """Zeros for what an agent sees in all copies: [num_envs, *observation_shape]."""
    space = env.agents[agent].observation_space
    return np.zeros((env.num_envs, *(space.shape or ())), space.dtype)


def turns(
    env: VectorEnv, policies: Sequence[ScriptedPolicy], random: np.random.Generator
) -> Iterator[tuple[TurnResult, Bools, Bools]]:
    """Play without end, a policy for each agent.

    After each turn this yields its result, which copies are over [num_envs], and which agents acted
    [num_envs, num_agents]. A copy that is over is reset before the next turn.
    """
    acted: Bools = np.zeros((env.num_envs, env.num_agents), np.bool_)
    over: Bools = np.ones(env.num_envs, np.bool_)
    seen = [
        np.zeros(
            (env.num_envs, *(spec.observation_space.shape or ())), spec.observation_space.dtype
        )
        for spec in env.agents
    ]
    while True:
        if over.any():
            env.reset(random.integers(2**62, size=env.num_envs), over)
        env.begin_turn()
        for group in env.turn_groups:
            for agent in group:
                env.observe(agent, seen[agent])
                acted[:, agent] = env.active[:, agent]
            chosen = [policies[agent](env, agent, seen[agent], random) for agent in group]
            for agent, actions in zip(group, chosen, strict=True):
                env.act(agent, actions)
        result = env.end_turn()
        over = ~np.any(env.active, axis=1)
        yield result, over, acted


def play_episodes(
    env: VectorEnv, policies: Sequence[ScriptedPolicy], episodes: int, seed: int = 0
) -> Array:
    """The return of each agent in the first so many episodes of each copy.

    Returns:
        [episodes * num_envs, num_agents] float64; every copy plays as many. NaN: the agent took no
        part. Episodes that were over when they began are left out.
    """
    returns = np.zeros((env.num_envs, env.num_agents))
    took_part: Bools = np.zeros(returns.shape, np.bool_)
    found: list[list[Array]] = [[] for _ in range(env.num_envs)]
    for result, over, acted in turns(env, policies, np.random.default_rng(seed)):
        returns += result.rewards
        took_part |= acted
        for copy in np.flatnonzero(over & took_part.any(1)):
            found[copy].append(np.where(took_part[copy], returns[copy], np.nan))
        returns[over], took_part[over] = 0.0, False
        if all(len(played) >= episodes for played in found):
            break
    return np.array([one for played in found for one in played[:episodes]])
