"""The page of a comparison: a table, learning curves with error bands, and the runs."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.layout_engine import ConstrainedLayoutEngine

from remuda.ui.charts import Numbers, mean_returns, new_panels, palette, say_if_empty, smooth
from remuda.ui.comparison import MEAN, Comparison, RunGroup, rows_of, same_seeds, way_words
from remuda.ui.dashboard.curves import band_of
from remuda.ui.html import render
from remuda.ui.numbers import NOTHING, clock, number
from remuda.ui.pictures.drawing import QUIET, Picture, count_along_x, look
from remuda.ui.summary import RunSummary, returns

POINTS = 240  # points along the turns at which seeds are averaged
LONGEST = 60  # letters of a group's name in the legend
LINE = 120  # letters in a line of the legend


def draw_curves(comparison: Comparison) -> bytes:
    """Draw learning curves as a PNG: a panel per policy with the mean of each group."""
    names = comparison.policies
    titles = ["Return per episode" + ("" if name == MEAN else f": {name}") for name in names]
    with look():
        figure, panels = new_panels(*titles, heights=(2.75,) * len(names))
        figure.set_layout_engine(ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1))
        for axes, name in zip(panels, names, strict=True):
            _draw_panel(axes, comparison, name)
        turns = max(run.ending["turns"] for group in comparison.groups for run in group.runs)
        count_along_x(panels[0], turns)  # the panels share their x axis
        panels[-1].set_xlabel("turns")
        handles, labels = panels[0].get_legend_handles_labels()
        if len(handles) > 1:
            columns = max(1, min(3, LINE // (max(map(len, labels)) + 8)))
            figure.legend(handles, labels, loc="outside lower left", ncols=columns)
        return Picture("learning", "Learning", "Return over turns", figure).encoded("png")


def _draw_panel(axes: Axes, comparison: Comparison, name: str) -> None:
    if any(len(group.runs) > 1 for group in comparison.groups):
        note = "mean over seeds ± standard error; thin: single seeds"
        axes.set_title(note, loc="right", color=QUIET, fontsize=8.5, fontweight="normal")
    for group, colour in zip(comparison.groups, palette(len(comparison.groups)), strict=True):
        label = _label(group)
        seeds = [curve for run in group.runs if (curve := curve_of(run, name)) is not None]
        if len(seeds) == 1:
            turns, values = seeds[0]
            mark = "o" if len(turns) == 1 else None
            axes.plot(turns, values, color=colour, lw=1.8, marker=mark, label=label, zorder=4)
            continue
        for turns, values in seeds:
            axes.plot(turns, values, color=colour, lw=0.7, alpha=0.35, zorder=2)
        turns, mean, error = band_of(seeds, POINTS)
        if turns.size:
            ends = mean - error, mean + error
            axes.fill_between(turns, *ends, color=colour, alpha=0.2, lw=0, zorder=3)
            axes.plot(turns, mean, color=colour, lw=2.0, label=label, zorder=4)
    say_if_empty(axes)


def curve_of(run: RunSummary, policy: str) -> tuple[Numbers, Numbers] | None:
    """Return turns and smoothed returns of one run, each [points]; None: no finished episode."""
    found = mean_returns(run.records) if policy == MEAN else returns(run.records, policy)
    points = np.array([*found], np.float64).reshape(-1, 3)
    if not len(points):
        return None
    turns, values, weights = points.T
    return turns, smooth(values, weights)


def _label(group: RunGroup) -> str:
    name = group.name if len(group.name) <= LONGEST else group.name[: LONGEST - 1] + "…"
    count = len(group.runs)
    return name if count == 1 else f"{name} ({count} seeds)"


def page_of(comparison: Comparison) -> str:
    """Return the page as HTML; its picture is a file in the same directory."""
    games = dict.fromkeys(str(run.ending["game"]) for g in comparison.groups for run in g.runs)
    colours = palette(len(comparison.groups))
    unused = iter(colours)
    return render(
        "comparison.html",
        title=", ".join(games),
        groups=len(comparison.groups),
        way=way_words(comparison),
        returns=[
            (next(unused) if name else "", name, [policy, *cells])
            for name, policy, cells in rows_of(comparison)
        ],
        warnings=same_seeds(comparison),
        runs=[
            (colour, run.files.path, _cells(run, way_words(comparison)))
            for group, colour in zip(comparison.groups, colours, strict=True)
            for run in group.runs
        ],
    )


def _cells(run: RunSummary, common_way: str) -> list[Any]:
    ending = run.ending
    known = [p.evaluated_return for p in run.policies if p.evaluated_return is not None]
    way = f", {run.way}" if run.way != common_way else ""
    evaluated = number(sum(known) / len(known)) + way if known else NOTHING
    turns, seconds = f"{ending['turns']:,}", clock(ending["seconds"])
    return [ending["seed"], turns, seconds, evaluated, ending["ended"]]
