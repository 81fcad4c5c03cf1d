"""Where a run is watched: a live view for a terminal, plain lines for everything else."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.live import Live
from rich.text import Text

from remuda.coordinator.metrics import Goal, Record, View
from remuda.ui.numbers import NOTHING, clock, number, percent, rate
from remuda.ui.picture import Picture


def make_view(live: bool) -> View:
    """The live view, where it is wanted and the output is a terminal; else plain lines."""
    console = Console()
    if live and sys.stdout.isatty() and not console.is_dumb_terminal:
        return LiveView(console)
    return PlainView()


class PlainView:
    """A line for every record that goes into the metrics; for logs and pipes."""

    NAMED = 4
    """The most policies whose returns are told one by one."""

    def __init__(self) -> None:
        self._goal: Goal | None = None
        self._known: dict[str, float] = {}
        """By policy, its return in the last interval in which one of its episodes ended."""

    def start(self, goal: Goal) -> None:
        """Say what is about to run."""
        self._goal = goal
        self.say(f"{goal.game}, {goal.schedule}, in {goal.directory}: {goal.layout}")

    def show(self, record: Record) -> None:
        """Nothing: a log wants few lines."""

    def log(self, record: Record) -> None:
        """One line."""
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
        """One line, at once."""
        print(message, flush=True)

    def close(self) -> None:
        """Nothing is left to do."""


class LiveView:
    """A picture of the run that stays in its place in the terminal; messages appear above it."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._live: Live | None = None
        self.picture: Picture | None = None
        """What is shown."""

    def start(self, goal: Goal) -> None:
        """Draw the picture for the first time."""
        self.picture = Picture(goal)
        self._live = Live(self.picture, console=self._console, auto_refresh=False)
        self._live.start(refresh=True)

    def show(self, record: Record) -> None:
        """Draw it anew."""
        if self.picture and self._live:
            self.picture.add(record)
            self._live.refresh()

    def log(self, record: Record) -> None:
        """Nothing: what is logged was shown."""

    def say(self, message: str) -> None:
        """Print above the picture."""
        self._console.print(Text.assemble(("• ", "yellow"), message))

    def close(self) -> None:
        """Leave the last picture where it is, and give the terminal back."""
        if self._live:
            self._live.stop()
            self._live = None
