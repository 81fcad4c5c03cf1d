"""Timing of a turn's sections, on the scoreboard and in traces."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from time import perf_counter
from typing import Any, TypeVar, cast

from remuda.system.scoreboard import Play, Row
from remuda.system.timeline import Span, Timeline

SECTIONS = tuple(map(int, (Play.SECONDS_WEIGHTS, Play.SECONDS_INFER, Play.SECONDS_WRITE)))
ENV = int(Play.SECONDS_ENV)
Method = TypeVar("Method", bound=Callable[..., Any])  # a method of a class with a `timer`
BRIEF = 2e-6  # gap in seconds below which sections count as adjacent


class TurnTimer:
    """A timer of the sections of a turn; time outside them counts as the environment's."""

    __slots__ = ("_last", "_seconds", "sums", "timeline")

    def __init__(self, row: Row, timeline: Timeline | None) -> None:
        """Add seconds to `row`, indexed by `Play`; trace spans unless `timeline` is None."""
        self.timeline = timeline
        self.sums = [0.0] * len(Play)  # seconds of this turn, indexed by `Play`
        # A memoryview, because Python reads and writes its elements faster than an array's.
        self._seconds = cast("memoryview[float]", row.data)
        self._last: float | None = None

    def begin(self) -> None:
        self._last = None

    def end(self, took: float) -> None:
        sums, seconds = self.sums, self._seconds
        for word in SECTIONS:
            spent = sums[word]
            seconds[word] += spent
            took -= spent
            sums[word] = 0.0
        seconds[ENV] += took

    def trace(self, span: Span | None, start: float, end: float) -> None:
        """Trace `span`, and the gap before it as environment time; for None only store `end`."""
        if self.timeline is not None and span is not None:
            if self._last is not None and start - self._last > BRIEF:
                self.timeline.add(Span.PLAY, self._last, start)
            self.timeline.add(span, start, end)
        self._last = end


def section(word: Play, span: Span | None = None) -> Callable[[Method], Method]:
    """Count the seconds of a method (one argument: `*args` is slower), and trace it as a span."""

    def timing(method: Method) -> Method:
        index = int(word)

        @wraps(method)
        def timed(self: Any, argument: Any) -> Any:
            start = perf_counter()
            returned = method(self, argument)
            end = perf_counter()
            timer = self.timer
            timer.sums[index] += end - start
            if timer.timeline is not None:
                timer.trace(span, start, end)
            return returned

        return cast("Method", timed)

    return timing


def traced(span: Span) -> Callable[[Method], Method]:
    """Trace a part of a section as a span; the section counts its seconds."""

    def tracing(method: Method) -> Method:
        @wraps(method)
        def noted(self: Any, argument: Any) -> Any:
            start = perf_counter()
            returned = method(self, argument)
            self.timer.trace(span, start, perf_counter())
            return returned

        return cast("Method", noted)

    return tracing


def whole_turn(method: Method) -> Method:
    """Count the time of a turn outside all sections as the environment's."""

    @wraps(method)
    def timed(self: Any) -> None:
        timer = self.timer
        timer.begin()
        start = perf_counter()
        method(self)
        timer.end(perf_counter() - start)

    return cast("Method", timed)
