"""The report of a run: one page with a table and two charts, made from the run's own files."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter

from remuda.coordinator.metrics import PolicyRecord, Record
from remuda.coordinator.run_directory import write_file
from remuda.population.ledger import payoffs, read_records
from remuda.population.records import PolicyRef
from remuda.ui.summary import (
    FactSummary,
    RunSummary,
    clock,
    columns_of,
    number,
    percent,
    population_words,
    rate,
    read_run,
    restarted,
    returns,
    waited,
)

Numbers = npt.NDArray[np.float64]
Point = tuple[float, float, int]
"""Where, what, and of what weight."""

FEW = 10
"""The most policies that get a colour one can tell from the others, and a place in the legend."""

PALETTE = (
    "#3366b0",
    "#d9722e",
    "#2e9673",
    "#b8436d",
    "#8a63c9",
    "#c79a1b",
    "#3ba3c4",
    "#7d5a44",
    "#7d8a2e",
    "#5b6470",
)
SHARE_COLOURS = {
    "env": "#3366b0",
    "infer": "#3ba3c4",
    "write": "#2e9673",
    "weights": "#8a63c9",
    "wait": "#d9722e",
}
INK, QUIET, FAINT = "#33373d", "#666c75", "#eceef0"

LOOK: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 9.5,
    "text.color": INK,
    "text.parse_math": False,  # a policy may be called $
    "axes.edgecolor": "#c9cdd2",
    "axes.labelcolor": QUIET,
    "axes.titlelocation": "left",
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlepad": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "xtick.color": "#c9cdd2",
    "xtick.labelcolor": QUIET,
    "ytick.labelcolor": QUIET,
    "ytick.left": False,
    "figure.constrained_layout.h_pad": 0.1,
    "figure.constrained_layout.w_pad": 0.1,
    "legend.frameon": False,
    "lines.solid_capstyle": "round",
}
"""matplotlib's settings for the charts."""


def write_report(run: Path) -> Path:
    """Write `report.html` and its charts into a run's directory; returns the page's path.

    Raises:
        RunDirectoryError: the run's files are missing or damaged, or cannot be written.
    """
    summary = read_run(run)
    with mpl.rc_context(LOOK):
        write_file(run / "learning.png", _png(learning_chart(summary)))
        write_file(run / "throughput.png", _png(throughput_chart(summary)))
        if summary.told:
            write_file(run / "game.png", _png(game_chart(summary)))
        if summary.files.ledger.is_file():
            write_file(run / "payoff.png", _png(payoff_chart(summary)))
    page = run / "report.html"
    write_file(page, page_of(summary).encode())
    return page


def learning_chart(summary: RunSummary) -> Figure:
    """Return over turns, with the greedy evaluation at its end, above a small chart of the loss."""
    figure, (top, bottom) = _panels("Return per episode", "Loss", heights=(3.2, 1.1))
    records, colours = summary.records, _colours(summary)
    crowded = len(colours) > FEW
    for name, colour in colours.items():
        _curve(top, returns(records, name), colour, name, crowded)
        _curve(bottom, _series(records, name, lambda policy: policy.loss), colour, name, crowded)
    if crowded:
        _curve(top, _mean_returns(records), INK, f"mean of {len(colours)}")

    turns = max(summary.facts["turns"], 1)
    evaluated = _mark_evaluation(top, summary, turns)
    top.set_xlim(0, turns * (1.11 if evaluated else 1.0))  # and so the other's
    top.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    top.xaxis.set_major_formatter(EngFormatter(sep=""))
    if _spans_decades(bottom):
        bottom.set_yscale("log")
    _finish(figure, "turns", named=top)
    return figure


def game_chart(summary: RunSummary) -> Figure:
    """What the game tells of its episodes, over turns: a panel for each fact."""
    told = summary.told
    figure, panels = _panels(*(_title(fact) for fact in told), heights=(1.2,) * len(told))
    turns = max(summary.facts["turns"], 1)
    for axes, fact in zip(panels, told, strict=True):
        means = [(record.turns, record.facts.get(fact.name)) for record in summary.records]
        _curve(axes, ((x, y, 1) for x, y in means if y is not None), INK, "")
    panels[0].set_xlim(0, turns)  # and so the others'
    panels[0].xaxis.set_major_locator(MaxNLocator(8, integer=True))
    panels[0].xaxis.set_major_formatter(EngFormatter(sep=""))
    _finish(figure, "turns", named=panels[0])
    return figure


MOST = 24
"""The most members in the picture of payoffs."""


