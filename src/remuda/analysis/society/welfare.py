"""Social outcome metrics: efficiency, equality and sustainability.

These are the metrics of Perolat et al. 2017, "A multi-agent reinforcement learning model of
common-pool resource appropriation". They are computed from recorded episodes of N agents. Each
metric has a jackknife standard error over episodes (Efron and Stein 1981, "The jackknife estimate
of variance"), because ratios have no simple formula.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda.analysis.as_json import Summary
from remuda.analysis.payoffs.returns import known, mean_of, standard_error
from remuda.errors import UsageError
from remuda.types import Integers, Numbers


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
    sustainability: Measure  # the mean turn at which rewards are collected


def social_outcomes(
    rewards: npt.ArrayLike,
    lengths: npt.ArrayLike | None = None,
    took_part: npt.ArrayLike | None = None,
) -> SocialOutcomes:
    """Return all measures of recorded episodes.

    - `rewards`: [episodes, turns, agents].
    - `lengths`: [episodes] number of turns; later entries are ignored. None: all turns.
    - `took_part`: [episodes, agents]; False: the agent took no part. None: all agents took part.
    """
    r, turns = _by_turn(rewards, lengths)
    returns = r.sum(1)
    if took_part is not None:
        present = np.asarray(took_part, np.bool_)
        if present.shape != returns.shape:
            raise UsageError(f"took_part is {present.shape}; it must be {returns.shape}")
        r, returns = np.where(present[:, None], r, 0.0), np.where(present, returns, np.nan)
    return SocialOutcomes(
        efficiency(returns, turns),
        equality(returns),
        long_run_equality(returns),
        sustainability(r, turns),
    )


def efficiency(returns: npt.ArrayLike, turns: npt.ArrayLike) -> Measure:
    """Return U = E[sum_i R_i / T]: the sum of rewards per turn.

    Every episode counts equally, whatever its length.

    `returns`: [episodes, agents]; NaN: the agent took no part; `turns`: [episodes] or one number,
    T.
    """
    return mean_measure(np.nansum(_returns(returns), axis=1) / np.asarray(turns))


def equality(returns: npt.ArrayLike) -> Measure:
    """Return 1 - Gini within an episode: 1 for equal returns, 1/N if one agent receives all.

    E = 1 - E[sum_ij |R_i - R_j|] / (2 N E[sum_i R_i]). Numerator and denominator are averaged over
    episodes separately. So episodes are weighted by their total return, and an episode without any
    return does not give 0 / 0. If all returns are zero, equality is 1. N is the number of agents
    that took part in the episode. If a return is negative, equality is NaN.

    `returns`: [episodes, agents]; NaN: the agent took no part in that episode.
    """
    r = _returns(returns)
    if _any_negative(r):
        return Measure(np.nan, np.nan, np.nan, len(r))
    differences, totals = _gini(r)
    whole = _one_less_ratio(differences.sum(), totals.sum())
    without = _one_less_ratio(
        differences.sum() - differences, np.maximum(totals.sum() - totals, 0.0)
    )
    return _jackknife(float(whole), without)


def long_run_equality(returns: npt.ArrayLike) -> Measure:
    """Return 1 - Gini of the agents' average returns: low if the same agents always receive more.

    Each column must be the same policy or seat in all episodes. Equal agents look unequal over few
    episodes; `corrected` is closer to the truth, and may exceed 1. Averages are over the episodes
    in which an agent took part.

    `returns`: [episodes, agents]; NaN: the agent took no part in that episode.
    """
    r = _returns(returns)
    present = ~np.isnan(r)
    ever = present.any(0)
    r, present = np.where(present, r, 0.0)[:, ever], present[:, ever]
    counts = present.sum(0)
    means = r.sum(0) / counts
    if _any_negative(means):
        return Measure(np.nan, np.nan, np.nan, len(r))
    whole = _one_less_ratio(*_gini(means[None]))[0]
    others = counts - present
    sums = np.where(others > 0, r.sum(0) - r, np.nan)  # NaN for agents in no other episode
    return _jackknife(float(whole), _one_less_ratio(*_gini(sums / np.maximum(others, 1))))


def sustainability(rewards: npt.ArrayLike, lengths: npt.ArrayLike | None = None) -> Measure:
    """Return S = E[1/N sum_i t_i], t_i = E[t | r_t^i > 0]: the mean turn of rewards.

    The first turn is 1. An agent without rewards in an episode has no t_i; the average is over the
    other agents. An episode without any rewards is left out, and `Measure.episodes` does not count
    it. S is large if resources last, and (T + 1) / 2 if they are collected evenly.

    `rewards`: [episodes, turns, agents].
    """
    r, _ = _by_turn(rewards, lengths)
    collected = r > 0.0
    number = collected.sum(1)
    sums = (collected * np.arange(1, r.shape[1] + 1)[:, None]).sum(1)
    some = number > 0
    times = np.where(some, sums / np.maximum(number, 1), 0.0).sum(1)
    agents = some.sum(1)
    return mean_measure(times[agents > 0] / agents[agents > 0])


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


def _by_turn(rewards: npt.ArrayLike, lengths: npt.ArrayLike | None) -> tuple[Numbers, Integers]:
    """Check rewards; return them [E, T, N], set to 0 after the end of episodes, and lengths [E]."""
    r = np.asarray(rewards, np.float64)
    if r.ndim != 3 or min(r.shape) < 1:
        raise UsageError(f"rewards are {r.shape}; they must be [episodes, turns, agents]")
    turns = np.full(len(r), r.shape[1]) if lengths is None else np.asarray(lengths)
    if turns.shape != (len(r),) or not ((turns >= 1) & (turns <= r.shape[1])).all():
        raise UsageError(
            f"lengths must be {len(r)} numbers, one for each episode, between 1 and {r.shape[1]}"
        )
    turns = turns.astype(np.int64)
    r = np.where((np.arange(r.shape[1]) < turns[:, None])[..., None], r, 0.0)
    if not np.isfinite(r).all():
        episode, turn, agent = np.argwhere(~np.isfinite(r))[0]
        raise UsageError(
            f"rewards: agent {agent} has {r[episode, turn, agent]} in turn {turn + 1} of episode "
            f"{episode}; set `lengths` to the numbers of turns"
        )
    return r, turns


def _any_negative(returns: Numbers) -> bool:
    """Return whether any return is negative beyond rounding."""
    largest = float(np.abs(known(returns)).max(initial=0.0))
    return bool((returns < -1e-9 * max(largest, 1e-300)).any())


def _gini(returns: Numbers) -> tuple[Numbers, Numbers]:
    """Return [E]: sum_ij |R_i - R_j| by ranks, and 2 N sum_i R_i, for each row of [E, N].

    Rounding may take averages slightly below zero: they are clipped.
    """
    number = (~np.isnan(returns)).sum(1)
    ranks = 2.0 * np.arange(returns.shape[1]) - number[:, None] + 1.0
    # Agents that took no part are sorted last.
    ascending = np.nan_to_num(np.sort(np.maximum(returns, 0.0), axis=1))
    return 2.0 * (ascending * ranks).sum(1), 2.0 * number * ascending.sum(1)


def _one_less_ratio(numerator: npt.ArrayLike, denominator: npt.ArrayLike) -> Numbers:
    """Return 1 - numerator / denominator; 1 if both are 0."""
    under = np.asarray(denominator, np.float64)
    known = under > 0.0
    return 1.0 - np.where(known, numerator, 0.0) / np.where(known, under, 1.0)


def mean_measure(values: npt.NDArray[Any]) -> Measure:
    """Return the mean over episodes [E] and its standard error, without NaN."""
    mean = mean_of(values)
    return Measure(mean, standard_error(values), mean, len(known(values)))


def _jackknife(whole: float, without: Numbers) -> Measure:
    """Build a measure from its leave-one-out values, [E]."""
    count = len(without)
    if count < 2:
        return Measure(whole, np.nan, np.nan, count)
    mean = float(without.mean())
    error = np.sqrt((count - 1) / count * ((without - mean) ** 2).sum())
    return Measure(whole, float(error), whole + (count - 1) * (whole - mean), count)
