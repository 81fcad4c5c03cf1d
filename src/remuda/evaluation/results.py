"""Results of an evaluation, and its limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda.analysis.payoffs.returns import known, mean_of, standard_error
from remuda.errors import UsageError
from remuda.system.short_table import ShortTable, Summarised, short

Returns = Any
"""[episodes, agents] float64: passed as a plain array with NaN, and read as a masked array."""


@dataclass(frozen=True, repr=False)
class Evaluation(Summarised):
    """Returns of evaluated policies."""

    agents: tuple[str, ...]
    returns: Returns
    """[episodes, num_agents]: the undiscounted return of each agent in each episode.

    A masked array. An entry is masked, and NaN in `filled_returns`, if the agent never acted in
    that episode and so has no return; `returns.mean(0)` is over the episodes in which each agent
    acted. Episodes that ended before any agent acted are left out.
    """
    episode_metrics: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    """Named metrics of each episode: [episodes]."""
    policies: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    """Returns of each policy of a population, one for each seat that it played: [seats]."""
    asked: int = 0
    """The number of requested episodes."""
    cut: str = ""
    """Reason for missing episodes: `the time was up` or `interrupted`; empty: none is missing."""
    histories: tuple[tuple[int, ...], ...] = ()
    """All moves of each episode, chance included, as numbered by the game's library; empty if the
    environment does not record them (OpenSpiel does)."""
    sampled: bool = False
    """True: policies explored as at the end of training; False: they chose their best actions."""

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
        """`greedy` or `sampled`."""
        return WAYS[self.sampled]

    @property
    def constant_sum(self) -> bool:
        """True if two or more agents' returns had the same sum in every episode."""
        if self._took_part.any(0).sum() < 2:
            return False
        return bool(np.nansum(self.filled_returns, axis=1).std() <= 1e-5 * self.largest_return)

    @property
    def same_returns(self) -> bool:
        """True if all episodes had equal returns; then a constant sum may be a shared success."""
        spreads = [known(column).std() for column in self.filled_returns.T if len(known(column))]
        return bool(max(spreads, default=0.0) <= 1e-3 * self.largest_return)

    @property
    def largest_return(self) -> float:
        """The largest absolute return of an agent in an episode; 0 if there is none."""
        return float(np.abs(known(self.filled_returns)).max(initial=0.0))

    @property
    def _took_part(self) -> npt.NDArray[np.bool_]:
        took_part: npt.NDArray[np.bool_] = ~np.isnan(self.filled_returns)
        return took_part

    def returns_of(self, name: int | str) -> npt.NDArray[np.float64]:
        """Return the returns of an agent, by its name or index, or of a policy in `policies`.

        NaN: the agent took no part in that episode. Raises UsageError for an unknown name.
        """
        if isinstance(name, str):
            if name in self.agents:
                return self.filled_returns[:, self.agents.index(name)]
            if name in self.policies:
                return self.policies[name]
        elif name in range(-len(self.agents), len(self.agents)):
            return self.filled_returns[:, int(name)]
        names = ", ".join(dict.fromkeys((*self.agents, *self.policies)))
        raise UsageError(f"there is no agent or policy {name!r} in this evaluation; it has {names}")

    def episodes(self, agent: int | str) -> int:
        """Return the number of episodes in which an agent took part (of a policy: of seats)."""
        return len(known(self.returns_of(agent)))

    def mean(self, agent: int | str) -> float:
        """Return the mean return of an agent (its name or index) or a policy; NaN if it has none.

        The mean is over the episodes in which the agent took part, or the seats that the policy
        played.
        """
        return mean_of(self.returns_of(agent))

    def standard_error(self, agent: int | str) -> float:
        """Return the standard error of `mean`; NaN for fewer than two episodes."""
        return standard_error(self.returns_of(agent))

    def metric(self, name: str) -> npt.NDArray[np.float64]:
        """Return one of `episode_metrics`, in the episodes that have it: [N]."""
        values = self.episode_metrics[name]
        return values[np.isfinite(values)]

    def short_table(self) -> ShortTable:
        """Return the mean return of each agent and policy, with its standard error."""
        columns = [*zip(self.agents, self.filled_returns.T, strict=True), *self.policies.items()]
        rows = [
            (name, short(mean_of(values)), short(standard_error(values)), f"{len(known(values)):,}")
            for name, values in columns
        ]
        cut = f", of {self.asked:,} requested: {self.cut}" if self.cut else ""
        title = f"Evaluation: {len(self.returns):,} episodes, {self.way}{cut}"
        return ShortTable(title, ("agent", "mean return", "standard error", "episodes"), rows)

    def as_summary(self) -> dict[str, object]:
        """Return plain data for the run's summary; unknown numbers are None, since JSON has no NaN.

        Each mean comes with its number of `episodes`, or of seats for `policies`. An agent with 0
        took no part.
        """
        return {
            "episodes": len(self.returns),
            "asked": self.asked,
            "cut": self.cut,
            "sampled": self.sampled,
            "agents": {
                name: _summary_of(self.filled_returns[:, i]) for i, name in enumerate(self.agents)
            },
            "episode_metrics": {
                name: _summary_of(self.metric(name)) for name in self.episode_metrics
            },
            "policies": {name: _summary_of(values) for name, values in self.policies.items()},
        }


def _summary_of(values: npt.NDArray[np.float64]) -> dict[str, float | None]:
    found = {"mean": mean_of(values), "standard_error": standard_error(values)}
    numbers = {name: value if math.isfinite(value) else None for name, value in found.items()}
    return {**numbers, "episodes": len(known(values))}


def way_of(summary: Mapping[str, Any] | None) -> str:
    """Return `greedy` or `sampled` for an `Evaluation.as_summary`; None: greedy."""
    return WAYS[bool((summary or {}).get("sampled"))]


WAYS = ("greedy", "sampled")
"""Ways to evaluate policies: by their best actions, or with exploration."""


@dataclass(frozen=True)
class Limits:
    """Time limit, interruption and progress of an evaluation."""

    seconds: float | None = None
    """Time limit, checked between turns; 0: end before the first turn; None: no limit."""
    interrupted: Callable[[], bool] = lambda: False  # returns True to end now; called between turns
    watch: Callable[[int, int], None] = lambda done, wanted: None  # noqa: ARG005
    """Called after each turn with finished and wanted episodes."""

    def cut(self, elapsed: float) -> str:
        """Return the reason to end now, after `elapsed` seconds; empty: there is none."""
        if self.interrupted():
            return "interrupted"
        return "" if self.seconds is None or elapsed < self.seconds else "the time was up"

    def part(self, index: int, count: int, elapsed: float = 0.0) -> Limits:
        """Return the limits of part `index` of `count` equal parts, after `elapsed` seconds."""

        def watch(done: int, wanted: int) -> None:
            self.watch(index * wanted + done, count * wanted)

        remaining = None if self.seconds is None else max(self.seconds - elapsed, 0.0)
        return replace(self, seconds=remaining, watch=watch)