def payoff_chart(summary: RunSummary) -> Figure:
    """What the row earns against the column, in training so far, as a heat map."""
    names, records = read_records(summary.files.ledger)
    refs, sums = payoffs(records)
    # The live policies, and of the frozen copies the newest.
    kept = sorted(range(len(refs)), key=lambda i: (refs[i][1] >= 0, -refs[i][1], refs[i][0]))[:MOST]
    kept.sort(key=lambda i: (refs[i][1] >= 0, refs[i][0], refs[i][1]))
    labels = [str(PolicyRef(names[p], version)) for p, version in (refs[i] for i in kept)]
    met, _, earned = sums[:, kept][:, :, kept]
    means = np.where(met > 0, earned / np.maximum(met, 1), np.nan)
    count = len(kept)
    figure = Figure(figsize=(9.6, 1.6 + 0.32 * max(count, 4)), dpi=160, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    known = means[np.isfinite(means)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    if low < 0 < high:
        low, high = -max(-low, high), max(-low, high)
    picture = axes.imshow(means, cmap="RdBu" if low < 0 < high else "viridis", vmin=low, vmax=high)
    axes.set_xticks(range(count), labels, rotation=90 if count > 4 else 0)
    axes.set_yticks(range(count), labels)
    axes.grid(visible=False)
    axes.set_title("What the row earns against the column")
    if count <= 12:
        middle, span = (low + high) / 2, max(high - low, 1e-9)
        for i, j in np.argwhere(np.isfinite(means)).tolist():
            extreme = abs(means[i, j] - middle) > 0.32 * span
            dark = extreme if low < 0 < high else means[i, j] < middle
            colour = "white" if dark else INK
            axes.text(j, i, number(means[i, j]), ha="center", va="center", color=colour, size=8)
    figure.colorbar(picture, ax=axes, shrink=0.8, label="mean return")
    return figure


def _title(fact: FactSummary) -> str:
    return fact.words[:1].upper() + fact.words[1:]


def _mean_returns(records: Iterable[Record]) -> Iterator[Point]:
    for record in records:
        known = [p.mean_return for p in record.policies.values() if p.mean_return is not None]
        if known:
            yield record.turns, sum(known) / len(known), 1


def _mark_evaluation(axes: Axes, summary: RunSummary, turns: int) -> bool:
    """Set the greedy returns, with their standard errors, beyond the end; False: there are none."""
    marked = [policy for policy in summary.policies if policy.greedy_return is not None]
    if not marked:
        return False
    axes.axvspan(1.01 * turns, 1.10 * turns, color="#f2f3f5", linewidth=0, zorder=0)
    axes.annotate(
        "greedy",
        (1.055 * turns, 1.0),
        (0, 3),
        xycoords=axes.get_xaxis_transform(),
        textcoords="offset points",
        ha="center",
        color=QUIET,
    )
    colours = _colours(summary)
    size = 6.5 if len(marked) <= FEW else 3.5
    places = np.linspace(1.01, 1.10, len(marked) + 2)[1:-1] * turns
    for place, policy in zip(places, marked, strict=True):
        axes.errorbar(
            [place],
            [policy.greedy_return or 0.0],
            yerr=[policy.standard_error or 0.0],
            fmt="o",
            markersize=size,
            markeredgecolor="white",
            markeredgewidth=0.6,
            color=colours[policy.name],
            elinewidth=1.3,
            capsize=size / 2.5,
            zorder=4,
        )
    return True


def _spans_decades(axes: Axes) -> bool:
    """Whether all that is drawn is positive, and spans so much that a logarithm tells more."""
    drawn = [np.asarray(line.get_ydata(), np.float64) for line in axes.lines]
    values = np.concatenate([*drawn, np.zeros(0)])
    return bool(values.size and values.min() > 0 and values.max() > 30 * values.min())


def throughput_chart(summary: RunSummary) -> Figure:
    """Speed over time: agent-steps, where the actor's time went, and the learners' updates."""
    figure, (steps, shares, updates) = _panels(
        "Agent-steps per second",
        "Where the actor's time went",
        "Updates per second",
        heights=(1.5, 1.5, 1.5),
    )
    records, colours = summary.records, _colours(summary)
    span = max(summary.facts["seconds"], *(record.seconds for record in records), 1e-3)
    unit, divisor = _time_unit(span)

    def when(record: Record) -> float:
        return record.seconds / divisor

    _curve(steps, ((when(r), r.agent_steps_per_second, 1) for r in records), INK, "")
    _stack_shares(shares, np.array([when(record) for record in records]), records)
    for name, colour in colours.items():
        rates = _series(records, name, lambda policy: policy.updates_per_second, when)
        _curve(updates, rates, colour, name, len(colours) > FEW)

    steps.set_xlim(0, span / divisor)  # and so the others'
    for axes in (steps, updates):
        most = axes.dataLim.y1
        axes.set_ylim(0, 1.1 * most if most > 0 else 1)
    steps.yaxis.set_major_formatter(EngFormatter(sep=""))
    _finish(figure, unit, named=updates)
    return figure


def _stack_shares(axes: Axes, seconds: Numbers, records: Sequence[Record]) -> None:
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    if not records:
        return
    names = list(records[-1].shares)
    heights = np.array([[record.shares.get(name, 0.0) for record in records] for name in names])
    heights /= np.maximum(heights.sum(axis=0), 1.0)
    if len(records) == 1:  # an area has two ends
        seconds, heights = np.array([0.0, seconds[0]]), np.repeat(heights, 2, axis=1)
    colours = [SHARE_COLOURS.get(name, QUIET) for name in names]
    areas = axes.stackplot(seconds, *heights, colors=colours, alpha=0.85, linewidth=0)
    axes.legend(areas[::-1], names[::-1], handlelength=1.0, handleheight=1.0, **BESIDE)


BESIDE: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.05)}
"""Where legends stand."""


