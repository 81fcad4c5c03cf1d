"""Play games and record them, so that two of them can be compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from remuda.envs.early_rewards import EarlyRewards
from remuda.envs.scripted import (
    allows_something,
    at_random,
    masks_of,
    possibilities,
    sample_actions,
)
from remuda.envs.vector_env import VectorEnv
from remuda.errors import ContractError
from remuda.types import Array, Bools, Integers, TurnResult

TURNS = 130
"""Turns of each check; most games end an episode within them."""


@dataclass
class Trace:
    """A record of some turns; arrays are copies."""

    observations: list[list[Array]]
    rewards: list[Array]
    terminated: list[Bools]
    truncated: list[Bools]
    active: list[Bools]
    """After the turn."""
    began: list[Bools]
    """Agents that were active at any time in the turn."""
    over: list[Bools]
    """[num_envs], by turn: copies without an active agent after it."""
    info: list[dict[str, Array]]
    so_far: list[Array]
    """Rewards of the turn before an agent observed; zeros if the game has no `rewards_so_far`."""

    def end_turn(self, result: TurnResult, active: Bools) -> None:
        self.rewards.append(result.rewards.copy())
        self.terminated.append(result.terminated.copy())
        self.truncated.append(result.truncated.copy())
        self.active.append(active.copy())
        self.over.append(~np.any(active, axis=1))
        self.info.append({name: np.array(values) for name, values in result.info.items()})

    def same_as(self, other: Trace, env: int = 0, other_env: int = 0) -> bool:
        """Return whether one copy here and one there did the same."""
        pairs = [
            *zip(chain(*self.observations), chain(*other.observations), strict=True),
            *zip(self.rewards, other.rewards, strict=True),
            *zip(self.so_far, other.so_far, strict=True),
            *zip(self.terminated, other.terminated, strict=True),
            *zip(self.truncated, other.truncated, strict=True),
            *zip(self.active, other.active, strict=True),
        ]
        return all(np.array_equal(a[env], b[other_env]) for a, b in pairs)


def play(env: VectorEnv, seed: int, *, others_act_differently: bool = False, **how: Any) -> Trace:
    """Play `TURNS` turns by `play_turns`; the first copy's actions depend on the seed alone."""
    env.reset(seeds_of(env.num_envs, seed), np.ones(env.num_envs, np.bool_))
    trace = play_turns(env, TURNS, seed=seed, others=int(others_act_differently), **how)
    env.close()
    return trace


def play_turns(
    env: VectorEnv,
    count: int,
    seed: int = 0,
    others: int = 0,
    inactive_action: int | None = None,
    spoil_actions: bool = False,
    meanwhile: Callable[[], object] | None = None,
    watch: EarlyRewards | None = None,
) -> Trace:
    """Play turns with random actions; call `watch` within each and `meanwhile` before it."""
    trace = Trace([], [], [], [], [], [], [], [], [])
    rngs = [np.random.default_rng([seed, e, others if e else 0]) for e in range(env.num_envs)]
    active = env.active
    _check_rewards_so_far(env)
    for _ in range(count):
        if meanwhile is not None:
            meanwhile()
        trace.began.append(active.copy())
        if watch is not None:
            watch.begin()
        env.begin_turn()
        if watch is not None:
            watch.begun()
        trace.observations.append([np.empty((env.num_envs, 0))] * env.num_agents)
        trace.so_far.append(np.zeros(active.shape, np.float32))
        for group in env.turn_groups:
            _play_group(env, group, rngs, trace, inactive_action, spoil_actions, watch)
        if watch is not None:
            watch.acted()
        result = env.end_turn()
        if watch is not None:
            watch.ended(result.rewards)
        require(
            env.active is active,
            "`active` is always the same array, which reset, act and end_turn update",
        )
        trace.end_turn(result, active)
        _restart(env, rngs, trace.over[-1])
    return trace


def _check_rewards_so_far(env: VectorEnv) -> None:
    if env.rewards_so_far is None:
        return
    shape, dtype = env.rewards_so_far.shape, env.rewards_so_far.dtype
    require(
        shape == env.active.shape and dtype == np.float32,
        f"14. `rewards_so_far` is {env.active.shape} float32, not {shape} {dtype}",
    )


