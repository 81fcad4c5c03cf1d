"""The analysis of a population's payoffs, as numbers and in sentences."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from remuda.analysis.as_json import as_json, figures
from remuda.analysis.equilibria.uncertain_equilibrium import UncertainEquilibrium, nash
from remuda.analysis.payoffs.bias import Estimate
from remuda.analysis.payoffs.payoffs import KNOWN, Payoffs
from remuda.analysis.payoffs.sampling import with_own
from remuda.analysis.ranking.rank import RankIntervals, mean_payoff, rank_intervals
from remuda.analysis.structure.cycles import Cycles, cycles
from remuda.analysis.structure.diversity import response_diversity
from remuda.analysis.structure.population_regret import WithinPopulation, within_population
from remuda.analysis.structure.transitivity import SplitIntervals, split_intervals
from remuda.errors import UsageError

SAMPLES = 400  # draws of the payoffs for intervals


SECONDS = 10.0  # limit of the search for an equilibrium of a large general-sum game
UNKNOWN = 0.8  # a share with a wider interval is not reported


@dataclass(frozen=True)
class Analysis:
    """The analysis of a population's payoffs."""

    payoffs: Payoffs  # of a symmetric game
    ranking: RankIntervals  # by mean payoff against all other policies
    equilibrium: UncertainEquilibrium | None  # None: self-play is missing, or none found in time
    structure: SplitIntervals  # the shares of skill and of cycles in the payoffs
    cycles: Cycles  # formed by significant wins
    diversity: Estimate | None  # expected cardinality; None: self-play is missing
    exploitability: WithinPopulation | None = None  # None: self-play is missing

    def as_summary(self) -> dict[str, object]:
        """Return the contents of `analysis.json`."""
        payoffs = self.payoffs
        return {
            "analysis": 1,
            "policies": list(payoffs.names),
            "payoffs": {
                "means": as_json(payoffs.matrix),
                "standard_errors": as_json(payoffs.errors[0]),
                "matches": [
                    [None if count >= KNOWN else int(count) for count in row]
                    for row in payoffs.met.tolist()
                ],
            },
            "ranking": self.ranking.as_summary(),
            "equilibrium": as_json(self.equilibrium),
            "structure": self.structure.as_summary(),
            "cycles": self.cycles.as_summary(),
            "diversity": as_json(self.diversity),
            "exploitability": as_json(self.exploitability),
            "in_words": self.in_words(),
        }

    def in_words(self) -> dict[str, str]:
        """Return one sentence for each part."""
        return {
            "ranking": self._ranking_in_words(),
            "equilibrium": self._equilibrium_in_words(),
            "exploitability": self._exploitability_in_words(),
            "structure": self._structure_in_words(),
            "diversity": self._diversity_in_words(),
        }

    def _ranking_in_words(self) -> str:
        best = int(np.argmin(self.ranking.ranks))
        name, probability = self.ranking.names[best], float(self.ranking.first[best])
        score = self.ranking.scores[best]
        if probability >= self.ranking.level:
            text = f"{name} has the highest mean payoff, {figures(score)} per match"
            return f"{text} ({probability:.0%} sure)."
        others = [
            self.ranking.names[place]
            for place in np.argsort(-self.ranking.first, kind="stable")
            if place != best and self.ranking.first[place] >= 1.0 - self.ranking.level
        ]
        rivals = f"; the best may also be {' or '.join(others[:3])}" if others else ""
        return f"{name} has the highest mean payoff in {probability:.0%} of payoff draws{rivals}."

    def _equilibrium_in_words(self) -> str:
        if self.equilibrium is None:
            if not self.payoffs.missing.any():
                return "No equilibrium was found in time; analyse fewer policies."
            return (
                "The equilibrium is unknown: self-play is missing for some policies. "
                "`remuda tournament RUN:all --sampled` plays it; analyse its directory."
            )
        mixture = self.equilibrium.answer.mixtures[0]
        played = np.flatnonzero(mixture > 1e-6)
        value = float(self.equilibrium.answer.values[0])
        low, high = self.equilibrium.values[1:, 0]
        scale = 1e-9 * float(np.nanmax(np.abs(self.payoffs.matrix)))
        value, low, high = (0.0 if abs(each) < scale else each for each in (value, low, high))
        value_text = f"its value is {figures(value)} per match"
        if low != high:
            value_text += f" ({figures(low)} to {figures(high)})"
        if len(played) == 1:
            name = self.payoffs.names[played[0]]
            stays = float(self.equilibrium.in_support[0][played[0]])
            return (
                f"The equilibrium plays only {name} (in {stays:.0%} of payoff draws); {value_text}."
            )
        return f"The equilibrium mixes {len(played)} of {len(mixture)} policies; {value_text}."

    def _exploitability_in_words(self) -> str:
        found = self.exploitability
        if found is None:
            return "Unknown: self-play is missing for some policies."
        least = found.of(found.least)
        low, high = least.interval
        best = found.best_responses[found.names.index(found.least)]
        text = (
            f"Against {found.least}, the least exploitable, {best} gains {figures(least.corrected)}"
        )
        if best == found.least or least.corrected <= 0.0:
            text = f"Against {found.least} no policy gains significantly"
        mixture = ""
        if self.equilibrium is not None:
            most = max(float(self.equilibrium.regrets[2].max()), 0.0)
            mixture = f", against the equilibrium at most {figures(most, 2)}"
        return (
            f"{text} ({figures(low, 2)} to {figures(high, 2)}){mixture}; this is a lower "
            "bound, within the population: a trained best response (`remuda exploit RUN`) "
            "may gain more."
        )

    def _structure_in_words(self) -> str:
        share = self.structure.transitive
        low, high = self.structure.transitive_interval
        if math.isnan(share):
            return "Policies differ no more than equal policies would by chance."
        if high - low > UNKNOWN:
            return "The shares of skill and cycles are unknown: play more matches."
        text = (
            f"{share:.0%} of the differences is skill, the rest is cycles ({low:.0%} to {high:.0%})"
        )
        strongest = self.cycles.strongest
        if strongest is None:
            return f"{text}; no cycle is significant."
        return (
            f"{text}; significant cycle: {' beats '.join((*strongest.names, strongest.names[0]))}."
        )

    def _diversity_in_words(self) -> str:
        found, count = self.diversity, len(self.payoffs.names)
        if found is None:
            return "Unknown: self-play is missing for some policies."
        low, high = found.interval
        if found.null_share > 1.0 - found.level:
            return "Payoffs differ no more than those of equal policies would by chance."
        return (
            f"By their payoffs, the {count} policies are as diverse as "
            f"{found.corrected:.1f} entirely different ones ({low:.1f} to {high:.1f})."
        )


