"""Learning curves of groups of runs, with error bands over seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from remuda.ui.dashboard.curves import band_of
from remuda.ui.plots.charts import Numbers, mean_returns, new_panels, palette, say_if_empty, smooth
from remuda.ui.plots.drawing import QUIET, Picture, count_along_x, look, shorten
from remuda.ui.reports.summary import MEAN, RunSummary, returns

POINTS = 240  # points along the turns at which seeds are averaged
LONGEST = 60  # letters of a group's name in the legend
LINE = 120  # letters in a line of the legend


Groups = Sequence[tuple[str, Sequence[RunSummary]]]  # names, and runs that differ by their seed


def draw_curves(groups: Groups, policies: Sequence[str], colours: Sequence[str] = ()) -> Picture:
    """Draw learning curves: a panel per policy with the mean of each group."""
    colours = colours or palette(len(groups))
    titles = ["Return per episode" + ("" if name == MEAN else f": {name}") for name in policies]
    with look():
        figure, panels = new_panels(*titles, heights=(2.75,) * len(policies))
        for axes, name in zip(panels, policies, strict=True):
            _draw_panel(axes, groups, name, colours)
        turns = max(run.ending["turns"] for _, runs in groups for run in runs)
        count_along_x(panels[0], turns)  # the panels share their x axis
        panels[-1].set_xlabel("turns")
        handles, labels = panels[0].get_legend_handles_labels()
        if len(handles) > 1:
            columns = max(1, min(3, LINE // (max(map(len, labels)) + 8)))
            figure.legend(handles, labels, loc="outside lower left", ncols=columns)
        return Picture("learning", "Learning", "Return over turns", figure)


def _draw_panel(axes: Axes, groups: Groups, policy: str, colours: Sequence[str]) -> None:
    if any(len(runs) > 1 for _, runs in groups):
        note = "thick: mean over seeds; band: ± 1 standard error; thin: single seeds"
        axes.set_title(note, loc="right", color=QUIET, fontsize=8.5, fontweight="normal")
    names = shorten([name for name, _ in groups], LONGEST)
    for short, (_, runs), colour in zip(names, groups, colours, strict=True):
        label = short if len(runs) == 1 else f"{short} ({len(runs)} seeds)"
        seeds = [curve for run in runs if (curve := curve_of(run, policy)) is not None]
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
