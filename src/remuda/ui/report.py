"""The report of a run: one page with tables and charts, made from the run's own files."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from matplotlib.colors import to_hex

from remuda.checkpoint.opening import read_file
from remuda.coordinator.metrics import with_all_members
from remuda.coordinator.run_directory import write_file
from remuda.ui.charts import MOST, colours_of, draw_charts, title_of
from remuda.ui.embedding import with_pictures
from remuda.ui.numbers import clock, number, percent, rate, restarted, waited
from remuda.ui.remarks import remarks
from remuda.ui.results import cells_of, columns_of, population_words
from remuda.ui.summary import RunSummary, read_run


def write_report(run: Path) -> Path:
    """Write `report.html` and its charts into a run's directory; returns the page's path.

    Raises:
        RunDirectoryError: the run's files are missing or damaged, or cannot be written.
    """
    summary = read_run(run)
    for name, picture in draw_charts(summary).items():
        write_file(run / name, picture)
    section = ""
    if summary.files.ledger.is_file():
        # Its libraries take a while to load, and a run without a population needs none of them.
        from remuda.ui.pictures.section import write_lineage, write_section

        section = write_lineage(summary.files) + write_section(summary.files)
    page = run / "report.html"
    write_file(page, with_pictures(page_of(summary, section), run).encode())
    return page


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
.warning { max-width: 44rem; padding-left: 0.8rem; border-left: 3px solid #d9722e;
           color: var(--ink); }
figure { margin: 0; }
img { display: block; max-width: 100%; height: auto; }
.chart { width: 100%; }
.drawn { margin: 1.6rem 0 2.2rem; }
figcaption { margin-top: 0.5rem; max-width: 44rem; color: var(--quiet); font-size: 0.875rem; }
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


def page_of(summary: RunSummary, section: str = "") -> str:
    """The whole page as HTML; its pictures are the files beside it.

    Args:
        summary: of the run.
        section: about its population, as HTML.
    """
    ending = summary.ending
    game = escape(ending["game"])
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
<p class="lead">{policies}, trained in {clock(ending["seconds"])}; {escape(ending["ended"])}.</p>
<dl>
{_definitions(ending)}
</dl>
<h2>Policies</h2>
<div class="scroll">
{_table(summary)}
</div>
{_remarks(summary)}
<p class="note">{_notes(summary)}</p>
{_population(summary)}
{section}
{_game(summary)}
<h2>Learning</h2>
{_figure("learning.png", "chart", "Return and loss of each policy over the turns played")}
<h2>Throughput</h2>
{_figure("throughput.png", "chart", "Speed of the actor and the learners over time")}
{_play(summary)}
<details>
<summary>The whole configuration</summary>
<pre>{escape(read_file(summary.files.config).decode(errors="replace"))}</pre>
</details>
</body>
</html>
"""


def _definitions(ending: dict[str, Any]) -> str:
    terms = {
        "schedule": ending["schedule"],
        "seed": ending["seed"],
        "turns": f"{ending['turns']:,}",
        "agent-steps": f"{ending['agent_steps']:,}",
        "duration": clock(ending["seconds"]),
        "agent-steps per second": rate(ending["agent_steps_per_second"]),
        "the actor": waited(ending["waits"]),
        "restarts": restarted(ending.get("restarts", {})),
        "Remuda": ending["version"],
    }
    lines = [f"<div><dt>{k}</dt><dd>{escape(str(v))}</dd></div>" for k, v in terms.items()]
    layout = escape(ending["layout"])
    return "\n".join([*lines, f'<div class="wide"><dt>layout</dt><dd>{layout}</dd></div>'])


def _table(summary: RunSummary) -> str:
    columns = columns_of(summary)
    headings = "".join(f'<th scope="col">{heading}</th>' for heading, _ in columns)
    colours = colours_of(summary)
    rows = []
    for policy in summary.policies:
        colour = to_hex(colours[policy.name])
        dot = f'<span class="dot" style="background: {colour}"></span>'
        first, *rest = (escape(cell).replace("-", "−") for cell in cells_of(policy, columns))
        cells = f'<td class="main">{first}</td>' + "".join(f"<td>{cell}</td>" for cell in rest)
        rows.append(f'<tr><th scope="row">{dot}{escape(policy.title)}</th>{cells}</tr>')
    head = f'<thead><tr><th scope="col">policy</th>{headings}</tr></thead>'
    return f"<table>\n{head}\n<tbody>\n" + "\n".join(rows) + "\n</tbody>\n</table>"


def _game(summary: RunSummary) -> str:
    """What the game tells of its episodes, as a table and a chart; empty: nothing."""
    if not summary.episode_metrics:
        return ""
    rows = "\n".join(
        f'<tr><th scope="row">{escape(title_of(metric))}</th>'
        f'<td class="main">{escape(metric.evaluated_words).replace("-", "−")}</td>'
        f"<td>{number(metric.training).replace('-', '−')}</td></tr>"
        for metric in summary.episode_metrics
    )
    return f"""<h2>Episodes</h2>
<div class="scroll">
<table>
<thead><tr><th scope="col">of an episode, on average</th><th scope="col">{summary.way}</th>
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
    whole = with_all_members(summary.records) or record
    frozen = [(name, m) for name, m in whole.members.items() if not m.learns]
    frozen.sort(key=lambda pair: -pair[1].rating)
    rows = "\n".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        f'<td class="main">{m.rating:.1f} ± {m.uncertainty:.1f}</td>'
        f"<td>{percent(m.win_rate)}</td><td>{m.games:,}</td>"
        f"<td>{number(m.mean_return).replace('-', '−')}</td></tr>"
        for name, m in frozen[:MOST]
    )
    has_scripted = any("@" not in name for name, _ in frozen)
    heading = "frozen or scripted" if has_scripted else "frozen copy"
    table = f"""<div class="scroll">
<table>
<thead><tr><th scope="col">{heading}</th><th scope="col">rating</th><th scope="col">wins</th>
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


def _remarks(summary: RunSummary) -> str:
    """What a reader of the table must know besides."""
    return "\n".join(f'<p class="warning">{escape(words)}</p>' for words in remarks(summary))


def _notes(summary: RunSummary) -> str:
    """What the numbers of the table mean."""
    episodes = summary.episodes_evaluated
    without = "with" if summary.way == "sampled" else "without"
    evaluated = (
        f"{summary.way.capitalize()} return: mean ± standard error over {episodes:,} episodes "
        f"{without} exploration."
        if episodes
        else "The policies were not evaluated."
    )
    return (
        f"{evaluated} In training: the mean over the last tenth of the turns, with exploration. "
        "Staleness: versions by which the acting weights lagged behind the learner's, on average. "
        "Replay ratio: training samples per collected step."
    )


def _figure(source: str, kind: str, words: str) -> str:
    return f'<figure><img class="{kind}" src="{source}" alt="{words}"></figure>'


def _play(summary: RunSummary) -> str:
    if not summary.files.recording.is_file():
        return ""
    figure = _figure("play.gif", "play", "The trained policies at play")
    return f'<section class="screen">\n<h2>Play</h2>\n{figure}\n</section>'
