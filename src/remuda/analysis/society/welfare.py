"""Social outcome metrics: efficiency, equality, sustainability and peace.

These are the metrics of Perolat et al. 2017, "A multi-agent reinforcement learning model of
common-pool resource appropriation". They are computed from recorded episodes of N agents. Each
metric has a jackknife standard error over episodes (Efron and Stein 1981, "The jackknife estimate
of variance"), because ratios have no simple formula.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from remuda.analysis.as_json import Summary
from remuda.analysis.payoffs.returns import known
from remuda.errors import UsageError
from remuda.types import Bools, Integers, Numbers


@dataclass(frozen=True)
class Measure(Summary):
    """A value over episodes, with its standard error."""

    value: float  # over all episodes; NaN: undefined
    error: float  # its standard error; NaN with fewer than two episodes
    corrected: float  # the value minus the jackknife estimate of its bias
    episodes: int


@dataclass(frozen=True)
class SocialOutcomes(Summary):
    """The social outcome metrics of some episodes."""

    efficiency: Measure  # the sum of rewards per turn
    equality: Measure  # within an episode
    long_run_equality: Measure  # of the agents' average returns over episodes
    sustainability: Measure | None = None  # the mean turn at which rewards are collected
    peace: Measure | None = None  # the mean number of agents that are not timed out; None: unknown


def social_outcomes(
    rewards: npt.ArrayLike,
    timed_out: npt.ArrayLike | None = None,
    *,
    lengths: npt.ArrayLike | None = None,
    least: float = 0.0,
    took_part: npt.ArrayLike | None = None,
) -> SocialOutcomes:
    """Return all measures of recorded episodes.

    - `rewards`: [episodes, turns, agents].
    - `timed_out`: [episodes, turns, agents] True for agents that may not act; None: no peace
      metric.
    - `lengths`: [episodes] number of turns; later entries are ignored. None: all turns.
    - `took_part`: [episodes, agents]; False: the agent took no part. None: all agents took part.
    """
    r, turns = _by_turn(rewards, lengths, "rewards")
    returns = r.sum(1)
    if took_part is not None:
        present = np.asarray(took_part, np.bool_)
        if present.shape != returns.shape:
            raise UsageError(f"took_part is {present.shape}; it must be {returns.shape}")
        r, returns = np.where(present[:, None], r, 0.0), np.where(present, returns, np.nan)
    return SocialOutcomes(
        efficiency(returns, turns),
        equality(returns, least),
        long_run_equality(returns, least),
        sustainability(r, lengths=turns),
        None if timed_out is None else peace(timed_out, lengths=lengths),
    )


def efficiency(returns: npt.ArrayLike, turns: npt.ArrayLike) -> Measure:
    """Return U = E[sum_i R_i / T]: the sum of rewards per turn.

    Every episode counts equally, whatever its length.

    `returns`: [episodes, agents]; NaN: the agent took no part; `turns`: [episodes] or one number,
    T.
    """
    r = _returns(returns)
    t = np.asarray(turns, np.float64)
    if t.shape not in ((), (len(r),)) or not (t > 0.0).all():
        raise UsageError(
            f"turns are {t.tolist() if t.ndim == 0 else t.shape}; they must be one number greater "
            f"than 0 or one for each of {len(r)} episodes"
        )
    return _mean(np.nansum(r, axis=1) / t)


def equality(returns: npt.ArrayLike, least: float = 0.0) -> Measure:
    """Return 1 - Gini within an episode: 1 for equal returns, 1/N if one agent receives all.

    E = 1 - E[sum_ij |R_i - R_j|] / (2 N E[sum_i R_i]). Numerator and denominator are averaged over
    episodes separately. So episodes are weighted by their total return, and an episode without any
    return does not give 0 / 0. If all returns are zero, equality is 1. N is the number of agents
    that took part in the episode.

    - `returns`: [episodes, agents]; NaN: the agent took no part in that episode.
    - `least`: an agent's minimum return in this game, or its return for doing nothing. It is
      subtracted from all returns. Take it from the game, not from the data: if a return is lower,
      equality is NaN.
    """
    r = _returns(returns) - _least(least)
    if _below_nothing(r):
        return Measure(np.nan, np.nan, np.nan, len(r))
    r = np.maximum(r, 0.0)
    differences, totals = _differences(r), 2.0 * _number(r) * np.nansum(r, axis=1)
    whole = _one_less_ratio(differences.sum(), totals.sum())
    without = _one_less_ratio(
        differences.sum() - differences, np.maximum(totals.sum() - totals, 0.0)
    )
    return _jackknife(float(whole), without)


def long_run_equality(returns: npt.ArrayLike, least: float = 0.0) -> Measure:
    """Return 1 - Gini of the agents' average returns: low if the same agents always receive more.

    Each column must be the same policy or seat in all episodes. Equal agents look unequal over few
    episodes; `corrected` is closer to the truth, and may exceed 1. Averages are over the episodes
    in which an agent took part.

    `returns`: [episodes, agents]; NaN: the agent took no part in that episode.
    """
    r = _returns(returns) - _least(least)
    present = ~np.isnan(r)
    ever = present.any(0)
    r, present = np.where(present, r, 0.0)[:, ever], present[:, ever]
    counts = present.sum(0)
    means = r.sum(0) / counts
    if _below_nothing(means):
        return Measure(np.nan, np.nan, np.nan, len(r))
    whole = _one_less_gini(means[None])[0]
    if len(r) < 2:
        return Measure(float(whole), np.nan, np.nan, len(r))
    # An average that leaves out one episode may be slightly below zero: clip it.
    left = counts - present
    sums = np.where(left > 0, r.sum(0) - r, np.nan)  # NaN for agents with no episode left
    without = np.maximum(sums / np.maximum(left, 1), 0.0)
    return _jackknife(float(whole), _one_less_gini(without))


def sustainability(
    rewards: npt.ArrayLike, *, lengths: npt.ArrayLike | None = None, threshold: float = 0.0
) -> Measure:
    """Return S = E[1/N sum_i t_i], t_i = E[t | r_t^i > 0]: the mean turn of rewards.

    The first turn is 1. An agent without rewards in an episode has no t_i; the average is over the
    other agents. An episode without any rewards is left out, and `Measure.episodes` does not count
    it. S is large if resources last, and (T + 1) / 2 if they are collected evenly.

    `rewards`: [episodes, turns, agents].
    """
    r, turns = _by_turn(rewards, lengths, "rewards")
    collected = (r > threshold) & _played(r.shape, turns)
    number = collected.sum(1)
    sums = (collected * np.arange(1, r.shape[1] + 1)[:, None]).sum(1)
    some = number > 0
    times = np.where(some, sums / np.maximum(number, 1), 0.0).sum(1)
    agents = some.sum(1)
    return _mean(times[agents > 0] / agents[agents > 0])


def peace(timed_out: npt.ArrayLike, *, lengths: npt.ArrayLike | None = None) -> Measure:
    """Return P = E[N T - sum_i sum_t I(timed out)] / T: the mean number of agents that may act.

    `timed_out`: [episodes, turns, agents] True for agents that may not act, such as tagged ones;
    `lengths`: as for `social_outcomes`. Every episode counts equally.
    """
    out, turns = _by_turn(timed_out, lengths, "timed_out")
    if not np.isin(out, (0.0, 1.0)).all():
        raise UsageError("timed_out: it must be True or False, for each agent and turn")
    return _mean(out.shape[2] - out.sum((1, 2)) / turns)


def _returns(returns: npt.ArrayLike) -> Numbers:
    r = np.asarray(returns, np.float64)
    if r.ndim != 2 or min(r.shape) < 1:
        raise UsageError(f"returns are {r.shape}; they must be [episodes, agents]")
    if np.isinf(r).any():
        episode, agent = np.argwhere(np.isinf(r))[0]
        raise UsageError(f"returns: agent {agent} of episode {episode} has {r[episode, agent]}")
    empty = np.isnan(r).all(1)
    if empty.any():
        raise UsageError(
            f"returns: no agent took part in episode {int(empty.argmax())}; leave it out"
        )
    return r


def _number(returns: Numbers) -> Integers:
    """Return [E]: the number of agents that took part, for each row of [E, N]."""
    found: Integers = (~np.isnan(returns)).sum(1)
    return found


def _least(least: float) -> float:
    if not np.isfinite(least):
        raise UsageError(f"least is {least}; it must be a return, such as 0")
    return float(least)


def _by_turn(
    values: npt.ArrayLike, lengths: npt.ArrayLike | None, what: str
) -> tuple[Numbers, Integers]:
    """Check values by turn; return them, set to 0 after each episode [E, T, N], and lengths [E]."""
    r = np.asarray(values, np.float64)
    if r.ndim != 3 or min(r.shape) < 1:
        raise UsageError(f"{what} are {r.shape}; they must be [episodes, turns, agents]")
    turns = np.full(len(r), r.shape[1]) if lengths is None else np.asarray(lengths)
    if turns.shape != (len(r),) or not ((turns >= 1) & (turns <= r.shape[1])).all():
        raise UsageError(
            f"lengths must be {len(r)} numbers, one for each episode, between 1 and {r.shape[1]}"
        )
    turns = turns.astype(np.int64)
    r = np.where(_played(r.shape, turns), r, 0.0)
    if not np.isfinite(r).all():
        episode, turn, agent = np.argwhere(~np.isfinite(r))[0]
        raise UsageError(
            f"{what}: agent {agent} has {r[episode, turn, agent]} in turn {turn + 1} of episode "
            f"{episode}; set `lengths` to the numbers of turns"
        )
    return r, turns


def _played(shape: tuple[int, ...], turns: Integers) -> Bools:
    """Return [E, T, 1]: True for turns before the end of each episode."""
    found: Bools = (np.arange(shape[1]) < turns[:, None])[..., None]
    return found


def _below_nothing(returns: Numbers) -> bool:
    """Return whether any return is negative beyond rounding."""
    largest = float(np.abs(known(returns)).max(initial=0.0))
    return bool((returns < -1e-9 * max(largest, 1e-300)).any())


def _differences(returns: Numbers) -> Numbers:
    """Return [E]: sum_ij |R_i - R_j|, for each row of [E, N], by ranks."""
    ranks = 2.0 * np.arange(returns.shape[1]) - _number(returns)[:, None] + 1.0
    ascending = np.nan_to_num(np.sort(returns, axis=1))  # agents that took no part come last
    found: Numbers = 2.0 * (ascending * ranks).sum(1)
    return found


def _one_less_gini(returns: Numbers) -> Numbers:
    r = np.maximum(returns, 0.0)
    return _one_less_ratio(_differences(r), 2.0 * _number(r) * np.nansum(r, axis=1))


def _one_less_ratio(numerator: npt.ArrayLike, denominator: npt.ArrayLike) -> Numbers:
    """Return 1 - numerator / denominator; 1 if both are 0."""
    under = np.asarray(denominator, np.float64)
    known = under > 0.0
    found: Numbers = 1.0 - np.where(known, numerator, 0.0) / np.where(known, under, 1.0)
    return found


def _mean(values: Numbers) -> Measure:
    """Return the mean over episodes, [E]; NaN without episodes."""
    count = len(values)
    if count == 0:
        return Measure(np.nan, np.nan, np.nan, 0)
    mean = float(values.mean())
    if count == 1:
        return Measure(mean, np.nan, np.nan, 1)
    return _jackknife(mean, (values.sum() - values) / (count - 1))


def _jackknife(whole: float, without: Numbers) -> Measure:
    """Build a measure from its leave-one-out values, [E]."""
    count = len(without)
    if count < 2:
        return Measure(whole, np.nan, np.nan, count)
    mean = float(without.mean())
    error = np.sqrt((count - 1) / count * ((without - mean) ** 2).sum())
    return Measure(whole, float(error), whole + (count - 1) * (whole - mean), count)