def _panels(*titles: str, heights: tuple[float, ...]) -> tuple[Figure, list[Axes]]:
    """A figure of panels, one above the other, with one axis of turns or time for all."""
    figure = Figure(figsize=(9.6, 0.8 + 1.2 * sum(heights)), dpi=160, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(titles), 1, sharex=True, height_ratios=heights, squeeze=False)
    for axes, title in zip(panels[:, 0], titles, strict=True):
        axes.set_title(title)
    return figure, list(panels[:, 0])


def _curve(
    axes: Axes, points: Iterable[Point], colour: Any, name: str, crowded: bool = False
) -> None:
    """A smooth line over what it was made from; where there are many, the smooth line alone."""
    x, y, weights = np.array([*points], np.float64).reshape(-1, 3).T
    if x.size == 1:
        axes.plot(x, y, "o", color=colour, label=name, markersize=5, clip_on=False, zorder=3)
    elif x.size:
        if not crowded:
            axes.plot(x, y, color=colour, alpha=0.25, linewidth=0.8)
        width, alpha = (0.8, 0.5) if crowded else (1.8, 1.0)
        axes.plot(x, smooth(y, weights), color=colour, label=name, linewidth=width, alpha=alpha)


def smooth(values: Numbers, weights: Numbers) -> Numbers:
    """The weighted mean of each value and its neighbours, about a twentieth of them all.

    The window is centred, so that a rise is shown when it was; at the ends it is cut off.
    """
    place = np.arange(len(values))
    reach = len(values) // 40 + 1
    sums = np.concatenate([[0.0], np.cumsum(values * weights)])
    totals = np.concatenate([[0.0], np.cumsum(weights)])
    begin, end = (place - reach).clip(min=0), (place + reach + 1).clip(max=len(values))
    means: Numbers = (sums[end] - sums[begin]) / (totals[end] - totals[begin])
    return means


def _series(
    records: Iterable[Record],
    policy: str,
    value: Callable[[PolicyRecord], float | None],
    place: Callable[[Record], float] = lambda record: record.turns,
) -> Iterator[Point]:
    """A number of one policy, as far as there was one."""
    for record in records:
        number = value(record.policies[policy]) if policy in record.policies else None
        if number is not None:
            yield place(record), number, 1


def _finish(figure: Figure, unit: str, named: Axes) -> None:
    """Name the common axis, set the legend beside the panel `named`, and own up to empty panels."""
    figure.axes[-1].set_xlabel(unit)
    handles, labels = named.get_legend_handles_labels()
    if 0 < len(handles) <= FEW:
        named.legend(handles, labels, handlelength=1.2, **BESIDE)
    elif handles and labels[-1].startswith("mean of"):
        named.legend(handles[-1:], labels[-1:], handlelength=1.2, **BESIDE)
    for axes in figure.axes:
        if not axes.lines and not axes.collections:
            axes.set_yticks([])
            axes.text(
                0.5, 0.5, "nothing was measured", transform=axes.transAxes, ha="center", color=QUIET
            )


def _time_unit(seconds: float) -> tuple[str, float]:
    if seconds < 300:
        return "seconds", 1.0
    return ("minutes", 60.0) if seconds < 3 * 3600 else ("hours", 3600.0)


