"""Directors decide which policies exist. They return commands that `Lifecycle` carries out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any, Protocol

from pydantic import Field

from remuda.config import BirthsConfig, SnapshotsConfig
from remuda.config.sections import Share
from remuda.errors import CommandError
from remuda.population.ledger.ledger import Ledger
from remuda.population.ledger.ratings import probability_of_order
from remuda.population.ledger.records import Member, PolicyRef, Population
from remuda.population.own_code import shown, state_of
from remuda.system.checkpoint.fitting import branch, real_number, where_is, whole, whole_number
from remuda.types import State


@dataclass(frozen=True)
class Freeze:
    """A command to freeze a copy of a policy's live weights."""

    policy: str


@dataclass(frozen=True)
class Retire:
    """A command to retire a member after its current matches.

    The slot of a learning policy becomes empty. A policy stays if no match can be made without it.
    """

    ref: PolicyRef


@dataclass(frozen=True)
class Birth:
    """A command to start a policy in an empty slot; it plays once its learner has started."""

    policy: str  # the slot, one of `Population.empty`
    parent: PolicyRef | None = None  # the source of its initial weights, by default random
    hyperparameters: Mapping[str, float] = field(default_factory=dict)
    """Hyperparameters (see `remuda.config.hyperparameters`) that differ from its parent's, or from
    its specification."""
    mutation: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 0.0
    """Noise on its parent's weights, in standard deviations of each tensor's weights."""
    second: PolicyRef | None = None  # a second parent for crossover
    crossover: Share = 0.0  # probability that a layer comes from the second parent
    fitness: Sequence[float] | None = None
    """Fitness of the slot's previous policy and of the parent; for the ledger."""
    inherits_training: bool = False
    """Inherit the training state of a live parent: optimizer moments, target network and schedules.
    If the weights differ from the parent's, only the schedules are inherited."""


@dataclass(frozen=True)
class Vacate:
    """A command to retire a live policy so that another can be born in its slot.

    If no match can be made without it, a frozen copy takes its seats until the newborn plays. If
    that is not enough, the policy stays. Scripted members stay too: no policy is born in their
    slots.
    """

    policy: str


Command = Freeze | Retire | Birth | Vacate


class Director(Protocol):
    """The protocol of a director, which decides which policies are born, frozen and retired."""

    def step(
        self, population: Population, ledger: Ledger, versions: Mapping[str, int]
    ) -> list[Command]:
        """Return the commands to carry out now."""

    def state(self) -> State:
        """Return the state that a successor needs."""

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""


class Snapshots:
    """A director that keeps a limited number of frozen copies of every policy.

    A policy is frozen every `every` versions, or once its win rate against its existing copies
    reaches `win_rate`, whichever comes first.
    """

    def __init__(self, config: SnapshotsConfig) -> None:
        self._config = config
        self._last: dict[str, tuple[int, Mapping[str, Sequence[float]]]] = {}
        """The last freeze: its version, and meetings with each copy and wins until then."""

    def step(
        self, population: Population, ledger: Ledger, versions: Mapping[str, int]
    ) -> list[Command]:
        commands: list[Command] = []
        for policy, version in versions.items():
            live = PolicyRef(policy)
            if live not in population:
                self._last.pop(policy, None)
                continue
            past = population.past_of(policy)
            newest = past[-1].ref.version if past else 0
            frozen_at, before = self._last.setdefault(policy, (newest, {}))
            since = version - frozen_at
            if since <= 0 or not (
                (self._config.every is not None and since >= self._config.every)
                or self._wins(population, ledger, live, past, before)
            ):
                continue
            scores = zip(*(score.tolist() for score in ledger.scores(live, past)), strict=True)
            refs = [str(member.ref) for member in past]
            self._last[policy] = version, dict(zip(refs, scores, strict=True))
            commands += freeze(policy, past, self._config)
        return commands

    def _wins(
        self,
        population: Population,
        ledger: Ledger,
        live: PolicyRef,
        past: Sequence[Member],
        before: Mapping[str, Sequence[float]],
    ) -> bool:
        """Return whether a policy wins often enough; its first copy needs only `games` games."""
        wanted, games = self._config.win_rate, self._config.games
        if wanted is None:
            return False
        if not past:
            return population[live].games >= games
        met, won = (float(score.sum()) for score in ledger.scores(live, past))
        for member in past if before else ():
            met_before, won_before = before.get(str(member.ref), (0.0, 0.0))
            met, won = met - met_before, won - won_before
        return met >= games and won / met >= wanted

    def state(self) -> State:
        return {policy: [version, dict(scores)] for policy, (version, scores) in self._last.items()}

    def restore(self, state: State) -> None:
        self._last = {}
        for policy, (version, scores) in state.items():
            where = where_is(state, policy)
            numbers = {ref: [real_number(x, where) for x in each] for ref, each in scores.items()}
            self._last[policy] = whole_number(version, where), numbers


