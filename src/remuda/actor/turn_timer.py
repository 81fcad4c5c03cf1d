"""Where the time of a turn goes: counted on the scoreboard, and traced if the user asked for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from time import perf_counter
from typing import Protocol, TypeVar, TypeVarTuple, cast

from remuda.scoreboard import Play, Row
from remuda.timeline import Span, Timeline


BRIEF = 2e-6
"""Seconds between two sections that are not the game's: one follows directly on the other."""


class TurnTimer:
    """Adds up the seconds of the sections of a turn; what is left of it is the game's."""

    def __init__(self, row: Row, timeline: Timeline | None) -> None:
        """Count into `row`, by `Play`, and note spans in `timeline` if there is one."""
        # The same words; Python reads and writes one of them faster here than in an array.
        self.seconds = cast("memoryview[float]", row.data)
        self.timeline = timeline
        self.in_sections = 0.0
        """Seconds of this turn that were in a section."""
        self._last: float | None = None

    def begin(self) -> None:
        """Begin a turn."""
        self.in_sections, self._last = 0.0, None

    def trace(self, span: Span | None, start: float, end: float) -> None:
        """Note a span, and the game's before it; None: the game's begins at the end of this one."""
        if self.timeline is not None and span is not None:
            if self._last is not None and start - self._last > BRIEF:
                self.timeline.add(Span.PLAY, self._last, start)
            self.timeline.add(span, start, end)
        self._last = end


class Timed(Protocol):
    """A class whose methods are timed."""

    timer: TurnTimer


Self = TypeVar("Self", bound=Timed)
Arguments = TypeVarTuple("Arguments")
Returned = TypeVar("Returned")
Method = Callable[[Self, *Arguments], Returned]


def section(
    word: Play, span: Span | None = None
) -> Callable[[Method[Self, *Arguments, Returned]], Method[Self, *Arguments, Returned]]:
    """Count the seconds of a method in a word of the scoreboard, and trace it as a span."""

    def timing(method: Method[Self, *Arguments, Returned]) -> Method[Self, *Arguments, Returned]:
        index = int(word)

        @wraps(method)
        def timed(self: Self, *arguments: *Arguments) -> Returned:
            start = perf_counter()
            returned = method(self, *arguments)
            end = perf_counter()
            timer = self.timer
            timer.seconds[index] += end - start
            timer.in_sections += end - start
            if timer.timeline is not None:
                timer.trace(span, start, end)
            return returned

        return timed

    return timing


def traced(
    span: Span,
) -> Callable[[Method[Self, *Arguments, Returned]], Method[Self, *Arguments, Returned]]:
    """Trace a part of a section, whose seconds the section counts."""

    def tracing(method: Method[Self, *Arguments, Returned]) -> Method[Self, *Arguments, Returned]:
        @wraps(method)
        def noted(self: Self, *arguments: *Arguments) -> Returned:
            start = perf_counter()
            returned = method(self, *arguments)
            self.timer.trace(span, start, perf_counter())
            return returned

        return noted

    return tracing


def whole_turn(method: Callable[[Self], None]) -> Callable[[Self], None]:
    """Count as the environment's what of a turn is in no section."""
    index = int(Play.SECONDS_ENV)

    @wraps(method)
    def timed(self: Self) -> None:
        timer = self.timer
        timer.begin()
        start = perf_counter()
        method(self)
        timer.seconds[index] += perf_counter() - start - timer.in_sections

    return timed
