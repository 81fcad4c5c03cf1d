"""The data types of a population: policies and their frozen copies, matches, results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from remuda.errors import ConfigError
from remuda.types import Integers

Numbers = npt.NDArray[np.float64]
View = TypeVar("View")
SCRIPTED = 1 << 32  # the version of scripted members: above that of any frozen copy


class PolicyRef(NamedTuple):
    """A reference to a member: live weights, a frozen copy, or a scripted policy."""

    policy: str
    version: int = -1  # of a frozen copy; -1 for live weights, `SCRIPTED` for scripted policies

    @property
    def is_frozen(self) -> bool:
        """Return whether the member never changes: a frozen copy, or a scripted policy."""
        return self.version >= 0

    @property
    def is_scripted(self) -> bool:
        return self.version == SCRIPTED

    def __str__(self) -> str:
        has_version = self.is_frozen and not self.is_scripted
        return f"{self.policy}@{self.version}" if has_version else self.policy


@dataclass(frozen=True)
class Match:
    """A match to be played: the member on each seat."""

    id: int
    seats: tuple[PolicyRef, ...]
    learns: frozenset[int] | None = None  # seats whose live policies learn from it; None for all


GAMES, REWARD, RATING, UNCERTAINTY, MEETINGS, WINS, SQUARES, TEAM, TEAM_SQUARES = range(9)
PLAYED, WELFARE = 9, 10
"""Columns of a member's numbers. Meetings and wins count all other members, including former ones;
a draw is half a win. `REWARD` and `SQUARES` are sums of returns and of their squares; `TEAM` and
`TEAM_SQUARES` are the same sums for the mean return of the member's team. `PLAYED` counts its
matches, and `WELFARE` sums the returns of all agents in them. Two more columns hold sums of an
episode metric and of its squares, for each that evolution uses."""
FRESH = (0.0, 0.0, 25.0, 25.0 / 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""Numbers of a new member; rating and uncertainty start as in openskill."""


@dataclass(eq=False)
class Member:
    """A policy or a frozen copy, with its statistics: a row of the population's `numbers`."""

    ref: PolicyRef
    seats: frozenset[int] | None = None
    parent: PolicyRef | None = None
    born: int = 0
    hyperparameters: dict[str, float] = field(default_factory=dict)
    is_imported: bool = False  # true for a frozen policy of another run
    numbers: Numbers = field(init=False, default_factory=lambda: np.array(FRESH))
    slot: int = field(init=False, default=-1)  # its row, once it is in a population

    @property
    def games(self) -> int:
        """The number of seats on which it took part in finished matches."""
        return int(self.numbers[GAMES])

    @property
    def total_reward(self) -> float:
        """The sum of the member's undiscounted returns."""
        return float(self.numbers[REWARD])

    @property
    def rating(self) -> float:
        """The estimated mean of the member's skill, on openskill's scale."""
        return float(self.numbers[RATING])

    @property
    def uncertainty(self) -> float:
        """The standard deviation of the estimated skill."""
        return float(self.numbers[UNCERTAINTY])

    @property
    def win_rate(self) -> float | None:
        """Its win rate, where a draw counts half; None without meetings."""
        met = float(self.numbers[MEETINGS])
        return float(self.numbers[WINS]) / met if met else None

    @property
    def learns(self) -> bool:
        """Return whether the member is live, so that its weights change."""
        return not self.ref.is_frozen

    def may_sit(self, seat: int) -> bool:
        return self.seats is None or seat in self.seats

    def rate(self, rating: float, uncertainty: float) -> None:
        self.numbers[RATING], self.numbers[UNCERTAINTY] = rating, uncertainty


