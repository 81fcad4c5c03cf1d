"""Births, frozen copies and retirements: what a director commands, carried out in one actor."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from remuda.errors import ConfigError, RemudaError
from remuda.hyperparameters import names_of
from remuda.population.director import Birth, Command, Freeze
from remuda.population.ledger import BIRTH, FREEZE, RETIRE, Ledger
from remuda.population.matchmaking import Matchmaker
from remuda.population.records import (
    FRESH,
    RATING,
    UNCERTAINTY,
    Member,
    PolicyRef,
    Population,
)
from remuda.population.roster import Roster
from remuda.population.table import Table
from remuda.population.table_layout import MATCHES, NO_POLICY
from remuda.publish.snapshot import Snapshot
from remuda.types import Floats, Integers


class ActingPolicies(Protocol):
    """The live policies as they play in an actor: what births and frozen copies need of them."""

    def look(self, policy: str) -> Snapshot:
        """The live weights of a policy as they play now."""

    def draw(self, policy: str, generation: int) -> Floats:
        """Weights that no learner has trained, as the specification has them: [size]."""

    def fits(self, policy: str, other: str) -> bool:
        """Whether one could begin with the weights of the other."""

    def clear(self, policy: str) -> None:
        """Forget what the policy that had this place before lived through."""

    def wake(self, policy: str) -> None:
        """Ring its learner."""


class Lifecycle:
    """Who comes into a population and who goes, in its table and in the league's view of it.

    What was ordered or left half done by an actor that died is found in the table.
    """

    def __init__(
        self,
        table: Table,
        population: Population,
        ledger: Ledger,
        seated: Integers,
        roster: Roster,
        once: bool = False,
    ) -> None:
        """Go on with a table.

        Args:
            table: of the population.
            population: its members, as the league has them.
            ledger: what came of their matches.
            seated: [num_envs, seats] the places of those that sit; it is the league's, and read.
            roster: the seats of the game, and who may take them.
            once: rings are only as large as if a policy had one seat of a match at most.
        """
        self._table, self._population, self._ledger = table, population, ledger
        self._seated, self._roster, self._once = seated, roster, once
        self._leaving = table.occupants.leaving
        self.postponed: list[str] = []
        """Policies that are to be frozen once there is a place for their copy."""

    def carry_out(self, command: Command, acting: ActingPolicies, matchmaker: Matchmaker) -> None:
        """Do what a director commands; a copy is frozen by `settle`.

        Raises:
            RemudaError: it commands what cannot be.
        """
        if isinstance(command, Freeze):
            self.postponed.append(command.policy)
        elif isinstance(command, Birth):
            self._order(command, acting)
        else:
            self._retire(command.ref, matchmaker)

    def settle(self, acting: ActingPolicies) -> list[int]:
        """Empty the places of those who sit nowhere any more, and freeze those who wait for one.

        Returns:
            The places that hold a new frozen copy.
        """
        self._leaving = [place for place in self._leaving if not self._free(place)]
        waiting = [p for p in self.postponed if PolicyRef(p) in self._population]
        frozen = {policy: self._freeze(policy, acting.look(policy)) for policy in waiting}
        self.postponed = [policy for policy, place in frozen.items() if place is None]
        return [place for place in frozen.values() if place is not None]

    def note_places(self) -> None:
        """Tell the director which places of live policies are empty, or will be, or were.

        Each place is one of these: of a policy in the population, of one that is expected, of one
        that has retired and plays its last matches, or empty.
        """
        table, population = self._table, self._population
        names = table.policies
        expected = {names[place] for place in table.births.expected}
        leaving = {names[place] for place in self._leaving if place < len(names)}
        population.expected = tuple(name for name in names if name in expected)
        population.leaving = tuple(name for name in names if name in leaving)
        population.empty = self._empty()

    def admit(self, versions: Mapping[str, int]) -> None:
        """Let the newborn play whose learners have begun, and whose weights are here."""
        for place in self._table.births.expected:
            policy, since = self._table.policies[place], self._table.births.since(place)
            if since is not None and versions[policy] >= since:
                numbers = self._table.numbers[place].copy()
                newborn = self._table.admit(place)
                if newborn.ref in self._population:
                    continue  # an actor before this one let it in, and died over it
                newborn.seats, newborn.numbers = self._roster.seats.get(policy), numbers
                self._population.add(newborn, place)

    def mean_rating(self) -> float:
        """Of live policies; not a number where there are none."""
        places = self._population.places_of(self._population.learning)
        return float(self._table.numbers[places, RATING].mean()) if len(places) else math.nan

    def _empty(self) -> tuple[str, ...]:
        """Places of live policies where no policy is, was a moment ago, or is expected."""
        taken = {member.place for member in self._population.learning}
        taken |= {*self._leaving, *self._table.births.expected}
        return tuple(name for i, name in enumerate(self._table.policies) if i not in taken)

    def _order(self, birth: Birth, acting: ActingPolicies) -> None:
        """Have a policy begin, and the old experience of its place forgotten."""
        name, population, table = birth.policy, self._population, self._table
        if name in population.empty and name not in self._empty():
            return  # another director was faster
        self._check(birth, acting)
        place = table.policies.index(name)
        hyperparameters = {**table.specified.get(name, {})}
        parent: PolicyRef | None = None
        if birth.parent is None:
            weights = acting.draw(name, table.births.ordered(place) + 1)
        else:
            held = population[birth.parent]
            hyperparameters |= held.hyperparameters
            frozen = birth.parent.is_frozen
            snapshot = table.snapshot(held.place) if frozen else acting.look(birth.parent.policy)
            weights = snapshot.weights
            parent = PolicyRef(birth.parent.policy, snapshot.version)
        hyperparameters |= birth.hyperparameters
        born = table.word(MATCHES)
        newborn = Member(PolicyRef(name), None, parent, born, hyperparameters)
        acting.clear(name)
        mean = self.mean_rating()
        if birth.parent is not None:
            newborn.rate(population[birth.parent].rating, FRESH[UNCERTAINTY])
        elif math.isfinite(mean):  # nothing is known of it: like the others
            newborn.rate(mean, FRESH[UNCERTAINTY])
        table.numbers[place] = newborn.numbers
        digest = table.order(place, weights, newborn)
        self._log(BIRTH, newborn.ref, digest, parent)
        acting.wake(name)

    def _check(self, birth: Birth, acting: ActingPolicies) -> None:
        """Refuse a birth that cannot be.

        Raises:
            RemudaError: its place is not empty, there is no such hyperparameter, or its parent is
                gone or does not fit.
        """
        name, parent = birth.policy, birth.parent
        said = f"the director commands the birth of {name}"
        if name not in self._empty():
            there = ", ".join(self._empty()) or "none"
            raise RemudaError(f"{said}, which is no empty place; there are: {there}")
        known = names_of([self._table.specified.get(name, {})])
        for key in birth.hyperparameters:
            if key not in known:
                raise RemudaError(f"{said} with {key}; there are {', '.join(known)}")
        if parent is not None and parent.is_scripted:
            raise RemudaError(f"{said} from {parent}, which is scripted and has no weights")
        if parent is not None and parent not in self._population:
            raise RemudaError(f"{said} from {parent}, which is not in the population")
        if parent is not None and not acting.fits(name, parent.policy):
            raise RemudaError(f"{said} from {parent}, which has another network or other seats")

    def _retire(self, ref: PolicyRef, matchmaker: Matchmaker) -> None:
        if ref not in self._population:
            return
        if not ref.is_frozen and not self._can_do_without(ref, matchmaker):
            return
        member = self._population.retire(ref)
        self._log(RETIRE, ref, 0)
        self._leaving.append(member.place)
        self._table.occupants.leave(member.place)

    def _can_do_without(self, ref: PolicyRef, matchmaker: Matchmaker) -> bool:
        """Whether matches can still be made when it is gone, also of those that learn alone."""
        others = [m for m in self._population.members if m.ref != ref]
        for members in (others, [m for m in others if m.learns]):
            left = Population()
            for m in members:
                left.add(Member(m.ref, m.seats, m.parent), m.place)
            trial = copy.deepcopy(matchmaker)
            try:
                trial.propose(left, Ledger(left), 1, np.random.default_rng(0))
            except ConfigError:
                return False
        return len(left.learning) >= (self._table.seats if self._once else 1)

    def _free(self, place: int) -> bool:
        """Empty a place, once its policy sits on no seat any more."""
        if (self._seated == place).any():
            return False
        self._ledger.forget(place)
        self._table.occupants.remove(place)
        return True

    def _freeze(self, policy: str, snapshot: Snapshot) -> int | None:
        """Keep a copy; None: there is no place free at present."""
        if PolicyRef(policy, snapshot.version) in self._population:
            return None
        taken = {member.place for member in self._population.members} | set(self._leaving)
        free = [place for place in self._table.places.copies_of(policy) if place not in taken]
        if not free:
            return None
        born = self._table.word(MATCHES)
        member = self._population.freeze(policy, snapshot.version, born, free[0])
        digest = self._table.freeze(member, snapshot)
        self._log(FREEZE, member.ref, digest)
        return free[0]

    def _log(self, kind: int, ref: PolicyRef, digest: int, parent: PolicyRef | None = None) -> None:
        names, record = self._table.names, self._table.records.empty(1)
        record["kind"], record["number"] = kind, self._table.word(MATCHES)
        record["policy"][:, 0] = names.index(ref.policy)
        record["version"][:, 0], record["digest"] = ref.version, digest
        record["oldest"][:, 0] = record["newest"][:, 0] = NO_POLICY
        if parent is not None:
            record["oldest"][:, 0] = names.index(parent.policy)
            record["newest"][:, 0] = parent.version
        self._table.records.add(record)
