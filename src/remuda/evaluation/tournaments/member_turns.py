"""Choose the members that play each match so that all pairs meet equally often.

An entrant with several policies, such as a population's checkpoint, has a list of members for each
seat. A seating assigns an entrant to each seat. Each match of a seating is played by the members
whose pairs have met least so far. With two seats, each pair then meets equally often, within one,
after any number of matches. With more seats that may be impossible: six members in each of four
seats would need two orthogonal Latin squares of order six, and none exist (Tarry 1900, "Le probleme
des 36 officiers"). Then the search gets as close as it can.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from remuda.system.kernels import njit
from remuda.types import Bools, Integers

TRIES = 20_000  # most member choices tried for one match
FAR = 1 << 40  # the cost of avoidably seating a policy twice in one match
STEEP = 6  # a pair that is one more meeting ahead costs 2**STEEP times as much


class MemberTurns:
    """The members that play a seating, match by match.

    Guarantees:

    1. The members of a match follow only from its number, whatever was computed before.
    2. Every pair of members of two seats meets equally often, within one, after any number of
       matches. If both seats have the same members, this holds for every pair of different ones.
    3. No policy has two seats in a match if each seat has at least as many members as there are
       seats that share a member with it, itself included.
    """

    def __init__(self, seats: Sequence[Sequence[int]]) -> None:
        count = len(seats)
        lengths = np.array([len(each) for each in seats], np.int64)
        members: Integers = np.full((count, int(lengths.max())), -1, np.int64)
        for seat, each in enumerate(seats):
            members[seat, : len(each)] = each
        self._lengths = lengths
        sets = [set(each) for each in seats]
        num_sharing = [sum(bool(first & second) for second in sets) for first in sets]
        self._apart = all(lengths[s] >= num_sharing[s] or num_sharing[s] == 1 for s in range(count))
        allowed: Bools = np.zeros((count, count, *[members.shape[1]] * 2), np.bool_)
        for s in range(count):
            for t in range(count):
                first, second = members[s][:, None], members[t][None, :]
                fits = (first >= 0) & (second >= 0)
                allowed[s, t] = fits & ((first != second) | (not self._apart))
        self._allowed = allowed
        self._met: Integers = np.zeros(allowed.shape, np.int64)
        self._sat: Integers = np.zeros(members.shape, np.int64)
        self._turns: Integers = np.zeros((0, count), np.int64)
        self._known = 0

    def of(self, matches: Integers) -> Integers:
        """Return the members of matches [M], by index in each seat's list: [M, S]."""
        self._find(int(matches.max(initial=-1)) + 1)
        found: Integers = self._turns[matches]
        return found

    def _find(self, count: int) -> None:
        """Choose the members of the first `count` matches."""
        if count <= self._known:
            return
        size = max(count, 2 * self._known, 64)
        grown: Integers = np.zeros((size, len(self._lengths)), np.int64)
        grown[: self._known] = self._turns[: self._known]
        self._turns = grown
        _choose(self._turns, self._known, size, self._lengths, self._allowed, self._met, self._sat)
        self._known = size


@njit(cache=True)
def _make_ready(
    match: int,
    lengths: Integers,
    allowed: Bools,
    met: Integers,
    sat: Integers,
    order: Integers,
    least: Integers,
) -> None:
    """Find the order in which to try members, and the fewest meetings of each pair of seats.

    - `lengths`: [S] number of members by seat.
    - `allowed`: [S, S, L, L] whether two members may sit together.
    - `met`: [S, S, L, L] how often two members sat together.
    - `sat`: [S, L] matches of a member in a seat.
    - `order`: [S, L] members in the order to try; written.
    - `least`: [S, S] the fewest meetings of an allowed pair; written.
    """
    seats = len(lengths)
    for s in range(seats):
        # Members with the fewest matches come first; ties rotate from match to match.
        shift = (match + s) % lengths[s]
        for j in range(lengths[s]):
            member = (shift + j) % lengths[s]
            at = j
            while at > 0 and sat[s, order[s, at - 1]] > sat[s, member]:
                order[s, at] = order[s, at - 1]
                at -= 1
            order[s, at] = member
        for t in range(seats):
            low = FAR
            for i in range(lengths[s]):
                for j in range(lengths[t]):
                    if allowed[s, t, i, j] and met[s, t, i, j] < low:
                        low = met[s, t, i, j]
            least[s, t] = low


@njit(cache=True)
def _choose(
    turns: Integers,
    begin: int,
    end: int,
    lengths: Integers,
    allowed: Bools,
    met: Integers,
    sat: Integers,
) -> None:
    """Choose members for the matches from `begin` to `end`, by branch and bound.

    `turns`: [matches, S] the members' indices, written; `met` and `sat` are updated; other
    arguments as for `_make_ready`.
    """
    seats, most = sat.shape
    order = np.zeros((seats, most), np.int64)
    chosen, best = np.zeros(seats, np.int64), np.zeros(seats, np.int64)
    position, costs = np.zeros(seats, np.int64), np.zeros(seats + 1, np.int64)
    least = np.zeros((seats, seats), np.int64)
    for match in range(begin, end):
        _make_ready(match, lengths, allowed, met, sat, order, least)
        found, depth, tries = np.int64(1) << 62, 0, 0
        position[0] = 0
        while depth >= 0:
            tries += 1
            if position[depth] == lengths[depth] or (tries > TRIES and found < FAR):
                depth -= 1
                continue
            member = order[depth, position[depth]]
            position[depth] += 1
            cost = costs[depth]
            for t in range(depth):
                ahead = met[t, depth, chosen[t], member] - least[t, depth]
                if not allowed[t, depth, chosen[t], member]:
                    cost += FAR
                elif ahead > 0:
                    cost += np.int64(1) << (STEEP * min(ahead - 1, 5))
            if cost >= found:
                continue
            chosen[depth], costs[depth + 1] = member, cost
            if depth == seats - 1:
                found = cost
                best[:] = chosen
                if cost == 0:
                    break
                continue
            depth += 1
            position[depth] = 0
        for s in range(seats):
            turns[match, s] = best[s]
            sat[s, best[s]] += 1
            for t in range(seats):
                met[s, t, best[s], best[t]] += 1
