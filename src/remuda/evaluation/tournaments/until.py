"""Play a tournament in rounds until a question is answered.

Each round plays the pairs that decide the answer (`next_matches.allocate`), then looks at the
answer again. Rounds are planned in `rounds.jsonl` before they are played, so an interrupted
tournament plays the same matches on resume.

There are few looks, since each round has about half as many matches as all earlier rounds. They
share the error probability (`remuda.evaluation.tournaments.sequential_test`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from remuda.analysis.payoffs.payoffs import Payoffs
from remuda.analysis.payoffs.sums import payoffs_of_matches
from remuda.analysis.ranking.next_matches import Question, SmallRegret, allocate, parse_until
from remuda.errors import UsageError
from remuda.evaluation.results import Limits
from remuda.evaluation.tournaments.engine import OpenTournament, Tournament, open_tournament
from remuda.evaluation.tournaments.entrants import TournamentSetup
from remuda.evaluation.tournaments.game_schedule import GameSchedule
from remuda.evaluation.tournaments.line_up_rounds import LineUpRounds, check_first
from remuda.evaluation.tournaments.record import LEDGER
from remuda.evaluation.tournaments.rounds import ROUNDS, Rounds, filled, read_rounds
from remuda.evaluation.tournaments.sequential_test import Look, LookResult, answer_at_look
from remuda.evaluation.tournaments.settings import MATCHES
from remuda.population.ledger.ledger import read_records
from remuda.population.ledger.ratings import sides_of
from remuda.system.user_errors import naming_user_code
from remuda.types import Integers

LOOKED_AT = 8  # minimum matches of each pair before the first look
SPENT = "the matches were spent"  # the reason for an end without an answer


@naming_user_code()
def play_until(
    setup: TournamentSetup,
    until: str,
    directory: Path | None = None,
    arguments: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    max_matches: int = MATCHES,
    on_look: Callable[[Look], None] | None = None,
    processes: int | None = 1,
    copies: int | None = None,
) -> Tournament:
    """Play rounds until a question is answered, or a limit is reached.

    `on_look` is called after each round. Other arguments are those of
    `remuda.evaluation.tournaments.engine.play`.
    """
    question, wanted = parse_until(until)
    if len(setup.participants) < 2:
        raise UsageError("until: there is only one entrant; a comparison needs at least two")
    setup = replace(setup, line_ups=isinstance(question, SmallRegret))
    _check_first(setup, max_matches, directory)
    limits = limits or Limits()
    more = {"until": " ".join(until.lower().split())}
    with open_tournament(setup, 0, directory, arguments, more, processes) as opened:
        rounds: Rounds
        if isinstance(question, SmallRegret):
            rounds = LineUpRounds(opened, question, wanted, max_matches)
        else:
            rounds = _PairRounds(opened, question, wanted, max_matches)
        start, cut = time.monotonic(), ""
        look: Look | None = None

        def reason() -> str:
            return limits.cut(time.monotonic() - start)

        def stopped() -> bool:
            return bool(reason())

        while not cut:
            planned = opened.results.unfinished_among(rounds.planned())
            limits.watch(opened.results.done, max_matches)
            if cut := reason():
                break
            remaining = limits.part(0, 1, time.monotonic() - start)
            if cut := opened.play(planned, remaining, max_matches, copies):
                break
            if rounds.number and rounds.may_look():
                look = rounds.look(stopped)
                if on_look is not None:
                    on_look(look)
                if look.reached:
                    break
            if not rounds.plan(stopped):
                cut = reason() or SPENT
        if look is None or look.matches < opened.results.done:
            # Without an earlier look, a search for an equilibrium that is stopped finds nothing.
            finds = rounds.may_look() and not (setup.line_ups and look is None and stopped())
            look = rounds.look(stopped) if finds else look
        return opened.tournament(cut, look)


def _first_of_each(seats: int) -> int:
    """Return the matches of each pair before the first look, equally many for each seating."""
    return -(-LOOKED_AT // (2 * seats)) * 2 * seats


def _check_first(setup: TournamentSetup, max_matches: int, directory: Path | None) -> None:
    """Raise a `UsageError`, before anything is written, if the first round cannot be played."""
    agents = len(setup.env.agents)
    dealt = agents - len(setup.taken_seats)
    if dealt < 2:
        has = "is a game for one agent" if agents < 2 else "has only one free seat"
        raise UsageError(
            f"until: {setup.game} {has}, so no entrants meet; leave until out, and compare returns"
        )
    if directory is not None and (directory / ROUNDS).exists():
        return
    if setup.line_ups:
        check_first(GameSchedule(setup, setup.participants), max_matches)
        return
    count = len(setup.participants)
    first = _first_of_each(dealt) * count * (count - 1) // 2
    if first > max_matches:
        raise UsageError(
            f"--matches is {max_matches:,}; {count} entrants need {first:,} before a first answer"
        )


class _PairRounds(Rounds):
    """Rounds of pairs of entrants, for a question about their mean returns."""

    def __init__(
        self, opened: OpenTournament, question: Question, wanted: float, max_matches: int
    ) -> None:
        super().__init__(opened, wanted, max_matches)
        self._question = question

    def first(self) -> Integers:
        count = len(self._names)
        each = _first_of_each(len(self._opened.schedule.dealt))
        return self._shared(np.triu(np.full((count, count), each, np.int64), 1))

    def following(self, stop: Callable[[], bool]) -> Integers:
        size = self.size(len(self._names))
        if not self.may_look():  # an agent took no part in some matches, which do not count
            freedom = self.payoffs().own_freedom
            lacking = np.triu(freedom <= 0.0, 1)
            return self._shared(lacking * max(size // int(lacking.sum()), 1))
        return self._shared(allocate(self.payoffs(), self._question, size, self.rng(), stop))

    def answer(self, stop: Callable[[], bool]) -> LookResult:  # noqa: ARG002
        return answer_at_look(self.payoffs(), self._question, self.number)

    def may_look(self) -> bool:
        """Return whether every pair met at least twice."""
        freedom = self.payoffs().own_freedom
        return bool((freedom[np.triu_indices(len(freedom), 1)] > 0.0).all())

    def payoffs(self) -> Payoffs:
        """Return the payoffs of the finished matches with pooled seats, as in `remuda analyse`."""
        numbers, returns = self._opened.results.played()
        entrants = self._opened.schedule.entrants_of(numbers)
        setup = self._opened.setup
        sides = sides_between(setup.env.names, setup.env.teams, setup.taken)
        return payoffs_of_matches(self._names, entrants, returns.astype(np.float64), sides)

    def _shared(self, pairs: Integers) -> Integers:
        """Return [I] matches by seating, from the matches of pairs [N, N]."""
        found: Integers = np.zeros(len(self.counts), np.int64)
        cells = self._opened.schedule.cells
        for row, column in np.argwhere(pairs).tolist():
            seatings = np.unique([cells[row, column], cells[column, row]])
            found[seatings] += filled(self.counts[seatings], int(pairs[row, column]))
        return found


def sides_between(
    agents: Sequence[str], teams: Sequence[str], taken: Collection[str] = ()
) -> Integers:
    """Return the number of each seat's side in a tournament: [seats].

    `agents` and `teams` are names by seat. If all seats of entrants are one team, each seat is a
    side; otherwise no two entrants would meet.
    """
    dealt = {team for agent, team in zip(agents, teams, strict=True) if agent not in taken}
    several = len(dealt) > 1
    seats = [seat for seat, agent in enumerate(agents) if agent in taken]
    return sides_of(teams if several else (), len(agents), seats)


def missing_matches(directory: Path) -> int | None:
    """Return how many matches of planned rounds are missing; None: there are no rounds."""
    if not (directory / ROUNDS).exists():
        return None
    planned = sum(sum(line.matches) for line in read_rounds(directory / ROUNDS))
    return max(planned - len(np.unique(read_records(directory / LEDGER)[1]["number"])), 0)
