"""What came of play that measures policies, and how far it may go."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda.analysis.returns import known, mean_of, standard_error

Returns = Any
"""[episodes, agents] of float64: made from a plain array with NaN, read as a masked array."""


@dataclass(frozen=True)
class Evaluation:
    """Returns of play that measures policies."""

    agents: tuple[str, ...]
    returns: Returns
    """[episodes, num_agents]: the undiscounted return of each agent in each episode.

    A masked array. An entry is masked, and NaN below the mask, where the agent made no decision in
    that episode and so has no return; `returns.mean(0)` is over the episodes in which each agent
    acted. Episodes in which no agent acted, since they were over when they began, are left out.
    """
    facts: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    """By name, what the game told of each episode: [episodes]."""
    policies: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    """By policy, its return on each seat on which it took part, where seats are dealt: [seats]."""
    asked: int = 0
    """Episodes that were to be played."""
    cut: str = ""
    """Why there are fewer: `the time was up` or `interrupted`; empty: there are not."""
    histories: tuple[tuple[int, ...], ...] = ()
    """Of each episode all moves, those of chance too, as the game's library numbers them; empty
    where it knows no such thing (OpenSpiel does)."""
    sampled: bool = False
    """Whether policies explored as at the end of training; else they took their best actions."""

    def __post_init__(self) -> None:
        values = np.asarray(self.returns, np.float64)
        masked: Returns = np.ma.MaskedArray(values, np.isnan(values))
        object.__setattr__(self, "returns", masked)

    @property
    def filled_returns(self) -> npt.NDArray[np.float64]:
        """`returns` as a plain array, with NaN where an agent took no part."""
        return np.ma.getdata(self.returns)

    @property
    def way(self) -> str:
        """How policies played, as of `way_of`."""
        return WAYS[self.sampled]

    @property
    def constant_sum(self) -> bool:
        """Whether all agents together earned the same in every episode.

        False where fewer than two ever took part.
        """
        if self._took_part.any(0).sum() < 2:
            return False
        return bool(np.nansum(self.filled_returns, axis=1).std() <= 1e-5 * self.largest_return)

    @property
    def same_returns(self) -> bool:
        """Whether every episode brought the same: a constant sum may then be a shared success."""
        spreads = [known(column).std() for column in self.filled_returns.T if len(known(column))]
        return bool(max(spreads, default=0.0) <= 1e-3 * self.largest_return)

    @property
    def largest_return(self) -> float:
        """The largest return of an agent in an episode, whatever its sign; 0: there is none."""
        return float(np.abs(known(self.filled_returns)).max(initial=0.0))

    @property
    def _took_part(self) -> npt.NDArray[np.bool_]:
        there: npt.NDArray[np.bool_] = ~np.isnan(self.filled_returns)
        return there

    def episodes(self, agent: int) -> int:
        """In how many episodes an agent took part."""
        return int(self._took_part[:, agent].sum())

    def mean(self, agent: int) -> float:
        """Mean return of one agent, over the episodes in which it took part; NaN: in none."""
        return mean_of(self.filled_returns[:, agent])

    def standard_error(self, agent: int) -> float:
        """Standard error of that mean; NaN where it took part in fewer than two episodes."""
        return standard_error(self.filled_returns[:, agent])

    def metric(self, name: str) -> npt.NDArray[np.float64]:
        """One of `facts`, in the episodes that have it: [N]."""
        values = self.facts[name]
        return values[np.isfinite(values)]

    def as_summary(self) -> dict[str, object]:
        """Plain data for the run's summary; None where a number is not known: JSON has no NaN.

        Each mean comes with the number of `episodes` that it is of (of `policies`: of seats in
        them); an agent with 0 took no part.
        """
        return {
            "episodes": len(self.returns),
            "asked": self.asked,
            "cut": self.cut,
            "sampled": self.sampled,
            "agents": {
                name: _summary_of(self.filled_returns[:, i]) for i, name in enumerate(self.agents)
            },
            "facts": {name: _summary_of(self.metric(name)) for name in self.facts},
            "policies": {name: _summary_of(earned) for name, earned in self.policies.items()},
        }


def _summary_of(values: npt.NDArray[np.float64]) -> dict[str, float | None]:
    found = {"mean": mean_of(values), "standard_error": standard_error(values)}
    numbers = {name: value if math.isfinite(value) else None for name, value in found.items()}
    return {**numbers, "episodes": len(known(values))}


def way_of(summary: Mapping[str, Any] | None) -> str:
    """How policies played: `greedy` or `sampled`, in one word.

    Args:
        summary: as of `Evaluation.as_summary`; older ones do not say, and are of greedy play, as
            what was not measured is taken to be.
    """
    return WAYS[bool((summary or {}).get("sampled"))]


WAYS = ("greedy", "sampled")
"""How policies play that are measured: they take their best actions, or explore."""


def _never() -> bool:
    return False


def _unwatched(done: int, wanted: int) -> None:  # noqa: ARG001
    return None


@dataclass(frozen=True)
class Limits:
    """How far play that measures policies goes, and who sees it."""

    seconds: float | None = None
    """After which it ends, between two turns; 0: before the first; None: as long as it takes."""
    interrupted: Callable[[], bool] = _never
    """Whether it is to end now; asked between two turns."""
    watch: Callable[[int, int], None] = _unwatched
    """Called after each turn with the episodes that are over, and those that are wanted."""

    def reached(self, gone: float) -> bool:
        """Whether it is to end now that so many seconds are gone."""
        return self.interrupted() or (self.seconds is not None and gone >= self.seconds)

    def part(self, index: int, count: int, gone: float = 0.0) -> Limits:
        """Of one of `count` equal parts, played one after another, with so many seconds gone."""

        def watch(done: int, wanted: int) -> None:
            self.watch(index * wanted + done, count * wanted)

        left = None if self.seconds is None else max(self.seconds - gone, 0.0)
        return replace(self, seconds=left, watch=watch)
