"""How many seatings there are that seat no member twice, by how many of each kind sit where."""

from __future__ import annotations

import math
from itertools import product

Counts = tuple[int, ...]
Kinds = tuple[tuple[tuple[int, ...], int], ...]
"""Of each kind: the groups of seats that it may take, and how many there are of it."""
Choices = list[dict[Counts, tuple[list[float], list[Counts]]]]
"""By kind, and by the seats of each group that are left to it and the kinds after it: cumulative
probabilities, and for each of them what is left to the kinds after it."""

COUNTED = 20_000
"""Steps of counting before it is given up: tens of milliseconds."""
KEPT = 100_000
"""Entries of all counts that are kept together: some tens of MB."""


class Counted:
    """The counts that were asked for last: a cache with a bound on its memory.

    A table has up to `COUNTED` entries, so their number would be no bound. What was dropped is
    counted again, and is the same.
    """

    def __init__(self, kept: int = KEPT) -> None:
        """Keep so many entries of all tables together."""
        self.kept, self.entries = kept, 0
        self.tables: dict[tuple[Counts, Kinds], Choices | None] = {}
        """By what was counted, the one asked for longest ago first."""

    def choices(self, sizes: Counts, kinds: Kinds) -> Choices | None:
        """As `count_seatings` finds them."""
        key = (sizes, kinds)
        if key in self.tables:
            found = self.tables[key] = self.tables.pop(key)  # the newest now
            return found
        found = self.tables[key] = count_seatings(sizes, kinds)
        self.entries += _entries(found)
        while self.entries > self.kept and len(self.tables) > 1:
            self.entries -= _entries(self.tables.pop(next(iter(self.tables))))
        return found

    def clear(self) -> None:
        """Forget all of them."""
        self.tables, self.entries = {}, 0


COUNTS = Counted()
"""Of this process."""


def count_seatings(sizes: Counts, kinds: Kinds) -> Choices | None:
    """Count the seatings that seat no member twice, by how many of each kind sit in each group."""
    last = {group: kind for kind, (groups, _) in enumerate(kinds) for group in groups}
    steps, states = 0, {sizes}
    paths: list[dict[Counts, list[tuple[Counts, int]]]] = []
    for kind, (groups, members) in enumerate(kinds):
        found: dict[Counts, list[tuple[Counts, int]]] = {}
        for left in states:
            found[left] = []
            # The last kind that may take a group takes all that is left of it.
            ranges = [range(left[g] if last[g] == kind else 0, left[g] + 1) for g in groups]
            for taken in product(*ranges):
                steps += 1
                if steps > COUNTED:
                    return None
                count = sum(taken)
                if count > members:
                    continue
                rest = list(left)
                ways = math.perm(members, count)
                for group, number in zip(groups, taken, strict=True):
                    ways *= math.comb(left[group], number)
                    rest[group] -= number
                found[left].append((tuple(rest), ways))
        states = {rest for options in found.values() for rest, _ in options}
        paths.append(found)
    none_left = (0,) * len(sizes)
    ways_after: dict[Counts, int] = {none_left: 1} if none_left in states else {}
    choices: Choices = []
    for found in reversed(paths):
        ways_now: dict[Counts, int] = {}
        chosen: dict[Counts, tuple[list[float], list[Counts]]] = {}
        for left, options in found.items():
            able = [(rest, w * ways_after[rest]) for rest, w in options if rest in ways_after]
            if not able:
                continue
            total, sums = 0, []
            for _, ways in able:
                total += ways
                sums.append(total)
            ways_now[left] = total
            chosen[left] = [each / total for each in sums], [rest for rest, _ in able]
        ways_after = ways_now
        choices.insert(0, chosen)
    return choices if sizes in ways_after else []


def _entries(choices: Choices | None) -> int:
    """What a table counts for: at least 1, that it was too many to count too."""
    if choices is None:
        return 1
    return 1 + sum(len(rests) for kind in choices for _, rests in kind.values())
