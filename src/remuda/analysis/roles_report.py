"""The analysis of an empirical game with several roles: two teams, or unlike seats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from remuda.analysis.as_json import as_json, figures
from remuda.analysis.equilibria.game_equilibrium import game_equilibrium
from remuda.analysis.equilibria.uncertain_equilibrium import USED, UncertainEquilibrium, nash
from remuda.analysis.payoffs.bias import Estimate
from remuda.analysis.payoffs.empirical_game import EmpiricalGame, Role
from remuda.analysis.payoffs.game_draws import pair_draws
from remuda.analysis.payoffs.payoffs import Payoffs
from remuda.analysis.population_report import (
    AT_MOST,
    SAMPLES,
    SECONDS,
    TOO_LARGE,
    Analysis,
    analyse,
    diversity_in_words,
    ranking_in_words,
)
from remuda.analysis.ranking.alpha_rank import alpha_rank
from remuda.analysis.ranking.next_line_ups import (
    NextLineUp,
    line_ups_in_words,
    line_ups_summary,
    next_line_ups,
)
from remuda.analysis.ranking.rank import RankIntervals, mean_over_opponents, rank_intervals
from remuda.analysis.structure.diversity import response_diversity
from remuda.analysis.structure.population_regret import (
    WithinPopulation,
    gain_over_mean,
    within_roles,
)
from remuda.errors import UsageError
from remuda.types import Integers, Numbers

MOST_RANKED = 200  # strategy profiles of alpha-rank, which then needs a second
NAMED = 4  # policies of a role that a sentence names


@dataclass(frozen=True)
class RoleAnalysis:
    """The policies of one role."""

    role: Role
    payoffs: Payoffs = field(repr=False)  # against the policies of all other roles
    ranking: RankIntervals  # by mean payoff against all of these
    diversity: Estimate  # expected cardinality
    gain: Estimate  # what a seat gains by always playing the best policy, over all equally often
    alpha_rank: Numbers | None  # [n] masses; None: too many profiles, or some were not played
    exploitability: WithinPopulation  # what an opponent gains by a best response to each policy

    def as_summary(self) -> dict[str, object]:
        """Return JSON values."""
        payoffs = self.payoffs
        return {
            "role": self.role.name,
            "seats": self.role.seats,
            "policies": list(payoffs.strategies[0]),
            "opponents": list(payoffs.strategies[1]),
            "payoffs": payoffs.as_summary(),
            "ranking": self.ranking.as_summary(),
            "diversity": as_json(self.diversity),
            "gain_over_uniform": as_json(self.gain),
            "exploitability": self.exploitability.as_summary(),
            "alpha_rank": None if self.alpha_rank is None else self.alpha_rank.tolist(),
        }


@dataclass(frozen=True)
class RolesAnalysis:
    """The analysis of a game with several roles."""

    game: EmpiricalGame
    roles: tuple[RoleAnalysis, ...]
    equilibrium: UncertainEquilibrium | None  # None: none was found
    next_line_ups: tuple[NextLineUp, ...] = ()
    unsolved: str = ""  # why there is no equilibrium

    def as_summary(self) -> dict[str, object]:
        """Return the contents of `analysis.json`."""
        return {
            "analysis": 1,
            "policies": list(self.payoffs.names),
            "roles": [each.as_summary() for each in self.roles],
            "equilibrium": as_json(self.equilibrium),
            "line_ups": line_ups_summary(self.game, self.next_line_ups),
            "in_words": self.in_words(),
        }

    @property
    def payoffs(self) -> Payoffs:
        """The payoffs of all policies by meeting."""
        return self.game.payoffs

    @property
    def best(self) -> str:
        """The policies with the highest mean payoffs."""
        return ", ".join(
            each.ranking.names[int(np.argmin(each.ranking.ranks))] for each in self.roles
        )

    @property
    def scores(self) -> dict[str, float]:
        """Each policy's mean payoff against all policies of other roles."""
        return {
            name: float(score)
            for each in self.roles
            for name, score in zip(each.ranking.names, each.ranking.scores, strict=True)
        }

    @property
    def measures(self) -> dict[str, float]:
        """The measures to compare between runs."""
        found: dict[str, float] = {}
        for number, each in enumerate(self.roles):
            name = each.role.name
            if self.equilibrium is not None:
                found[f"value of {name}"] = float(self.equilibrium.answer.values[number])
            found[f"gain of {name}"] = each.gain.corrected
            found[f"diversity of {name}"] = each.diversity.corrected
        return found

    def in_words(self) -> dict[str, str]:
        """Return one sentence for each part."""
        words = {f"ranking, {r.role.name}": ranking_in_words(r.ranking) for r in self.roles}
        words["equilibrium"] = self._equilibrium_in_words()
        words["exploitability"] = self._exploitability_in_words()
        words |= {f"best responses, {r.role.name}": _responses_in_words(r) for r in self.roles}
        for each in self.roles:
            words[f"diversity, {each.role.name}"] = diversity_in_words(
                each.diversity, len(each.ranking.names)
            )
        words["line-ups"] = line_ups_in_words(self.game, self.next_line_ups)
        return words

    def _equilibrium_in_words(self) -> str:
        found = self.equilibrium
        if found is None:
            return f"The equilibrium is unknown: {self.unsolved}."
        parts = []
        for number, each in enumerate(self.roles):
            mixture, value = found.answer.mixtures[number], found.answer.values[number]
            played = mixture_in_words(each.role.strategies, mixture)
            parts.append(f"{each.role.name} plays {played} and earns {figures(float(value))}")
        regret = figures(self.payoffs.without_rounding(float(found.answer.regret.max())), 2)
        reduced = ""
        if any(each.role.seats > 1 for each in self.roles) and found.kind.endswith("-sum"):
            reduced = " for one seat of each role, with the others as dealt in the matches"
        note = f" ({found.answer.note})" if found.answer.note else ""
        return (
            f"{found.kind.capitalize()}{reduced}: {'; '.join(parts)} per match; regret {regret}"
            f"{note}."
        )

    def _exploitability_in_words(self) -> str:
        parts = []
        for number, each in enumerate(self.roles):
            best = each.ranking.names[int(np.argmin(each.ranking.ranks))]
            low, high = each.gain.interval
            text = f"{each.role.name} gains {figures(each.gain.corrected)} by always playing {best}"
            if each.gain.corrected <= 0.0:
                text = f"{each.role.name} gains nothing significant by always playing {best}"
            text += f" ({figures(low, 2)} to {figures(high, 2)})"
            if self.equilibrium is not None:
                most = self.payoffs.without_rounding(float(self.equilibrium.regrets[2][number]))
                most = max(most, 0.0)
                text += f", against the equilibrium {AT_MOST.format(figures(most, 2))}"
            parts.append(text)
        return (
            f"If all policies are dealt equally often, {'; '.join(parts)}. This is a lower bound, "
            "within the population."
        )


