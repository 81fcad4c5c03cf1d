"""Which policies cannot be bettered in one objective without losing in another: a named front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from remuda.analysis.bias import Estimate
from remuda.analysis.pareto import UncertainFront, uncertain_front, uncertain_hypervolume
from remuda.analysis.payoff import Numbers
from remuda.analysis.plain import figures, plain
from remuda.analysis.welfare import Measure
from remuda.errors import UsageError

Table = Mapping[str, Mapping[str, Measure]]
"""By name of a point, what is known of it, by metric."""


@dataclass(frozen=True)
class Objective:
    """A metric, and whether more of it is better."""

    metric: str
    maximise: bool

    @staticmethod
    def parse(text: str) -> Objective:
        """From `METRIC:max` or `METRIC:min`.

        Raises:
            UsageError: it is neither.
        """
        metric, _, which = text.rpartition(":")
        if not metric or which not in ("max", "min"):
            raise UsageError(
                f"--pareto: {text!r} is no objective; give METRIC:max or METRIC:min, several with "
                "commas between them, as in return:max,episode_length:min"
            )
        return Objective(metric, which == "max")

    def __str__(self) -> str:
        return f"{self.metric} ({'max' if self.maximise else 'min'})"


@dataclass(frozen=True)
class TradeOff:
    """Points by several objectives, and which of them are on the front.

    Attributes:
        names: of the points.
        objectives: what is wanted.
        points: [P, D] their means.
        errors: [P, D] standard errors of these; 0 where none is known.
        front: how probable it is that each is on the front.
        hypervolume: what the points dominate up to the reference; None: there is none.
        left_out: names of points of which an objective is not known.
    """

    names: tuple[str, ...]
    objectives: tuple[Objective, ...]
    points: Numbers = field(repr=False)
    errors: Numbers = field(repr=False)
    front: UncertainFront
    hypervolume: Estimate | None
    left_out: tuple[str, ...]

    @property
    def on_front(self) -> tuple[str, ...]:
        """Those that no other point dominates, by the means."""
        return tuple(
            name for name, rank in zip(self.names, self.front.ranks, strict=True) if rank == 0
        )

    def as_summary(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "objectives": [str(each) for each in self.objectives],
            "names": list(self.names),
            "points": plain(self.points),
            "standard_errors": plain(self.errors),
            "front": self.front.as_summary(),
            "on_front": list(self.on_front),
            "hypervolume": None if self.hypervolume is None else self.hypervolume.as_summary(),
            "left_out": list(self.left_out),
        }

    def in_words(self) -> str:
        """One sentence."""
        chances = dict(zip(self.names, self.front.probabilities, strict=True))
        members = ", ".join(f"{name} ({chances[name]:.0%} of draws)" for name in self.on_front)
        told = (
            f"Of {len(self.names)} {len(self.on_front)} cannot be bettered in all of "
            f"{', '.join(map(str, self.objectives))}: {members}"
        )
        if self.hypervolume is not None:
            low, high = self.hypervolume.interval
            told += f"; hypervolume {figures(self.hypervolume.corrected)}"
            told += f" ({figures(low)} to {figures(high)})"
        if self.left_out:
            told += f"; left out, since not measured: {', '.join(self.left_out[:5])}"
        return told + "."


def trade_off(
    tables: Sequence[Table],
    objectives: Sequence[Objective],
    rng: np.random.Generator,
    reference: Sequence[float] = (),
) -> TradeOff:
    """Find the points that are on the front.

    Args:
        tables: kinds of points, such as policies, and runs; the first that knows all of the
            objectives is taken.
        objectives: two or more.
        rng: for the draws.
        reference: [D] a point that is worse than all that matter; empty: no hypervolume.

    Raises:
        UsageError: an objective is not known, there are fewer than two, or the reference does not
            fit.
    """
    if len(objectives) < 2:
        raise UsageError("--pareto: two objectives are needed, or more")
    wanted = {each.metric for each in objectives}
    for table in tables:
        known = {metric for row in table.values() for metric in row}
        if wanted <= known:
            return _of_table(table, objectives, rng, reference)
    every = sorted({metric for table in tables for row in table.values() for metric in row})
    unknown = sorted(wanted - set(every))
    if not unknown:
        raise UsageError(
            f"--pareto: {', '.join(sorted(wanted))} are not all of policies, nor all of runs"
        )
    raise UsageError(f"--pareto: there is no metric {unknown[0]}; there are {', '.join(every)}")


def _of_table(
    table: Table,
    objectives: Sequence[Objective],
    rng: np.random.Generator,
    reference: Sequence[float],
) -> TradeOff:
    nothing = Measure(np.nan, np.nan, np.nan, 0)
    rows = {
        name: [row.get(each.metric, nothing) for each in objectives] for name, row in table.items()
    }
    kept = {name: row for name, row in rows.items() if np.isfinite([m.value for m in row]).all()}
    if not kept:
        raise UsageError("--pareto: no policy has all of the objectives")
    points = np.array([[each.value for each in row] for row in kept.values()])
    errors = np.nan_to_num(np.array([[each.error for each in row] for row in kept.values()]))
    signs = [each.maximise for each in objectives]
    volume = None
    if len(reference):
        volume = uncertain_hypervolume(points, errors, reference, rng, maximise=signs)
    return TradeOff(
        tuple(kept),
        tuple(objectives),
        points,
        errors,
        uncertain_front(points, errors, rng, maximise=signs),
        volume,
        tuple(name for name in rows if name not in kept),
    )
