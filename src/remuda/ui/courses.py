"""Smoothed numbers of a run, and their history in few points, for the live view."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from remuda.coordinator.metrics import MemberRecord, PolicyRecord

MEMORY = 3.0
"""Seconds over which numbers are averaged, so that a reader can follow them."""


class Recent:
    """An exponential moving average; None until there is a value."""

    def __init__(self) -> None:
        self._sum = self._weight = 0.0

    def add(self, value: float | None, weight: float, seconds: float) -> None:
        """Add a value; None changes nothing."""
        if value is None or weight <= 0 or not math.isfinite(value):
            return
        kept = math.exp(-seconds / MEMORY)
        self._sum = kept * self._sum + weight * value
        self._weight = kept * self._weight + weight

    @property
    def value(self) -> float | None:
        """The average."""
        return self._sum / self._weight if self._weight else None


class History:
    """The history of a number since the start; at 48 points neighbours are merged in pairs."""

    POINTS = 48
    SECONDS = 0.5
    """Seconds that each of the first points covers."""

    def __init__(self) -> None:
        self._points: list[tuple[float, float]] = []
        self._seconds = self.SECONDS
        self._sum = self._weight = self._age = 0.0

    def add(self, value: float | None, weight: float, seconds: float) -> None:
        """Add a value with its weight, and the seconds that it covers."""
        if value is not None and weight > 0 and math.isfinite(value):
            self._sum += value * weight
            self._weight += weight
        self._age += seconds
        if self._age < self._seconds or not self._weight:
            return
        self._points.append((self._sum, self._weight))
        self._sum = self._weight = self._age = 0.0
        if len(self._points) == self.POINTS:
            self._points = [_join(self._points[i : i + 2]) for i in range(0, self.POINTS, 2)]
            self._seconds *= 2

    def resample(self, width: int) -> list[float]:
        """Return at most `width` means, from the start to now."""
        count = len(self._points)
        size = min(width, count)
        edges = [round(i * count / size) for i in range(size + 1)] if size else []
        joined = (_join(self._points[a:b]) for a, b in pairwise(edges))
        return [total / weight for total, weight in joined]


def _join(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return sum(total for total, _ in points), sum(weight for _, weight in points)


class Course:
    """The numbers shown of one policy: its last record, and averages of those that flicker."""

    def __init__(self) -> None:
        self.last: PolicyRecord | None = None
        self.member: MemberRecord | None = None
        """Its record in the population."""
        self.returns, self.loss, self.staleness = Recent(), Recent(), Recent()
        self.policy_loss, self.value_loss = Recent(), Recent()
        self.updates_per_second, self.busy = Recent(), Recent()
        self.history = History()

    def add(self, record: PolicyRecord, seconds: float) -> None:
        """Add the record of an interval of so many seconds."""
        episodes = record.episodes - (self.last.episodes if self.last else 0)
        updates = record.updates - (self.last.updates if self.last else 0)
        self.returns.add(record.mean_return, max(episodes, 1), seconds)
        self.history.add(record.mean_return, max(episodes, 1), seconds)
        self.loss.add(record.loss, max(updates, 1), seconds)
        self.policy_loss.add(record.policy_loss, max(updates, 1), seconds)
        self.value_loss.add(record.value_loss, max(updates, 1), seconds)
        self.staleness.add(record.staleness, max(updates, 1), seconds)
        self.updates_per_second.add(record.updates_per_second, seconds, seconds)
        self.busy.add(record.busy, seconds, seconds)
        self.last = record
