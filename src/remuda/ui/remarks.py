"""Remarks on the results of a run: problems, and how to fix them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from remuda.config import load_config
from remuda.coordinator.metrics import Record
from remuda.errors import ConfigError
from remuda.ui.numbers import number
from remuda.ui.summary import END, PolicySummary, RunSummary, returns, weighted_mean


def remarks(summary: RunSummary) -> list[str]:
    """Return remarks on the results of a run."""
    ending, found = summary.ending, []
    for name in ending.get("halted", ()):
        found.append(
            f"{name} stopped learning: too many of its updates were not finite "
            "(policy.max_nonfinite in a row). It played on with its last good weights; try a lower "
            "policy.learning_rate or policy.reward_scale"
        )
    found += ending.get("notes", ())
    found += _missed_ratios(summary)
    found += _worse_greedily(summary)
    if summary.damaged:
        lines = "1 line" if summary.damaged == 1 else f"{summary.damaged} lines"
        found.append(f"{lines} of {summary.files.metrics} could not be read, and are left out")
    return found


MISSED = 0.5
"""A replay ratio below this share of `experience.replay_ratio` is reported as missed."""
ENOUGH = 20
"""Updates that are needed to judge a replay ratio."""
ENTIRE = 0.75
"""A learner with at least this share of the time has a processor, or is busy."""
LOST = 0.5
"""Greedy play is reported as worse if it loses this share of what was learned,"""
NOTABLE = 0.1
"""this share of the return in training,"""
ERRORS = 3.0
"""and this many standard errors."""


def _worse_greedily(summary: RunSummary) -> Iterator[str]:
    """Report policies whose greedy return is far below their return in training."""
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
        more = f" (so did {others} more)" if others else ""
        yield (
            f"{name} earned {number(greedy)} an episode in greedy play, and {number(training)} in "
            f"training, where actions are drawn{more}; a run with --run.evaluate_sampled true is "
            f"judged by these, and of this one remuda evaluate {summary.files.path} --sampled "
            "measures that"
        )


def _mean_of(intervals: Sequence[tuple[float, int]]) -> tuple[float, float]:
    """Return the mean over episodes and its standard error, estimated from several intervals.

    `intervals` holds the mean and the number of episodes of each; of one, no error is known.
    """
    count = sum(n for _, n in intervals)
    if len(intervals) < 2:
        return 0.0, math.inf
    mean = sum(value * n for value, n in intervals) / count
    scatter = sum((n * (value - mean) / count) ** 2 for value, n in intervals)
    return mean, math.sqrt(scatter * len(intervals) / (len(intervals) - 1))


def _missed_ratios(summary: RunSummary) -> Iterator[str]:
    """Report the policies that missed their `experience.replay_ratio`."""
    try:
        config = load_config(summary.config)
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
            why = f"it was so before the run was resumed, and is {number(newest)} since then"
        yield (
            f"{names} trained on {number(reached)} samples a step at most, and "
            f"policy.experience.replay_ratio asks for {number(ratio)}: {why}"
        )


def _ratio_since_resume(
    summary: RunSummary, starts: Mapping[str, int], saves_replay: bool
) -> float | None:
    """Return the smallest replay ratio of some policies in the last session; None: it is the first.

    `starts` holds, by policy, the steps that are collected before the first update; without
    `saves_replay` each session collects them again.
    """
    earlier = [record for record in summary.records if record.seconds <= summary.earlier]
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
    """Explain why learners fell behind in the last session, by their processor and busy time."""
    waiting = "policy.experience.on_full wait, by which the game waits for them,"
    had = [
        share
        for role, share in summary.ending.get("processors", {}).items()
        if role.startswith("learner")
    ]
    busy = busy_share(summary.records, summary.earlier)
    if not had or not busy:
        return (
            "the learners did not keep up with the game. Fewer or smaller policies, learners.nice "
            f"0, or {waiting} help"
        )
    busy, share = min(busy / len(had), 1.0), sum(had) / len(had)
    if share < ENTIRE * busy:
        return (
            f"the learners trained for {busy:.0%} of the time, and had a processor for "
            f"{share / busy:.0%} of that: the rest went to the game and to other programs. Fewer "
            "or smaller policies, learners.nice 0, a machine that does less besides, or "
            f"{waiting} help"
        )
    if busy > ENTIRE:
        return (
            f"the learners trained for {busy:.0%} of the time and had a processor: their updates "
            "take longer than the game leaves them. Smaller networks or batches, more "
            f"learners.processes where there are cores, or {waiting} help"
        )
    return (
        f"the learners trained for {busy:.0%} of the time only: they began late, were restarted, "
        "or waited for something; see their logs"
    )


def busy_share(records: Sequence[Record], since: float = 0.0) -> float | None:
    """Return the mean number of learners that trained at a time, from so many seconds on."""
    seconds = [0.0, *(record.seconds for record in records)]
    shares = []
    for record, (start, end) in zip(records, pairwise(seconds), strict=True):
        busy = [policy.busy for policy in record.policies.values() if policy.busy is not None]
        passed = end - max(start, since)
        if busy and passed > 0.0:  # a restarted learner has no value; assume the mean of the others
            shares.append((sum(busy) * len(record.policies) / len(busy), passed))
    return weighted_mean(shares)
