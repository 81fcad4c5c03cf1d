"""The columns of the live table of policies, and a choice of those that fit into a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from remuda.coordinator.metrics import MemberRecord, PolicyRecord
from remuda.ui.courses import Course
from remuda.ui.numbers import NOTHING, number, percent, rate


@dataclass(frozen=True)
class LiveColumn:
    """A column of the table of policies."""

    heading: str
    width: int
    cell: Callable[[Course, PolicyRecord], str]
    rank: int
    """Columns of the highest rank go first when the terminal is narrow."""
    style: str = ""


SPARKLINE = (10, 24)
"""Its smallest and its largest width."""


GAP = 2


def columns_with(
    sparkline_width: int, on_policy: bool = False, dealt: bool = False
) -> tuple[LiveColumn, ...]:
    """Return all columns beside the policies' names."""

    def course(c: Course, _: PolicyRecord) -> str:
        return sparkline(c.history.resample(sparkline_width))

    explores: tuple[LiveColumn, ...] = (
        LiveColumn("epsilon", 7, lambda _, p: f"{p.epsilon:.2f}", 6),
    )
    if on_policy:
        explores = (
            LiveColumn("policy loss", 11, lambda c, _: number(c.policy_loss.value), 5),
            LiveColumn("value loss", 10, lambda c, _: number(c.value_loss.value), 6),
            LiveColumn("entropy", 7, lambda _, p: number(p.entropy), 7),
        )
    standing = (
        LiveColumn("rating", 10, lambda c, _: rating(c.member), 1),
        LiveColumn("wins", 4, lambda c, _: percent(c.member.win_rate if c.member else None), 4),
        LiveColumn("games", 9, lambda c, _: f"{c.member.games:,}" if c.member else NOTHING, 6),
    )
    return (
        LiveColumn("return", 8, lambda c, _: tenths(c.returns.value), 0, "bold"),
        LiveColumn("", sparkline_width, course, 1, "green"),
        *(standing if dealt else ()),
        LiveColumn("loss", 7, lambda c, _: number(c.loss.value), 2),
        LiveColumn("updates/s", 9, lambda c, _: rate(c.updates_per_second.value), 2),
        LiveColumn("busy", 4, lambda c, _: percent(c.busy.value), 3),
        LiveColumn("stale", 11, lag, 4),
        # On-policy it is the number of epochs, unless steps are lost.
        LiveColumn("ratio", 5, lambda _, p: number(p.replay_ratio), 9 if on_policy else 5),
        *explores,
        LiveColumn("version", 7, lambda _, p: f"{p.version:,}", 8),
        LiveColumn("replay", 6, lambda _, p: percent(p.replay_fill), 10),
    )


def fitting(width: int, on_policy: bool = False, dealt: bool = False) -> list[LiveColumn]:
    """Return the most important columns that fit into `width` beside the names.

    The sparkline gets the rest of the width.
    """
    narrowest, widest = SPARKLINE
    columns = list(columns_with(narrowest, on_policy, dealt))
    while len(columns) > 1 and _width(columns) > width:
        columns.remove(max(columns, key=lambda column: column.rank))
    spare = max(width - _width(columns), 0)
    kept = {column.heading for column in columns}
    grown = columns_with(min(narrowest + spare, widest), on_policy, dealt)
    return [column for column in grown if column.heading in kept]


def _width(columns: Sequence[LiveColumn]) -> int:
    return sum(GAP + column.width for column in columns)


def rating(member: MemberRecord | None) -> str:
    """Return a rating and its uncertainty."""
    return NOTHING if member is None else f"{member.rating:.1f} ±{member.uncertainty:.1f}"


def lag(course: Course, policy: PolicyRecord) -> str:
    """Return the mean staleness of a batch, and its range."""
    low, high = policy.staleness_low, policy.staleness_high
    if low is None or high is None:
        return tenths(course.staleness.value)
    return f"{tenths(course.staleness.value)} ({low:.0f}-{high:.0f})"


def tenths(value: float | None) -> str:
    """Return a number without the digits that flicker in a live view."""
    coarse = value is not None and 1 <= abs(value) < 1000
    return f"{value:.1f}" if coarse else number(value)


def sparkline(values: Sequence[float]) -> str:
    """Return a line of small bars, from the smallest to the largest value."""
    if not values:
        return ""
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(abs(low), abs(high), 1.0):
        return "▄" * len(values)
    return "".join("▁▂▃▄▅▆▇█"[min(int(8 * (x - low) / (high - low)), 7)] for x in values)