class Replacement:
    """A director that replaces the weakest policy by a copy of the best, every `every` matches.

    The weakest retires once the child plays, so there are never fewer policies than configured.
    Only policies that may take every seat are compared. This is the "exploit" step of population
    based training (PBT, Jaderberg et al. 2017).

    To rule out noise, the ratings must show that the best is better than the weakest with
    probability `confidence`, corrected for the number of possible pairs (Sidak 1967).
    """

    def __init__(self, config: BirthsConfig) -> None:
        self._config = config
        self._last = 0
        self._expected: tuple[str, str, int] | None = None
        """The slot of the ordered child, the policy that it replaces, and that policy's birth,
        which distinguishes it from later policies of the same name."""

    def step(
        self,
        population: Population,
        ledger: Ledger,  # noqa: ARG002
        versions: Mapping[str, int],  # noqa: ARG002
    ) -> list[Command]:
        if self._expected is not None:
            child, leaves, born = self._expected
            if child in population.expected:
                return []
            self._expected = None
            plays = PolicyRef(child) in population  # false if an actor died before ordering it
            ref = PolicyRef(leaves)
            is_same = ref in population and population[ref].born == born
            return [Retire(ref)] if plays and is_same and self._surplus(population) > 0 else []
        if population.matches - self._last < (self._config.every or 0):
            return []
        judged = [m for m in population.free if m.games >= self._config.games]
        if len(judged) < 2:
            return []
        best = max(judged, key=lambda member: member.rating)
        weakest = min(judged, key=lambda member: member.rating)
        self._last = population.matches
        wanted: float = self._config.confidence ** (1.0 / (len(judged) * (len(judged) - 1)))
        if best.rating == weakest.rating or probability_of_order(best, weakest) < wanted:
            return []
        if population.empty:
            self._expected = population.empty[0], weakest.ref.policy, weakest.born
            return [Birth(population.empty[0], best.ref)]
        # A surplus shows that a retirement was lost with a dead actor; else it is in progress.
        return [Retire(weakest.ref)] if self._surplus(population) > 0 else []

    def _surplus(self, population: Population) -> int:
        absent = len(population.empty) + len(population.expected) + len(population.leaving)
        return self._config.slots - absent

    def state(self) -> State:
        return {"last": self._last, "expected": list(self._expected or ())}

    def restore(self, state: State) -> None:
        self._last = whole(state, "last")
        self._expected = None
        if state["expected"]:
            child, leaves, born = state["expected"]
            born = whole_number(born, where_is(state, "expected"))
            self._expected = (str(child), str(leaves), born)


class Directors:
    """Several directors combined into one."""

    def __init__(self, directors: Sequence[Director]) -> None:
        self._directors = tuple(directors)

    def step(
        self, population: Population, ledger: Ledger, versions: Mapping[str, int]
    ) -> list[Command]:
        return [
            command
            for director in self._directors
            for command in director.step(population, ledger, versions)
        ]

    def state(self) -> State:
        return {str(i): director.state() for i, director in enumerate(self._directors)}

    def restore(self, state: State) -> None:
        for i, director in enumerate(self._directors):
            director.restore(branch(state, str(i)))


def freeze(policy: str, past: Sequence[Member], config: SnapshotsConfig) -> list[Command]:
    """Return commands that copy a policy, and retire a copy if there are too many."""
    room = [Retire(DROPS[config.drop](past).ref)] if len(past) >= config.keep else []
    return [*room, Freeze(policy)]


