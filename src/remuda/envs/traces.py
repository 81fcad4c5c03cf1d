"""Play games and record traces, so that two traces can be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from remuda.envs.recorded import Wrapped
from remuda.envs.scripted import (
    allows_something,
    at_random,
    masks_of,
    possibilities,
    sample_actions,
)
from remuda.envs.vector_env import VectorEnv
from remuda.errors import ContractError
from remuda.types import Array, Bools, Floats, Integers, TurnResult

TURNS = 130  # turns of each check; most games end an episode within them
DEPTH = 4
"""Levels of nested attributes that are searched for tables of rewards."""


@dataclass
class Trace:
    """A record of turns, with copies of all arrays; `active` and `over` are those after a turn."""

    observations: list[list[Array]] = field(default_factory=list)
    rewards: list[Array] = field(default_factory=list)
    terminated: list[Bools] = field(default_factory=list)
    truncated: list[Bools] = field(default_factory=list)
    active: list[Bools] = field(default_factory=list)
    began: list[Bools] = field(default_factory=list)  # agents active at some time in the turn
    over: list[Bools] = field(default_factory=list)  # [num_envs]: no agent is active
    info: list[dict[str, Array]] = field(default_factory=list)
    so_far: list[Array] = field(default_factory=list)
    """Rewards in the turn before each agent observed; zeros if the game has no `rewards_so_far`."""

    def same_as(self, other: Trace, env: int = 0, other_env: int = 0) -> bool:
        """Return whether a copy here and a copy of `other` have equal records."""
        pairs = [*zip(chain(*self.observations), chain(*other.observations), strict=True)]
        for name in ("rewards", "so_far", "terminated", "truncated", "active"):
            pairs += zip(getattr(self, name), getattr(other, name), strict=True)
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
    meanwhile: Callable[[], object] = lambda: None,
) -> Trace:
    """Play turns with random actions, and call `meanwhile` before each."""
    trace = Trace()
    rngs = [np.random.default_rng([seed, e, others if e else 0]) for e in range(env.num_envs)]
    active = env.active
    if env.rewards_so_far is not None:
        shape, dtype = env.rewards_so_far.shape, env.rewards_so_far.dtype
        require(
            shape == active.shape and dtype == np.float32,
            f"14. `rewards_so_far` is {active.shape} float32, not {shape} {dtype}",
        )
    for _ in range(count):
        meanwhile()
        trace.began.append(active.copy())
        env.begin_turn()
        trace.observations.append([np.empty((env.num_envs, 0))] * env.num_agents)
        trace.so_far.append(np.zeros(active.shape, np.float32))
        for group in env.turn_groups:
            _play_group(env, group, rngs, trace, inactive_action, spoil_actions)
        result = env.end_turn()
        require(
            env.active is active,
            "`active` is always the same array, which reset, act and end_turn update",
        )
        trace.rewards.append(result.rewards.copy())
        trace.terminated.append(result.terminated.copy())
        trace.truncated.append(result.truncated.copy())
        trace.active.append(active.copy())
        trace.over.append(~np.any(active, axis=1))
        trace.info.append({name: np.array(values) for name, values in result.info.items()})
        _restart(env, rngs, trace.over[-1])
    return trace


def _play_group(
    env: VectorEnv,
    group: tuple[int, ...],
    rngs: list[np.random.Generator],
    trace: Trace,
    inactive_action: int | None,
    spoil_actions: bool,
) -> None:
    """Let the agents of a group observe, then act, and record their observations."""
    trace.began[-1] |= env.active
    acts = env.active[:, group].copy()
    for agent in group:
        trace.observations[-1][agent] = look(env, agent)
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
    """Restart finished copies; only these draw seeds, so that copies stay independent."""
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
            f"10. {spec.name} always has an allowed action where it is active",
        )
    return at_random(env, agent, seen, rng)


def look_at_masks(env: VectorEnv, agent: int) -> Bools:
    """Return an agent's masks, [num_envs, possibilities], after checking how they are written."""
    active, before = env.active.copy(), look(env, agent)
    shape = env.num_envs, possibilities(env.agents[agent])
    masks, again = np.zeros(shape, np.bool_), np.ones(shape, np.bool_)
    for out in (masks, again):
        env.mask(agent, out)
    same = np.array_equal(masks, again)
    require(same, "10. `mask` writes all of `out`, and the same values at every call")
    same = np.array_equal(before, look(env, agent)) and np.array_equal(active, env.active)
    require(same, "10. `mask` changes nothing in the world")
    return masks


def look(env: VectorEnv, agent: int) -> Array:
    """Return an agent's observations: [num_envs, *shape]."""
    out = buffer(env, agent)
    env.observe(agent, out)
    return out


def buffer(env: VectorEnv, agent: int, extra: int = 0) -> Array:
    """Return a zeroed buffer for an agent's observations, with `extra` rows."""
    space = env.agents[agent].observation_space
    return np.zeros((env.num_envs + extra, *(space.shape or ())), space.dtype)


def seeds_of(num_envs: int, seed: int) -> Integers:
    """Return a seed for each copy, distinct for distinct `seed`."""
    return np.arange(num_envs, dtype=np.int64) + 1000 * seed


