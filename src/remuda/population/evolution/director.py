"""The director of evolution, which replaces policies by copies of better policies in a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass

from numpy.random import Generator

from remuda.config import EvolutionConfig
from remuda.population.directors.director import Birth, Command, Vacate
from remuda.population.evolution.explore import Explorer
from remuda.population.evolution.fitness import FitnessEstimates, estimate_fitness, unjudged
from remuda.population.ledger.ledger import MET, Ledger
from remuda.population.ledger.records import Member, PolicyRef, Population
from remuda.system.checkpoint.fitting import branch, real_number, where_is, whole, whole_number
from remuda.types import State

Select = Callable[[Mapping[str, FitnessEstimates], Generator], Sequence[tuple[str, str]]]
"""A function from fitness estimates to takeovers: pairs (policy, parent)."""

QUORUM = 0.75
"""The share of a kind's policies (those that may replace each other) that must have played enough
for a comparison. It is below 1, so that newborn policies do not delay the comparison."""


@dataclass(frozen=True)
class Plan:
    """A planned replacement of a policy by a copy of another."""

    parent: str
    fitness: Sequence[float] | None
    """The fitness of the policy and of the parent; None if they were not compared."""
    second: str | None = None  # a second parent
    born: int | None = None  # the parent's birth, to detect its replacement; None if unknown
    second_born: int | None = None  # the second parent's birth


class Evolution:
    """Population based training (PBT, Jaderberg et al. 2017) by births in vacated slots.

    Every `every` matches, the policies that have played enough are compared. Each loser leaves its
    slot of the population (`Vacate`). After the loser's last match another policy is born there: a
    copy of a better policy's current weights, with other hyperparameters. So within a match weights
    change only by training, and the run never stops for a generation.

    Guarantees:

    1. A vacated slot gets a newborn when it becomes empty. If the actor that planned the birth has
       died, its successor chooses a new parent.
    2. Decisions depend only on the seed of the run and on the matches, so the schedules
       `sequential` and `lockstep` reproduce them.
    """

    def __init__(
        self,
        config: EvolutionConfig,
        kinds: Mapping[str, Hashable],
        select: Select,
        make_explorer: Callable[[], Explorer],
        stream: Callable[[int, str], Generator],
    ) -> None:
        self._config, self._kinds = config, dict(kinds)
        self._select, self._stream = select, stream
        self._explorers = {kind: make_explorer() for kind in dict.fromkeys(kinds.values())}
        self._last = 0
        self._before: dict[str, tuple[int, float | None, list[float]]] = {}
        """Each policy's birth, and its fitness and numbers at its last evaluation. A newborn starts
        with its parent's fitness."""
        self._planned: dict[str, Plan] = {}  # by the policy that leaves its slot

    def step(
        self,
        population: Population,
        ledger: Ledger,
        versions: Mapping[str, int],  # noqa: ARG002
    ) -> list[Command]:
        """Return births for empty slots and, every `every` matches, retirements of losers."""
        born = [self._birth(name, population) for name in population.empty if name in self._kinds]
        if population.matches - self._last < (self._config.every or 0):
            return [*born]
        self._last = population.matches
        return [*born, *self._replace(population, ledger)]

    def _replace(self, population: Population, ledger: Ledger) -> list[Command]:
        rng = self._stream(population.matches, "")
        judged = self._judge(population, ledger)
        commands: list[Command] = []
        # A policy that could not leave (no match can be made without it) is compared again.
        self._planned = {p: t for p, t in self._planned.items() if PolicyRef(p) not in population}
        compared: dict[str, FitnessEstimates] = {}
        for kind in dict.fromkeys(self._kinds.values()):
            alike = {
                name: estimates for name, estimates in judged.items() if self._kinds[name] == kind
            }
            there = sum(self._kinds.get(m.ref.policy) == kind for m in population.learning)
            # Among few policies, the worst may be good and the best bad. The games keep adding up
            # until enough policies have played enough.
            if len(alike) < max(2, math.ceil(QUORUM * there)):
                continue
            compared |= alike
            selected = self._select(alike, rng)
            leaving = {policy for policy, _ in selected}
            for policy, parent in selected:
                fitness = (alike[policy].value, alike[parent].value)
                others = [name for name in alike if name != parent and name not in leaving]
                config = self._config
                crosses = self._explorers[kind].crosses or config.crossover_layers
                second = self._second(others, alike, rng) if crosses else None
                births = [population[PolicyRef(p)].born if p else None for p in (parent, second)]
                self._planned[policy] = Plan(parent, fitness, second, *births)
                commands.append(Vacate(policy))
        for name, estimates in compared.items():
            member = population[PolicyRef(name)]
            born, value, _ = self._before.get(name, (-1, None, []))
            if born == member.born and value is not None:
                gain = estimates.value - value
                explorer = self._explorers[self._kinds[name]]
                explorer.note(member.hyperparameters, self._time(population), gain)
            self._before[name] = (member.born, estimates.value, member.numbers.tolist())
        return commands

    def _second(
        self, others: Sequence[str], judged: Mapping[str, FitnessEstimates], rng: Generator
    ) -> str | None:
        """Return a second parent for a newborn: the better of two random policies that stay."""
        drawn = rng.permutation(len(others))[:2].tolist()
        return max((others[i] for i in drawn), key=lambda name: judged[name].value, default=None)

    def _judge(self, population: Population, ledger: Ledger) -> dict[str, FitnessEstimates]:
        """Return the fitness of each policy that has played enough since its last evaluation."""
        found, objectives = {}, self._config.objectives
        for member in population.learning:
            if member.ref.policy in self._kinds:
                met = ledger.pairs[MET, member.slot, : ledger.pairs.shape[1]]
                born, _, numbers = self._before.get(member.ref.policy, (-1, None, []))
                before = numbers if born == member.born else unjudged(member)
                estimates = estimate_fitness(member, before, objectives, met)
                if estimates is not None and estimates.games >= self._config.games:
                    found[member.ref.policy] = estimates
        return found

    def _birth(self, name: str, population: Population) -> Birth:
        rng = self._stream(population.matches, name)
        plan = self._planned.pop(name, None)
        if plan is None or not _is_there(population, plan.parent, plan.born):
            parent = self._best(name, population)
            if parent is None:
                return Birth(name)
            plan = Plan(parent, None)
        parent_member = population[PolicyRef(plan.parent)]
        others = [member.hyperparameters for member in self._like(name, population)]
        second: PolicyRef | None = None
        if plan.second is not None and _is_there(population, plan.second, plan.second_born):
            second = PolicyRef(plan.second)  # otherwise this parent has left
        numbers = population[second].hyperparameters if second is not None else None
        time, config = self._time(population), self._config
        explorer = self._explorers[self._kinds[name]]
        chosen = explorer.choose(parent_member.hyperparameters, others, time, rng, numbers)
        # The newborn's gain is measured from its parent's fitness.
        first_fitness = plan.fitness[1] if plan.fitness is not None else None
        self._before[name] = population.matches, first_fitness, unjudged(parent_member)
        return Birth(
            name,
            parent_member.ref,
            chosen,
            config.mutation,
            second,
            config.crossover_layers,
            plan.fitness,
            config.inherits_training,
        )

    def _time(self, population: Population) -> float:
        """Return the bandit's time: how many intervals of `every` matches have passed."""
        return population.matches / (self._config.every or 1)

    def _best(self, name: str, population: Population) -> str | None:
        values = {}
        for member in self._like(name, population):
            estimates = estimate_fitness(member, unjudged(member), self._config.objectives)
            values[member.ref.policy] = estimates.value if estimates is not None else -math.inf
        return max(values, key=values.__getitem__) if values else None

    def _like(self, name: str, population: Population) -> list[Member]:
        """Return the policies of the same kind: possible parents."""
        kinds, kind = self._kinds, self._kinds[name]
        return [m for m in population.learning if kinds.get(m.ref.policy) == kind]

    def state(self) -> State:
        return {
            "last": self._last,
            "before": {name: list(judged) for name, judged in self._before.items()},
            "planned": {policy: asdict(plan) for policy, plan in self._planned.items()},
            "explorers": [explorer.state() for explorer in self._explorers.values()],
        }

    def restore(self, state: State) -> None:
        self._last = whole(state, "last")
        before = branch(state, "before")
        self._before = {}
        for name, (born, value, numbers) in before.items():
            where = where_is(before, name)
            sums = [real_number(number, where) for number in numbers]
            fitness = None if value is None else real_number(value, where)
            self._before[name] = whole_number(born, where), fitness, sums
        self._planned = {policy: Plan(**plan) for policy, plan in state["planned"].items()}
        for explorer, saved in zip(self._explorers.values(), state["explorers"], strict=True):
            explorer.restore(saved)


def _is_there(population: Population, policy: str, born: int | None) -> bool:
    """Return whether the policy born at `born` still plays; None accepts any birth."""
    ref = PolicyRef(policy)
    return ref in population and born in (None, population[ref].born)