def _colours(summary: RunSummary) -> dict[str, Any]:
    """A colour for each policy."""
    names = [policy.name for policy in summary.policies]
    if len(names) <= FEW:
        return dict(zip(names, PALETTE, strict=False))
    shades = mpl.colormaps["viridis"](np.linspace(0.0, 0.92, len(names)))
    return dict(zip(names, shades, strict=True))


def _png(figure: Figure) -> bytes:
    data = io.BytesIO()
    figure.savefig(data, format="png")
    return data.getvalue()


STYLE = """
:root { color-scheme: light dark; --ink: #23272e; --quiet: #6a717b; --line: #dfe2e6;
        --paper: #fff; --accent: #3366b0; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #dfe3e8; --quiet: #939ba6; --line: #353a42; --paper: #16181c; --accent: #86b0ee; }
  .chart { filter: invert(1) hue-rotate(180deg); mix-blend-mode: screen; }
}
body { margin: 0 auto; padding: 3.5rem 1.5rem 5rem; max-width: 58rem; color: var(--ink);
       background: var(--paper); font: 16px/1.55 system-ui, "Segoe UI", sans-serif; }
h1 { margin: 0; font-size: 2rem; font-weight: 650; letter-spacing: -0.015em; line-height: 1.2; }
h2 { margin: 3rem 0 0.9rem; font-size: 1.1rem; font-weight: 650; }
p, summary { color: var(--quiet); }
.lead { margin: 0.3rem 0 2rem; font-size: 1.05rem; }
.note { font-size: 0.875rem; max-width: 44rem; }
figure { margin: 0; }
img { display: block; max-width: 100%; height: auto; }
.chart { width: 100%; }
.play { min-width: min(20rem, 100%); image-rendering: pixelated; border-radius: 6px; }
dl { display: flex; flex-wrap: wrap; gap: 1.1rem 2rem; margin: 0; padding: 1.2rem 0;
     border-top: 1px solid var(--line); border-bottom: 1px solid var(--line); }
dl div { flex: 0 0 11rem; }
dt { color: var(--quiet); font-size: 0.8rem; }
dd { margin: 0; font-size: 1.1rem; font-variant-numeric: tabular-nums; }
dl .wide { flex-basis: 100%; }
dl .wide dd { font-size: 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 0.4rem 0 0.4rem 1.2rem; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { padding-left: 0; text-align: left; }
thead th { color: var(--quiet); font-size: 0.8rem; font-weight: 400;
           border-bottom: 1px solid var(--line); }
tbody th { font-weight: 600; }
tbody tr + tr > * { border-top: 1px solid color-mix(in srgb, var(--line) 55%, transparent); }
td.main { font-weight: 600; color: var(--accent); }
.dot { display: inline-block; width: 0.6em; height: 0.6em; margin-right: 0.6em;
       border-radius: 50%; }
pre { overflow-x: auto; font-size: 0.8rem; line-height: 1.45; }
@media print {
  :root { --ink: #000; --quiet: #555; --line: #ccc; --paper: #fff; --accent: #000; }
  html { font-size: 12.5px; }
  body { max-width: none; padding: 0; font-size: 1rem; }
  .chart { filter: none; mix-blend-mode: normal; }
  figure, tr, dl { break-inside: avoid; }
  h2 { break-after: avoid; margin-top: 1.6rem; }
  details, .screen { display: none; }
}
"""


def page_of(summary: RunSummary) -> str:
    """The whole page as HTML; its pictures are the files beside it."""
    facts = summary.facts
    game = escape(facts["game"])
    count = len(summary.policies)
    policies = "1 policy" if count == 1 else f"{count} policies"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{game}: a run of Remuda</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{game}</h1>
