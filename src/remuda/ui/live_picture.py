"""The live picture of a run in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from remuda.coordinator.metrics import Goal, Record
from remuda.ui.columns import GAP, fitting
from remuda.ui.courses import Course, Recent
from remuda.ui.numbers import clock, percent, rate, waited
from remuda.ui.population_line import population_line

SHARE_STYLES = {
    "env": "blue",
    "infer": "cyan",
    "write": "green",
    "weights": "magenta",
    "wait": "yellow",
}
"""Colours of the actor's time."""
MARGIN = 1
NAME = 16
"""The most characters of a policy's name."""
WIDEST = 110
"""The widest picture: longer lines are hard to follow."""
LINES_ABOVE = 9
"""Lines above the first policy."""


class LivePicture:
    """The state of a run, which rich draws in the space there is."""

    def __init__(self, goal: Goal) -> None:
        self._goal = goal
        self._record: Record | None = None
        self._courses: dict[str, Course] = {}
        self._turns, self._steps = Recent(), Recent()
        self._shares: dict[str, Recent] = {}

    def add(self, record: Record) -> None:
        """Add a record."""
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
            lines.add_row(population_line(self._record.population, width))
        lines.add_row()
        above = LINES_ABOVE + (2 if self._record.members else 0)
        room = max(height - above - 1, 2)
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
        if len(directory) > room:  # its end matters most
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
        room = max(width - words.cell_len - GAP, 1)
        colours: Any = {"complete_style": "cyan", "finished_style": "green"}
        line = Table.grid(padding=(0, GAP, 0, 0))
        line.add_row(ProgressBar(1.0, share, room, **colours), words)
        return line

    def _speed(self, record: Record) -> Text:
        turns, steps = rate(self._turns.value), rate(self._steps.value)
        numbers = {"turns": f"{record.turns:,}", "turns/s": turns, "agent-steps/s": steps}
        return _line(numbers).append(waited(record.waits), "yellow" if record.waits else "dim")

    def _time(self, width: int) -> Text:
        """Draw how the actor spent its time: a bar and its legend."""
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
        learning, frozen = str(record.num_live), str(record.num_frozen)
        numbers = {"matches": f"{record.matches:,}", "policies that learn": learning}
        return _line(numbers | {"frozen copies": frozen})

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
                table.add_row(Text(name), *(column.cell(course, course.last) for column in columns))
        return table


def _line(numbers: Mapping[str, str]) -> Text:
    line = Text()
    for name, number in numbers.items():
        line.append(number, "bold").append(f" {name}   ", "dim")
    return line
