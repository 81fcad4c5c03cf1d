"""The rounds of a round robin: all combinations of policies in all rotations, numbered."""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

MIX, WORD = 0x9E3779B97F4A7C15, 2**64 - 1
HELD = 500_000  # counts that are cached; with more they are computed again when needed


class Rounds:
    """The allowed seatings of a cycle, each with a number.

    Every combination of policies is seated in order, in every rotation of the seats. Ways to
    continue are counted from the last place back, so that a seating is found by its number alone,
    however many are forbidden.
    """

    def __init__(self, seats: Sequence[frozenset[int] | None], num_seats: int) -> None:
        """Count them."""
        self._seats, self._num_seats = seats, num_seats
        self._free = all(own is None for own in seats)
        self.kept_ways: dict[int, list[list[int]]] = {}
        self._most = max(HELD // (num_seats * max(len(seats) - num_seats + 2, 1)), 1)
        self._starts = [0]
        """[num_seats + 1]: the number of the first seating of each rotation, and the total."""
        for turned in range(num_seats):
            count = -self._counts(turned)[0][0]
            self._starts.append(self._starts[-1] + count)

    @property
    def count(self) -> int:
        """The number of seatings."""
        return self._starts[-1]

    def seating(self, number: int) -> list[int]:
        """Return the index of the policy on each seat."""
        turned = bisect_right(self._starts, number) - 1
        number -= self._starts[turned]
        chosen: list[int] = []
        spare = 0  # policies that were passed over so far
        for ways in self._counts(turned):
            first = ways[spare]
            spare = bisect_right(ways, first + number, lo=spare) - 1
            number -= ways[spare] - first
            chosen.append(len(chosen) + spare)
        return [*chosen[turned:], *chosen[:turned]]

    def dealt(self) -> set[int]:
        """Return the policies that are in any seating."""
        found: set[int] = set()
        for turned in range(self._num_seats):
            reached = {0}  # how many can be passed over before this place
            for place, ways in enumerate(self._counts(turned)):
                taken = {
                    spare
                    for spare in range(min(reached, default=len(ways)), len(ways) - 1)
                    if ways[spare] != ways[spare + 1]
                }
                found |= {place + spare for spare in taken}
                reached = taken
        return found

    def _counts(self, turned: int) -> list[list[int]]:
        """Return the negative number of ways to continue, by place and skipped policies.

        For each place [len(seats) - num_seats + 2], ascending and 0 at last: ways to seat policies
        from this place on, if the one there is not before `place + i`. Negative, for the search.
        """
        key = 0 if self._free else turned
        found = self.kept_ways.get(key)
        if found is not None:
            return found
        count, seats = len(self._seats), self._num_seats
        band = max(count - seats + 1, 0)
        after = [*[-1] * band, -1]
        found = []
        for place in reversed(range(seats)):
            seat = (place - turned) % seats
            own = self._seats[place : place + band]
            ways = [
                more if may is None or seat in may else 0
                for may, more in zip(own, after, strict=False)
            ]
            after = [0, *accumulate(reversed(ways))][::-1]
            found.append(after)
        found.reverse()
        if len(self.kept_ways) >= self._most:
            self.kept_ways.clear()
        self.kept_ways[key] = found
        return found


class Order:
    """A pseudorandom permutation of 0 to `count` - 1 that takes no memory.

    A Feistel network permutes the next power of four; numbers beyond the count are permuted again
    until they are within it (Black and Rogaway 2002, "Ciphers with arbitrary finite domains").
    """

    def __init__(self, count: int, key: int, done: int) -> None:
        self.count, self._key, self._done = count, key, done
        self._keys = [zlib.crc32(f"{key} {i}".encode()) for i in range(4)]
        self._bits = max((max(count - 1, 1).bit_length() + 1) // 2, 2)

    @staticmethod
    def draw(count: int, rng: np.random.Generator) -> Order:
        """Draw one of many orders."""
        return Order(count, int(rng.integers(1, 2**62)), 0)

    @property
    def left(self) -> int:
        """How many are to come."""
        return self.count - self._done

    def next(self) -> int:
        """Return the next number."""
        number = self._turn(self._done)
        while number >= self.count:
            number = self._turn(number)
        self._done += 1
        return number

    def plain(self) -> list[int]:
        """Return the arguments of another order that continues from here."""
        return [self.count, self._key, self._done]

    def _turn(self, number: int) -> int:
        mask = (1 << self._bits) - 1
        left, right = number >> self._bits, number & mask
        for key in self._keys:
            mixed = (right + key) * MIX & WORD
            left, right = right, left ^ ((mixed ^ mixed >> 29) * MIX >> 32 & mask)
        return left << self._bits | right
