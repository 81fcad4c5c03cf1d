"""The results of a run in the terminal: tables, file paths, and remarks on problems."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from remuda.config import load_config
from remuda.errors import ConfigError
from remuda.runs.metrics import Record
from remuda.runs.run_directory import RunDirectory
from remuda.ui.reports.summary import (
    END,
    PolicySummary,
    RunSummary,
    read_run,
    returns,
    weighted_mean,
)
from remuda.ui.terminal.numbers import NOTHING, clock, number, percent, rate, restarted, waited
from remuda.ui.terminal.tables import NAME, excess, fitting_table, table_of

rating_words = "{0.rating:.1f} ± {0.uncertainty:.1f}".format  # of a member
Column = tuple[str, Callable[[PolicySummary], str]]  # a heading, and the cell of a policy

COLUMNS: tuple[Column, ...] = (
    ("in training", lambda p: number(p.training_return)),
    ("episodes", lambda p: f"{p.episodes:,}"),
    ("updates", lambda p: f"{p.updates:,}"),
    ("version", lambda p: f"{p.version:,}"),
    ("staleness", lambda p: number(p.staleness)),
    ("replay ratio", lambda p: number(p.replay_ratio)),
)
STANDING: tuple[Column, ...] = (  # additional columns of a population
    ("rating", lambda p: rating_words(p.member) if p.member else NOTHING),
    ("wins", lambda p: percent(p.member.win_rate if p.member else None)),
    ("games", lambda p: f"{p.member.games:,}" if p.member else NOTHING),
)
WELFARE: Column = ("welfare", lambda p: number(p.member.welfare if p.member else None))
LEARNED = ("updates", "version", "staleness", "replay ratio")  # empty for scripted policies
LEFT_OUT = (
    "version",
    "episodes",
    "games",
    "staleness",
    "updates",
    "replay ratio",
    "welfare",
    "wins",
)
"""Columns that a narrow terminal leaves out, the least important first."""
NARROWEST = 8  # minimum characters of the column of policies' names


def columns_of(summary: RunSummary) -> tuple[Column, ...]:
    """Return the columns of the table of policies."""
    evaluated: Column = (f"{summary.way} return", lambda p: p.evaluated)
    in_training, *others = COLUMNS
    if not any(policy.member for policy in summary.policies):
        return (evaluated, *COLUMNS)
    others = [column for column in others if column[0] != "episodes"]
    welfare = (WELFARE,) if _welfare_differs(summary.policies) else ()
    return (evaluated, in_training, *STANDING, *welfare, *others)


def _welfare_differs(policies: Sequence[PolicySummary]) -> bool:
    """Return whether the welfare says more than that it is constant, or the return of one agent."""
    members = [each.member for each in policies if each.member]
    known = [(m.welfare, m.mean_return) for m in members if m.welfare is not None]
    if not known:
        return False
    own = np.array(known, np.float64)
    scale = 1e-6 * max(float(np.abs(own).max()), 1e-30)
    return float(np.ptp(own[:, 0])) > scale and float(np.abs(own[:, 0] - own[:, 1]).max()) > scale


def cells_of(policy: PolicySummary, columns: tuple[Column, ...]) -> Iterator[str]:
    """Yield the cells of a policy's row."""
    for heading, cell in columns:
        yield NOTHING if policy.scripted and heading in LEARNED else cell(policy)


def print_files(run: Path, console: Console | None = None) -> None:
    """Print the paths of the report, the GIF and the weights of a run."""
    console, files = console or Console(), RunDirectory(run)
    paths = {
        "report": files.path / "report.html",
        "picture": files.recording,
        "weights": files.weights,
    }
    for name, path in paths.items():
        if path.exists():
            console.print(Text.assemble((f"{name:<9}", "dim"), str(path)), soft_wrap=True)


def print_results(run: Path, console: Console | None = None) -> None:
    """Print how a run ended, a table of its policies, and remarks."""
    console = console or Console()
    summary = read_run(run)
    ending = summary.ending
    end = f"  {ending['schedule']}, seed {ending['seed']}: {ending['ended']}\n"
    details = (
        f"{ending['turns']:,} turns and {ending['agent_steps']:,} agent-steps "
        f"in {clock(ending['seconds'])}\n"
        f"{rate(ending['agent_steps_per_second'])} agent-steps/s; "
        f"the actor {waited(ending['waits'])}; {restarted(ending['restarts'])}"
    )
    headline = Text.assemble((ending["game"], "bold"), end, (details, "dim"))
    blocks: list[Text | Table] = [headline, _fitting_table(summary, console)]
    if summary.records and summary.records[-1].members:
        blocks.append(Text(population_words(summary.records[-1]), "dim"))
    if summary.episode_metrics:
        table = table_of("mean per episode", summary.way, "in training")
        for metric in summary.episode_metrics:
            table.add_row(metric.words, metric.evaluated_words, number(metric.training))
        blocks.append(table)
    if notes := remarks(summary):
        blocks.append(Text("\n".join(notes), "yellow"))
    for block in blocks:
        console.print()
        console.print(block)
    console.print()


