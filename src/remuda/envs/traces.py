"""Play games and record traces, so that two traces can be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from remuda.envs.recorded import Wrapped
from remuda.envs.scripted import (
    allows_something,
    at_random,
    masks_of,
    possibilities,
    room_for,
    sample_actions,
)
from remuda.envs.vector_env import VectorEnv
from remuda.errors import ContractError
from remuda.types import Array, Bools, Integers, TurnResult

TURNS = 130  # turns of each check; most games end an episode within them
DEPTH = 4
"""Levels of nested attributes that are searched for tables of rewards."""


@dataclass
class Turn:
    """A record of a turn, with copies of all arrays."""

    began: Bools  # agents active at some time in the turn
    observations: list[Array]
    so_far: Array
    """Rewards in the turn before each agent observed; zeros if the game has no `rewards_so_far`."""
    result: TurnResult
    active: Bools  # after the turn

    @property
    def over(self) -> Bools:
        """Return the copies in which no agent is active after the turn: [num_envs]."""
        over: Bools = ~np.any(self.active, axis=1)
        return over

    def arrays(self) -> tuple[Array, ...]:
        """Return all that is the same in turns that are equal."""
        result = self.result
        ends = result.terminated, result.truncated, self.active
        return *self.observations, self.so_far, result.rewards, *ends


class Trace(list[Turn]):
    """A record of consecutive turns."""

    def same_as(self, other: Trace, env: int = 0, other_env: int = 0) -> bool:
        """Return whether a copy here and a copy of `other` have equal records."""
        return all(
            np.array_equal(own[env], others[other_env])
            for turn, others_turn in zip(self, other, strict=True)
            for own, others in zip(turn.arrays(), others_turn.arrays(), strict=True)
        )


def play(env: VectorEnv, seed: int, **how: Any) -> Trace:
    """Play `TURNS` turns of new episodes by `play_turns`, and close the environment."""
    env.reset(seeds_of(env.num_envs, seed), np.ones(env.num_envs, np.bool_))
    trace = play_turns(env, TURNS, seed=seed, **how)
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
    """Play turns with random actions, and call `meanwhile` before each.

    The first copy's actions depend on the seed alone, those of the others also on `others`.
    """
    trace = Trace()
    rngs = [np.random.default_rng([seed, e, others if e else 0]) for e in range(env.num_envs)]
    active, so_far = env.active, env.rewards_so_far
    if so_far is not None:
        require_form(so_far, active.shape, np.float32, "14. `rewards_so_far` is")
    for _ in range(count):
        meanwhile()
        is_empty = ~np.any(active, axis=1)
        began = active.copy()
        env.begin_turn()
        observations = [np.empty((env.num_envs, 0))] * env.num_agents
        early: Array = np.zeros(active.shape, np.float32)
        for group in env.turn_groups:
            began |= env.active
            acts = env.active[:, group].copy()
            for agent in group:
                observations[agent] = look(env, agent)
                if env.rewards_so_far is not None:
                    early[:, agent] = env.rewards_so_far[:, agent]
            actions = [draw_actions(env, agent, rngs) for agent in group]
            for i, agent in enumerate(group):
                if inactive_action is not None:
                    actions[i][~acts[:, i]] = inactive_action
                env.act(agent, actions[i])
                if spoil_actions:
                    actions[i].view(np.uint8)[...] = 0x5A
        result = env.end_turn()
        require(
            env.active is active,
            "`active` is always the same array, which reset, act and end_turn update",
        )
        metrics = {name: np.array(values) for name, values in result.info.items()}
        ends = result.terminated.copy(), result.truncated.copy()
        copied = TurnResult(result.rewards.copy(), *ends, metrics)
        trace.append(Turn(began, observations, early, copied, active.copy()))
        over = trace[-1].over
        require(
            not (is_empty & ~over).any(),
            "3. an episode in which no agent is active after `reset` ends with its first turn",
        )
        if over.any():  # only finished copies draw seeds, so that copies stay independent
            seeds = [rng.integers(2**62) if over[e] else -1 for e, rng in enumerate(rngs)]
            env.reset(np.array(seeds), over)
    return trace


def draw_actions(env: VectorEnv, agent: int, rngs: list[np.random.Generator]) -> Array:
    """Draw an allowed action for every copy, each from the copy's generator."""
    space, masks = env.agents[agent].action_space, masks_of(env, agent)
    return np.concatenate(
        [
            sample_actions(space, 1, rng, None if masks is None else masks[e : e + 1])
            for e, rng in enumerate(rngs)
        ]
    )


