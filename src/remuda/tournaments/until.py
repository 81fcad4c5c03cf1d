"""Play a tournament in rounds until a question is answered, and no longer.

Each round plays the pairs on which the answer hangs (`remuda.analysis.plan.allocate`), adds to the
record, and asks again. What is planned is written down before it is played (`rounds.jsonl`), so
that a tournament that was cut off plays the same matches when it is gone on with.

Who looks often and ends as soon as it looks well ends too often by luck. There are few looks, since
the matches grow by `GROWTH` from one to the next, and the doubt that is allowed is shared out among
them (`remuda.tournaments.doubt`).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from remuda.analysis.payoff import Payoffs, from_sums
from remuda.analysis.plan import Question, allocate, parse_until
from remuda.analysis.sums import ROWS, add_up
from remuda.checkpoint.opening import open_to_append, read_file
from remuda.envs.registry import make_env
from remuda.errors import RunDirectoryError, UsageError
from remuda.evaluation import Limits
from remuda.population.ledger import read_records
from remuda.population.ratings import sides_of
from remuda.streams import stream
from remuda.tournaments.doubt import look_at
from remuda.tournaments.engine import OpenTournament, Played, open_tournament
from remuda.tournaments.record import LEDGER
from remuda.tournaments.setup import TournamentSetup
from remuda.types import AgentSpec, Integers

ROUNDS = "rounds.jsonl"
GROWTH = 0.5
"""Matches of a round as a share of all before it."""
LOOKED_AT = 8
"""Matches of each pair before the first look, at least; each seating is played as often."""
SPENT = "the matches were spent"
"""Why a tournament ended before the question was answered."""
MATCHES = 1_000_000
"""At most, where nothing else is said."""


@dataclass(frozen=True)
class Look:
    """What is known after a round."""

    rounds: int
    matches: int
    """That are over."""
    words: str
    """The answer."""
    sure: float
    """0 to 1: at least so sure it is, over this look and all before it."""
    wanted: float
    """As sure it is to be, 0 to 1."""
    reached: bool
    """Whether it is; never in the midst of a round."""
    unsure: str
    """The comparison that is the least sure, in words."""

    def as_summary(self) -> dict[str, object]:
        """Plain data."""
        return {
            "rounds": self.rounds,
            "matches": self.matches,
            "answer": self.words,
            "sure": self.sure,
            "wanted": self.wanted,
            "reached": self.reached,
            "unsure": self.unsure,
        }


def play_until(
    setup: TournamentSetup,
    until: str,
    directory: Path | None = None,
    asked: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    most: int = MATCHES,
    told: Callable[[Look], None] | None = None,
    copies: int | None = None,
    processes: int | None = 1,
) -> tuple[Played, Look | None]:
    """Play round after round until a question is answered, or a limit is reached.

    Args:
        setup: who plays what.
        until: the question, and how sure its answer is to be (`parse_until`).
        directory: where matches are written as they end, and gone on from; None: nowhere.
        asked: plain data that is kept there, by which it may be asked for again.
        limits: when to end before, and who watches.
        most: matches, at most.
        told: is told what is known after each round.
        copies: of the game in a process, at most; None: as many as are good for it.
        processes: that play; 1: this one; None: as many as are useful, up to its cores.

    Returns:
        What came of the matches, and what is known in the end; None: too little was played.

    Raises:
        UsageError: there is no such question, less than two play, no two of them meet, or the
            directory holds another tournament.
        RunDirectoryError: the directory is in use, damaged, or cannot be written.
    """
    question, wanted = parse_until(until)
    if len(setup.participants) < 2:
        raise UsageError("until: one entrant only; two at least are to be compared")
    _check_first(setup, most, directory)
    limits = limits or Limits()
    more = {"until": " ".join(until.lower().split())}
    with open_tournament(setup, 0, directory, asked, more, processes) as opened:
        rounds = _Rounds(opened, question, wanted, directory, most)
        begun, cut = time.monotonic(), ""
        while not cut:
            planned = opened.results.left_of(rounds.planned())
            done = opened.results.done
            limits.watch(done, most)
            gone = time.monotonic() - begun
            if limits.reached(gone):
                cut = _why(limits, gone)
                break
            left = limits.part(0, 1, gone)
            cut = opened.play(planned, left, most, copies)
            if cut:
                break
            if rounds.number:
                look = rounds.look()
                if told is not None:
                    told(look)
                if look.reached:
                    break
            if not rounds.plan(lambda: limits.reached(time.monotonic() - begun)):
                cut = _why(limits, time.monotonic() - begun)
        found = rounds.look() if rounds.may_look() else None
        return opened.played(most, cut), found


def _first_of_each(seats: int) -> int:
    """Matches of each pair before the first look: each of its seatings as often."""
    return -(-LOOKED_AT // (2 * seats)) * 2 * seats


def _check_first(setup: TournamentSetup, most: int, directory: Path | None) -> None:
    """Raise a `UsageError`, before anything is written, where the first round cannot be played."""
    env = make_env(setup.game, 1, **setup.options)
    env.close()
    dealt = env.num_agents - len(setup.taken_seats([agent.name for agent in env.agents]))
    if dealt < 2:
        has = "is a game for one agent" if env.num_agents < 2 else "has one seat that is not taken"
        raise UsageError(
            f"until: {setup.game} {has}, so no two meet; leave it out, and compare the returns"
        )
    count = len(setup.participants)
    first = _first_of_each(dealt) * count * (count - 1) // 2
    begun = directory is not None and (directory / ROUNDS).exists()
    if first > most and not begun:
        raise UsageError(
            f"--matches is {most:,}; before anything can be said {count} entrants play {first:,}"
        )


def _why(limits: Limits, gone: float) -> str:
    """Why no further matches are played after so many seconds."""
    if limits.interrupted():
        return "interrupted"
    return "the time was up" if limits.reached(gone) else SPENT


class _Rounds:
    """The rounds of a tournament: what was planned, and what is to come.

    1. What a round plays is written down before its first match.
    2. It follows from the matches of the rounds before it and from the seed.
    """

    def __init__(
        self,
        opened: OpenTournament,
        question: Question,
        wanted: float,
        directory: Path | None,
        most: int,
    ) -> None:
        self._opened, self._question, self._wanted = opened, question, wanted
        self._most = most
        self._path = None if directory is None else directory / ROUNDS
        self._names = tuple(each.name for each in opened.setup.participants)
        self._seed = opened.setup.seed
        schedule = opened.schedule
        self._counts: Integers = np.zeros(len(schedule.seatings), np.int64)
        """[I]: planned matches by seating."""
        self.number = 0
        """Rounds that were planned."""
        for line in _read_rounds(self._path, len(self._counts)):
            self._counts[line["seatings"]] += np.array(line["matches"], np.int64)
            self.number += 1

    def planned(self) -> Integers:
        """The numbers of all matches of all rounds, in order."""
        seatings = np.repeat(np.arange(len(self._counts)), self._counts)
        first = np.repeat(np.cumsum(self._counts) - self._counts, self._counts)
        turns = np.arange(len(seatings)) - first
        numbers: Integers = np.sort(turns * len(self._counts) + seatings)
        return numbers

    def plan(self, stop: Callable[[], bool] = lambda: False) -> bool:
        """Plan a further round; False: no match is left to be played, or it was stopped.

        Args:
            stop: whether to end now.
        """
        total = int(self._counts.sum())
        count = len(self._names)
        left = self._most - total
        if self.number == 0:
            each = _first_of_each(len(self._opened.schedule.dealt))
            pairs: Integers = np.triu(np.full((count, count), each, np.int64), 1)
        elif left <= 0:
            return False
        else:
            size = min(left, max(count, math.ceil(GROWTH * total)))
            rng = stream(self._seed, "tournament", "plan", self.number)
            pairs = allocate(self.payoffs(), self._question, size, rng, stop)
            if not pairs.any():
                return False
        self._write(self._shared(pairs))
        return True

    def look(self) -> Look:
        """What the matches say that are over."""
        payoffs = self.payoffs()
        over = not len(self._opened.results.left_of(self.planned()))
        found = look_at(payoffs, self._question, self.number)
        return Look(
            rounds=self.number,
            matches=self._opened.results.done,
            words=found.words,
            sure=found.sure,
            wanted=self._wanted,
            reached=over and found.sure >= self._wanted,
            unsure=found.unsure,
        )

    def may_look(self) -> bool:
        """Whether each two met twice at least."""
        freedom = self.payoffs().own_freedom
        return bool((freedom[np.triu_indices(len(freedom), 1)] > 0.0).all())

    def payoffs(self) -> Payoffs:
        """Of the matches that are over, seats pooled; as `remuda analyse` reads them."""
        numbers, returns = self._opened.results.played()
        count = len(self._names)
        sums = np.zeros((ROWS, count, count))
        entrants = self._opened.schedule.entrants_of(numbers)
        sides = sides_between(self._opened.agents, self._opened.setup.taken)
        add_up(entrants, returns.astype(np.float64), sides, True, False, sums)
        return from_sums(self._names, sums, True)

    def _shared(self, pairs: Integers) -> Integers:
        """[I] matches by seating, from those of pairs [N, N]: those played least come first."""
        found: Integers = np.zeros(len(self._counts), np.int64)
        cells = self._opened.schedule.cells
        for row, column in np.argwhere(pairs).tolist():
            seatings = np.unique([cells[row, column], cells[column, row]])
            before = self._counts[seatings]
            total = int(before.sum() + pairs[row, column])
            # The level up to which all are filled, by those that have least.
            after = before.copy()
            while after.sum() < total:
                low = after == after.min()
                above = after[~low].min() if (~low).any() else total
                room = min(int((above - after.min()) * low.sum()), total - int(after.sum()))
                each, rest = divmod(room, int(low.sum()))
                after[low] += each
                after[np.flatnonzero(low)[:rest]] += 1
            found[seatings] += after - before
        return found

    def _write(self, counts: Integers) -> None:
        """Note a round; what was written of another in part is gone."""
        if self._path is not None:
            places = np.flatnonzero(counts)
            line = {"seatings": places.tolist(), "matches": counts[places].tolist()}
            try:
                with open_to_append(self._path) as file:
                    file.seek(0)
                    file.truncate(file.read().rfind(b"\n") + 1)
                    file.write(json.dumps(line).encode() + b"\n")
            except OSError as error:
                raise RunDirectoryError(f"cannot write {self._path}: {error.strerror}") from None
        self._counts += counts
        self.number += 1


def _read_rounds(path: Path | None, seatings: int | None = None) -> list[dict[str, list[int]]]:
    """Each round that was written down: its seatings, and how many matches of each.

    Args:
        path: of the file.
        seatings: how many there are; None: that is not known.

    Raises:
        RunDirectoryError: a line is damaged.
    """
    if path is None or not path.exists():
        return []
    try:
        lines = read_file(path).split(b"\n")
    except OSError as error:
        raise RunDirectoryError(f"cannot read {path}: {error.strerror}") from None
    found = []
    for number, line in enumerate(lines[:-1], 1):  # the last is empty, or cut off
        try:
            read = json.loads(line)
        except (ValueError, RecursionError):
            read = None
        if not _is_round(read, seatings):
            raise RunDirectoryError(
                f"{path} is damaged in line {number}; begin anew in another directory"
            )
        found.append(read)
    return found


def _is_round(read: object, seatings: int | None) -> bool:
    """Whether a line is of a round: numbers of seatings, and matches of each."""
    if not isinstance(read, dict):
        return False
    places, matches = read.get("seatings"), read.get("matches")
    if not (isinstance(places, list) and isinstance(matches, list)):
        return False
    if len(places) != len(matches) or len(set(map(str, places))) != len(places):
        return False
    if not all(type(each) is int and each >= 0 for each in places + matches):
        return False
    return seatings is None or all(place < seatings for place in places)


def sides_between(agents: Sequence[AgentSpec], taken: Collection[str] = ()) -> Integers:
    """By seat, the number of its side, for who meets whom in a tournament: [seats].

    Where all that entrants play are of one team, each plays for itself: else none would have met.

    Args:
        agents: of the game, by seat.
        taken: those whose seats are taken for good; -1: they are on no side.
    """
    teams = [agent.team for agent in agents]
    several = len({agent.team for agent in agents if agent.name not in taken}) > 1
    seats = [seat for seat, agent in enumerate(agents) if agent.name in taken]
    return sides_of(teams if several else (), len(agents), seats)


def missing_matches(directory: Path) -> int | None:
    """How many matches of the rounds of a tournament are not in its ledger.

    None: it is not played in rounds.

    Raises:
        RunDirectoryError: it is damaged.
    """
    if not (directory / ROUNDS).exists():
        return None
    planned = sum(sum(line["matches"]) for line in _read_rounds(directory / ROUNDS))
    return max(planned - len(np.unique(read_records(directory / LEDGER)[1]["number"])), 0)