def _responses_in_words(found: RoleAnalysis) -> str:
    """Say which policy of a role opponents exploit the least."""
    within = found.exploitability
    gain, best = within.of(within.least), within.best_responses[within.names.index(within.least)]
    low, high = gain.interval
    gains = f"{best} gains {figures(gain.corrected)}"
    if gain.corrected <= 0.0:
        gains = "no opponent gains significantly"
    return (
        f"Against {within.least}, the least exploitable, {gains} over the mean of its role "
        f"({figures(low, 2)} to {figures(high, 2)})."
    )


def mixture_in_words(names: Sequence[str], mixture: Numbers) -> str:
    """Return a mixture as text: `only a`, or `a 60%, b 40%`."""
    played = [place for place in np.argsort(-mixture, kind="stable") if mixture[place] > USED]
    if len(played) == 1:
        return f"only {names[played[0]]}"
    parts = [f"{names[place]} {mixture[place]:.0%}" for place in played[:NAMED]]
    if len(played) > NAMED:
        parts.append(f"{len(played) - NAMED} others")
    return ", ".join(parts)


def analyse_game(
    game: EmpiricalGame, rng: np.random.Generator, samples: int = SAMPLES
) -> Analysis | RolesAnalysis:
    """Analyse the policies of each role, or of a single one."""
    return (analyse if len(game.roles) == 1 else analyse_roles)(game, rng, samples)


