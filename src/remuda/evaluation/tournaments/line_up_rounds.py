"""Rounds of line-ups, until the equilibrium of their game is known to have a small regret."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from remuda.analysis.as_json import figures
from remuda.analysis.equilibria import role_symmetric
from remuda.analysis.equilibria.game_equilibrium import chance_above
from remuda.analysis.equilibria.regret import Solution
from remuda.analysis.payoffs.empirical_game import LARGEST, EmpiricalGame, every_profile
from remuda.analysis.ranking.next_line_ups import allocate_line_ups
from remuda.analysis.ranking.next_matches import SmallRegret
from remuda.analysis.roles_report import mixture_in_words
from remuda.errors import UsageError
from remuda.evaluation.tournaments.engine import OpenTournament
from remuda.evaluation.tournaments.game_schedule import GameSchedule
from remuda.evaluation.tournaments.rounds import Rounds
from remuda.evaluation.tournaments.sequential_test import LookResult, share_of
from remuda.types import Integers

FIRST = 4  # minimum matches of each line-up before the first look


class LineUpRounds(Rounds):
    """Rounds of line-ups: the later ones play those on which the equilibrium's regret depends.

    Each round plays all seatings of a line-up equally often, since returns may depend on the seat.
    """

    def __init__(
        self, opened: OpenTournament, question: SmallRegret, wanted: float, max_matches: int
    ) -> None:
        super().__init__(opened, wanted, max_matches)
        schedule = opened.schedule
        assert isinstance(schedule, GameSchedule)
        self._schedule, self._limit = schedule, question.limit
        self._line_ups = schedule.seatings_by_profile()  # in the order of `every_profile`
        self._seatings: Integers = np.array([len(each) for each in self._line_ups])  # [P]
        self._known: tuple[int, EmpiricalGame, Solution] | None = None  # of the last look

    def first(self) -> Integers:
        return self._by_seating(first_matches(self._seatings))

    def following(self, stop: Callable[[], bool]) -> Integers:
        size = self.size(len(self._line_ups))
        if not self.may_look():
            # an agent took no part in some matches, which do not count
            lacking = self._counted() < 2
            again = np.where(lacking, [self.counts[own].sum() for own in self._line_ups], 0)
            return self._by_seating(np.minimum(again, size // max(int(lacking.sum()), 1)))
        game, solution = self._solved(stop)
        if stop():
            return np.zeros(len(self.counts), np.int64)
        return self._by_seating(allocate_line_ups(game, solution.mixtures, size))

    def may_look(self) -> bool:
        """Return whether every line-up has at least two matches in which all agents took part."""
        return bool((self._counted() > 1).all())

    def answer(self, stop: Callable[[], bool]) -> LookResult:
        game, solution = self._solved(stop)
        allowed = share_of(self.number)
        small = (1.0 - self._wanted) * allowed
        mean, doubt = chance_above(game, solution, self._limit, small, self.rng(), stop)
        gains = game.deviation_payoffs(solution.mixtures)
        role = int(np.argmax(game.regret(solution.mixtures)))
        own = game.roles[role].strategies
        best = own[int(np.argmax(gains[game.columns[role]]))]
        mixtures = " against ".join(
            (f"{each.name}: " if len(game.roles) > 1 else "")
            + mixture_in_words(each.strategies, mixture)
            for each, mixture in zip(game.roles, solution.mixtures, strict=True)
        )
        return LookResult(
            f"regret {figures(mean, 2)} in {mixtures}",
            max(1.0 - doubt / allowed, 0.0),
            f"what {best} gains in {game.roles[role].name}",
        )

    def _game(self) -> EmpiricalGame:
        return self._schedule.game(*self._opened.results.played())

    def _counted(self) -> Integers:
        """Return the matches of each line-up in which all agents took part: [P]."""
        game = self._game()
        counts = dict(zip(map(tuple, game.profiles.tolist()), game.counts.tolist(), strict=True))
        return np.array([counts.get(tuple(p.tolist()), 0) for p in every_profile(game.roles)])

    def _solved(self, stop: Callable[[], bool]) -> tuple[EmpiricalGame, Solution]:
        """Return the game of all finished matches, and its equilibrium.

        At `stop` it is the last equilibrium that was found, since a search that ends early may
        return anything.
        """
        done = self._opened.results.done
        if self._known is not None and self._known[0] != done and stop():
            return self._game(), self._known[2]
        if self._known is None or self._known[0] != done:
            game = self._game()
            # A search that ends by time would make the plan depend on the machine.
            rng, seconds = self.rng(), float("inf")
            found = role_symmetric.solve(game, rng, starts=4, seconds=seconds, stop=stop)
            self._known = done, game, found
        return self._known[1:]

    def _by_seating(self, line_ups: Integers) -> Integers:
        """Return [I] matches by seating, from the matches of line-ups [P]."""
        found: Integers = np.zeros(len(self.counts), np.int64)
        for own, times in zip(self._line_ups, even(line_ups, self._seatings), strict=True):
            found[own] = times
        return found


def first_matches(seatings: Integers) -> Integers:
    """Return the matches of each line-up in the first round, from its number of seatings: [P]."""
    return -(-FIRST // seatings) * seatings


def even(matches: Integers, seatings: Integers) -> list[int]:
    """Return how often to play each seating of each line-up [P], with at most as many matches.

    A line-up with k seatings plays a multiple of k matches. The matches that remain go to the
    line-ups with the largest remainders, as a share of k.

    `matches`, `seatings`: [P] of each line-up.
    """
    times, rest = np.divmod(matches, seatings)
    left = int(rest.sum())
    for number in np.argsort(-rest / seatings, kind="stable").tolist():
        if rest[number] and seatings[number] <= left:
            times[number] += 1
            left -= int(seatings[number])
    found: list[int] = times.tolist()
    return found


def check_first(schedule: GameSchedule, max_matches: int) -> None:
    """Raise a `UsageError` if the first round, or the game, has too many line-ups."""
    profiles = math.prod(role.num_profiles for role in schedule.roles)
    policies = sum(len(role.strategies) for role in schedule.roles)
    if profiles * policies**2 > LARGEST:
        raise UsageError(
            f"line-ups: {policies} policies have {profiles:,} line-ups, too many for their "
            "covariances; enter fewer policies"
        )
    seatings = np.array([len(each) for each in schedule.seatings_by_profile()])
    least = int(first_matches(seatings).sum())
    if least > max_matches:
        raise UsageError(
            f"--matches is {max_matches:,}; {len(seatings):,} line-ups need {least:,} before a "
            "first answer"
        )
