"""Rounds of line-ups, until the equilibrium of their game is known to have a small regret."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from remuda.analysis.as_json import figures
from remuda.analysis.equilibria import role_symmetric
from remuda.analysis.equilibria.game_equilibrium import regret_draws
from remuda.analysis.equilibria.regret import Solution
from remuda.analysis.payoffs.empirical_game import EmpiricalGame
from remuda.analysis.ranking.next_line_ups import allocate_line_ups
from remuda.analysis.ranking.next_matches import SmallRegret
from remuda.analysis.roles_report import mixture_in_words
from remuda.errors import UsageError
from remuda.evaluation.tournaments.engine import OpenTournament
from remuda.evaluation.tournaments.game_schedule import GameSchedule
from remuda.evaluation.tournaments.rounds import Rounds, filled
from remuda.evaluation.tournaments.sequential_test import LookResult, share_of
from remuda.types import Integers

FIRST = 4  # matches of each line-up before the first look, if it has as few seatings
SAMPLES = 200  # draws of the payoffs at a look


class LineUpRounds(Rounds):
    """Rounds of line-ups: the later ones play those on which the equilibrium's regret depends."""

    def __init__(
        self, opened: OpenTournament, question: SmallRegret, wanted: float, max_matches: int
    ) -> None:
        super().__init__(opened, wanted, max_matches)
        schedule = opened.schedule
        assert isinstance(schedule, GameSchedule)
        self._schedule, self._limit = schedule, question.limit
        self._line_ups = schedule.seatings_by_profile()  # in the order of `every_profile`
        least = FIRST * len(self._line_ups)
        if least > max_matches and not self.number:
            raise UsageError(
                f"--matches is {max_matches:,}; {len(self._line_ups):,} line-ups need {least:,} "
                "before a first answer"
            )
        self._known: tuple[int, EmpiricalGame, Solution] | None = None  # of the last look

    def first(self) -> Integers:
        return self._by_seating(np.full(len(self._line_ups), FIRST, np.int64))

    def following(self, stop: Callable[[], bool]) -> Integers:
        game, solution = self._solved()
        if stop():
            return np.zeros(len(self.counts), np.int64)
        size = self.size(len(self._line_ups))
        return self._by_seating(allocate_line_ups(game, solution.mixtures, size))

    def may_look(self) -> bool:
        """Return whether every line-up was played at least twice."""
        game = self._game()
        return game.is_whole and bool((game.counts > 1).all())

    def answer(self) -> LookResult:
        from scipy.special import ndtr  # imported here: runs without a test import this file too

        game, solution = self._solved()
        drawn = regret_draws(game, solution, self.rng(), SAMPLES).max(1)
        spread = max(float(drawn.std()), 1e-12)
        doubt = float(ndtr((float(drawn.mean()) - self._limit) / spread))
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
            f"regret {figures(float(drawn.mean()), 2)} in {mixtures}",
            max(1.0 - doubt / share_of(self.number), 0.0),
            f"what {best} gains in {game.roles[role].name}",
        )

    def _game(self) -> EmpiricalGame:
        return self._schedule.game(*self._opened.results.played())

    def _solved(self) -> tuple[EmpiricalGame, Solution]:
        """Return the game of all finished matches, and its equilibrium."""
        done = self._opened.results.done
        if self._known is None or self._known[0] != done:
            game = self._game()
            # A search that ends by time would make the plan depend on the machine.
            found = role_symmetric.solve(game, self.rng(), starts=4, seconds=float("inf"))
            self._known = done, game, found
        return self._known[1:]

    def _by_seating(self, line_ups: Integers) -> Integers:
        """Return [I] matches by seating, from the matches of line-ups [P]."""
        found: Integers = np.zeros(len(self.counts), np.int64)
        for seatings, matches in zip(self._line_ups, line_ups.tolist(), strict=True):
            found[seatings] += filled(self.counts[seatings], matches)
        return found