<p class="lead">{policies}, trained in {clock(facts["seconds"])}; {escape(facts["ended"])}.</p>
<dl>
{_facts(facts)}
</dl>
<h2>Policies</h2>
<div class="scroll">
{_table(summary)}
</div>
<p class="note">{_notes(summary)}</p>
{_population(summary)}
{_game(summary)}
<h2>Learning</h2>
{_figure("learning.png", "chart", "Return and loss of each policy over the turns played")}
<h2>Throughput</h2>
{_figure("throughput.png", "chart", "Speed of the actor and the learners over time")}
{_play(summary)}
<details>
<summary>The whole configuration</summary>
<pre>{escape(summary.files.config.read_text())}</pre>
</details>
</body>
</html>
"""


def _facts(facts: dict[str, Any]) -> str:
    told = {
        "schedule": facts["schedule"],
        "seed": facts["seed"],
        "turns": f"{facts['turns']:,}",
        "agent-steps": f"{facts['agent_steps']:,}",
        "duration": clock(facts["seconds"]),
        "agent-steps per second": rate(facts["agent_steps_per_second"]),
        "the actor": waited(facts["waits"]),
        "restarts": restarted(facts.get("restarts", {})),
        "Remuda": facts["version"],
    }
    lines = [f"<div><dt>{k}</dt><dd>{escape(str(v))}</dd></div>" for k, v in told.items()]
    layout = escape(facts["layout"])
    return "\n".join([*lines, f'<div class="wide"><dt>layout</dt><dd>{layout}</dd></div>'])


def _table(summary: RunSummary) -> str:
    columns = columns_of(summary)
    headings = "".join(f'<th scope="col">{heading}</th>' for heading, _ in columns)
    colours = _colours(summary)
    rows = []
    for policy in summary.policies:
        colour = to_hex(colours[policy.name])
        dot = f'<span class="dot" style="background: {colour}"></span>'
        first, *rest = (escape(tell(policy)).replace("-", "−") for _, tell in columns)
        cells = f'<td class="main">{first}</td>' + "".join(f"<td>{cell}</td>" for cell in rest)
        rows.append(f'<tr><th scope="row">{dot}{escape(policy.name)}</th>{cells}</tr>')
    head = f'<thead><tr><th scope="col">policy</th>{headings}</tr></thead>'
    return f"<table>\n{head}\n<tbody>\n" + "\n".join(rows) + "\n</tbody>\n</table>"


def _game(summary: RunSummary) -> str:
    """What the game tells of its episodes, as a table and a chart; empty: nothing."""
    if not summary.told:
        return ""
    rows = "\n".join(
        f'<tr><th scope="row">{escape(_title(fact))}</th>'
        f'<td class="main">{escape(fact.greedy_words).replace("-", "−")}</td>'
        f"<td>{number(fact.training).replace('-', '−')}</td></tr>"
        for fact in summary.told
    )
    return f"""<h2>Episodes</h2>
<div class="scroll">
<table>
<thead><tr><th scope="col">of an episode, on average</th><th scope="col">greedy</th>
<th scope="col">in training</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>
{_figure("game.png", "chart", "What the game tells of its episodes, over the turns played")}"""


def _population(summary: RunSummary) -> str:
    """Who played whom: ratings of the frozen copies, and the payoffs; empty: nothing was dealt."""
    if not summary.records or not summary.records[-1].members:
        return ""
    record = summary.records[-1]
    frozen = [(name, m) for name, m in record.members.items() if not m.learns]
    frozen.sort(key=lambda pair: -pair[1].rating)
    rows = "\n".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        f'<td class="main">{m.rating:.1f} ± {m.uncertainty:.1f}</td>'
        f"<td>{percent(m.win_rate)}</td><td>{m.games:,}</td>"
        f"<td>{number(m.mean_return).replace('-', '−')}</td></tr>"
        for name, m in frozen[:MOST]
    )
    table = f"""<div class="scroll">
<table>
<thead><tr><th scope="col">frozen copy</th><th scope="col">rating</th><th scope="col">wins</th>
<th scope="col">games</th><th scope="col">mean return</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>"""
    picture = ""
    if summary.files.ledger.is_file():
        picture = _figure("payoff.png", "chart", "What each earned against each, in training")
    return f"""<h2>Population</h2>
<p class="note">{population_words(record)}. Ratings are openskill's, which begin at 25 ± 8.3; wins
are the share of meetings with others in which a seat earned more, draws halved.</p>
{picture}
{table if frozen else ""}"""


def _notes(summary: RunSummary) -> str:
    """What the numbers of the table mean."""
    episodes = summary.episodes_evaluated
    greedy = (
        f"Greedy return: mean ± standard error over {episodes:,} episodes without exploration."
        if episodes
        else "The policies were not evaluated."
    )
    return (
        f"{greedy} In training: the mean over the last tenth of the turns, with exploration. "
        "Staleness: versions by which the acting weights lagged behind the learner's, on average. "
        "Replay ratio: training samples per collected step."
    )


def _figure(source: str, kind: str, words: str) -> str:
    return f'<figure><img class="{kind}" src="{source}" alt="{words}"></figure>'


def _play(summary: RunSummary) -> str:
    if not summary.files.recording.is_file():
        return ""
    figure = _figure("play.gif", "play", "The trained policies at play, greedy")
    return f'<section class="screen">\n<h2>Play</h2>\n{figure}\n</section>'