def check_masks(env: VectorEnv, agent: int, observations: Array, rng: np.random.Generator) -> Array:
    """Check an agent's masks, and act at random (a scripted policy)."""
    spec = env.agents[agent]
    if spec.masked:
        masks = look_at_masks(env, agent)
        require(
            bool(allows_something(spec, masks)[env.active[:, agent]].all()),
            f"10. {spec.name} always has an allowed action where it is active",
        )
    return at_random(env, agent, observations, rng)


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
    out = room_for(env, agent)
    env.observe(agent, out)
    return out


def seeds_of(num_envs: int, seed: int) -> Integers:
    """Return a seed for each copy, distinct for distinct `seed`."""
    return np.arange(num_envs, dtype=np.int64) + 1000 * seed


def require(holds: bool | np.bool_, guarantee: str) -> None:
    """Raise a ContractError unless a guarantee holds."""
    if not holds:
        raise ContractError(f"the environment breaks its contract: {guarantee}")


def require_form(array: Array, shape: tuple[int, ...], dtype: npt.DTypeLike, name: str) -> None:
    """Require the shape and dtype of an array."""
    dtype = np.dtype(dtype)
    fits = array.shape == shape and array.dtype == dtype
    require(fits, f"{name} {shape} {dtype}, not {array.shape} {array.dtype}")


class Early(NamedTuple):
    """A reward that came in a turn before its agent acted."""

    agent: int
    copy: int
    turn: int
    value: float
    table: str  # the name of the attribute that holds it


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
        # The ways in which each table has matched the rewards of every turn so far.
        self._ways = {name: set(range(4)) for name in self._read()}
        self._early: dict[str, Early] = {}  # the first early reward of each table
        self._bounds = np.inf, -np.inf  # of active agents' rewards

    @property
    def found(self) -> Early | None:
        """Return an early reward; None also if all are equal, as a table may count turns."""
        if self._bounds[0] >= self._bounds[1]:
            return None
        return next((self._early[name] for name in self._early if name in self._ways), None)

    def begin_turn(self) -> None:
        self._took_part = self.active.copy()
        self._start = self._read()
        self.game.begin_turn()
        self._begun = self._read()
        self._looks: list[tuple[int, Bools, dict[str, Array]]] = []

    def observe(self, agent: int, out: Array) -> None:
        self.game.observe(agent, out)
        self._looks.append((agent, self.active[:, agent].copy(), self._read()))

    def end_turn(self) -> TurnResult:
        last = self._read()
        result = self.game.end_turn()
        end, rewards = self._read(), result.rewards
        acting = rewards[self._took_part]
        low, high = self._bounds
        self._bounds = acting.min(initial=low), acting.max(initial=high)
        looks = [self._start, self._begun, last, end, *(now for *_, now in self._looks)]
        for name, ways in list(self._ways.items()):
            if all(name in look for look in looks):
                start = self._start[name]
                found = end[name], last[name], end[name] - start, last[name] - start
                ways &= {way for way, each in enumerate(found) if np.allclose(each, rewards)}
            else:
                ways.clear()
            if not ways:
                del self._ways[name]
                continue
            for agent, acts, now in self._looks:
                early = now[name][:, agent] - self._begun[name][:, agent]
                for copy in np.flatnonzero(acts & (early != 0.0) & (rewards[:, agent] != 0.0)):
                    value = float(early[copy])
                    self._early.setdefault(name, Early(agent, int(copy), self._turn, value, name))
        self._turn += 1
        return result

    def _read(self) -> dict[str, Array]:
        """Return a copy of every table by its name."""
        return dict(_tables(vars(self.game), self.active.shape, "", DEPTH, set()))


def _table_of(value: Any, shape: tuple[int, ...]) -> Array | None:
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
    table: Array = np.array(value if value.shape == shape else value.T, np.float64)
    return table


def _tables(
    holder: Any, shape: tuple[int, ...], path: str, depth: int, visited: set[int]
) -> Iterator[tuple[str, Array]]:
    """Yield the name and a copy of every table that a mapping or list holds."""
    if depth == 0 or id(holder) in visited:
        return
    visited.add(id(holder))
    for key, value in holder.items() if isinstance(holder, Mapping) else enumerate(holder):
        name = f"{path}.{key}" if path else str(key)
        if (table := _table_of(value, shape)) is not None:
            yield name, table
        elif isinstance(value, Mapping | list):
            yield from _tables(value, shape, name, depth - 1, visited)
        elif hasattr(value, "__dict__") and not isinstance(value, type):
            yield from _tables(vars(value), shape, name, depth - 1, visited)