class Population:
    """The members of a population, in the order of their slots.

    Guarantees:

    1. A frozen copy is a separate member, with a reference that no other member ever has.
    2. A retired member is in no match proposed later.
    3. A member keeps its slot, and its row of `numbers`, while it is in the population.
    """

    def __init__(self, members: Iterable[Member] = (), numbers: Numbers | None = None) -> None:
        self._members: dict[PolicyRef, Member] = {}
        self._grows = numbers is None
        self.numbers: Numbers = np.zeros((16, len(FRESH))) if numbers is None else numbers
        """[slots, fields], by `Member.slot`."""
        self.matches = 0
        self.dealt: frozenset[int] | None = None  # seats that a matchmaker assigns; None for all
        self.empty: tuple[str, ...] = ()  # slots in which a policy may be born
        self.expected: tuple[str, ...] = ()  # slots whose newborn is ordered but does not play yet
        self.leaving: tuple[str, ...] = ()
        """The slots of retired policies that still play their last matches."""
        self._slots: dict[int, Member] = {}
        self._past: dict[str, list[Member]] = {}
        self._views: dict[object, Any] = {}
        self._arrays: dict[int, tuple[tuple[Member, ...], Integers]] = {}
        """Slots by the `id` of a tuple of members; the tuple is kept so that its id stays valid."""
        for member in members:
            self.add(member)

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, ref: PolicyRef) -> Member:
        return self._members[ref]

    def __contains__(self, ref: PolicyRef) -> bool:
        return ref in self._members

    @property
    def members(self) -> tuple[Member, ...]:
        return self.view(
            "members", lambda: tuple(self._slots[slot] for slot in sorted(self._slots))
        )

    @property
    def learning(self) -> tuple[Member, ...]:
        """The live members, whose weights change."""
        return self.view("learning", lambda: tuple(m for m in self.members if m.ref.version < 0))

    @property
    def frozen(self) -> tuple[Member, ...]:
        """The unchanging members: frozen copies, policies of other runs, scripted policies."""
        return self.view("frozen", lambda: tuple(m for m in self.members if m.ref.version >= 0))

    @property
    def imported(self) -> tuple[Member, ...]:
        """The frozen members that this run did not train: from other runs, or scripted."""
        return self.view(
            "imported", lambda: tuple(m for m in self.frozen if m.is_imported or m.ref.is_scripted)
        )

    def past_of(self, policy: str) -> Sequence[Member]:
        """Return a policy's frozen copies, the oldest first."""
        return self._past.get(policy, ())

    @property
    def free(self) -> tuple[Member, ...]:
        """The learning members that may take every seat that a matchmaker assigns."""
        return self.view(
            "free", lambda: tuple(m for m in self.learning if m.seats in (None, self.dealt))
        )

    @property
    def slots(self) -> Integers:
        """[N]: the slots of all members, in order."""
        return self.slots_of(self.members)

    def slots_of(self, members: tuple[Member, ...]) -> Integers:
        """Return the slots of members: [len(members)]; the result is cached for this tuple."""
        found = self._arrays.get(id(members))
        if found is None or found[0] is not members:
            slots = np.array([member.slot for member in members], np.int64)
            found = self._arrays[id(members)] = (members, slots)
        return found[1]

    def at(self, slot: int) -> Member:
        return self._slots[slot]

    def for_seat(self, seat: int) -> tuple[Member, ...]:
        return self._for_seat("members", self.members, seat)

    def live_for_seat(self, seat: int) -> tuple[Member, ...]:
        return self._for_seat("learning", self.learning, seat)

    def past_for_seat(self, seat: int) -> tuple[Member, ...]:
        return self._for_seat("frozen", self.frozen, seat)

    def add(self, member: Member, slot: int | None = None) -> None:
        """Add a member in a free slot, by default the first free slot."""
        if member.ref in self._members:
            raise ConfigError(f"there is a policy {member.ref} in the population already")
        if slot is None:
            slot = next(i for i in range(len(self._slots) + 1) if i not in self._slots)
        while slot >= len(self.numbers) and self._grows:
            self.numbers = np.concatenate((self.numbers, np.zeros_like(self.numbers)))
            for other in self._members.values():
                other.numbers = self.numbers[other.slot]
        self.numbers[slot, : len(member.numbers)] = member.numbers
        member.slot, member.numbers = slot, self.numbers[slot]
        self._members[member.ref] = self._slots[slot] = member
        if member.ref.is_frozen:
            past = [*self._past.get(member.ref.policy, ()), member]
            self._past[member.ref.policy] = sorted(past, key=lambda each: each.ref.version)
        self._views.clear()
        self._arrays.clear()

    def freeze(self, policy: str, version: int, born: int = 0, slot: int | None = None) -> Member:
        """Add a frozen copy of a live policy, with the policy's rating."""
        live = self._members[PolicyRef(policy)]
        ref = PolicyRef(policy, version)
        copy = Member(ref, live.seats, live.ref, born, dict(live.hyperparameters))
        copy.rate(live.rating, live.uncertainty)
        self.add(copy, slot)
        return copy

    def retire(self, ref: PolicyRef) -> Member:
        """Remove a member; the returned member has its own copy of its numbers."""
        member = self._members.pop(ref)
        del self._slots[member.slot]
        if ref.is_frozen:
            self._past[ref.policy] = [m for m in self._past[ref.policy] if m is not member]
        member.numbers = member.numbers.copy()
        self._views.clear()
        self._arrays.clear()
        return member

    def kind_of_seat(self, seat: int) -> tuple[frozenset[int], ...]:
        """Return the distinct `Member.seats` that contain a seat.

        Two seats with equal results may be taken by the same members.
        """
        kinds = self.view("kinds", lambda: list(dict.fromkeys(m.seats for m in self.members)))
        return self.view(("kind", seat), lambda: tuple(k for k in kinds if k and seat in k))

    def _for_seat(self, name: str, members: tuple[Member, ...], seat: int) -> tuple[Member, ...]:
        kind = self.kind_of_seat(seat)

        def find() -> tuple[Member, ...]:
            allowed = {None, *kind}
            found = tuple(member for member in members if member.seats in allowed)
            return members if len(found) == len(members) else found

        return self.view((name, kind), find)

    def view(self, key: object, find: Callable[[], View]) -> View:
        """Return the result of `find`, cached by key until members change."""
        if key not in self._views:
            self._views[key] = find()
        view: View = self._views[key]
        return view
