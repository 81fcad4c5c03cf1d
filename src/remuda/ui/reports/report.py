"""The report of a run: one page with tables and charts, made from the run's files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remuda.runs.metrics import with_all_members
from remuda.runs.run_directory import write_file
from remuda.system.checkpoint.opening import read_file
from remuda.ui.plots.charts import (
    MAX_MEMBERS,
    colours_of,
    draw_charts,
    draw_learning,
    title_of,
)
from remuda.ui.plots.drawing import Picture, write_pictures
from remuda.ui.reports.html import render, with_pictures
from remuda.ui.reports.results import cells_of, columns_of, population_words, rating_words, remarks
from remuda.ui.reports.summary import RunSummary, read_run
from remuda.ui.terminal.numbers import number, percent


@dataclass(frozen=True)
class ReportParts:
    """The parts of a report that do not show the evaluation; their pictures are files already."""

    charts: dict[str, Picture]
    sections: dict[str, Any]
    drawn_from: tuple[object, ...]  # what they show

    def are_of(self, summary: RunSummary) -> bool:
        """Return whether the run has not changed since they were drawn."""
        return self.drawn_from == _shown(summary)


def _shown(summary: RunSummary) -> tuple[object, ...]:
    metrics = [metric.name for metric in summary.episode_metrics]
    return len(summary.records), list(colours_of(summary).items()), metrics


def draw_parts(run: Path) -> ReportParts:
    """Draw and write everything that does not need the evaluation."""
    return _draw_parts(read_run(run))


def _draw_parts(summary: RunSummary) -> ReportParts:
    charts = draw_charts(summary)
    write_pictures(tuple(charts.values()), summary.files.path, ("png",))
    sections: dict[str, Any] = {"lineage": None, "analysis": "", "prefix": ""}
    if summary.files.ledger.is_file():
        # These libraries load slowly, and only a population needs them.
        from remuda.ui.reports.analysis_page import PREFIX, draw_lineage, write_section

        lineage = draw_lineage(summary.files)
        analysis = write_section(summary.files)
        sections = {"lineage": lineage, "analysis": analysis, "prefix": PREFIX}
    return ReportParts(charts, sections, _shown(summary))


def write_report(run: Path, parts: ReportParts | None = None) -> Path:
    """Write `report.html` and its charts into a run's directory; return the page's path."""
    summary = read_run(run)
    if parts is None or not parts.are_of(summary):
        parts = _draw_parts(summary)
    learning = draw_learning(summary)
    write_pictures((learning,), run, ("png",))
    columns, colours = columns_of(summary), colours_of(summary)
    text = render(
        "report.html",
        summary=summary,
        ending=summary.ending,
        columns=[heading for heading, _ in columns],
        policies=[
            (colours[policy.name], policy.title, list(cells_of(policy, columns)))
            for policy in summary.policies
        ],
        remarks=remarks(summary),
        metrics=[
            ("", title_of(metric), [metric.evaluated_words, number(metric.training)])
            for metric in summary.episode_metrics
        ],
        config=read_file(summary.files.config).decode(errors="replace"),
        **_population(summary),
        charts={learning.name: learning, **parts.charts},
        **parts.sections,
    )
    page = run / "report.html"
    write_file(page, with_pictures(text, run).encode())
    return page


def _population(summary: RunSummary) -> dict[str, Any]:
    if not summary.records or not summary.records[-1].members:
        return {"population": "", "frozen": [], "has_scripted": False}
    record = summary.records[-1]
    whole = with_all_members(summary.records) or record
    frozen = [(name, m) for name, m in whole.members.items() if not m.learns]
    frozen.sort(key=lambda pair: -pair[1].rating)
    rows = []  # the dot's colour, the name, the other cells
    for name, m in frozen[:MAX_MEMBERS]:
        cells = [rating_words(m), percent(m.win_rate), f"{m.games:,}", number(m.mean_return)]
        rows.append(("", name, cells))
    return {
        "population": population_words(record),
        "frozen": rows,
        "has_scripted": any("@" not in name for name, _ in frozen),
    }
