"""The analysis of a population's payoffs, as numbers and in sentences."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from remuda.analysis.as_json import as_json, figures
from remuda.analysis.equilibria.game_equilibrium import game_equilibrium
from remuda.analysis.equilibria.uncertain_equilibrium import UncertainEquilibrium, nash
from remuda.analysis.payoffs.bias import Estimate
from remuda.analysis.payoffs.empirical_game import EmpiricalGame
from remuda.analysis.payoffs.payoffs import Payoffs
from remuda.analysis.payoffs.sampling import with_own, with_predicted_own
from remuda.analysis.ranking.next_line_ups import (
    NextLineUp,
    line_ups_in_words,
    line_ups_summary,
    next_line_ups,
)
from remuda.analysis.ranking.rank import RankIntervals, mean_payoff, rank_intervals
from remuda.analysis.structure.cycles import Cycles, cycles
from remuda.analysis.structure.diversity import response_diversity
from remuda.analysis.structure.population_regret import (
    WithinPopulation,
    gain_over_mean,
    within_population,
)
from remuda.analysis.structure.transitivity import SplitIntervals, split_intervals
from remuda.errors import UsageError

SAMPLES = 400  # draws of the payoffs for intervals
SECONDS = 10.0  # limit of the search for an equilibrium of a large general-sum game
BOUND = (
    "; this is a lower bound, within the population: a trained best response "
    "(`remuda exploit RUN`) may gain more."
)
TOO_LARGE = "the game has too many line-ups; select fewer policies"
AT_MOST = "at most {} in 97.5% of payoff draws"  # a regret under draws of the payoffs
UNKNOWN = 0.8  # a share with a wider interval is not reported


@dataclass(frozen=True)
class Analysis:
    """The analysis of a population's payoffs."""

    game: EmpiricalGame
    payoffs: Payoffs  # of `game`, with pooled seats
    ranking: RankIntervals  # by mean payoff against all other policies
    equilibrium: UncertainEquilibrium | None  # None: self-play is missing, or none found in time
    structure: SplitIntervals  # the shares of skill and of cycles in the payoffs
    cycles: Cycles  # formed by significant wins
    diversity: Estimate | None  # expected cardinality; None: self-play is missing
    exploitability: WithinPopulation | None = None  # None: self-play is missing
    gain: Estimate | None = None  # of a seat that always plays the best policy; None: two seats
    next_line_ups: tuple[NextLineUp, ...] = ()  # of three interchangeable seats or more
    unsolved: str = ""  # why there is no equilibrium; empty: self-play is missing

    def as_summary(self) -> dict[str, object]:
        """Return the contents of `analysis.json`."""
        payoffs = self.payoffs
        return {
            "analysis": 1,
            "policies": list(payoffs.names),
            "payoffs": payoffs.as_summary(),
            "ranking": self.ranking.as_summary(),
            "equilibrium": as_json(self.equilibrium),
            "structure": self.structure.as_summary(),
            "cycles": self.cycles.as_summary(),
            "diversity": as_json(self.diversity),
            "exploitability": as_json(self.exploitability),
            "in_words": self.in_words(),
        } | (
            {
                "gain_over_uniform": as_json(self.gain),
                "line_ups": line_ups_summary(self.game, self.next_line_ups),
            }
            if self.game.has_line_ups
            else {}
        )

    @property
    def best(self) -> str:
        """The policy with the highest mean payoff."""
        return self.ranking.names[int(np.argmin(self.ranking.ranks))]

    @property
    def scores(self) -> dict[str, float]:
        """Each policy's mean payoff against all others."""
        return dict(zip(self.ranking.names, self.ranking.scores.tolist(), strict=True))

    @property
    def measures(self) -> dict[str, float]:
        """The measures to compare between runs; NaN: unknown."""
        found, gains = self.equilibrium, self.exploitability
        value = mixed = math.nan
        if found is not None:
            value = self.payoffs.without_rounding(float(found.answer.values[0]))
            mixed = float((found.answer.mixtures[0] > 1e-6).sum())  # the size of the support
        return {
            "share of skill": float(self.structure.transitive),
            "mixed": mixed,
            "value": value,
            "gain within": math.nan
            if gains is None
            else float(np.mean([each.corrected for each in gains.gains])),
            "diversity": math.nan if self.diversity is None else self.diversity.corrected,
        }

    def in_words(self) -> dict[str, str]:
        """Return one sentence for each part."""
        words = {
            "ranking": ranking_in_words(self.ranking),
            "equilibrium": self._equilibrium_in_words(),
            "exploitability": self._exploitability_in_words(),
            "structure": self._structure_in_words(),
            "diversity": diversity_in_words(self.diversity, len(self.payoffs.names)),
        }
        if self.game.has_line_ups:
            words["line-ups"] = line_ups_in_words(self.game, self.next_line_ups)
        return words

    def _equilibrium_in_words(self) -> str:
        if self.equilibrium is None:
            if self.unsolved:
                return f"The equilibrium is unknown: {self.unsolved}."
            return (
                "The equilibrium is unknown: self-play is missing for some policies. "
                "`remuda tournament RUN:all --sampled` plays it; analyse its directory."
            )
        name = "The equilibrium"
        if self.equilibrium.kind.endswith("correlated"):
            name = f"The {self.equilibrium.kind} equilibrium of the line-ups that were played"
        mixture = self.equilibrium.answer.mixtures[0]
        played = np.flatnonzero(mixture > 1e-6)
        values = self.equilibrium.answer.values[0], *self.equilibrium.values[1:, 0]
        value, low, high = (self.payoffs.without_rounding(float(each)) for each in values)
        value_text = f"its value is {figures(value)} per match"
        if low != high:
            value_text += f" ({figures(low)} to {figures(high)})"
        regret = self.payoffs.without_rounding(float(self.equilibrium.answer.regret.max()))
        if regret > 0.0:
            value_text += f"; no exact one was found, and its regret is {figures(regret, 2)}"
        if len(played) == 1:
            only = self.payoffs.names[played[0]]
            stays = float(self.equilibrium.in_support[0][played[0]])
            return f"{name} plays only {only} (in {stays:.0%} of payoff draws); {value_text}."
        return f"{name} mixes {len(played)} of {len(mixture)} policies; {value_text}."

    def _exploitability_in_words(self) -> str:
        found = self.exploitability
        if found is None:
            return self._gain_in_words()
        least = found.of(found.least)
        low, high = least.interval
        best = found.best_responses[found.names.index(found.least)]
        text = (
            f"Against {found.least}, the least exploitable, {best} gains {figures(least.corrected)}"
        )
        if best == found.least or least.corrected <= 0.0:
            text = f"Against {found.least} no policy gains significantly"
        return f"{text} ({figures(low, 2)} to {figures(high, 2)}){self._regret_in_words()}{BOUND}"

    def _gain_in_words(self) -> str:
        """Say what the best policy gains if all are dealt equally often."""
        if self.gain is None:
            return "Unknown: self-play is missing for some policies."
        low, high = self.gain.interval
        gains = figures(self.gain.corrected) if self.gain.corrected > 0.0 else "nothing significant"
        return (
            f"If all policies are dealt equally often, a seat gains {gains} by always playing "
            f"{self.best} ({figures(low, 2)} to {figures(high, 2)}){self._regret_in_words()}{BOUND}"
        )

    def _regret_in_words(self) -> str:
        if self.equilibrium is None:
            return ""
        most = max(self.payoffs.without_rounding(float(self.equilibrium.regrets[2].max())), 0.0)
        return f", against the equilibrium {AT_MOST.format(figures(most, 2))}"

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


