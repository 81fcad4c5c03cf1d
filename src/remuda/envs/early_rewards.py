"""Find rewards that a game gives while a turn is under way, in the numbers that it keeps.

`end_turn` returns each agent's rewards of a turn, not when they came. A game that gives rewards
while agents act adds them up somewhere: in a *table*, an array or nested lists with a number for
each copy and agent, which `end_turn` returns, or which grows by that. Tables are read before each
act.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from remuda.envs.vector_env import VectorEnv
from remuda.types import Array, Floats

DEPTH = 4
"""The depth of attributes, from the environment on, in which tables are searched."""


@dataclass(frozen=True)
class Early:
    """A reward that was given in a turn before its agent acted."""

    agent: int
    copy: int
    turn: int
    value: float
    table: str
    """The name of the attribute that holds it."""


class _Table:
    """Numbers by copy and agent that may be the rewards of a turn."""

    def __init__(self, holder: Any, key: Any) -> None:
        self._holder, self._key = holder, key
        self.start = self.begun = self.last = np.zeros(0)
        """[num_envs, num_agents]: before the turn, after `begin_turn`, and after the last act."""
        self.fits = {"is", "was", "grew", "had grown"}
        """The ways in which the rewards of every turn so far were found here."""
        self.early: list[tuple[int, int, float]] = []
        """Agent, copy and value of entries of this turn before the agent acted."""

    def read(self, shape: tuple[int, int]) -> Array | None:
        """Return a copy of its numbers; None: it is gone."""
        try:
            return numbers(self._holder[self._key], shape)
        except (LookupError, TypeError):
            return None

    def ended(self, now: Array, rewards: Floats) -> None:
        """Keep the ways in which these rewards are found here."""
        ways = {
            "is": now,
            "was": self.last,
            "grew": now - self.start,
            "had grown": self.last - self.start,
        }
        self.fits &= {way for way, found in ways.items() if np.allclose(found, rewards)}


class EarlyRewards:
    """A watch over an environment that is played.

    Call in each turn: `begin`, `begun`, `observed` for each agent, `acted`, `ended`.
    """

    def __init__(self, env: VectorEnv) -> None:
        """Watch an environment that has been played for a turn, so that its tables exist."""
        self._env, self._turn = env, 0
        self._shape = (env.num_envs, env.num_agents)
        self._tables = {
            name: _Table(holder, key)
            for name, holder, key in _walk(vars(env), self._shape, "", DEPTH, set())
        }
        self._found: dict[str, Early] = {}
        """The first early reward of each table."""
        self._active = np.ones(self._shape, np.bool_)
        """Agents that took part in this turn."""
        self._least, self._most = np.inf, -np.inf
        """Bounds of the rewards of agents that took part in a turn."""

    @property
    def found(self) -> Early | None:
        """Return an early reward; None: none was found.

        If all rewards are the same, a clock or a count of turns may equal them too.
        """
        if self._least >= self._most:
            return None
        return next((early for name, early in self._found.items() if name in self._tables), None)

    def begin(self) -> None:
        """Note the start of a turn, before `begin_turn`."""
        self._active = self._env.active.copy()
        for _, table, now in self._read():
            table.start, table.early = now, []

    def begun(self) -> None:
        """Note the state after `begin_turn`."""
        for _, table, now in self._read():
            table.begun = now

    def observed(self, agent: int) -> None:
        """Note the state before an agent acts."""
        acts = self._env.active[:, agent]
        for _, table, now in self._read():
            given = now[:, agent] - table.begun[:, agent]
            for copy in np.flatnonzero(acts & (given != 0.0)):
                table.early.append((agent, int(copy), float(given[copy])))

    def acted(self) -> None:
        """Note the state before `end_turn`."""
        for _, table, now in self._read():
            table.last = now

    def ended(self, rewards: Floats) -> None:
        """Note the rewards of `end_turn`."""
        given = rewards[self._active]
        self._least = min(self._least, given.min(initial=np.inf))
        self._most = max(self._most, given.max(initial=-np.inf))
        for name, table, now in self._read():
            table.ended(now, rewards)
            if not table.fits:
                del self._tables[name]
                continue
            for agent, copy, value in table.early:
                if rewards[copy, agent]:
                    early = Early(agent, copy, self._turn, value, name)
                    self._found.setdefault(name, early)
        self._turn += 1

    def _read(self) -> Iterator[tuple[str, _Table, Array]]:
        for name, table in list(self._tables.items()):
            now = table.read(self._shape)
            if now is None:
                del self._tables[name]
            else:
                yield name, table, now


def numbers(value: Any, shape: tuple[int, int]) -> Array | None:
    """Return a copy of a table as [num_envs, num_agents] float64; None: it is no table."""
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
        if numbers(value, shape) is not None:
            yield name, holder, key
        elif isinstance(value, Mapping | list):
            yield from _walk(value, shape, name, depth - 1, seen)
        elif hasattr(value, "__dict__") and not isinstance(value, type):
            yield from _walk(vars(value), shape, name, depth - 1, seen)
