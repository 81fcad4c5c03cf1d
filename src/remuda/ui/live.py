"""Where a run is watched: a live view for a terminal, plain lines for everything else."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from remuda.coordinator.metrics import Goal, MemberRecord, PolicyRecord, Record, View
from remuda.ui.summary import NOTHING, clock, number, percent, rate, waited

MEMORY = 3.0
"""Seconds over which what is shown is averaged, so that a reader can follow it."""

SHARE_STYLES = {
    "env": "blue",
    "infer": "cyan",
    "write": "green",
    "weights": "magenta",
    "wait": "yellow",
}
"""Of the actor's time."""


def make_view(live: bool) -> View:
    """The live view, where it is wanted and the output is a terminal; else plain lines."""
    return LiveView() if live and sys.stdout.isatty() else PlainView()


class PlainView:
    """A line for every record that goes into the metrics; for logs and pipes."""

    NAMED = 4
    """The most policies whose returns are told one by one."""

    def __init__(self) -> None:
        self._goal: Goal | None = None

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
        returns = {name: policy.mean_return for name, policy in record.playing.items()}
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


class Recent:
    """A running mean that slowly forgets; None until there is something to average."""

    def __init__(self) -> None:
        self._sum = self._weight = 0.0

    def add(self, value: float | None, weight: float, seconds: float) -> None:
        """Take in a value; where there is none, what was known before still stands."""
        if value is None or weight <= 0 or not math.isfinite(value):
            return
        kept = math.exp(-seconds / MEMORY)
        self._sum = kept * self._sum + weight * value
        self._weight = kept * self._weight + weight

    @property
    def value(self) -> float | None:
        """The mean."""
        return self._sum / self._weight if self._weight else None


class History:
    """The course of a number since the start, in few points: when they are many, pairs merge."""

    POINTS = 48
    SECONDS = 0.5
    """That the first points stand for."""

    def __init__(self) -> None:
        self._points: list[tuple[float, float]] = []
        self._seconds = self.SECONDS
        self._sum = self._weight = self._age = 0.0

    def add(self, value: float | None, weight: float, seconds: float) -> None:
        """Take in a value with its weight, and the seconds that it stands for."""
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
        """At most `width` means, from the start to now."""
        count = len(self._points)
        size = min(width, count)
        edges = [round(i * count / size) for i in range(size + 1)] if size else []
        joined = (_join(self._points[a:b]) for a, b in pairwise(edges))
        return [total / weight for total, weight in joined]