def crowded(past: Sequence[Member]) -> Member:
    """Return the copy whose two neighbours have the closest versions; of one or two, the oldest."""
    if len(past) < 3:
        return past[0]
    gaps = [after.ref.version - before.ref.version for before, after in pairwise(past)]
    least = min(range(1, len(past) - 1), key=lambda i: gaps[i - 1] + gaps[i])
    return past[least]


DROPS: Mapping[str, Callable[[Sequence[Member]], Member]] = {
    "oldest": lambda past: past[0],
    "weakest": lambda past: min(past, key=lambda member: member.rating),
    "crowded": crowded,
}
"""Rules that choose the copy to drop; copies are sorted, the oldest first."""


KINDS = "Freeze, Retire, Birth and Vacate of remuda.population"

Check = tuple[str, Callable[[Any], bool]]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


NAME: Check = ("the name of a policy", lambda value: isinstance(value, str))
REF: Check = ("a PolicyRef", lambda value: isinstance(value, PolicyRef))
REF_OR_NONE: Check = ("a PolicyRef or None", lambda v: v is None or isinstance(v, PolicyRef))
SHARE: Check = ("a number from 0 to 1", lambda value: _is_number(value) and 0.0 <= value <= 1.0)
FIELDS: Mapping[type, Mapping[str, Check]] = {
    Freeze: {"policy": NAME},
    Retire: {"ref": REF},
    Vacate: {"policy": NAME},
    Birth: {
        "policy": NAME,
        "parent": REF_OR_NONE,
        "second": REF_OR_NONE,
        "hyperparameters": ("named numbers", lambda value: isinstance(value, Mapping)),
        "mutation": ("a number, 0 or more", lambda value: _is_number(value) and value >= 0.0),
        "crossover": SHARE,
        "inherits_training": ("True or False", lambda value: isinstance(value, bool)),
    },
}


class OwnDirector:
    """A wrapper that checks the commands of the director in `population.director`."""

    def __init__(self, name: str, director: Director, snapshots: SnapshotsConfig) -> None:
        self._key, self._director = f"population.director {name}", director
        self._snapshots = snapshots

    def step(
        self, population: Population, ledger: Ledger, versions: Mapping[str, int]
    ) -> list[Command]:
        """Return the director's commands, with the retirements that make room for new copies."""
        found: Any = self._director.step(population, ledger, versions)
        if not isinstance(found, Sequence) or isinstance(found, str | bytes):
            raise self._refused(f"step returned {shown(found)}; it must return a list of {KINDS}")
        for command in found:
            self._check(command)
        return list(self._with_room(found, population, versions))

    def _check(self, command: Any) -> None:
        fields = FIELDS.get(type(command))
        if fields is None:
            raise self._refused(
                f"step returned a list with {shown(command)}; it must return a list of {KINDS}"
            )
        for name, (allowed, is_allowed) in fields.items():
            value = getattr(command, name)
            if not is_allowed(value):
                kind = type(command).__name__
                raise self._refused(f"{kind}.{name} is {shown(value)}; it must be {allowed}")

    def _with_room(
        self, commands: Sequence[Command], population: Population, versions: Mapping[str, int]
    ) -> Iterator[Command]:
        for command in commands:
            if not isinstance(command, Freeze):
                yield command
                continue
            live = PolicyRef(command.policy)
            if live not in population or not population[live].learns:
                names = ", ".join(member.ref.policy for member in population.learning)
                raise self._refused(
                    f"step commands Freeze({command.policy!r}), which is not a learning "
                    f"policy; there are {names}"
                )
            if PolicyRef(command.policy, versions[command.policy]) in population:
                continue  # this version is frozen already
            past = population.past_of(command.policy)
            leaving = {each.ref for each in commands if isinstance(each, Retire)}
            yield from freeze(
                command.policy, [each for each in past if each.ref not in leaving], self._snapshots
            )

    def _refused(self, why: str) -> CommandError:
        return CommandError(f"{self._key}: {why}")

    def state(self) -> State:
        return state_of(self._director.state(), self._key)

    def restore(self, state: State) -> None:
        self._director.restore(state)
