"""The live view of a run in a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from remuda.runs.metrics import Goal, MemberRecord, PolicyRecord, Record
from remuda.ui.terminal.numbers import NOTHING, clock, in_width, number, percent, rate, waited
from remuda.ui.terminal.tables import population_line

SHARE_STYLES = {  # colours of the bar that shows the actor's time
    "env": "blue",
    "infer": "cyan",
    "write": "green",
    "weights": "magenta",
    "wait": "yellow",
}
MARGIN = 1
NAME = 16  # maximum characters of a policy's name
WIDEST = 110  # maximum width: longer lines are hard to read
LINES_ABOVE = 9  # lines above the first policy


class LivePicture:
    """The state of a run as a renderable of the library rich."""

    def __init__(self, goal: Goal) -> None:
        self._goal = goal
        self._record: Record | None = None
        self._courses: dict[str, Course] = {}
        self._turns, self._steps = Recent(), Recent()
        self._shares: dict[str, Recent] = {}

    def add(self, record: Record) -> None:
        seconds = max(record.seconds - (self._record.seconds if self._record else 0.0), 1e-3)
        self._turns.add(record.turns_per_second, seconds, seconds)
        self._steps.add(record.agent_steps_per_second, seconds, seconds)
        for share, value in record.shares.items():
            self._shares.setdefault(share, Recent()).add(value, seconds, seconds)
        for name in set(self._courses) - set(record.playing):  # retired policies
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
        turns, steps = rate(self._turns.value), rate(self._steps.value)
        waits = self._record.waits
        speed = {"turns": f"{self._record.turns:,}", "turns/s": turns, "agent-steps/s": steps}
        lines.add_row(_line(speed).append(waited(waits), "yellow" if waits else "dim"))
        lines.add_row(self._time(width))
        if self._record.members:
            learning, frozen = str(self._record.num_live), str(self._record.num_frozen)
            sizes = {"policies that learn": learning, "frozen copies": frozen}
            lines.add_row(_line({"matches": f"{self._record.matches:,}"} | sizes))
            lines.add_row(population_line(self._record.population, width))
        lines.add_row()
        above = LINES_ABOVE + (2 if self._record.members else 0)
        free = max(height - above - 1, 2)
        shown = len(self._courses) if len(self._courses) <= free else free - 1
        lines.add_row(self._policies(width, shown))
        if shown < len(self._courses):
            lines.add_row(Text(f"... and {len(self._courses) - shown} more", "dim"))
        return lines

    def _header(self, width: int) -> Iterator[Text]:
        goal = self._goal
        name = Text.assemble((goal.game, "bold"), "  ", (goal.schedule, "cyan"))
        free = width - name.cell_len - 2
        directory = str(goal.directory)
        if len(directory) > free:  # the end of the path matters most
            directory = "…" + directory[len(directory) - max(free - 1, 0) :]
        yield name + Text(directory.rjust(free + 2), "dim")
        yield Text(goal.layout, "dim")

    def _progress(self, record: Record, width: int) -> Table:
        share = self._goal.share_done(record)
        remaining = record.seconds * (1 - share) / share if share else None
        times = Text.assemble(
            (percent(share).rjust(4), "bold"),
            (f"   {clock(record.seconds)} elapsed, {clock(remaining)} left", "dim"),
        )
        bar_width = max(width - times.cell_len - GAP, 1)
        colours: Any = {"complete_style": "cyan", "finished_style": "green"}
        line = Table.grid(padding=(0, GAP, 0, 0))
        line.add_row(ProgressBar(1.0, share, bar_width, **colours), times)
        return line

    def _time(self, width: int) -> Text:
        shares = {name: recent.value or 0.0 for name, recent in self._shares.items()}
        legend = Text()
        for name, share in shares.items():
            legend.append(f"  {name} ", SHARE_STYLES.get(name, "white"))
            legend.append(percent(share).rjust(3))
        bar = Text.assemble(("actor ", "dim"))
        bar_width = max(width - bar.cell_len - legend.cell_len, 0)
        begin, total = 0, 0.0
        for name, share in shares.items():
            total += share
            end = round(total * bar_width)
            bar.append("━" * (end - begin), SHARE_STYLES.get(name, "white"))
            begin = end
        bar.append("━" * (bar_width - begin), "bright_black")
        return bar + legend

    def _policies(self, width: int, shown: int) -> Table:
        longest = max((len(name) for name in self._courses), default=0)
        name_width = min(max(longest, len("policy")), NAME)
        last = [course.last for course in self._courses.values() if course.last]
        has_actor = all(record.entropy is not None for record in last)
        groups = {"", ACTOR if has_actor else Q_LEARNER}
        if self._record and self._record.members:
            groups.add(POPULATION)
        columns = fitting(width - name_width, groups)
        table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="dim")
        table.add_column("policy", width=name_width, no_wrap=True, overflow="ellipsis")
        for column in columns:
            style: dict[str, Any] = {"width": column.width, "no_wrap": True, "justify": "right"}
            if column is SPARKLINE:
                style = {"min_width": column.width, "max_width": 24}
            table.add_column(column.heading, style=column.style, **style)
        for name, course in list(self._courses.items())[:shown]:
            if course.last:
                table.add_row(Text(name), *(column.cell(course, course.last) for column in columns))
        return table


def _line(numbers: Mapping[str, str]) -> Text:
    line = Text()
    for name, words in numbers.items():
        line.append(words, "bold").append(f" {name}   ", "dim")
    return line


def rating(member: MemberRecord | None) -> str:
    """Format a rating and its uncertainty."""
    return NOTHING if member is None else f"{member.rating:.1f} ±{member.uncertainty:.1f}"


def wins(member: MemberRecord | None) -> str:
    """Format the share of matches won."""
    return NOTHING if member is None else percent(member.win_rate)


def games(member: MemberRecord | None) -> str:
    """Format the number of matches."""
    return NOTHING if member is None else f"{member.games:,}"


def lag(course: Course, policy: PolicyRecord) -> str:
    """Format the mean staleness of batches and its range."""
    low, high = policy.staleness_low, policy.staleness_high
    if low is None or high is None:
        return tenths(course.mean("staleness"))
    return f"{tenths(course.mean('staleness'))} ({low:.0f}-{high:.0f})"


def tenths(value: float | None) -> str:
    """Format a number without digits that would flicker in a live view."""
    coarse = value is not None and 1 <= abs(value) < 1000
    return f"{value:.1f}" if coarse else in_width(value, RETURN)


@dataclass(frozen=True)
class LiveColumn:
    """A column of the table of policies."""

    heading: str
    width: int
    cell: Callable[[Course, PolicyRecord], RenderableType]
    rank: int  # a narrow terminal drops the columns of the highest rank first
    style: str = ""
    group: str = ""  # the runs in which it is shown; empty: all


GAP = 2  # characters between columns
RETURN = 8  # characters of a return
ACTOR, Q_LEARNER, POPULATION = "actor", "Q-learner", "population"
SPARKLINE = LiveColumn("", 10, lambda c, _: c.history, 1, "green")
COLUMNS = (
    LiveColumn("return", RETURN, lambda c, _: tenths(c.mean("mean_return")), 0, "bold"),
    SPARKLINE,
    LiveColumn("rating", 10, lambda c, _: rating(c.member), 1, group=POPULATION),
    LiveColumn("wins", 4, lambda c, _: wins(c.member), 4, group=POPULATION),
    LiveColumn("games", 9, lambda c, _: games(c.member), 6, group=POPULATION),
    LiveColumn("loss", 7, lambda c, _: in_width(c.mean("loss"), 7), 2),
    LiveColumn("updates/s", 9, lambda c, _: rate(c.mean("updates_per_second")), 2),
    LiveColumn("busy", 4, lambda c, _: percent(c.mean("busy")), 3),
    LiveColumn("stale", 11, lag, 4),
    LiveColumn("ratio", 5, lambda _, p: number(p.replay_ratio), 5, group=Q_LEARNER),
    # On-policy, the replay ratio equals the number of epochs unless steps are lost.
    LiveColumn("ratio", 5, lambda _, p: number(p.replay_ratio), 9, group=ACTOR),
    LiveColumn("epsilon", 7, lambda _, p: number(p.epsilon), 6, group=Q_LEARNER),
    LiveColumn("policy loss", 11, lambda c, _: number(c.mean("policy_loss")), 5, group=ACTOR),
    LiveColumn("value loss", 10, lambda c, _: number(c.mean("value_loss")), 6, group=ACTOR),
    LiveColumn("entropy", 7, lambda _, p: number(p.entropy), 7, group=ACTOR),
    LiveColumn("version", 7, lambda _, p: f"{p.version:,}", 8),
    LiveColumn("replay", 6, lambda _, p: percent(p.replay_fill), 10),
)
"""All columns after the policies' names."""