def _join(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return sum(total for total, _ in points), sum(weight for _, weight in points)


def tenths(value: float | None) -> str:
    """A number whose last digits do not matter while they change."""
    coarse = value is not None and 1 <= abs(value) < 1000
    return f"{value:.1f}" if coarse else number(value)


def sparkline(values: Sequence[float]) -> str:
    """A line of small bars, from the least to the greatest value."""
    if not values:
        return ""
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(abs(low), abs(high), 1.0):
        return "▄" * len(values)
    return "".join("▁▂▃▄▅▆▇█"[min(int(8 * (x - low) / (high - low)), 7)] for x in values)


class Course:
    """What is shown of one policy: its last record, and calmer versions of what flickers."""

    def __init__(self) -> None:
        self.last: PolicyRecord | None = None
        self.member: MemberRecord | None = None
        """Its record in the population, if there is one."""
        self.returns, self.loss, self.staleness = Recent(), Recent(), Recent()
        self.policy_loss, self.value_loss = Recent(), Recent()
        self.updates_per_second, self.busy = Recent(), Recent()
        self.history = History()

    def add(self, record: PolicyRecord, seconds: float) -> None:
        """Take in the record of an interval of so many seconds."""
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


@dataclass(frozen=True)
class Column:
    """A column of the table of policies."""

    heading: str
    width: int
    tell: Callable[[Course, PolicyRecord], str]
    rank: int
    """Columns of the highest rank go first when the terminal is narrow."""
    style: str = ""


SPARKLINE = (10, 24)
"""Its least and its greatest width."""


def columns_with(
    sparkline_width: int, on_policy: bool = False, dealt: bool = False
) -> tuple[Column, ...]:
    """All columns beside the policies' names."""

    def course(c: Course, _: PolicyRecord) -> str:
        return sparkline(c.history.resample(sparkline_width))

    explores: tuple[Column, ...] = (Column("epsilon", 7, lambda _, p: f"{p.epsilon:.2f}", 6),)
    if on_policy:
        explores = (
            Column("policy loss", 11, lambda c, _: number(c.policy_loss.value), 5),
            Column("value loss", 10, lambda c, _: number(c.value_loss.value), 6),
            Column("entropy", 7, lambda _, p: number(p.entropy), 7),
        )
    standing = (
        Column("rating", 10, lambda c, _: rating(c.member), 1),
        Column("wins", 4, lambda c, _: percent(c.member.win_rate if c.member else None), 4),
        Column("games", 9, lambda c, _: f"{c.member.games:,}" if c.member else NOTHING, 6),
    )
    return (
        Column("return", 8, lambda c, _: tenths(c.returns.value), 0, "bold"),
        Column("", sparkline_width, course, 1, "green"),
        *(standing if dealt else ()),
        Column("loss", 7, lambda c, _: number(c.loss.value), 2),
        Column("updates/s", 9, lambda c, _: rate(c.updates_per_second.value), 2),
        Column("busy", 4, lambda c, _: percent(c.busy.value), 3),
        Column("stale", 11, lag, 4),
        # On-policy it tells little: as many as there are epochs, unless steps are lost.
        Column("ratio", 5, lambda _, p: number(p.replay_ratio), 9 if on_policy else 5),
        *explores,
        Column("version", 7, lambda _, p: f"{p.version:,}", 8),
        Column("replay", 6, lambda _, p: percent(p.replay_fill), 10),
    )


def rating(member: MemberRecord | None) -> str:
    """What is believed of a skill, and how sure that is."""
    return NOTHING if member is None else f"{member.rating:.1f} ±{member.uncertainty:.1f}"


def lag(course: Course, policy: PolicyRecord) -> str:
    """The staleness of a batch: its mean, and from its least to its greatest."""
    low, high = policy.staleness_low, policy.staleness_high
    if low is None or high is None:
        return tenths(course.staleness.value)
    return f"{tenths(course.staleness.value)} ({low:.0f}-{high:.0f})"


GAP = 2
NAME = 16
"""The most characters of a policy's name."""
MARGIN = 1
WIDEST = 110
"""Columns beyond which the picture does not grow: lines would be too long to follow."""
LINES_ABOVE = 9
"""Lines of the picture above the first policy."""


class Picture:
    """The state of a run as rich draws it, in whatever space there is."""

    def __init__(self, goal: Goal) -> None:
        self._goal = goal
        self._record: Record | None = None
        self._courses: dict[str, Course] = {}
        self._turns, self._steps = Recent(), Recent()
        self._shares: dict[str, Recent] = {}

    def add(self, record: Record) -> None:
        """Take in a record."""
        seconds = max(record.seconds - (self._record.seconds if self._record else 0.0), 1e-3)
        self._turns.add(record.turns_per_second, seconds, seconds)
        self._steps.add(record.agent_steps_per_second, seconds, seconds)
        for share, value in record.shares.items():
            self._shares.setdefault(share, Recent()).add(value, seconds, seconds)
        for name in set(self._courses) - set(record.playing):  # it has retired
            del self._courses[name]
        for name, policy in record.playing.items():
            course = self._courses.setdefault(name, Course())
            course.add(policy, seconds)
            course.member = record.members.get(name)
        self._record = record

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(options.max_width, WIDEST) - 2 * MARGIN
        yield Padding(self._lines(width, console.height), (0, MARGIN))

    def _lines(self, width: int, height: int) -> Table:
        lines = Table.grid()
        lines.add_column(width=width, no_wrap=True, overflow="ellipsis")
        for line in self._header(width):
            lines.add_row(line)
        lines.add_row()
        if self._record is None:
            lines.add_row(Text("the processes are starting ...", "dim italic"))
            return lines
        lines.add_row(self._progress(self._record, width))
        lines.add_row()
        lines.add_row(self._speed(self._record))
        lines.add_row(self._time(width))
        if self._record.members:
            lines.add_row(self._population(self._record))
        lines.add_row()
        room = max(height - LINES_ABOVE - 1, 2)
        shown = len(self._courses) if len(self._courses) <= room else room - 1
        lines.add_row(self._policies(width, shown))
        if shown < len(self._courses):
            lines.add_row(Text(f"... and {len(self._courses) - shown} more", "dim"))
        return lines

    def _header(self, width: int) -> Iterator[Text]:
        goal = self._goal
        name = Text.assemble((goal.game, "bold"), "  ", (goal.schedule, "cyan"))
        room = width - name.cell_len - 2
        directory = str(goal.directory)
        if len(directory) > room:  # the end of a path tells more than its beginning
            directory = "…" + directory[len(directory) - max(room - 1, 0) :]
        yield name + Text(directory.rjust(room + 2), "dim")
        yield Text(goal.layout, "dim")

    def _progress(self, record: Record, width: int) -> Table:
        share = self._goal.share_done(record)
        left = record.seconds * (1 - share) / share if share else None
        words = Text.assemble(
            (percent(share).rjust(4), "bold"),
            (f"   {clock(record.seconds)} gone, {clock(left)} left", "dim"),
        )
        bar = ProgressBar(
            total=1.0,
            completed=share,
            width=max(width - words.cell_len - GAP, 1),
            complete_style="cyan",
            finished_style="green",
        )
        return _side_by_side(bar, words)

    def _speed(self, record: Record) -> Text:
        return Text.assemble(
            (f"{record.turns:,}", "bold"),
            (" turns   ", "dim"),
            (rate(self._turns.value), "bold"),
            (" turns/s   ", "dim"),
            (rate(self._steps.value), "bold"),
            (" agent-steps/s   ", "dim"),
            (waited(record.waits), "yellow" if record.waits else "dim"),
        )

    def _time(self, width: int) -> Text:
        """Where the actor's time went: a bar, and what its colours mean."""
        shares = {name: recent.value or 0.0 for name, recent in self._shares.items()}
        legend = Text()
        for name, share in shares.items():
            legend.append(f"  {name} ", SHARE_STYLES.get(name, "white"))
            legend.append(percent(share).rjust(3))
        bar = Text.assemble(("actor ", "dim"))
        room = max(width - bar.cell_len - legend.cell_len, 0)
        scale, begin, total = max(sum(shares.values()), 1.0), 0, 0.0
        for name, share in shares.items():
            total += share / scale
            end = round(total * room)
            bar.append("━" * (end - begin), SHARE_STYLES.get(name, "white"))
            begin = end
        bar.append("━" * (room - begin), "bright_black")
        return bar + legend

    def _population(self, record: Record) -> Text:
        return Text.assemble(
            (f"{record.matches:,}", "bold"),
            (" matches   ", "dim"),
            (f"{record.num_live}", "bold"),
            (" policies that learn   ", "dim"),
            (f"{record.num_frozen}", "bold"),
            (" frozen copies", "dim"),
        )

    def _policies(self, width: int, shown: int) -> Table:
        longest = max((len(name) for name in self._courses), default=0)
        name_width = min(max(longest, len("policy")), NAME)
        last = [course.last for course in self._courses.values() if course.last]
        on_policy = all(record.entropy is not None for record in last)
        dealt = bool(self._record and self._record.members)
        columns = fitting(width - name_width, on_policy, dealt)
        table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="dim")
        table.add_column("policy", width=name_width, no_wrap=True, overflow="ellipsis")
        for column in columns:
            table.add_column(
                column.heading,
                width=column.width,
                no_wrap=True,
                style=column.style,
                justify="left" if column.style == "green" else "right",
            )
        for name, course in list(self._courses.items())[:shown]:
            if course.last:
                table.add_row(Text(name), *(column.tell(course, course.last) for column in columns))
        return table


def _side_by_side(bar: ProgressBar, words: Text) -> Table:
    row = Table.grid(padding=(0, GAP, 0, 0))
    row.add_row(bar, words)
    return row


def fitting(width: int, on_policy: bool = False, dealt: bool = False) -> list[Column]:
    """The columns that fit into `width` beside the names; the least important are left out.

    What is left of the width goes to the sparkline.
    """
    narrowest, widest = SPARKLINE
    columns = list(columns_with(narrowest, on_policy, dealt))
    while len(columns) > 1 and _width(columns) > width:
        columns.remove(max(columns, key=lambda column: column.rank))
    spare = max(width - _width(columns), 0)
    kept = {column.heading for column in columns}
    grown = columns_with(min(narrowest + spare, widest), on_policy, dealt)
    return [column for column in grown if column.heading in kept]


def _width(columns: Sequence[Column]) -> int:
    return sum(GAP + column.width for column in columns)
