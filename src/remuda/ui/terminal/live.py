"""Displays of a run: a live view for a terminal, or plain lines; and progress lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import IO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from remuda.errors import UsageError
from remuda.runs.metrics import Goal, Record, View
from remuda.ui.terminal.live_picture import LivePicture
from remuda.ui.terminal.numbers import NOTHING, clock, number, percent, rate


def make_view(live: bool) -> View:
    """Return the live view if `live` is set and the output is a terminal, else plain lines."""
    console = Console()
    if live and sys.stdout.isatty() and not console.is_dumb_terminal:
        return LiveView(console)
    return PlainView()


def find_view(view: View | str | None, live: bool) -> View:
    """Return a view, or the one with a name: `live`, `plain` or `quiet`; None: see `make_view`."""
    if view is None:
        return make_view(live)
    if not isinstance(view, str):
        return view
    named: dict[str, Callable[[], View]] = {
        "live": lambda: make_view(True),
        "plain": PlainView,
        "quiet": QuietView,
    }
    if view not in named:
        raise UsageError(f"there is no view {view!r}; there are {', '.join(named)}, or your own")
    return named[view]()


class QuietView:
    """A view that prints nothing."""

    def start(self, goal: Goal) -> None:
        """Do nothing."""

    def show(self, record: Record) -> None:
        """Do nothing."""

    def log(self, record: Record) -> None:
        """Do nothing."""

    def say(self, message: str) -> None:
        """Do nothing; the message is in the run's log."""

    def close(self) -> None:
        """Do nothing."""


class PlainView:
    """A line per metrics record; for logs and pipes."""

    NAMED = 4  # up to this many policies, each return is printed

    def __init__(self, out: IO[str] | None = None) -> None:
        self._out = out
        self._goal: Goal | None = None
        self._known: dict[str, float] = {}  # the last return of each policy

    def start(self, goal: Goal) -> None:
        self._goal = goal
        self.say(f"{goal.game}, {goal.schedule}, in {goal.directory}: {goal.layout}")

    def show(self, record: Record) -> None:
        """Do nothing: a log needs few lines."""

    def log(self, record: Record) -> None:
        parts = [
            clock(record.seconds).rjust(7),
            f"{record.turns:,} turns",
            f"{rate(record.agent_steps_per_second)} agent-steps/s",
        ]
        if self._goal:
            parts[0] += percent(self._goal.share_done(record)).rjust(6)
        self.say("  ".join([*parts, self._returns(record)]))

    def _returns(self, record: Record) -> str:
        for name, policy in record.playing.items():
            if policy.mean_return is not None:
                self._known[name] = policy.mean_return
        returns = {name: self._known.get(name) for name in record.playing}
        if len(returns) <= self.NAMED:
            return "return " + " ".join(f"{name} {number(x)}" for name, x in returns.items())
        known = [x for x in returns.values() if x is not None]
        if not known:
            return f"return {NOTHING}"
        mean = sum(known) / len(known)
        return f"return {number(mean)} ({number(min(known))} to {number(max(known))})"

    def say(self, message: str) -> None:
        print(message, file=self._out, flush=True)

    def close(self) -> None:
        """Do nothing."""


class LiveView:
    """A view of the run that stays in place in the terminal; messages appear above it."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._live: Live | None = None
        self.picture: LivePicture | None = None

    def start(self, goal: Goal) -> None:
        self.picture = LivePicture(goal)
        self._live = Live(self.picture, console=self._console, auto_refresh=False)
        self._live.start(refresh=True)

    def show(self, record: Record) -> None:
        if self.picture and self._live:
            self.picture.add(record)
            self._live.refresh()

    def log(self, record: Record) -> None:
        """Do nothing: `show` has drawn the record."""

    def say(self, message: str) -> None:
        self._console.print(Text.assemble(("• ", "yellow"), message))

    def close(self) -> None:
        """Leave the last view in place, and release the terminal."""
        if self._live:
            self._live.stop()
            self._live = None


PATIENCE = 2.0  # seconds of play before the first line
TERMINAL_EVERY, PLAIN_EVERY = 0.2, 10.0  # seconds between two lines


class PlayProgress:
    """Progress lines for play that takes longer than a few seconds."""

    def __init__(self, out: IO[str] | None = None) -> None:
        self._out = sys.stdout if out is None else out
        self._what = ""
        self._begun = self._printed = 0.0
        self._is_open = False

    def __call__(self, what: str, done: int, wanted: int) -> None:
        now = time.monotonic()
        if what != self._what:
            self._what, self._begun = what, now
        on_terminal = self._out.isatty()
        every = TERMINAL_EVERY if on_terminal else PLAIN_EVERY
        if done >= wanted:
            self.close()
        elif now - self._begun >= PATIENCE and now - self._printed >= every:
            self._printed = now
            words = f"{what}: {done:,} of {wanted:,} episodes (Ctrl-C ends it)"
            line = f"\r{words}" if on_terminal else f"{words}\n"
            print(line, end="", file=self._out, flush=True)
            self._is_open = on_terminal

    def close(self) -> None:
        if self._is_open:
            print("\r\x1b[K", end="", file=self._out, flush=True)
            self._is_open = False
