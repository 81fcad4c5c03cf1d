"""The lineage of a run's policies: births, parents and hyperparameters, read from its ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from remuda.population.ledger.ledger import (
    BIRTH,
    BORN_WITH,
    FITNESS,
    FREEZE,
    LONGEST_HEADER,
    MATCH,
    OPTIMIZER_STEPS,
    PARENT_FITNESS,
    SECOND_PARENT,
    parse_header,
    read_records,
    value_of,
)
from remuda.system.checkpoint.opening import open_stream


@dataclass(frozen=True)
class Born:
    """A policy of a run, with the sources of its weights and hyperparameters."""

    policy: str  # the name of its slot in the population
    generation: int  # the number of earlier policies in this slot
    matches: int  # the number of finished matches at its birth
    parent: str | None
    """The policy whose weights it copied; None for an initial policy, or random weights."""
    parent_generation: int
    parent_version: int  # the parent's version that it copied; -1 without a parent
    hyperparameters: dict[str, float] = field(default_factory=dict)
    fitness: float | None = None
    """Fitness of the slot's previous policy; None if it was not evaluated."""
    parent_fitness: float | None = None
    second: str | None = None  # a second parent, the source of some hyperparameters or layers
    second_generation: int = 0
    optimizer_steps: int = 0  # steps that made its inherited optimizer moments; 0 if it has none

    def __str__(self) -> str:
        return f"{self.policy} (generation {self.generation})"


def read_lineage(ledger: Path) -> list[Born]:
    """Return the initial policies (if policies evolve), then all births in the ledger's order."""
    names, records = read_records(ledger)
    with open_stream(ledger) as file:
        numbers = parse_header(file.readline(LONGEST_HEADER)).numbers
    generations = dict.fromkeys(range(len(names)), 0)
    found: dict[tuple[int, int], Born] = {}
    frozen: dict[tuple[int, int], int] = {}  # generation of a frozen copy, by policy and version
    for record in records[np.isin(records["kind"], (BIRTH, BORN_WITH, FREEZE))]:
        policy = int(record["policy"][0])
        if record["kind"] == FREEZE:
            frozen[policy, int(record["version"][0])] = generations[policy]
            continue
        if record["kind"] == BIRTH:
            generation = int(record["returns"][0])
            generations[policy] = generation
            parent, version = int(record["oldest"][0]), int(record["newest"][0])
            # An earlier record of the same birth is void: the actor died before ordering the birth.
            found.pop((policy, generation), None)
            found[policy, generation] = Born(
                names[policy],
                generation,
                int(record["number"]),
                names[parent] if parent >= 0 else None,
                frozen.get((parent, version), generations.get(parent, 0)),
                version,
            )
            continue
        at = policy, generations[policy]
        if at not in found:  # an initial policy
            found[at] = Born(names[policy], 0, int(record["number"]), None, 0, -1)
        name, value = int(record["version"][0]), value_of(record["digest"])
        if name == SECOND_PARENT:
            second = int(value)
            generation = generations.get(second, 0)
            found[at] = replace(found[at], second=names[second], second_generation=generation)
        else:
            found[at] = _with_number(found[at], name, value, numbers)
    return list(found.values())


def read_matches(ledger: Path) -> int:
    _, records = read_records(ledger)
    return int((records["kind"] == MATCH).sum())


def _with_number(born: Born, name: int, value: float, numbers: Sequence[str]) -> Born:
    if name == FITNESS:
        return replace(born, fitness=value)
    if name == PARENT_FITNESS:
        return replace(born, parent_fitness=value)
    if name == OPTIMIZER_STEPS:
        return replace(born, optimizer_steps=int(value))
    if 0 <= name < len(numbers):
        return replace(born, hyperparameters={**born.hyperparameters, numbers[name]: value})
    return born


def ancestors(lineage: list[Born], policy: str) -> Iterator[Born]:
    """Iterate over the current policy of a slot, its parent, its grandparent and so on."""
    by_name = {(born.policy, born.generation): born for born in lineage}
    generation = max((born.generation for born in lineage if born.policy == policy), default=0)
    at = by_name.get((policy, generation))
    while at is not None:
        yield at
        at = by_name.get((at.parent, at.parent_generation)) if at.parent is not None else None
