"""Which matches there are to be played, who sits where in each, and what they amount to.

Who sits where is a *seating*: an entrant for each seat. A cell of a tournament, the return of one
of the row among those of the column, asks for one seating for each seat that the one may have.
Where two cells ask for the same seating (in games of two seats the one's is the other's), it is
played once and counts for both. A seat that is taken for good is no entrant's, and what is earned
there counts for nobody. Match `k` of seating `i` has the number `k * I + i` of I seatings,
so that matches in ascending order take all seatings in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from remuda.analysis.returns import balanced, known, standard_error
from remuda.tournaments.entrants import Entrant, Participant
from remuda.tournaments.member_turns import MemberTurns
from remuda.types import Floats, Integers

Numbers = npt.NDArray[np.float64]


class Schedule:
    """The matches of a tournament; nothing of it depends on how or when they are played."""

    def __init__(
        self,
        participants: Sequence[Participant],
        num_seats: int,
        episodes: int,
        taken: Mapping[int, str] | None = None,
    ) -> None:
        """Find the seatings.

        Args:
            participants: N entrants.
            num_seats: S, of the game.
            episodes: matches of each seating; 0: as many as it turns out (`OpenResults`).
            taken: by seat, who takes it for good; None: all D = S seats are dealt.
        """
        self.episodes, self._seats = episodes, num_seats
        taken = dict(taken or {})
        count = len(participants)
        self.dealt = tuple(seat for seat in range(num_seats) if seat not in taken)
        """The D seats that entrants sit on."""
        takers = {seat: count + number for number, seat in enumerate(taken)}
        """By seat that is taken, the number of who takes it: it follows those of the entrants."""
        self.cells: Integers = np.zeros((count, count, len(self.dealt)), np.int64)
        """[N, N, D]: the seating in which the row has this seat, among the column's."""
        numbers: dict[tuple[int, ...], int] = {}
        for row in range(count):
            for column in range(count):
                for place, seat in enumerate(self.dealt):
                    seating = tuple(
                        takers.get(s, row if s == seat else column) for s in range(num_seats)
                    )
                    if seating not in numbers:
                        numbers[seating] = len(numbers)
                    self.cells[row, column, place] = numbers[seating]
        self.seatings: Integers = np.array(list(numbers), np.int64)
        """[I, S]: by seating and seat, the entrant."""
        self._take_members(
            [
                *(
                    tuple(() if s in taken else each.members[s] for s in range(num_seats))
                    for each in participants
                ),
                *(
                    tuple((who,) if s == seat else () for s in range(num_seats))
                    for seat, who in taken.items()
                ),
            ]
        )

    def _take_members(self, members_of: Sequence[Sequence[Sequence[Entrant]]]) -> None:
        """Number those who play for the entrants, and those who take seats: their *places*."""
        places: dict[int, int] = {}
        players: list[Entrant] = []
        for who in (who for each in members_of for seat in each for who in seat):
            if id(who) not in places:
                places[id(who)] = len(players)
                players.append(who)
        self.players: tuple[Entrant, ...] = tuple(players)
        """By place, who plays."""
        seats = np.arange(self._seats)
        longest = max(len(seat) for each in members_of for seat in each)
        self._members = np.full((len(members_of), self._seats, longest), -1, np.int64)
        self._lengths = np.zeros((len(members_of), self._seats), np.int64)
        for entrant, each in enumerate(members_of):
            for seat, members in enumerate(each):
                self._lengths[entrant, seat] = len(members)
                self._members[entrant, seat, : len(members)] = [places[id(m)] for m in members]
        self._kinds: Integers = np.zeros(len(self.seatings), np.int64)
        """[I]: seatings whose members may sit together alike have one number."""
        self._turns: list[MemberTurns | None] = [None]
        """By this number; None: each seat has one member."""
        found: dict[tuple[tuple[int, ...], ...], int] = {}
        for number in np.flatnonzero((self._lengths[self.seatings, seats] > 1).any(1)).tolist():
            alike = self._members_alike(self.seatings[number])
            if alike not in found:
                found[alike] = len(self._turns)
                self._turns.append(MemberTurns(alike))
            self._kinds[number] = found[alike]

    def _members_alike(self, entrants: Integers) -> tuple[tuple[int, ...], ...]:
        """By seat, the members that may sit there, numbered as they are first named."""
        numbers: dict[int, int] = {}
        return tuple(
            tuple(
                numbers.setdefault(p, len(numbers)) for p in self._members[e, s].tolist() if p >= 0
            )
            for s, e in enumerate(entrants.tolist())
        )

    @property
    def num_matches(self) -> int:
        """How many there are to be."""
        return self.episodes * len(self.seatings)

    def may_sit(self, seat: int) -> list[int]:
        """The places of all who play a seat in some match, in order."""
        found = np.unique(self._members[:, seat])
        return [int(place) for place in found if place >= 0]

    def entrants_of(self, numbers: Integers) -> Integers:
        """By match and seat, the entrant, or N and on, who takes the seat for good: [M, S]."""
        entrants: Integers = self.seatings[numbers % len(self.seatings)]
        return entrants

    def places_of(self, numbers: Integers) -> Integers:
        """By match and seat, the place of who plays: [M, S].

        The members of an entrant take turns, so that all who may sit together meet equally often
        (`MemberTurns`).
        """
        matches, seatings = np.divmod(numbers, len(self.seatings))
        entrants, seats = self.seatings[seatings], np.arange(self._seats)
        turn: Integers = np.zeros(entrants.shape, np.int64)
        kinds = self._kinds[seatings]
        for kind in np.unique(kinds).tolist():
            turns = self._turns[kind]
            if turns is not None:
                of_kind = kinds == kind
                turn[of_kind] = turns.of(matches[of_kind])
        places: Integers = self._members[entrants, seats, turn]
        return places

    def by_seating(self, numbers: Integers, returns: Floats) -> list[Numbers]:
        """The returns of matches [M, S] by their seating, each [matches, S]."""
        seatings = numbers % len(self.seatings)
        order = np.lexsort((numbers, seatings))
        ends = np.searchsorted(seatings[order], np.arange(1, len(self.seatings)))
        return np.split(returns[order].astype(np.float64), ends)

    def means_and_errors(self, of_seating: Sequence[Numbers]) -> tuple[Numbers, Numbers, Integers]:
        """What matches amount to, by cell: means, their standard errors, matches; each [N, N].

        The mean is over seats, each as much; what one seat earns more than another is no chance,
        and does not count as such. On the diagonal all seats are of the same matches, so that the
        error is that of the mean over the seats of a match. A seat counts by the matches in which
        it took part, and not at all where it took part in none.

        Args:
            of_seating: the returns of the matches of each seating, each [matches, S]; NaN: that
                seat took no part.
        """
        count = len(self.cells)
        means, errors = np.full((count, count), np.nan), np.full((count, count), np.nan)
        matches: Integers = np.zeros((count, count), np.int64)
        for row in range(count):
            for column in range(count):
                seatings = self.cells[row, column]
                if len(set(seatings.tolist())) == 1:
                    returns = of_seating[int(seatings[0])][:, self.dealt]
                    of_seats = [_over_seats(returns[~np.isnan(returns).all(1)])]
                else:
                    cell = zip(self.dealt, seatings, strict=True)
                    of_seats = [of_seating[int(i)][:, seat] for seat, i in cell]
                found = [each for each in map(known, of_seats) if len(each)]
                matches[row, column] = sum(map(len, found))
                if found and all(map(len, of_seats)):
                    squares = np.array([standard_error(each) ** 2 for each in found])
                    means[row, column] = np.mean([each.mean() for each in found])
                    errors[row, column] = np.sqrt(squares.sum()) / len(found)
        return means, errors, matches


def _over_seats(returns: Numbers) -> Numbers:
    """By match, the mean return over the seats: [M, S] to [M]; empty where no seat took part."""
    found = balanced(returns)
    means: Numbers = found.mean(1) if found.size else np.zeros(0)
    return means