def _equilibrium(
    payoffs: Payoffs, rng: np.random.Generator, samples: int
) -> UncertainEquilibrium | None:
    try:
        return nash(payoffs, rng, samples, SECONDS)
    except UsageError:
        return None


def analyse(payoffs: Payoffs, rng: np.random.Generator, samples: int = SAMPLES) -> Analysis:
    """Analyse two pooled roles with the same policies: each policy plays both equally often."""
    if len({frozenset(names) for names in payoffs.strategies}) > 1:
        first, *_, last = (", ".join(names[:5]) for names in payoffs.strategies)
        raise UsageError(
            f"the roles have different policies, {first} and {last}; an analysis needs the "
            "same policies in rows and columns"
        )
    if len(payoffs.names) < 2:
        raise UsageError(
            f"there is only one policy, {payoffs.names[0]}; an analysis compares at least two"
        )
    whole = payoffs.pooled_roles().completed()
    with_own(whole).check_whole()
    is_incomplete = bool(whole.missing.any())
    others = whole.matrix[~np.eye(len(whole.names), dtype=np.bool_)]
    return Analysis(
        whole,
        rank_intervals(whole, mean_payoff, rng, samples),
        None if is_incomplete else _equilibrium(whole, rng, samples),
        split_intervals(whole, rng, samples),
        cycles(whole),
        None
        if is_incomplete
        else response_diversity(whole, rng, scale=float(others.std()) or 1.0, draws=samples),
        None if is_incomplete else within_population(whole, rng, samples),
    )