def population_words(record: Record) -> str:
    """Describe the size of a population and its number of matches."""
    fixed = [name for name, member in record.members.items() if not member.learns]
    scripted = sum("@" not in name for name in fixed)  # only frozen copies have versions
    frozen, live = record.num_frozen - scripted, record.num_live
    parts = ["1 frozen copy" if frozen == 1 else f"{frozen} frozen copies"] * (frozen > 0)
    parts += [f"{scripted} scripted"] * (scripted > 0)
    others = f", and {' and '.join(parts)}" if parts else ""
    policies = "1 policy" if live == 1 else f"{live} policies"
    return f"{record.matches:,} matches of {policies}{others}"


def _fitting_table(summary: RunSummary, console: Console) -> Table:
    longest = max((len(policy.title) for policy in summary.policies), default=0)
    name = min(max(longest, NARROWEST), NAME)
    headings = [heading for heading, _ in columns_of(summary)]
    table = fitting_table(partial(_policies_table, summary, name), headings, LEFT_OUT, console)
    narrower = max(name - max(excess(table, console), 0), NARROWEST)
    return _policies_table(summary, narrower, [str(each.header) for each in table.columns[1:]])


def _policies_table(summary: RunSummary, name: int, headings: Sequence[str]) -> Table:
    columns = tuple(column for column in columns_of(summary) if column[0] in headings)
    table = table_of("policy", *headings, overflow="ellipsis", no_wrap=True, width=name)
    for policy in summary.policies:
        table.add_row(Text(policy.title), *cells_of(policy, columns))
    return table


def remarks(summary: RunSummary) -> list[str]:
    """Return remarks on the results of a run."""
    ending, found = summary.ending, []
    for name in ending["halted"]:
        found.append(
            f"{name} stopped learning: too many of its updates were not finite "
            "(policy.max_nonfinite in a row). It kept playing with its last good weights; try a "
            "lower policy.learning_rate or policy.reward_scale"
        )
    found += ending["notes"]
    found += _missed_ratios(summary)
    found += _worse_greedily(summary)
    if summary.damaged:
        lines = "1 line" if summary.damaged == 1 else f"{summary.damaged} lines"
        found.append(f"{lines} of {summary.files.metrics} could not be read and were skipped")
    return found


MISSED = 0.5  # a replay ratio below this share of `experience.replay_ratio` is reported as missed
ENOUGH = 20  # minimum updates to judge a replay ratio
ENTIRE = 0.75  # above this share of the time, a learner counts as busy, or as having a processor
# Greedy play is reported as worse if it loses more than all three of:
LOST = 0.5  # this share of the improvement in training,
NOTABLE = 0.1  # this share of the training return,
ERRORS = 3.0  # and this many standard errors.


def _worse_greedily(summary: RunSummary) -> Iterator[str]:
    worse = []
    for policy in summary.policies if summary.way == "greedy" else ():
        greedy, error = policy.evaluated_return, policy.standard_error
        found = list(returns(summary.records, policy.name))
        if greedy is None or error is None or policy.scripted or not found:
            continue
        turns = found[-1][0]
        training, uncertain = _mean_of([(x, n) for at, x, n in found if at >= (1 - END) * turns])
        early, at_first = _mean_of([(x, n) for at, x, n in found if at <= END * turns])
        learned, lost = training - early, training - greedy
        if learned <= ERRORS * math.hypot(uncertain, at_first):
            continue
        if lost > max(
            LOST * learned, ERRORS * math.hypot(error, uncertain), NOTABLE * abs(training)
        ):
            worse.append((policy.name, greedy, training))
    if worse:
        name, greedy, training = worse[0]
        others = len(worse) - 1
        more = f" (similar for {others} more)" if others else ""
        yield (
            f"{name} returned {number(greedy)} per episode in greedy play, but {number(training)} "
            f"in training, where actions are sampled{more}. To evaluate this run with sampling: "
            f"remuda evaluate {summary.files.path} --sampled; for new runs, set "
            "--run.evaluate_sampled true"
        )