def fitting(width: int, groups: Collection[str]) -> list[LiveColumn]:
    """Return the most important columns of these groups that fit into `width`."""
    columns = [column for column in COLUMNS if column.group in groups]
    while len(columns) > 1 and sum(GAP + column.width for column in columns) > width:
        columns.remove(max(columns, key=lambda column: column.rank))
    return columns


def sparkline(values: Sequence[float]) -> str:
    """Draw values as a line of small bars, scaled from the smallest to the largest value."""
    if not values:
        return ""
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(abs(low), abs(high), 1.0):
        return "▄" * len(values)
    return "".join("▁▂▃▄▅▆▇█"[min(int(8 * (x - low) / (high - low)), 7)] for x in values)


MEMORY = 3.0  # time constant of the averages in seconds


class Recent:
    """An exponential moving average; None before the first value."""

    def __init__(self) -> None:
        self._sum = self._weight = 0.0

    def add(self, value: float | None, weight: float, seconds: float) -> None:
        if value is None or weight <= 0 or not math.isfinite(value):
            return
        decay = math.exp(-seconds / MEMORY)
        self._sum = decay * self._sum + weight * value
        self._weight = decay * self._weight + weight

    @property
    def value(self) -> float | None:
        return self._sum / self._weight if self._weight else None


class History:
    """The history of a number since the start; at `POINTS` points, neighbours are merged."""

    POINTS = 48
    SECONDS = 0.5  # seconds covered by a point before the first merge

    def __init__(self) -> None:
        self._points: list[tuple[float, float]] = []
        self._seconds = self.SECONDS
        self._sum = self._weight = self._age = 0.0

    def add(self, value: float | None, weight: float, seconds: float) -> None:
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

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(sparkline(self.resample(options.max_width)))


def _join(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return sum(total for total, _ in points), sum(weight for _, weight in points)


PER_UPDATE = ("loss", "policy_loss", "value_loss", "staleness")
PER_SECOND = ("updates_per_second", "busy")
"""Numbers of a policy's records that are averaged, by what weights them."""


class Course:
    """The numbers shown for one policy: its last record and moving averages."""

    def __init__(self) -> None:
        self.last: PolicyRecord | None = None
        self.member: MemberRecord | None = None  # the policy's record in the population
        self._means = {name: Recent() for name in (*PER_UPDATE, *PER_SECOND, "mean_return")}
        self.history: History = History()

    def mean(self, name: str) -> float | None:
        return self._means[name].value

    def add(self, record: PolicyRecord, seconds: float) -> None:
        episodes = max(record.episodes - (self.last.episodes if self.last else 0), 1)
        updates = max(record.updates - (self.last.updates if self.last else 0), 1)
        self.history.add(record.mean_return, episodes, seconds)
        weights = dict.fromkeys(PER_UPDATE, updates) | dict.fromkeys(PER_SECOND, seconds)
        for name, mean in self._means.items():
            mean.add(getattr(record, name), weights.get(name, episodes), seconds)
        self.last = record
