"""The charts of a run's report."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, PercentFormatter

from remuda.analysis.payoffs.from_ledger import with_team_mates
from remuda.errors import RunDirectoryError, UsageError
from remuda.runs.metrics import Record
from remuda.runs.recorded_matches import read_payoffs
from remuda.ui.plots.drawing import (
    INK,
    QUIET,
    Picture,
    count_along_x,
    look,
    new_figure,
    set_log_scale,
    shorten,
)
from remuda.ui.reports.summary import EpisodeMetric, RunSummary, returns

log = logging.getLogger(__name__)

Numbers = npt.NDArray[np.float64]
Point = tuple[float, float, int]  # x, y and weight

PALETTE = (
    *("#3366b0", "#d9722e", "#2e9673", "#b8436d", "#8a63c9"),
    *("#c79a1b", "#3ba3c4", "#7d5a44", "#7d8a2e", "#5b6470"),
)
FEW = len(PALETTE)  # up to this many policies, each has its own colour and legend entry

SHARE_COLOURS = {
    "env": "#3366b0",
    "infer": "#3ba3c4",
    "write": "#2e9673",
    "weights": "#8a63c9",
    "wait": "#d9722e",
}


def draw_charts(summary: RunSummary) -> dict[str, Picture]:
    """Draw the charts of training that have data, except returns and losses."""
    found = []
    with look():
        words = "Speed of the actor and the learners over time."
        found.append(Picture("throughput", words, words, throughput_chart(summary)))
        if summary.episode_metrics:
            words = "Episode metrics over the turns played."
            found.append(Picture("game", words, words, game_chart(summary)))
        if summary.files.ledger.is_file():
            found.append(payoffs_picture(summary))
    return {picture.name: picture for picture in found}


def draw_learning(summary: RunSummary) -> Picture:
    """Draw returns and losses over the turns played, with the final evaluation."""
    words = "Return and loss of each policy over the turns played."
    with look():
        return Picture("learning", words, words, learning_chart(summary))


def learning_chart(summary: RunSummary) -> Figure:
    """Draw return over turns, with the final evaluation, above the losses."""
    records, colours = summary.records, colours_of(summary)
    policies = [policy for record in records for policy in record.policies.values()]
    losses = LOSSES if any(policy.policy_loss is not None for policy in policies) else LOSSES[:1]
    titles = ("Return per episode", *map(str.capitalize, losses))
    figure, (top, *panels) = new_panels(*titles, heights=(3.2, *(1.1 for _ in losses)))
    crowded = len(colours) > FEW
    for name, colour in colours.items():
        _curve(top, returns(records, name), colour, name, crowded)
        for axes, loss in zip(panels, losses, strict=True):
            points = _series(records, name, loss.replace(" ", "_"))
            _curve(axes, points, colour, name, crowded)
    if crowded:
        _curve(top, mean_returns(records), INK, f"mean of {len(colours)}")

    turns = max(summary.ending["turns"], 1)
    evaluated = _mark_evaluation(top, summary, turns)
    count_along_x(top, round(turns * (1.11 if evaluated else 1.0)))  # panels share their x axis
    for axes in panels:
        if _spans_decades(axes):
            set_log_scale(axes)
    _finish(figure, "turns", named=top)
    return figure


LOSSES = ("loss", "policy loss", "value loss")
"""The charts below the return: the total loss, and its parts if the learner records them."""


def game_chart(summary: RunSummary) -> Figure:
    """Draw episode metrics over turns, a panel for each."""
    metrics = summary.episode_metrics
    titles = [title_of(metric) for metric in metrics]
    figure, panels = new_panels(*titles, heights=(1.2,) * len(metrics))
    for axes, metric in zip(panels, metrics, strict=True):
        means = [
            (record.turns, record.episode_metrics.get(metric.name)) for record in summary.records
        ]
        _curve(axes, ((x, y, 1) for x, y in means if y is not None), INK, "")
    count_along_x(panels[0], summary.ending["turns"])  # panels share their x axis
    _finish(figure, "turns", named=panels[0])
    return figure


MAX_MEMBERS = 24  # maximum members in the picture of payoffs in training


def payoffs_picture(summary: RunSummary) -> Picture:
    """Draw the mean payoffs of members in training as a heat map."""
    # These libraries load slowly, and only a population needs them.
    from remuda.ui.plots.rows import draw_payoffs, draw_row, only_row

    name, heading = "payoff", "Payoffs in training"
    try:
        payoffs = read_payoffs(summary.files, MAX_MEMBERS)
        unmet, files = payoffs.missing, summary.files
        payoffs = with_team_mates(payoffs, files.ledger, files.spec().sides)
    except UsageError as error:  # no match has finished
        return Picture(name, heading, f"Payoffs: {error}.")
    except RunDirectoryError:
        raise
    except Exception as error:  # code of the user's environment
        log.error("no picture of payoffs", exc_info=error)
        return Picture(name, heading, f"Payoffs: {type(error).__name__}: {error}.")
    if not np.isfinite(payoffs.matrix).any():
        return Picture(name, heading, "Payoffs: no two members have met.")
    if (member := only_row(payoffs)) is not None:
        caption = (
            f"Mean payoff of {payoffs.names[member]} in a match, in training. No two others met."
        )
        return Picture(name, heading, caption, draw_row(payoffs, member))
    caption = "Mean payoff of the row in a match against the column, in training."
    if (payoffs.missing != unmet).any():
        caption += " Of team-mates: what the row earned beside the column."
    return Picture(name, heading, caption, draw_payoffs(payoffs, np.arange(len(payoffs.names))))


def title_of(metric: EpisodeMetric) -> str:
    """Return a metric's name as a heading."""
    return metric.words[:1].upper() + metric.words[1:]