def _mean_of(intervals: Sequence[tuple[float, int]]) -> tuple[float, float]:
    """Return the mean over episodes and its standard error, from means and counts of intervals."""
    count = sum(n for _, n in intervals)
    if len(intervals) < 2:
        return 0.0, math.inf
    mean = sum(value * n for value, n in intervals) / count
    scatter = sum((n * (value - mean) / count) ** 2 for value, n in intervals)
    return mean, math.sqrt(scatter * len(intervals) / (len(intervals) - 1))


def _missed_ratios(summary: RunSummary) -> Iterator[str]:
    try:
        config = load_config(summary.config, known=summary.files.read_entries())
    except ConfigError:
        return
    missed: dict[float, list[PolicySummary]] = {}
    for policy in summary.policies:
        settings = config.policy_of(policy.name)
        ratio = settings.experience.replay_ratio
        if ratio is None or settings.rollout_length or policy.replay_ratio is None:
            continue
        if policy.updates >= ENOUGH and policy.replay_ratio < MISSED * ratio:
            missed.setdefault(ratio, []).append(policy)
    for ratio, policies in missed.items():
        names = ", ".join(policy.name for policy in policies[:4])
        if len(policies) > 4:
            names += f" and {len(policies) - 4} more"
        reached = max(policy.replay_ratio or 0.0 for policy in policies)
        starts = {p.name: config.policy_of(p.name).experience.learning_starts for p in policies}
        newest = _ratio_since_resume(summary, starts, config.saves_replay)
        if newest is None or newest < MISSED * ratio:
            why = _why_missed(summary)
        else:
            why = f"this was before the run was resumed; since then the ratio is {number(newest)}"
        yield (
            f"{names} trained on at most {number(reached)} samples per step, but "
            f"policy.experience.replay_ratio is {number(ratio)}: {why}"
        )


def _ratio_since_resume(
    summary: RunSummary, starts: Mapping[str, int], saves_replay: bool
) -> float | None:
    """Return the smallest replay ratio since the last resume; None: the run was not resumed."""
    earlier = [record for record in summary.records if record.seconds <= summary.ending["earlier"]]
    if not earlier or len(earlier) == len(summary.records):
        return None
    ratios = []
    for name, begin in starts.items():
        before, now = earlier[-1].policies.get(name), summary.records[-1].policies[name]
        if before is None or now.replay_ratio is None:
            continue
        samples = now.replay_ratio * (now.steps - begin)
        steps = now.steps - before.steps
        if before.replay_ratio is None:
            steps = now.steps - begin
        else:
            samples -= before.replay_ratio * (before.steps - begin)
            steps -= 0 if saves_replay else begin
        ratios.append(samples / steps if steps > 0 else 0.0)
    return min(ratios, default=None)


def _why_missed(summary: RunSummary) -> str:
    """Explain from busy and processor time why learners fell behind in the last session."""
    waiting = "policy.experience.on_full wait, which makes the game wait for them,"
    shares = [
        share for role, share in summary.ending["processors"].items() if role.startswith("learner")
    ]
    busy = busy_share(summary.records, summary.ending["earlier"])
    if not shares or not busy:
        return (
            "the learners did not keep up with the game. Fewer or smaller policies, learners.nice "
            f"0, or {waiting} help"
        )
    busy, share = min(busy / len(shares), 1.0), sum(shares) / len(shares)
    if share < ENTIRE * busy:
        return (
            f"the learners trained for {busy:.0%} of the time, and had a processor for "
            f"{share / busy:.0%} of that: the game and other programs used the rest. Fewer "
            "or smaller policies, learners.nice 0, a less busy machine, or "
            f"{waiting} help"
        )
    if busy > ENTIRE:
        return (
            f"the learners trained for {busy:.0%} of the time and had a processor: their updates "
            "take longer than the game's steps allow. Smaller networks or batches, more "
            f"learners.processes if there are free cores, or {waiting} help"
        )
    return (
        f"the learners trained for only {busy:.0%} of the time: they started late, were "
        "restarted, or waited; see their logs"
    )


def busy_share(records: Sequence[Record], since: float = 0.0) -> float | None:
    """Return the mean number of busy learners at a time, from `since` seconds on."""
    seconds = [0.0, *(record.seconds for record in records)]
    shares = []
    for record, (start, end) in zip(records, pairwise(seconds), strict=True):
        busy = [policy.busy for policy in record.policies.values() if policy.busy is not None]
        passed = end - max(start, since)
        if busy and passed > 0.0:  # a restarted learner has no value; assume the mean of the others
            shares.append((sum(busy) * len(record.policies) / len(busy), passed))
    return weighted_mean(shares)
