"""Play a tournament in rounds until a question is answered.

Each round plays the pairs that decide the answer (`next_matches.allocate`), then looks at the
answer again. Rounds are planned in `rounds.jsonl` before they are played, so an interrupted
tournament plays the same matches on resume.

There are few looks, since each round has about half as many matches as all earlier rounds. They
share the error probability (`remuda.evaluation.tournaments.sequential_test`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, NonNegativeInt

from remuda.analysis.payoffs.payoffs import Payoffs, from_sums
from remuda.analysis.payoffs.sums import ROWS, add_up
from remuda.analysis.ranking.next_matches import Question, allocate, parse_until
from remuda.errors import RunDirectoryError, UsageError
from remuda.evaluation.results import Limits
from remuda.evaluation.tournaments.engine import OpenTournament, Tournament, open_tournament
from remuda.evaluation.tournaments.entrants import TournamentSetup
from remuda.evaluation.tournaments.record import LEDGER
from remuda.evaluation.tournaments.sequential_test import Look, answer_at_look
from remuda.evaluation.tournaments.settings import MATCHES
from remuda.population.ledger.ledger import read_records
from remuda.population.ledger.ratings import sides_of
from remuda.system.checkpoint.opening import open_to_append, read_file
from remuda.system.rng import make_rng
from remuda.system.user_errors import naming_user_code
from remuda.types import Integers

ROUNDS = "rounds.jsonl"
GROWTH = 0.5  # matches of a round as a share of all earlier matches
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
    _check_first(setup, max_matches, directory)
    limits = limits or Limits()
    more = {"until": " ".join(until.lower().split())}
    with open_tournament(setup, 0, directory, arguments, more, processes) as opened:
        rounds = _Rounds(opened, question, wanted, max_matches)
        start, cut = time.monotonic(), ""

        def reason() -> str:
            return limits.cut(time.monotonic() - start)

        while not cut:
            planned = opened.results.unfinished_among(rounds.planned())
            limits.watch(opened.results.done, max_matches)
            if cut := reason():
                break
            remaining = limits.part(0, 1, time.monotonic() - start)
            if cut := opened.play(planned, remaining, max_matches, copies):
                break
            if rounds.number:
                look = rounds.look()
                if on_look is not None:
                    on_look(look)
                if look.reached:
                    break
            if not rounds.plan(lambda: bool(reason())):
                cut = reason() or SPENT
        return opened.tournament(cut, rounds.look() if rounds.may_look() else None)


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
    count = len(setup.participants)
    first = _first_of_each(dealt) * count * (count - 1) // 2
    started = directory is not None and (directory / ROUNDS).exists()
    if first > max_matches and not started:
        raise UsageError(
            f"--matches is {max_matches:,}; {count} entrants need {first:,} before a first answer"
        )


class _Rounds:
    """The past and next rounds of a tournament.

    1. A round is written to `rounds.jsonl` before its first match.
    2. A round follows from the matches of earlier rounds and from the seed.
    """

    def __init__(
        self, opened: OpenTournament, question: Question, wanted: float, max_matches: int
    ) -> None:
        self._opened, self._question, self._wanted = opened, question, wanted
        self._max_matches = max_matches
        self._path = None if opened.directory is None else opened.directory / ROUNDS
        self._names = tuple(each.name for each in opened.setup.participants)
        self._seed = opened.setup.seed
        schedule = opened.schedule
        self._counts: Integers = np.zeros(len(schedule.seatings), np.int64)  # [I]: by seating
        self.number = 0  # planned rounds
        for line in read_rounds(self._path, len(self._counts)):
            self._counts[line.seatings] += np.array(line.matches, np.int64)
            self.number += 1

    def planned(self) -> Integers:
        seatings = np.repeat(np.arange(len(self._counts)), self._counts)
        first = np.repeat(np.cumsum(self._counts) - self._counts, self._counts)
        turns = np.arange(len(seatings)) - first
        numbers: Integers = np.sort(turns * len(self._counts) + seatings)
        return numbers

    def plan(self, stop: Callable[[], bool] = lambda: False) -> bool:
        """Plan another round; False: no match is left, or planning was stopped."""
        total = int(self._counts.sum())
        count = len(self._names)
        remaining = self._max_matches - total
        if self.number == 0:
            each = _first_of_each(len(self._opened.schedule.dealt))
            pairs: Integers = np.triu(np.full((count, count), each, np.int64), 1)
        elif remaining <= 0:
            return False
        else:
            size = min(remaining, max(count, math.ceil(GROWTH * total)))
            rng = make_rng(self._seed, "tournament", "plan", self.number)
            pairs = allocate(self.payoffs(), self._question, size, rng, stop)
            if not pairs.any():
                return False
        self._write(self._shared(pairs))
        return True

    def look(self) -> Look:
        payoffs = self.payoffs()
        over = not len(self._opened.results.unfinished_among(self.planned()))
        result = answer_at_look(payoffs, self._question, self.number)
        reached = over and result.sure >= self._wanted
        matches = self._opened.results.done
        return Look(
            **vars(result),
            rounds=self.number,
            matches=matches,
            wanted=self._wanted,
            reached=reached,
        )

    def may_look(self) -> bool:
        """Return whether every pair met at least twice."""
        freedom = self.payoffs().own_freedom
        return bool((freedom[np.triu_indices(len(freedom), 1)] > 0.0).all())

    def payoffs(self) -> Payoffs:
        """Return the payoffs of the finished matches with pooled seats, as in `remuda analyse`."""
        numbers, returns = self._opened.results.played()
        count = len(self._names)
        sums = np.zeros((ROWS, count, count))
        entrants = self._opened.schedule.entrants_of(numbers)
        setup = self._opened.setup
        sides = sides_between(setup.env.names, setup.env.teams, setup.taken)
        add_up(entrants, returns.astype(np.float64), sides, True, False, sums)
        return from_sums(self._names, sums, True)

    def _shared(self, pairs: Integers) -> Integers:
        """Return [I] matches by seating, from the matches of pairs [N, N]."""
        found: Integers = np.zeros(len(self._counts), np.int64)
        cells = self._opened.schedule.cells
        for row, column in np.argwhere(pairs).tolist():
            seatings = np.unique([cells[row, column], cells[column, row]])
            before = self._counts[seatings]
            total = int(before.sum() + pairs[row, column])
            # Fill the seatings with the fewest matches up to a common level.
            after = before.copy()
            while after.sum() < total:
                low = after == after.min()
                above = after[~low].min() if (~low).any() else total
                capacity = min(int((above - after.min()) * low.sum()), total - int(after.sum()))
                each, rest = divmod(capacity, int(low.sum()))
                after[low] += each
                after[np.flatnonzero(low)[:rest]] += 1
            found[seatings] += after - before
        return found

    def _write(self, counts: Integers) -> None:
        """Append a round, replacing a partly written one."""
        if self._path is not None:
            seatings = np.flatnonzero(counts)
            line = _Round(seatings=seatings.tolist(), matches=counts[seatings].tolist())
            try:
                with open_to_append(self._path) as file:
                    file.seek(0)
                    file.truncate(file.read().rfind(b"\n") + 1)
                    file.write(line.model_dump_json().encode() + b"\n")
            except OSError as error:
                raise RunDirectoryError(f"cannot write {self._path}: {error.strerror}") from None
        self._counts += counts
        self.number += 1


class _Round(BaseModel, strict=True):
    """A line of the file: seatings, and their numbers of matches."""

    seatings: list[NonNegativeInt]
    matches: list[NonNegativeInt]


def read_rounds(path: Path | None, num_seatings: int | None = None) -> list[_Round]:
    """Return the recorded rounds; none if there is no file."""
    if path is None or not path.exists():
        return []
    try:
        lines = read_file(path).split(b"\n")
    except OSError as error:
        raise RunDirectoryError(f"cannot read {path}: {error.strerror}") from None
    rounds = []
    for number, line in enumerate(lines[:-1], 1):  # the last line is empty or cut off
        try:
            rounds.append(_Round.model_validate_json(line))
            seatings, matches = rounds[-1].seatings, rounds[-1].matches
            fits = len(set(seatings)) == len(seatings) == len(matches)
            fits &= num_seatings is None or max(seatings, default=-1) < num_seatings
        except ValueError:
            fits = False
        if not fits:
            raise RunDirectoryError(
                f"{path} is damaged in line {number}; start over in another directory"
            )
    return rounds


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