def mean_returns(records: Iterable[Record]) -> Iterator[Point]:
    """Yield the mean return over the playing policies at each record."""
    for record in records:
        known = [p.mean_return for p in record.playing.values() if p.mean_return is not None]
        if known:
            yield record.turns, sum(known) / len(known), 1


def _mark_evaluation(axes: Axes, summary: RunSummary, turns: int) -> bool:
    """Draw the evaluation with standard errors after the last turn; return whether there is one."""
    marked = [policy for policy in summary.policies if policy.evaluated_return is not None]
    if not marked:
        return False
    axes.axvspan(1.01 * turns, 1.10 * turns, color="#f2f3f5", linewidth=0, zorder=0)
    axes.annotate(
        summary.way,
        (1.055 * turns, 1.0),
        (0, 3),
        xycoords=axes.get_xaxis_transform(),
        textcoords="offset points",
        ha="center",
        color=QUIET,
    )
    colours = colours_of(summary)
    size = 6.5 if len(marked) <= FEW else 3.5
    xs = np.linspace(1.01, 1.10, len(marked) + 2)[1:-1] * turns
    for x, policy in zip(xs, marked, strict=True):
        value, error = policy.evaluated_return or 0.0, policy.standard_error or 0.0
        style: dict[str, Any] = {"fmt": "o", "markersize": size, "capsize": size / 2.5}
        style |= {"color": colours[policy.name], "elinewidth": 1.3, "zorder": 4}
        axes.errorbar([x], [value], [error], **style)
    return True


def _spans_decades(axes: Axes) -> bool:
    drawn = [np.asarray(line.get_ydata(), np.float64) for line in axes.lines]
    values = np.concatenate([*drawn, np.zeros(0)])
    return bool(values.size and values.min() > 0 and values.max() > 30 * values.min())


def throughput_chart(summary: RunSummary) -> Figure:
    """Draw agent-steps per second, the actor's time shares and updates per second over time."""
    figure, (steps, shares, updates) = new_panels(
        "Agent-steps per second",
        "Time shares of the actor",
        "Updates per second",
        heights=(1.5, 1.5, 1.5),
    )
    records, colours = summary.records, colours_of(summary)
    span = max(summary.ending["seconds"], *(record.seconds for record in records), 1e-3)
    unit, divisor = ("minutes", 60.0) if span < 3 * 3600 else ("hours", 3600.0)
    if span < 300:
        unit, divisor = "seconds", 1.0

    def when(record: Record) -> float:
        return record.seconds / divisor

    _curve(steps, ((when(r), r.agent_steps_per_second, 1) for r in records), INK, "")
    _stack_shares(shares, np.array([when(record) for record in records]), records)
    for name, colour in colours.items():
        rates = _series(records, name, "updates_per_second", when)
        _curve(updates, rates, colour, name, len(colours) > FEW)

    steps.set_xlim(0, span / divisor)  # panels share their x axis
    for axes in (steps, updates):
        highest = axes.dataLim.y1
        axes.set_ylim(0, 1.1 * highest if highest > 0 else 1)
    steps.yaxis.set_major_formatter(EngFormatter(sep=""))
    _finish(figure, unit, named=updates)
    return figure


