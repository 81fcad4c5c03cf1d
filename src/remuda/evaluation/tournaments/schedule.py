"""The matches of a tournament, their seatings and their means.

A *seating* has an entrant for each seat. A cell of a tournament is the return of one agent of the
row among agents of the column. A cell needs one seating for each seat of the row's agent. A
seating that belongs to two cells (in games of two seats) is played once and counts for both. A
reserved seat belongs to no entrant, and its returns do not count. Match `k` of seating `i` has
the number `k * I + i` with I seatings, so matches in ascending order cycle through all seatings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from remuda.analysis.payoffs.returns import balanced, known, standard_error
from remuda.evaluation.tournaments.entrants import Entrant, Participant
from remuda.evaluation.tournaments.member_turns import MemberTurns
from remuda.types import Floats, Integers, Numbers


class Schedule:
    """The matches of a tournament, independent of how and when they are played."""

    players: tuple[Entrant, ...]
    """The policy at each index."""

    def __init__(
        self,
        participants: Sequence[Participant],
        num_seats: int,
        episodes: int,
        taken: Mapping[int, str] | None = None,
    ) -> None:
        self.episodes, self._seats = episodes, num_seats
        taken = dict(taken or {})
        count = len(participants)
        # The D seats of entrants, and the number of each reserved seat's scripted policy.
        self.dealt = tuple(seat for seat in range(num_seats) if seat not in taken)
        takers = {seat: count + number for number, seat in enumerate(taken)}
        self.cells: Integers = np.zeros((count, count, len(self.dealt)), np.int64)
        """[N, N, D]: the seating with the row's entrant in this seat and the column's in others."""
        self._participants = tuple(participants)
        # [I, S]: entrants by seat
        self.seatings: Integers = np.array(self._seatings(takers), np.int64)
        members_of: list[Sequence[Sequence[Entrant]]] = [each.members for each in participants]
        for taker, policy in taken.items():
            members_of.append([(policy,) if seat == taker else () for seat in range(num_seats)])
        self._take_members(members_of)

    def _seatings(self, takers: Mapping[int, int]) -> list[tuple[int, ...]]:
        """Fill `cells`, and return all seatings; `takers`: the number in each reserved seat."""
        numbers: dict[tuple[int, ...], int] = {}
        for row, column, i in np.ndindex(self.cells.shape):
            own = self.dealt[i]
            seating = tuple(
                takers.get(seat, int(row if seat == own else column)) for seat in range(self._seats)
            )
            self.cells[row, column, i] = numbers.setdefault(seating, len(numbers))
        return list(numbers)

    def _take_members(self, members_of: Sequence[Sequence[Sequence[Entrant]]]) -> None:
        policies = (policy for each in members_of for seat in each for policy in seat)
        self.players, indices = numbered(policies)
        longest = max(len(seat) for each in members_of for seat in each)
        self._members = np.full((len(members_of), self._seats, longest), -1, np.int64)
        for entrant, each in enumerate(members_of):
            for seat, members in enumerate(each):
                self._members[entrant, seat, : len(members)] = [indices[id(m)] for m in members]
        self._prepare_turns()

    def _prepare_turns(self) -> None:
        seats = np.arange(self._seats)
        self._kinds: Integers = np.zeros(len(self.seatings), np.int64)
        """[I]: each seating's kind; seatings of a kind have equal restrictions on their members."""
        self._turns: list[MemberTurns | None] = [None]
        """The turns of each kind; None: each seat has one member."""
        found: dict[tuple[tuple[int, ...], ...], int] = {}
        takes_turns = ((self._members >= 0).sum(2) > 1)[self.seatings, seats].any(1)
        for number in np.flatnonzero(takes_turns).tolist():
            restrictions = self._members_alike(self.seatings[number])
            if restrictions not in found:
                found[restrictions] = len(self._turns)
                self._turns.append(MemberTurns(restrictions))
            self._kinds[number] = found[restrictions]

    def _members_alike(self, entrants: Integers) -> tuple[tuple[int, ...], ...]:
        """Return the members that may play each seat, numbered by first appearance."""
        numbers: dict[int, int] = {}
        return tuple(
            tuple(
                numbers.setdefault(p, len(numbers)) for p in self._members[e, s].tolist() if p >= 0
            )
            for s, e in enumerate(entrants.tolist())
        )

    @property
    def num_matches(self) -> int:
        return self.episodes * len(self.seatings)

    def draws_of(self, numbers: Integers) -> Integers:
        """Return the numbers from which matches draw [M]; equal ones have equal random numbers."""
        return numbers

    def may_sit(self, seat: int) -> list[int]:
        """Return the indices of the policies that play a seat in some match, sorted."""
        found = np.unique(self._members[:, seat])
        return [int(index) for index in found if index >= 0]

    def entrants_of(self, numbers: Integers) -> Integers:
        """Return entrants by match and seat, N or more for a reserved seat's policy: [M, S]."""
        entrants: Integers = self.seatings[numbers % len(self.seatings)]
        return entrants

    def players_of(self, numbers: Integers) -> Integers:
        """Return the policy index of each seat in the matches (`MemberTurns`): [M, S]."""
        matches, seatings = np.divmod(numbers, len(self.seatings))
        entrants, seats = self.seatings[seatings], np.arange(self._seats)
        turn: Integers = np.zeros(entrants.shape, np.int64)
        kinds = self._kinds[seatings]
        for kind in np.unique(kinds).tolist():
            turns = self._turns[kind]
            if turns is not None:
                of_kind = kinds == kind
                turn[of_kind] = turns.of(matches[of_kind])
        players: Integers = self._members[entrants, seats, turn]
        return players

    def by_seating(self, numbers: Integers, returns: Floats) -> list[Numbers]:
        """Return the returns of matches [M, S] by seating, each [matches, S]."""
        seatings = numbers % len(self.seatings)
        order = np.lexsort((numbers, seatings))
        ends = np.searchsorted(seatings[order], np.arange(1, len(self.seatings)))
        return np.split(returns[order].astype(np.float64), ends)

    def means_and_errors(self, of_seating: Sequence[Numbers]) -> tuple[Numbers, Numbers, Integers]:
        """Return means, standard errors and numbers of matches by cell; each [N, N].

        The mean gives all seats equal weight; differences between seats are not part of the error.
        On the diagonal the returns of all seats come from the same matches, so the error is that of
        the mean over the seats of a match. A match counts only for the seats that took part.

        `of_seating`: the returns of each seating's matches, each [matches, S]; NaN: the seat took
        no part.
        """
        count = len(self.cells)
        means, errors = np.full((count, count), np.nan), np.full((count, count), np.nan)
        matches: Integers = np.zeros((count, count), np.int64)
        for cell in np.ndindex(count, count):
            seatings = self.cells[cell].tolist()
            if len(set(seatings)) == 1:  # each match's mean return over the seats
                returns = of_seating[seatings[0]][:, self.dealt]
                filled = balanced(returns[~np.isnan(returns).all(1)])
                of_seats = [filled.mean(1) if filled.size else np.zeros(0)]
            else:
                of_seats = [
                    of_seating[i][:, seat] for seat, i in zip(self.dealt, seatings, strict=True)
                ]
            found = [each for each in map(known, of_seats) if len(each)]
            matches[cell] = sum(map(len, found))
            if found and all(map(len, of_seats)):
                means[cell] = np.mean([each.mean() for each in found])
                errors[cell] = np.linalg.norm(list(map(standard_error, found))) / len(found)
        return means, errors, matches


def numbered(policies: Iterable[Entrant]) -> tuple[tuple[Entrant, ...], dict[int, int]]:
    """Return the distinct policies in order, and the index of each by its id."""
    distinct = {id(policy): policy for policy in policies}
    return tuple(distinct.values()), {key: index for index, key in enumerate(distinct)}
