"""Outcomes of groups in which each agent keeps one policy, from recorded episodes.

Without a population, policies do not meet in pairs, so there are no payoffs. Each agent's return
and the social outcome can still be measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from remuda.analysis.as_json import as_json, figures
from remuda.analysis.payoffs.returns import known
from remuda.analysis.society.welfare import (
    Measure,
    SocialOutcomes,
    mean_measure,
    social_outcomes,
)
from remuda.errors import UsageError
from remuda.types import Integers, Numbers

CHANCE = 0.05  # a difference with a larger p-value may be chance
DESCRIBED = 4  # episode metrics that get a sentence; the others are in the summary


@dataclass(frozen=True)
class Society:
    """The outcome of a group of agents."""

    agents: tuple[str, ...]
    returns: Numbers = field(repr=False)  # [E, N] by episode and agent; NaN: took no part
    lengths: Integers = field(repr=False)  # [E] turns of the episodes
    outcomes: SocialOutcomes
    episode_metrics: Mapping[str, Measure]  # means of episode metrics, with standard errors

    @property
    def mean_returns(self) -> tuple[Measure, ...]:
        """Each agent's mean return over the episodes in which it took part."""
        return tuple(mean_measure(column) for column in self.returns.T)

    @property
    def measures(self) -> dict[str, Measure]:
        length = {"episode_length": mean_measure(self.lengths)}
        return vars(self.outcomes) | length | dict(self.episode_metrics)

    @property
    def is_constant_sum(self) -> bool:
        """True if the agents' returns vary, but their sum is the same in every episode.

        False if all returns are constant, because the agents may share a success.
        """
        if len(self.agents) < 2:
            return False
        scale = max(float(np.abs(known(self.returns)).max()), 1e-12)
        ranges = [np.ptp(each) for each in map(known, self.returns.T) if len(each)]
        varies = len(ranges) > 1 and max(ranges) > 1e-3 * scale
        return bool(varies and np.ptp(np.nansum(self.returns, axis=1)) <= 1e-5 * scale)

    def as_summary(self) -> dict[str, Any]:
        """Return the contents of `analysis.json` for a run without a population."""
        return {
            "analysis": 1,
            "episodes": len(self.returns),
            "agents": as_json(dict(zip(self.agents, self.mean_returns, strict=True))),
            "welfare": self.outcomes.as_summary(),
            "episode_metrics": as_json(self.episode_metrics),
            "episode_length": mean_measure(self.lengths).as_summary(),
            "in_words": self.in_words(),
        }

    def in_words(self) -> dict[str, str]:
        """Return one sentence for each part."""
        words = {
            "returns": self._returns_in_words(),
            "efficiency": f"All agents together get {_words(self.outcomes.efficiency)} per turn.",
            "equality": self._equality_in_words(),
            "sustainability": self._sustainability_in_words(),
        }
        if self.is_constant_sum:
            words["efficiency"] = (
                "Agents share out a constant sum: what one gains another loses, so "
                "welfare says nothing here; `remuda tournament` shows which agent is "
                "better."
            )
            del words["equality"], words["sustainability"]
        if self.episode_metrics:
            few = list(self.episode_metrics.items())[:DESCRIBED]
            words["episode metrics"] = (
                ", ".join(f"{name.replace('_', ' ')} {_words(each)}" for name, each in few) + "."
            )
        return words

    def _returns_in_words(self) -> str:
        means = [each.value for each in self.mean_returns]
        best, worst = int(np.nanargmax(means)), int(np.nanargmin(means))
        if best == worst:
            single = len(known(np.array(means))) == 1
            name = self.agents[best] if single else "Each agent"
            return f"{name} has a return of {_words(self.mean_returns[best])} per episode."
        sure = self._share_by_chance(best, worst) <= CHANCE
        return (
            f"{self.agents[best]} has the highest return, {_words(self.mean_returns[best])} per "
            f"episode, and {self.agents[worst]} the lowest, {_words(self.mean_returns[worst])}"
        ) + ("." if sure else "; that may be chance.")

    def _share_by_chance(self, best: int, worst: int) -> float:
        """Return an upper bound of the p-value of a difference between two agents.

        It is the larger of two p-values: that of a t test of their differences by episode, and the
        smallest possible one of a permutation test, 2 / 2^n if their returns differ in n episodes
        (Fisher 1935, "The design of experiments", section 21). The second p-value is needed because
        a few equal differences have no spread. The result is multiplied by the number of pairs
        (Bonferroni; Dunn 1961, "Multiple comparisons among means").
        """
        differences = known(self.returns[:, best] - self.returns[:, worst])
        found = mean_measure(differences)
        if not np.isfinite(found.error):
            return 1.0
        ratio = found.value / found.error if found.error > 0.0 else np.inf
        by_spread = 2.0 * float(stats.t.sf(ratio, found.episodes - 1))
        by_exchange = 2.0 ** (1 - int(np.count_nonzero(differences)))
        return min(1.0, math.comb(len(self.agents), 2) * max(by_spread, by_exchange))

    def _equality_in_words(self) -> str:
        found = self.outcomes.equality
        if np.isnan(found.value):
            return "It is undefined: an agent's return is negative."
        long_run = self.outcomes.long_run_equality
        over = "" if np.isnan(long_run.value) else f", {_words(long_run)} over all episodes"
        return f"{_words(found)} within an episode{over}; 1: equal returns."

    def _sustainability_in_words(self) -> str:
        found = self.outcomes.sustainability
        if np.isnan(found.value):
            return "It is undefined: no reward was collected."
        length = float(self.lengths.mean())
        return (
            f"Rewards are collected in turn {_words(found)} on average; "
            f"collected evenly, it would be turn {figures((length + 1.0) / 2.0)}."
        )


def society(
    agents: tuple[str, ...],
    rewards: npt.ArrayLike,
    lengths: npt.ArrayLike,
    episode_metrics: Mapping[str, npt.ArrayLike] | None = None,
    took_part: npt.ArrayLike | None = None,
) -> Society:
    """Measure the outcome of a group of agents.

    - `agents`: [N] names.
    - `rewards`: [E, T, N].
    - `lengths`: [E] turns.
    - `episode_metrics`: [E] each.
    - `took_part`: [E, N]; None: all agents took part in all episodes.
    """
    values = np.asarray(rewards, np.float64)
    if not len(values):
        raise UsageError("no episode finished in time; raise `seconds`")
    present = np.ones(values.shape[::2], np.bool_) if took_part is None else np.asarray(took_part)
    return Society(
        agents,
        np.where(present, values.sum(1), np.nan),
        np.asarray(lengths, np.int64),
        social_outcomes(values, lengths=lengths, took_part=present),
        {
            name: mean_measure(np.asarray(values_of, np.float64))
            for name, values_of in (episode_metrics or {}).items()
        },
    )


def _words(measure: Measure) -> str:
    if np.isnan(measure.error) or measure.error == 0.0:
        return figures(measure.value)
    return f"{figures(measure.value)} ± {figures(measure.error, 2)}"