def require(holds: bool, guarantee: str) -> None:
    """Raise a ContractError unless a guarantee holds."""
    if not holds:
        raise ContractError(f"the environment breaks its contract: {guarantee}")


@dataclass(frozen=True)
class Early:
    """A reward that came in a turn before its agent acted."""

    agent: int
    copy: int
    turn: int
    value: float
    table: str  # the name of the attribute that holds it


class _Table:
    """A table of numbers by copy and agent that may hold the rewards of a turn."""

    def __init__(self, holder: Any, key: Any) -> None:
        self._holder, self._key = holder, key
        self.start = self.begun = self.last = np.zeros(0)
        """Its numbers before the turn, after `begin_turn`, and after the last `act`."""
        self.fits = {"is", "was", "grew", "had grown"}
        """The ways in which the table has matched the rewards of every turn so far."""
        self.early: list[tuple[int, int, float]] = []
        """Agent, copy and value of this turn's rewards before the agent acted."""

    def read(self, shape: tuple[int, int]) -> Array | None:
        """Return a copy of its numbers; None if the table no longer exists."""
        try:
            return _table_of(self._holder[self._key], shape)
        except (LookupError, TypeError):
            return None

    def ended(self, now: Array, rewards: Floats) -> None:
        """Drop the ways in which the table does not match these rewards."""
        grown = {"grew": now - self.start, "had grown": self.last - self.start}
        ways = {"is": now, "was": self.last} | grown
        self.fits &= {way for way, found in ways.items() if np.allclose(found, rewards)}


class EarlyRewards(Wrapped):
    """A wrapper that detects rewards that a game gives before the end of a turn.

    `end_turn` returns the rewards of a turn, but not when they came. A game that gives rewards
    while agents act accumulates them in a *table*: an array or nested lists with a number for each
    copy and agent. `end_turn` returns the table, or its growth in the turn. Tables are read when
    agents observe. Play a turn of the game first, so that its tables exist.
    """

    def __init__(self, game: VectorEnv) -> None:
        super().__init__(game)
        self._turn = 0
        self._tables = {
            name: _Table(holder, key)
            for name, holder, key in _walk(vars(game), game.active.shape, "", DEPTH, set())
        }
        self._found: dict[str, Early] = {}  # the first early reward of each table
        self._took_part = np.ones(game.active.shape, np.bool_)  # agents active in this turn
        self._least, self._most = np.inf, -np.inf  # bounds of active agents' rewards

    @property
    def found(self) -> Early | None:
        """Return an early reward, or None.

        None if all rewards are equal, because a table that counts turns could match equal rewards.
        """
        if self._least >= self._most:
            return None
        return next((early for name, early in self._found.items() if name in self._tables), None)

    def begin_turn(self) -> None:
        self._took_part = self.active.copy()
        for _, table, now in self._read():
            table.start, table.early = now, []
        self.game.begin_turn()
        for _, table, now in self._read():
            table.begun = now

    def observe(self, agent: int, out: Array) -> None:
        self.game.observe(agent, out)
        for _, table, now in self._read():
            early = now[:, agent] - table.begun[:, agent]
            for copy in np.flatnonzero(self.active[:, agent] & (early != 0.0)):
                table.early.append((agent, int(copy), float(early[copy])))

    def end_turn(self) -> TurnResult:
        for _, table, now in self._read():
            table.last = now
        result = self.game.end_turn()
        rewards = result.rewards[self._took_part]
        self._least = min(self._least, rewards.min(initial=np.inf))
        self._most = max(self._most, rewards.max(initial=-np.inf))
        for name, table, now in self._read():
            table.ended(now, result.rewards)
            if not table.fits:
                del self._tables[name]
                continue
            for agent, copy, value in table.early:
                if result.rewards[copy, agent]:
                    self._found.setdefault(name, Early(agent, copy, self._turn, value, name))
        self._turn += 1
        return result

    def _read(self) -> Iterator[tuple[str, _Table, Array]]:
        for name, table in list(self._tables.items()):
            now = table.read(self.active.shape)
            if now is None:
                del self._tables[name]
            else:
                yield name, table, now


def _table_of(value: Any, shape: tuple[int, int]) -> Array | None:
    """Return a copy of a table as [num_envs, num_agents] float64; None if it is not a table."""
    if isinstance(value, list) and value and isinstance(value[0], list | np.ndarray):
        try:
            value = np.array(value)
        except ValueError:  # lists of unequal lengths
            return None
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iuf":
        return None
    if value.shape not in (shape, shape[::-1]):
        return None
    found: Array = np.array(value if value.shape == shape else value.T, np.float64)
    return found


def _walk(
    holder: Any, shape: tuple[int, int], path: str, depth: int, seen: set[int]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, holder and key of every table that a mapping or list holds."""
    if depth == 0 or id(holder) in seen:
        return
    seen.add(id(holder))
    for key, value in holder.items() if isinstance(holder, Mapping) else enumerate(holder):
        name = f"{path}.{key}" if path else str(key)
        if _table_of(value, shape) is not None:
            yield name, holder, key
        elif isinstance(value, Mapping | list):
            yield from _walk(value, shape, name, depth - 1, seen)
        elif hasattr(value, "__dict__") and not isinstance(value, type):
            yield from _walk(vars(value), shape, name, depth - 1, seen)
