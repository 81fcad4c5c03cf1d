"""The words of a population: policies and their past, matches, results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from remuda.errors import ConfigError
from remuda.types import State


@dataclass(frozen=True, order=True)
class PolicyRef:
    """A policy as it plays: its live weights, or a frozen copy of them."""

    policy: str
    version: int = -1
    """Of the frozen copy; -1: the live weights."""

    @property
    def is_frozen(self) -> bool:
        """Whether these weights never change."""
        return self.version >= 0

    def __str__(self) -> str:
        return f"{self.policy}@{self.version}" if self.is_frozen else self.policy


@dataclass(frozen=True)
class Match:
    """One game to be played: who sits where."""

    id: int
    seats: tuple[PolicyRef, ...]
    """By agent of the game."""
    purpose: str = "training"
    """`training` or `evaluation`; their results are never mixed."""


@dataclass(frozen=True)
class Result:
    """What came of a match."""

    match: Match
    returns: tuple[float, ...]
    """By seat: the undiscounted return."""
    acted: tuple[tuple[int, int], ...] = ()
    """By seat: the oldest and the newest version that acted."""
    truncated: bool = False


@dataclass
class Member:
    """What is known of one policy, or of a frozen copy of one."""

    ref: PolicyRef
    seats: frozenset[int] | None = None
    """The seats it may take; None: any."""
    parent: PolicyRef | None = None
    """Whom it was copied from."""
    born: int = 0
    """Matches that were over when it came."""
    games: int = 0
    """Seats that it has taken in matches that are over."""
    total_reward: float = 0.0
    """Sum over these seats of the undiscounted return."""
    rating: float = 25.0
    """The mean of what is believed of its skill, on openskill's scale."""
    uncertainty: float = 25.0 / 3.0
    """The standard deviation of that."""
    hyperparameters: dict[str, Any] = field(default_factory=dict)

    @property
    def learns(self) -> bool:
        """Whether its weights still change."""
        return not self.ref.is_frozen

    def may_sit(self, seat: int) -> bool:
        """Whether it may take this seat."""
        return self.seats is None or seat in self.seats


class Population:
    """The policies there are, in the order of their birth.

    What it guarantees:

    1. A frozen copy is a member of its own, with a reference that no other member ever has.
    2. Who is retired is in no match that is proposed after.
    3. A copy of a policy whose record is restored goes on with that record.
    """

    def __init__(self, members: list[Member] | None = None) -> None:
        self._members: dict[PolicyRef, Member] = {}
        for member in members or []:
            self.add(member)

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, ref: PolicyRef) -> Member:
        return self._members[ref]

    def __contains__(self, ref: PolicyRef) -> bool:
        return ref in self._members

    @property
    def members(self) -> tuple[Member, ...]:
        """All of them."""
        return tuple(self._members.values())

    @property
    def learning(self) -> tuple[Member, ...]:
        """Those whose weights still change."""
        return tuple(member for member in self.members if member.learns)

    def past_of(self, policy: str) -> tuple[Member, ...]:
        """The frozen copies of a policy, the oldest first."""
        past = (m for m in self.members if m.ref.policy == policy and m.ref.is_frozen)
        return tuple(sorted(past, key=lambda member: member.ref.version))

    def for_seat(self, seat: int) -> tuple[Member, ...]:
        """Who may take a seat."""
        return tuple(member for member in self.members if member.may_sit(seat))

    def add(self, member: Member) -> None:
        """Take in a member.

        Raises:
            ConfigError: there is one of that name.
        """
        if member.ref in self._members:
            raise ConfigError(f"there is a policy {member.ref} in the population already")
        self._members[member.ref] = member

    def freeze(self, policy: str, version: int, born: int = 0) -> Member:
        """Take in a frozen copy of a live policy, with its record so far as a beginning."""
        live = self._members[PolicyRef(policy)]
        copy = Member(
            PolicyRef(policy, version),
            live.seats,
            live.ref,
            born,
            rating=live.rating,
            uncertainty=live.uncertainty,
            hyperparameters=dict(live.hyperparameters),
        )
        self.add(copy)
        return copy

    def retire(self, ref: PolicyRef) -> Member:
        """Let a member go; what it did stays in the ledger."""
        return self._members.pop(ref)

    def state(self) -> State:
        """All records, as plain data."""
        return {
            str(i): {
                "policy": m.ref.policy,
                "version": m.ref.version,
                "seats": None if m.seats is None else sorted(m.seats),
                "parent": None if m.parent is None else [m.parent.policy, m.parent.version],
                "born": m.born,
                "games": m.games,
                "total_reward": m.total_reward,
                "rating": m.rating,
                "uncertainty": m.uncertainty,
                "hyperparameters": m.hyperparameters,
            }
            for i, m in enumerate(self.members)
        }

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        self._members.clear()
        for i in range(len(state)):
            saved = dict(state[str(i)])
            ref = PolicyRef(saved.pop("policy"), saved.pop("version"))
            seats, parent = saved.pop("seats"), saved.pop("parent")
            self.add(
                Member(
                    ref,
                    None if seats is None else frozenset(seats),
                    None if parent is None else PolicyRef(*parent),
                    **saved,
                )
            )