def analyse_roles(
    game: EmpiricalGame, rng: np.random.Generator, samples: int = SAMPLES
) -> RolesAnalysis:
    """Analyse the policies of each role against those of the others."""
    if len(game.roles) < 2:
        raise UsageError("roles: this analysis needs at least two roles with different policies")
    game = game.distinct()
    pairs = pairs_of_roles(game)
    for pair in pairs:
        pair.check_whole()
    measured = [
        (
            rank_intervals(pair, mean_over_opponents, rng, samples),
            response_diversity(pair, rng, scale=float(pair.matrix.std()) or 1.0, draws=samples),
            gain_over_mean(pair, rng, samples),
        )
        for pair in pairs
    ]
    equilibrium, unsolved = None, ""
    try:
        equilibrium = roles_solution(game, pairs, rng, samples)
    except UsageError as error:
        unsolved = str(error)
    mixtures = None if equilibrium is None else equilibrium.answer.mixtures
    following = next_line_ups(game, mixtures)
    masses = _alpha_ranks(pairs, game)
    found = tuple(
        RoleAnalysis(
            role, pair, *each, of_role, within_roles(pair, _roles_of(pair, game), rng, samples)
        )
        for role, pair, each, of_role in zip(game.roles, pairs, measured, masses, strict=True)
    )
    return RolesAnalysis(game, found, equilibrium, following, unsolved)


def pairs_of_roles(game: EmpiricalGame) -> list[Payoffs]:
    """Return, for each role, the payoffs of its policies against those of all other roles."""
    payoffs = game.payoffs
    places = [[payoffs.names.index(name) for name in role.strategies] for role in game.roles]
    return [
        payoffs.between(own, [place for other in places if other is not own for place in other])
        for own in places
    ]


def _roles_of(pair: Payoffs, game: EmpiricalGame) -> Integers:
    """Return the number of the role of each opponent: [m]."""
    role_of = {name: number for number, role in enumerate(game.roles) for name in role.strategies}
    return np.array([role_of[name] for name in pair.strategies[1]], np.int64)


def roles_solution(
    game: EmpiricalGame,
    pairs: Sequence[Payoffs],
    rng: np.random.Generator,
    samples: int,
    seconds: float = SECONDS,
) -> UncertainEquilibrium:
    """Solve the game itself if its line-ups were played, or else that of one seat of two roles."""
    of_seats = any(role.seats > 1 for role in game.roles)
    if len(game.roles) == 2 and not (game.is_whole and of_seats):
        drawn = None
        if of_seats and (game.counts > 1).any():
            drawn = pair_draws(game, pairs[0], samples, rng)
        return nash(pairs[0], rng, samples, seconds, drawn)
    if not game.counts_profiles:
        raise UsageError(TOO_LARGE)
    return game_equilibrium(game, rng, samples, seconds)


def _alpha_ranks(pairs: Sequence[Payoffs], game: EmpiricalGame) -> Sequence[Numbers | None]:
    """Return alpha-rank's masses by role, with a population for each role; None: unknown."""
    unknown = [None] * len(pairs)
    if len(pairs) == 2:
        means = pairs[0].means
    elif any(role.seats > 1 for role in game.roles) or not game.is_whole:
        return unknown
    else:
        means = game.tensor()
    if means[0].size > MOST_RANKED:
        return unknown
    return alpha_rank(means).by_role
