"""The page of a comparison: a table, learning curves with seeds as bands, and its runs."""

from __future__ import annotations

import io
from collections.abc import Iterator
from html import escape
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import EngFormatter, MaxNLocator

from remuda.ui.charts import FEW, LOOK, PALETTE, QUIET, Numbers, smooth
from remuda.ui.comparison_groups import MEAN, Group, Groups, rows_of, same_seeds, way_words
from remuda.ui.numbers import NOTHING, clock, number
from remuda.ui.report import STYLE
from remuda.ui.summary import RunSummary, returns

POINTS = 240
"""Places along the turns at which seeds are averaged."""
LONGEST = 60
"""Letters of a group's name in the legend."""
LINE = 120
"""Letters that a line of the legend has room for."""


def draw_curves(comparison: Groups) -> bytes:
    """Learning curves as a PNG: a panel for each policy; of each group the mean, and its band.

    The band is one standard error on each side of the mean over seeds; thin lines are the seeds.
    """
    names = comparison.policies
    with mpl.rc_context(LOOK):
        rows, spacing = len(names), ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1)
        figure = Figure(figsize=(9.6, 0.9 + 3.3 * rows), dpi=160, layout=spacing)
        FigureCanvasAgg(figure)
        panels = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
        for axes, name in zip(panels, names, strict=True):
            _draw_panel(axes, comparison, name)
        turns = max(run.ending["turns"] for group in comparison.groups for run in group.runs)
        panels[0].set_xlim(0, max(turns, 1))  # and so the others'
        panels[0].xaxis.set_major_locator(MaxNLocator(8, integer=True))
        panels[0].xaxis.set_major_formatter(EngFormatter(sep=""))
        panels[-1].set_xlabel("turns")
        handles, labels = panels[0].get_legend_handles_labels()
        if len(handles) > 1:
            columns = max(1, min(3, LINE // (max(map(len, labels)) + 8)))
            figure.legend(handles, labels, loc="outside lower left", ncols=columns)
        data = io.BytesIO()
        figure.savefig(data, format="png")
    return data.getvalue()


def _draw_panel(axes: Axes, comparison: Groups, name: str) -> None:
    axes.set_title("Return per episode" + ("" if name == MEAN else f": {name}"))
    if any(len(group.runs) > 1 for group in comparison.groups):
        note = "mean over seeds, ± its standard error; thin: each seed"
        axes.set_title(note, loc="right", color=QUIET, fontsize=8.5, fontweight="normal")
    for group, colour in zip(comparison.groups, colours_of(comparison), strict=True):
        label = _label(group)
        seeds = [curve for run in group.runs if (curve := curve_of(run, name)) is not None]
        for turns, values in seeds if len(seeds) > 1 else ():
            axes.plot(turns, values, color=colour, linewidth=0.7, alpha=0.35, zorder=2)
        if len(seeds) == 1:
            turns, values = seeds[0]
            mark = "o" if len(turns) == 1 else None
            axes.plot(
                turns, values, color=colour, linewidth=1.8, marker=mark, label=label, zorder=4
            )
            continue
        turns, mean, error = band_of(seeds)
        if turns.size:
            axes.fill_between(
                turns, mean - error, mean + error, color=colour, alpha=0.2, linewidth=0, zorder=3
            )
            axes.plot(turns, mean, color=colour, linewidth=2.0, label=label, zorder=4)
    if not axes.lines:
        axes.set_yticks([])
        axes.text(
            0.5, 0.5, "nothing was measured", transform=axes.transAxes, ha="center", color=QUIET
        )


def curve_of(run: RunSummary, policy: str) -> tuple[Numbers, Numbers] | None:
    """Turns and smoothed return of one run, each [points]; None: no episode ended in it."""
    points = np.array([*_points(run, policy)], np.float64).reshape(-1, 3)
    if not len(points):
        return None
    turns, values, weights = points.T
    return turns, smooth(values, weights)


def _points(run: RunSummary, policy: str) -> Iterator[tuple[float, float, float]]:
    if policy != MEAN:
        yield from returns(run.records, policy)
        return
    for record in run.records:
        known = [p.mean_return for p in record.playing.values() if p.mean_return is not None]
        if known:
            yield record.turns, sum(known) / len(known), 1


def band_of(curves: list[tuple[Numbers, Numbers]]) -> tuple[Numbers, Numbers, Numbers]:
    """The mean of curves and its standard error, at common turns, each [points].

    Only where all of the curves are known: a mean over some of them would jump where one ends.
    """
    first = max((turns[0] for turns, _ in curves), default=0.0)
    last = min((turns[-1] for turns, _ in curves), default=-1.0)
    if last < first:
        return np.zeros(0), np.zeros(0), np.zeros(0)
    turns = np.linspace(first, last, POINTS)
    values = np.array([np.interp(turns, *curve) for curve in curves])
    error = values.std(axis=0, ddof=1) / np.sqrt(len(curves))
    return turns, values.mean(axis=0), error


def _label(group: Group) -> str:
    name = group.name if len(group.name) <= LONGEST else group.name[: LONGEST - 1] + "…"
    count = len(group.runs)
    return name if count == 1 else f"{name} ({count} seeds)"


def colours_of(comparison: Groups) -> list[str]:
    """A colour for each group."""
    count = len(comparison.groups)
    if count <= FEW:
        return list(PALETTE[:count])
    return [to_hex(shade) for shade in mpl.colormaps["viridis"](np.linspace(0.0, 0.92, count))]


def page_of(comparison: Groups) -> str:
    """The whole page as HTML; its picture is the file beside it."""
    games = dict.fromkeys(str(run.ending["game"]) for g in comparison.groups for run in g.runs)
    title = escape(", ".join(games))
    count = sum(len(group.runs) for group in comparison.groups)
    runs = "1 run" if count == 1 else f"{count} runs"
    groups = len(comparison.groups)
    kinds = "" if groups == 1 else f" in {groups} groups, of which each differs in its seeds only"
    warnings = "\n".join(f'<p class="warning">{escape(n)}</p>' for n in same_seeds(comparison))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}: runs of Remuda side by side</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{title}</h1>
<p class="lead">{runs}{kinds}.</p>
<h2>Returns</h2>
<div class="scroll">
{_table(comparison)}
</div>
{warnings}
<p class="note">Mean over seeds ± its standard error. {_return_of(comparison).capitalize()}: of each
run the mean over its episodes after training; greedy ones are without exploration, sampled ones
with it. In training: of each run the mean over the last tenth of its turns, with exploration.</p>
<h2>Learning</h2>
<figure><img class="chart" src="learning.png" alt="Return over the turns played, by group"></figure>
<p class="note">Thick: the mean over seeds, where all of them played; band: one standard error on
each side of it; thin: the seeds. All are smoothed over a twentieth of their lines of metrics.</p>
<h2>Runs</h2>
<div class="scroll">
{_runs(comparison)}
</div>
</body>
</html>
"""


def _table(comparison: Groups) -> str:
    colours = iter(colours_of(comparison))
    rows = []
    for name, policy, (seeds, evaluated, *rest) in rows_of(comparison):
        dot = _dot(next(colours)) if name else ""
        cells = "".join(f"<td>{_cell(cell)}</td>" for cell in rest)
        rows.append(
            f'<tr><th scope="row">{dot}{escape(name)}</th><td>{escape(policy)}</td>'
            f'<td>{escape(seeds)}</td><td class="main">{_cell(evaluated)}</td>{cells}</tr>'
        )
    headings = ("runs", "policy", "seeds", _return_of(comparison), "in training", "turns")
    return _html_table(headings, rows)


def _runs(comparison: Groups) -> str:
    rows = []
    for group, colour in zip(comparison.groups, colours_of(comparison), strict=True):
        for run in group.runs:
            ending, evaluated = run.ending, _mean_evaluated(run)
            way = f", {run.way}" if run.way != way_words(comparison) else ""
            cells: tuple[Any, ...] = (
                ending["seed"],
                f"{ending['turns']:,}",
                clock(ending["seconds"]),
                NOTHING if evaluated is None else number(evaluated) + way,
                ending["ended"],
            )
            data = "".join(f"<td>{_cell(str(cell))}</td>" for cell in cells)
            path = escape(str(run.files.path))
            rows.append(f'<tr><th scope="row">{_dot(colour)}{path}</th>{data}</tr>')
    returns = _return_of(comparison)
    return _html_table(("run", "seed", "turns", "duration", returns, "how it ended"), rows)


def _return_of(comparison: Groups) -> str:
    return f"{way_words(comparison)} return"


def _mean_evaluated(run: RunSummary) -> float | None:
    known = [p.evaluated_return for p in run.policies if p.evaluated_return is not None]
    return sum(known) / len(known) if known else None


def _html_table(headings: tuple[str, ...], rows: list[str]) -> str:
    head = "".join(f'<th scope="col">{heading}</th>' for heading in headings)
    body = "\n".join(rows)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _dot(colour: str) -> str:
    return f'<span class="dot" style="background: {colour}"></span>'


def _cell(words: str) -> str:
    """Escaped, with a proper minus before a number."""
    text = escape(words)
    return text.replace("-", "−", 1) if text[:1] == "-" else text