def _stack_shares(axes: Axes, seconds: Numbers, records: Sequence[Record]) -> None:
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    if not records:
        return
    names = list(dict.fromkeys(name for record in records for name in record.shares))
    heights = np.array([[record.shares.get(name, 0.0) for record in records] for name in names])
    if len(records) == 1:  # an area needs two points
        seconds, heights = np.array([0.0, seconds[0]]), np.repeat(heights, 2, axis=1)
    colours = [SHARE_COLOURS.get(name, QUIET) for name in names]
    areas = axes.stackplot(seconds, *heights, colors=colours, alpha=0.85, linewidth=0)
    axes.legend(areas[::-1], names[::-1], handlelength=1.0, handleheight=1.0, **BESIDE)


BESIDE: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.05)}
"""The place of legends: to the right of the axes."""

WIDTH = 9.6  # inches of a chart
LEFT, RIGHT, TOP, BOTTOM, BETWEEN = 0.75, 0.25, 0.4, 0.55, 0.42  # inches around the panels


def new_panels(*titles: str, heights: tuple[float, ...]) -> tuple[Figure, list[Axes]]:
    """Make a figure of stacked panels with a shared x axis; a height of 1 is 1.2 inches."""
    figure = new_figure(WIDTH, 0.8 + 1.2 * sum(heights))
    panels = figure.subplots(len(titles), 1, sharex=True, height_ratios=heights, squeeze=False)
    for axes, title in zip(panels[:, 0], titles, strict=True):
        axes.set_title(title)
        axes.grid(axis="y")
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0, labelcolor=QUIET)
    return figure, list(panels[:, 0])


def _curve(
    axes: Axes, points: Iterable[Point], colour: Any, name: str, crowded: bool = False
) -> None:
    x, y, weights = np.array([*points], np.float64).reshape(-1, 3).T
    if x.size == 1:
        axes.plot(x, y, "o", color=colour, label=name, markersize=5, clip_on=False, zorder=3)
    elif x.size:
        if not crowded:
            axes.plot(x, y, color=colour, alpha=0.25, linewidth=0.8)
        width, alpha = (0.8, 0.5) if crowded else (1.8, 1.0)
        axes.plot(x, smooth(y, weights), color=colour, label=name, linewidth=width, alpha=alpha)


def smooth(values: Numbers, weights: Numbers) -> Numbers:
    """Return the weighted mean in a centred window of a twentieth of all values."""
    window = np.ones(2 * (len(values) // 40) + 1)
    means: Numbers = np.convolve(values * weights, window, "same")
    return means / np.convolve(weights, window, "same")


def _series(
    records: Iterable[Record],
    policy: str,
    number: str,
    when: Callable[[Record], float] = lambda record: record.turns,
) -> Iterator[Point]:
    for record in records:
        value = getattr(record.policies.get(policy), number, None)
        if value is not None:
            yield when(record), value, 1


def _finish(figure: Figure, unit: str, named: Axes) -> None:
    figure.axes[-1].set_xlabel(unit)
    handles, labels = named.get_legend_handles_labels()
    if len(handles) > FEW:  # name only the mean, which is the last curve, if it is drawn
        first = -1 if labels[-1].startswith("mean of") else len(labels)
        handles, labels = handles[first:], labels[first:]
    if handles:
        named.legend(handles, shorten(labels), handlelength=1.2, **BESIDE)
    for axes in figure.axes:
        say_if_empty(axes)
    _set_margins(figure)


def _set_margins(figure: Figure) -> None:
    """Leave room for titles, numbers and the widest legend; a layout engine takes far longer."""
    legends = [legend for axes in figure.axes if (legend := axes.get_legend()) is not None]
    renderer = RendererAgg(1, 1, figure.dpi)  # type: ignore[no-untyped-call]
    widest = max((legend.get_window_extent(renderer).width for legend in legends), default=0.0)
    right = RIGHT + widest / figure.dpi
    width, height = figure.get_size_inches()
    panel = (height - TOP - BOTTOM) / len(figure.axes)
    figure.set_layout_engine(None)
    figure.subplots_adjust(
        left=LEFT / width,
        right=1.0 - right / width,
        top=1.0 - TOP / height,
        bottom=BOTTOM / height,
        hspace=BETWEEN / (panel - BETWEEN),
    )


def say_if_empty(axes: Axes) -> None:
    """Write a note into an empty panel."""
    if not axes.lines and not axes.collections:
        axes.set_yticks([])
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", color=QUIET)


def colours_of(summary: RunSummary) -> dict[str, str]:
    """Return a colour for each policy."""
    names = [policy.name for policy in summary.policies]
    return dict(zip(names, palette(len(names)), strict=True))


def palette(count: int) -> list[str]:
    """Return `count` colours: distinct ones for few, shades for many."""
    if count <= FEW:
        return list(PALETTE[:count])
    return [to_hex(shade) for shade in mpl.colormaps["viridis"](np.linspace(0.0, 0.92, count))]
