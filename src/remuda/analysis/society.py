"""What agents make of a game together, of which each has one policy for good: from its episodes.

Where seats are not dealt there are no meetings of one policy with many, and so no payoffs between
them; what there is to know is what each agent earns, and what becomes of all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from remuda.analysis.payoff import Numbers
from remuda.analysis.plain import figures
from remuda.analysis.returns import known, mean_of, standard_error
from remuda.analysis.welfare import Measure, SocialOutcomes, social_outcomes
from remuda.errors import UsageError
from remuda.types import Integers

CHANCE = 0.05
"""A difference that equal agents would show with a greater probability may be chance."""
SAID = 4
"""Metrics of a game that are told in a sentence; the others are in the summary."""


@dataclass(frozen=True)
class Society:
    """What became of a group of agents.

    Attributes:
        agents: their names.
        returns: [E, N] of each agent in each episode; NaN: it took no part.
        lengths: [E] turns of the episodes.
        outcomes: efficiency, equality and sustainability.
        facts: by name, what the game told of its episodes: the mean with its standard error.
    """

    agents: tuple[str, ...]
    returns: Numbers = field(repr=False)
    lengths: Integers = field(repr=False)
    outcomes: SocialOutcomes
    facts: Mapping[str, Measure]

    @property
    def earned(self) -> tuple[Measure, ...]:
        """By agent, the mean return of the episodes in which it took part, with its error.

        NaN: it took part in none.
        """
        return tuple(_mean(column) for column in self.returns.T)

    @property
    def measures(self) -> dict[str, Measure]:
        """All that is known of the whole group, by name."""
        outcomes = {
            name: measure for name, measure in vars(self.outcomes).items() if measure is not None
        }
        return outcomes | {"episode_length": _mean(self.lengths)} | dict(self.facts)

    @property
    def is_constant_sum(self) -> bool:
        """Whether all agents together earned the same in every episode: then they compete.

        Not where every episode brought each of them the same, which may be a shared success.
        """
        if len(self.agents) < 2:
            return False
        scale = max(float(np.abs(known(self.returns)).max()), 1e-12)
        ranges = [np.ptp(each) for each in map(known, self.returns.T) if len(each)]
        varies = len(ranges) > 1 and max(ranges) > 1e-3 * scale
        return bool(varies and np.ptp(np.nansum(self.returns, axis=1)) <= 1e-5 * scale)

    def as_summary(self) -> dict[str, Any]:
        """Plain data: what `analysis.json` holds of such a run."""
        return {
            "analysis": 1,
            "episodes": len(self.returns),
            "agents": {
                name: earned.as_summary()
                for name, earned in zip(self.agents, self.earned, strict=True)
            },
            "welfare": self.outcomes.as_summary(),
            "facts": {name: told.as_summary() for name, told in self.facts.items()},
            "episode_length": _mean(self.lengths).as_summary(),
            "in_words": self.in_words(),
        }

    def in_words(self) -> dict[str, str]:
        """By part, one sentence."""
        told = {
            "returns": self._returns_in_words(),
            "efficiency": f"All agents together earn {_words(self.outcomes.efficiency)} a turn.",
            "equality": self._equality_in_words(),
            "sustainability": self._sustainability_in_words(),
        }
        if self.is_constant_sum:
            told["efficiency"] = (
                "Agents share out a constant sum: what one earns another loses, so that welfare "
                "says nothing here; who is better shows in `remuda tournament`."
            )
            del told["equality"], told["sustainability"]
        if self.facts:
            few = list(self.facts.items())[:SAID]
            told["the game tells"] = (
                ", ".join(f"{name.replace('_', ' ')} {_words(each)}" for name, each in few) + "."
            )
        return told

    def _returns_in_words(self) -> str:
        means = [earned.value for earned in self.earned]
        best, worst = int(np.nanargmax(means)), int(np.nanargmin(means))
        if best == worst:
            alone = len(known(np.array(means))) == 1
            who = self.agents[best] if alone else "Each agent"
            return f"{who} earns {_words(self.earned[best])} an episode."
        sure = self._share_by_chance(best, worst) <= CHANCE
        return (
            f"{self.agents[best]} earns the most, {_words(self.earned[best])} an episode, and "
            f"{self.agents[worst]} the least, {_words(self.earned[worst])}"
            + ("." if sure else "; that may be chance.")
        )

    def _share_by_chance(self, best: int, worst: int) -> float:
        """How often equal agents would differ as surely as these two do: a p-value, at most.

        That of the t test of their differences by episode, or the least that a test by exchanging
        the two agents in episodes can have, 2 of 2^n where n episodes tell them apart (Fisher 1935,
        "The design of experiments", section 21): few results that all come out alike have no
        spread. It is times the pairs of agents, since any two might have been these (Bonferroni;
        Dunn 1961, "Multiple comparisons among means").
        """
        apart = known(self.returns[:, best] - self.returns[:, worst])
        found = _mean(apart)
        if not np.isfinite(found.error):
            return 1.0
        ratio = found.value / found.error if found.error > 0.0 else np.inf
        by_spread = 2.0 * float(stats.t.sf(ratio, found.episodes - 1))
        by_exchange = 2.0 ** (1 - int(np.count_nonzero(apart)))
        return min(1.0, math.comb(len(self.agents), 2) * max(by_spread, by_exchange))

    def _equality_in_words(self) -> str:
        found = self.outcomes.equality
        if np.isnan(found.value):
            return (
                "It is not told: an agent earned less than nothing, of which there are no shares."
            )
        long_run = self.outcomes.long_run_equality
        over = "" if np.isnan(long_run.value) else f", {_words(long_run)} over all episodes"
        return f"{_words(found)} within an episode{over}; 1: all earn the same."

    def _sustainability_in_words(self) -> str:
        found = self.outcomes.sustainability
        if found is None or np.isnan(found.value):
            return "It is not told: no reward was collected."
        length = float(self.lengths.mean())
        return (
            f"Rewards are collected in turn {_words(found)} on the mean; "
            f"{figures((length + 1.0) / 2.0)} would be evenly."
        )


def society(
    agents: tuple[str, ...],
    rewards: npt.ArrayLike,
    lengths: npt.ArrayLike,
    facts: Mapping[str, npt.ArrayLike] | None = None,
    took_part: npt.ArrayLike | None = None,
) -> Society:
    """Work out what became of a group of agents.

    Args:
        agents: [N] their names.
        rewards: [E, T, N] of each turn.
        lengths: [E] turns of each episode.
        facts: by name, what the game told of each episode: [E].
        took_part: [E, N] who took part in each episode; None: all did.

    Raises:
        UsageError: no episode was over, shapes differ, or rewards are not numbers.
    """
    given = np.asarray(rewards, np.float64)
    if not len(given):
        raise UsageError("no episode was over in the time that there was; give more `--seconds`")
    there = np.ones(given.shape[::2], np.bool_) if took_part is None else np.asarray(took_part)
    return Society(
        agents,
        np.where(there, given.sum(1), np.nan),
        np.asarray(lengths, np.int64),
        social_outcomes(given, lengths=lengths, took_part=there),
        {name: _mean(np.asarray(told, np.float64)) for name, told in (facts or {}).items()},
    )


def _mean(values: npt.NDArray[Any]) -> Measure:
    """The mean of [E] with its standard error, without those that are NaN."""
    mean = mean_of(values)
    return Measure(mean, standard_error(values), mean, len(known(values)))


def _words(measure: Measure) -> str:
    if np.isnan(measure.error) or measure.error == 0.0:
        return figures(measure.value)
    return f"{figures(measure.value)} ± {figures(measure.error, 2)}"