def _play_group(
    env: VectorEnv,
    group: tuple[int, ...],
    rngs: list[np.random.Generator],
    trace: Trace,
    inactive_action: int | None,
    spoil_actions: bool,
    watch: EarlyRewards | None,
) -> None:
    """Let the agents of a group observe, then act, and record their observations."""
    trace.began[-1] |= env.active
    acts = env.active[:, group].copy()
    for agent in group:
        trace.observations[-1][agent] = look(env, agent)
        if watch is not None:
            watch.observed(agent)
        if env.rewards_so_far is not None:
            trace.so_far[-1][:, agent] = env.rewards_so_far[:, agent]
    actions = [draw_actions(env, agent, rngs) for agent in group]
    for i, agent in enumerate(group):
        if inactive_action is not None:
            actions[i][~acts[:, i]] = inactive_action
        env.act(agent, actions[i])
        if spoil_actions:
            actions[i].view(np.uint8)[...] = 0x5A


def _restart(env: VectorEnv, rngs: list[np.random.Generator], over: Bools) -> None:
    """Restart the copies that are over; only these draw seeds, so that copies stay independent."""
    if not over.any():
        return
    seeds = np.array([rng.integers(2**62) if over[e] else -1 for e, rng in enumerate(rngs)])
    env.reset(seeds, over)
    require(
        bool(env.active[over].any(1).all()),
        "3. after `reset` at least one agent in each copy of the mask is active",
    )


def draw_actions(env: VectorEnv, agent: int, rngs: list[np.random.Generator]) -> Array:
    """Draw an allowed action for every copy, each from the copy's generator."""
    space, masks = env.agents[agent].action_space, masks_of(env, agent)
    return np.concatenate(
        [
            sample_actions(space, 1, rng, None if masks is None else masks[e : e + 1])
            for e, rng in enumerate(rngs)
        ]
    )


def check_masks(env: VectorEnv, agent: int, seen: Array, rng: np.random.Generator) -> Array:
    """Check an agent's masks, and act at random (a scripted policy)."""
    spec = env.agents[agent]
    if spec.masked:
        masks = look_at_masks(env, agent)
        require(
            bool(allows_something(spec, masks)[env.active[:, agent]].all()),
            f"10. {spec.name} may always do something where it is active",
        )
    return at_random(env, agent, seen, rng)


def look_at_masks(env: VectorEnv, agent: int) -> Bools:
    """Return an agent's masks, [num_envs, possibilities], after checking how they are written."""
    active, before = env.active.copy(), look(env, agent)
    found = []
    for start in (False, True):
        masks: Bools = np.full((env.num_envs, possibilities(env.agents[agent])), start, np.bool_)
        env.mask(agent, masks)
        found.append(masks)
    require(
        np.array_equal(found[0], found[1]),
        "10. `mask` writes all of `out`, and the same at every call",
    )
    require(
        np.array_equal(before, look(env, agent)) and np.array_equal(active, env.active),
        "10. `mask` changes nothing in the world",
    )
    return found[0]


def look(env: VectorEnv, agent: int) -> Array:
    """Return an agent's observations: [num_envs, *shape]."""
    out = buffer(env, agent)
    env.observe(agent, out)
    return out


def buffer(env: VectorEnv, agent: int, extra: int = 0) -> Array:
    """Return zeros for an agent's observations in all copies, and some more."""
    space = env.agents[agent].observation_space
    return np.zeros((env.num_envs + extra, *(space.shape or ())), space.dtype)


def seeds_of(num_envs: int, seed: int) -> Integers:
    """Return distinct seeds of all copies for each `seed`."""
    return np.arange(num_envs, dtype=np.int64) + 1000 * seed


def require(holds: bool, guarantee: str) -> None:
    """Raise a ContractError unless a guarantee holds."""
    if not holds:
        raise ContractError(f"the environment breaks its contract: {guarantee}")
