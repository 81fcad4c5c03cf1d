"""Births, frozen copies and retirements: the lead carries out a director's commands.

A stand-in is a frozen copy that plays for a retired policy until the newborn plays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from remuda.config import PolicyConfig
from remuda.config.hyperparameters import checked_numbers, names_of
from remuda.errors import RemudaError, UsageError
from remuda.population.births.inheritance import ActingPolicies, newborn_data
from remuda.population.directors.director import Birth, Command, Freeze, Vacate
from remuda.population.ledger.ledger import (
    BIRTH,
    BORN_WITH,
    FITNESS,
    FREEZE,
    OPTIMIZER_STEPS,
    PARENT_FITNESS,
    RETIRE,
    SECOND_PARENT,
    Ledger,
    bits_of,
)
from remuda.population.ledger.records import (
    FRESH,
    RATING,
    UNCERTAINTY,
    Member,
    PolicyRef,
    Population,
)
from remuda.population.matchmaking.matchmaker import Matchmaker, can_do_without, can_stand_in
from remuda.population.members.table import Table
from remuda.population.members.table_parts import MATCHES, NO_POLICY
from remuda.population.roster import Roster
from remuda.publish.snapshot import Snapshot
from remuda.publish.training_state import STEPS
from remuda.types import Array, Integers


class Lifecycle:
    """The births, frozen copies and retirements of a population.

    They change the table and the lead's `Population`. If the lead dies, its successor finds every
    birth and retirement in the table, even if half done.
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
        self._table, self._population, self._ledger = table, population, ledger
        self._seated, self._roster, self._once = seated, roster, once
        self._followers = table.followers
        self._leaving = table.occupants.leaving
        self.postponed: list[str] = []  # policies to freeze once a slot is free for their copy
        spare = [table.slots.stand_in_of(policy) for policy in table.policies]
        self._stand_ins = np.array([slot for slot in spare if slot is not None], np.int64)
        self._left: set[PolicyRef] = set()  # members that left since the directors' last step
        self._standing_in: list[int] = []  # slots of stand-ins frozen since the last `settle`

    def carry_out(self, command: Command, acting: ActingPolicies, matchmaker: Matchmaker) -> None:
        """Carry out a command; copies are frozen later, by `settle`."""
        if isinstance(command, Freeze):
            self.postponed.append(command.policy)
        elif isinstance(command, Birth):
            self._order(command, acting)
        elif isinstance(command, Vacate):
            self._vacate(PolicyRef(command.policy), acting, matchmaker)
        else:
            self._retire(command.ref, matchmaker)

    def settle(self, acting: ActingPolicies) -> list[int]:
        """Empty retired members' slots, freeze postponed copies, and return new copies' slots."""
        self._relieve()
        self._leaving = [slot for slot in self._leaving if not self._free(slot)]
        waiting = [p for p in self.postponed if PolicyRef(p) in self._population]
        frozen = {policy: self._freeze(policy, acting.look(policy)) for policy in waiting}
        self.postponed = [policy for policy, slot in frozen.items() if slot is None]
        standing_in, self._standing_in = self._standing_in, []
        return [*standing_in, *(slot for slot in frozen.values() if slot is not None)]

    def note_slots(self) -> None:
        """Update the population's lists of expected, leaving and empty slots for the directors."""
        self._left.clear()
        table, population = self._table, self._population
        names = table.policies
        expected = {names[slot] for slot in table.births.expected}
        away = (*self._leaving, *self._followers.clearing)
        leaving = {names[slot] for slot in away if slot < len(names)}
        population.expected = tuple(name for name in names if name in expected)
        population.leaving = tuple(name for name in names if name in leaving)
        population.empty = self.empty_slots()

    def admit(self, versions: Mapping[str, int]) -> None:
        """Admit newborn policies that are published, once this actor has their weights."""
        for slot in self._table.births.expected:
            policy, since = self._table.policies[slot], self._table.births.since(slot)
            if since is not None and versions[policy] >= since:
                numbers = self._table.numbers[slot].copy()
                self._followers.begin_change()
                newborn = self._table.admit(slot)
                if newborn.ref in self._population:
                    continue  # an earlier actor died while admitting it
                newborn.seats, newborn.numbers = self._roster.seats.get(policy), numbers
                self._population.add(newborn, slot)

    def mean_rating(self) -> float:
        """Return the mean rating of live policies; NaN if there are none."""
        slots = self._population.slots_of(self._population.learning)
        return float(self._table.numbers[slots, RATING].mean()) if len(slots) else math.nan

    def empty_slots(self) -> tuple[str, ...]:
        """Return the slots of live policies without a current, leaving or expected policy."""
        used = {member.slot for member in self._population.learning}
        used |= {*self._leaving, *self._table.births.expected, *self._followers.clearing}
        return tuple(name for i, name in enumerate(self._table.policies) if i not in used)

    def _order(self, birth: Birth, acting: ActingPolicies) -> None:
        name, population, table = birth.policy, self._population, self._table
        if name in population.empty and name not in self.empty_slots():
            return  # another director filled it first
        if self._left & {birth.parent, birth.second}:
            return  # another director retired a parent; the slot stays empty for a later birth
        self._check(birth, acting)
        slot = table.policies.index(name)
        hyperparameters = {**table.specified.get(name, {})}
        if birth.parent is not None:
            hyperparameters |= population[birth.parent].hyperparameters
        hyperparameters |= birth.hyperparameters
        generation = table.births.ordered(slot) + 1
        data = newborn_data(birth, table, population, acting, generation)
        born = table.word(MATCHES)
        newborn = Member(PolicyRef(name), None, data.parent, born, hyperparameters)
        acting.clear(name)
        mean = self.mean_rating()
        if birth.parent is not None:
            newborn.rate(population[birth.parent].rating, FRESH[UNCERTAINTY])
        elif math.isfinite(mean):  # without a parent: the mean rating of the others
            newborn.rate(mean, FRESH[UNCERTAINTY])
        table.numbers[slot] = 0.0
        table.numbers[slot, : len(FRESH)] = newborn.numbers
        digest = table.prepare(slot, newborn, data)
        # The birth is recorded before it is ordered. If this actor dies in between, its successor
        # records and orders the same generation again, so the ledger lacks no birth.
        record = self._record(BIRTH, newborn.ref, digest, data.parent)
        record["returns"][:, 0] = generation
        steps = data.training.numbers[STEPS] if data.training is not None else 0.0
        table.records.add(np.concatenate((record, self._numbers(newborn, birth, steps))))
        table.births.count(slot)
        acting.wake(name)

    def _check(self, birth: Birth, acting: ActingPolicies) -> None:
        name = birth.policy
        start = f"the director commands the birth of {name}"
        if name not in self.empty_slots():
            empty = ", ".join(self.empty_slots()) or "none"
            raise RemudaError(f"{start}, which is not an empty slot; there are: {empty}")
        known = names_of([self._table.specified.get(name, {})])
        for key in birth.hyperparameters:
            if key not in known:
                raise RemudaError(
                    f"{start} with {key}, which is not one of its hyperparameters; there are "
                    f"{', '.join(known)}"
                )
        try:
            checked_numbers(PolicyConfig(), birth.hyperparameters, "")
        except UsageError as error:
            raise RemudaError(f"{start} with a number that is not allowed: {error}") from None
        if birth.inherits_training and self._table.births.training_layout(name) is None:
            raise RemudaError(
                f"{start} with inherits_training, but no training state is published; set "
                "population.evolution.inherit all, or leave it out"
            )
        if birth.second is not None and birth.parent is None:
            raise RemudaError(f"{start} from a second parent, {birth.second}, without a first one")
        for parent in (birth.parent, birth.second):
            if parent is None:
                continue
            if parent.is_scripted:
                raise RemudaError(f"{start} from {parent}, which is scripted and has no weights")
            if parent not in self._population:
                raise RemudaError(f"{start} from {parent}, which is not in the population")
            if not acting.fits(name, parent.policy):
                raise RemudaError(
                    f"{start} from {parent}, which has a network of another kind, or other seats"
                )

    def _retire(self, ref: PolicyRef, matchmaker: Matchmaker) -> None:
        if ref not in self._population:
            return
        if ref.is_scripted and ref.policy in self._roster.reserved_members:
            raise RemudaError(
                f"the director commands that {ref} retires, but its seat is reserved "
                f"(env.scripted.{ref}); it may only retire other members"
            )
        if not ref.is_frozen and not self._can_do_without(ref, matchmaker):
            return
        self._let_go(ref)

    def _let_go(self, ref: PolicyRef) -> None:
        """Retire a member, which leaves it out of all matches proposed later."""
        member = self._population.retire(ref)
        self._followers.begin_change()
        self._followers.leave(member.slot)
        self._left.add(ref)
        self._log(RETIRE, ref, 0)
        self._leaving.append(member.slot)
        self._table.occupants.leave(member.slot)

    def _vacate(self, ref: PolicyRef, acting: ActingPolicies, matchmaker: Matchmaker) -> None:
        """Retire a live policy; if needed, a copy takes its seats."""
        population = self._population
        if ref not in population:
            return  # retired already, or scripted: no policy is born in a scripted member's slot
        slot = self._table.slots.stand_in_of(ref.policy)
        if not self._can_do_without(ref, matchmaker):
            if slot is None or not can_stand_in(population.members, ref, matchmaker):
                return
            taken = {member.slot for member in population.members} | set(self._leaving)
            if slot in taken:
                return  # the copy of the previous birth is playing its last matches
            snapshot = acting.look(ref.policy)
            if PolicyRef(ref.policy, snapshot.version) not in population:
                self._freeze_into(slot, ref.policy, snapshot)
                self._standing_in.append(slot)
        self._let_go(ref)

    def _relieve(self) -> None:
        """Retire stand-in copies whose slots have a live policy again.

        The table is searched for them, since the actor that admitted the newborn may have died.
        """
        there = self._table.occupants.there[self._stand_ins]
        for slot in self._stand_ins[there].tolist():
            copied = self._population.at(slot).ref
            if PolicyRef(copied.policy) in self._population:
                self._let_go(copied)

    def _can_do_without(self, ref: PolicyRef, matchmaker: Matchmaker) -> bool:
        least = len(self._roster.dealt_seats) if self._once else 1
        return can_do_without(self._population.members, ref, matchmaker, least)

    def _free(self, slot: int) -> bool:
        if (self._seated == slot).any() or not self._followers.have_left(slot):
            return False
        self._ledger.forget(slot)
        self._followers.begin_change()
        self._table.occupants.remove(slot)
        self._followers.empty(slot)
        return True

    def _freeze(self, policy: str, snapshot: Snapshot) -> int | None:
        """Freeze a copy and return its slot; None if no slot is free now."""
        if PolicyRef(policy, snapshot.version) in self._population:
            return None
        taken = {member.slot for member in self._population.members} | set(self._leaving)
        taken |= set(self._stand_ins.tolist())
        free = [slot for slot in self._table.slots.copies_of(policy) if slot not in taken]
        if not free:
            return None
        self._freeze_into(free[0], policy, snapshot)
        return free[0]

    def _freeze_into(self, slot: int, policy: str, snapshot: Snapshot) -> None:
        born = self._table.word(MATCHES)
        self._followers.begin_change()
        member = self._population.freeze(policy, snapshot.version, born, slot)
        digest = self._table.freeze(member, snapshot)
        self._log(FREEZE, member.ref, digest)

    def log_first(self) -> None:
        """Record the hyperparameters of the initial policies, if others may replace them."""
        if len(self._stand_ins):
            first = [self._numbers(member) for member in self._population.learning]
            self._table.records.add(np.concatenate(first))

    def _numbers(self, newborn: Member, birth: Birth | None = None, steps: float = 0.0) -> Array:
        """Return the `BORN_WITH` records of a newborn.

        `steps`: the optimizer steps that made its inherited moments.
        """
        names = self._table.hyperparameters.names
        numbers = [(names.index(n), v) for n, v in newborn.hyperparameters.items() if n in names]
        if birth is not None and birth.fitness is not None:
            numbers += [(FITNESS, birth.fitness[0]), (PARENT_FITNESS, birth.fitness[1])]
        if birth is not None and birth.second is not None:
            second = self._table.names.index(birth.second.policy)
            numbers.append((SECOND_PARENT, float(second)))
        if steps:
            numbers.append((OPTIMIZER_STEPS, steps))
        records = self._table.records.empty(len(numbers))
        records["kind"], records["number"] = BORN_WITH, newborn.born
        records["policy"][:, 0] = self._table.names.index(newborn.ref.policy)
        for record, (name, value) in zip(records, numbers, strict=True):
            record["version"][0], record["digest"] = name, bits_of(value)
        return records

    def _log(self, kind: int, ref: PolicyRef, digest: int) -> None:
        self._table.records.add(self._record(kind, ref, digest))

    def _record(
        self, kind: int, ref: PolicyRef, digest: int, parent: PolicyRef | None = None
    ) -> Array:
        names, record = self._table.names, self._table.records.empty(1)
        record["kind"], record["number"] = kind, self._table.word(MATCHES)
        record["policy"][:, 0] = names.index(ref.policy)
        record["version"][:, 0], record["digest"] = ref.version, digest
        record["oldest"][:, 0] = record["newest"][:, 0] = NO_POLICY
        if parent is not None:
            record["oldest"][:, 0] = names.index(parent.policy)
            record["newest"][:, 0] = parent.version
        return record