def ranking_in_words(ranking: RankIntervals) -> str:
    """Say which policy ranks first, and how sure that is."""
    best = int(np.argmin(ranking.ranks))
    name, probability = ranking.names[best], float(ranking.first[best])
    score = ranking.scores[best]
    if probability >= ranking.level:
        text = f"{name} has the highest mean payoff, {figures(score)} per match"
        return f"{text} ({probability:.0%} sure)."
    others = [
        ranking.names[place]
        for place in np.argsort(-ranking.first, kind="stable")
        if place != best and ranking.first[place] >= 1.0 - ranking.level
    ]
    rivals = f"; the best may also be {' or '.join(others[:3])}" if others else ""
    return f"{name} has the highest mean payoff in {probability:.0%} of payoff draws{rivals}."


def diversity_in_words(found: Estimate | None, count: int) -> str:
    """Say how many entirely different policies are as diverse as these."""
    if found is None:
        return "Unknown: self-play is missing for some policies."
    low, high = found.interval
    if found.null_share > 1.0 - found.level:
        return "Payoffs differ no more than those of equal policies would by chance."
    return (
        f"By their payoffs, the {count} policies are as diverse as "
        f"{found.corrected:.1f} entirely different ones ({low:.1f} to {high:.1f})."
    )


def analyse(game: EmpiricalGame, rng: np.random.Generator, samples: int = SAMPLES) -> Analysis:
    """Analyse the policies of a single role.

    Two seats are pooled: each policy plays both equally often. Of three seats or more, the
    equilibrium is that of all seats if self-play is missing, or if all line-ups were played.
    """
    payoffs = game.payoffs
    has_line_ups, (role,) = game.has_line_ups, game.roles
    if len(payoffs.names) < 2:
        raise UsageError(
            f"there is only one policy, {payoffs.names[0]}; an analysis compares at least two"
        )
    whole = payoffs.pooled_roles().completed()
    with_own(whole).check_whole()
    is_incomplete = bool(whole.missing.any())
    others = whole.matrix[~np.eye(len(whole.names), dtype=np.bool_)]
    known = with_predicted_own(whole) if has_line_ups else whole
    is_too_large = role.seats > 2 and not game.counts_profiles
    equilibrium, unsolved = None, TOO_LARGE if is_too_large and whole.missing.any() else ""
    try:
        equilibrium = game_solution(game, whole, rng, samples)
    except UsageError as error:
        unsolved = str(error)
    mixtures = None if equilibrium is None else equilibrium.answer.mixtures[:1]
    return Analysis(
        game,
        whole,
        rank_intervals(whole, mean_payoff, rng, samples),
        equilibrium,
        split_intervals(whole, rng, samples),
        cycles(whole),
        None
        if known.missing.any()
        else response_diversity(known, rng, scale=float(others.std()) or 1.0, draws=samples),
        None if is_incomplete else within_population(whole, rng, samples),
        gain_over_mean(whole, rng, samples, mean_payoff) if has_line_ups else None,
        next_line_ups(game, mixtures) if has_line_ups else (),
        unsolved,
    )


def game_solution(
    game: EmpiricalGame,
    payoffs: Payoffs,
    rng: np.random.Generator,
    samples: int,
    seconds: float = SECONDS,
) -> UncertainEquilibrium | None:
    """Solve the game of all seats if it is whole or self-play is missing, or else that of pairs.

    `payoffs`: by meeting, with pooled seats.
    """
    if game.has_line_ups and (game.is_whole or payoffs.missing.any()):
        return game_equilibrium(game, rng, samples, seconds)
    return None if payoffs.missing.any() else nash(payoffs, rng, samples, seconds)
