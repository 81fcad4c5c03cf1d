"""Directors decide which policies exist. They return commands that `Lifecycle` carries out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from remuda.checkpoint.fitting import branch, real_number, where_is, whole, whole_number
from remuda.config import BirthsConfig, SnapshotsConfig
from remuda.population.ledger import Ledger
from remuda.population.ratings import probability_of_order
from remuda.population.records import Member, PolicyRef, Population
from remuda.types import State


@dataclass(frozen=True)
class Freeze:
    """Keep a copy of a policy's live weights."""

    policy: str


@dataclass(frozen=True)
class Retire:
    """Retire a member after its current matches.

    The place of a learning policy becomes empty. A policy that is needed to make any match stays.
    """

    ref: PolicyRef


@dataclass(frozen=True)
class Birth:
    """Start a policy in an empty place; it plays once its learner has begun."""

    policy: str
    """The place, one of `Population.empty`."""
    parent: PolicyRef | None = None
    """The member whose weights it begins with; None: random weights."""
    hyperparameters: Mapping[str, float] = field(default_factory=dict)
    """Hyperparameters that differ from its parent's, or from its specification: names of
    `remuda.hyperparameters`."""
    mutation: float = 0.0
    """Noise on its parent's weights, in standard deviations of the weights of each layer."""
    second: PolicyRef | None = None
    """A second parent for crossover."""
    crossover: float = 0.0
    """Probability that a layer comes from the second parent."""
    fitness: tuple[float, float] | None = None
    """Fitness of the previous policy in this place, and of the parent; for the ledger."""
    inherits_training: bool = False
    """Inherit the training state of a live parent: optimizer moments, target network and schedules.
    Only schedules fit weights that differ from the parent's."""


@dataclass(frozen=True)
class Vacate:
    """Retire a live policy so that another may be born in its place.

    If no match could be made without it, a frozen copy takes its seats until the
    newborn plays. If even that does not suffice, the policy stays. Scripted members stay too: no
    policy is born in their places.
    """

    policy: str


Command = Freeze | Retire | Birth | Vacate


class Director(Protocol):
    """Decides which policies are born, frozen and retired."""

    def step(
        self, population: Population, ledger: Ledger, versions: Mapping[str, int]
    ) -> list[Command]:
        """Return the commands to carry out now."""

    def state(self) -> State:
        """Return the state that a successor needs."""

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""


class Snapshots:
    """Keeps a limited number of copies of every policy.

    A policy is frozen every so many versions, or once it wins often enough against its existing
    copies, whichever comes first.
    """

    def __init__(self, config: SnapshotsConfig) -> None:
        self._config = config
        self._frozen_at: dict[str, int] = {}
        self._before: dict[str, dict[str, tuple[float, float]]] = {}
        """Meetings with each copy, and wins of the live weights, at the last freeze."""

    def step(
        self, population: Population, ledger: Ledger, versions: Mapping[str, int]
    ) -> list[Command]:
        """Freeze policies that are due, and retire copies to make room."""
        commands: list[Command] = []
        for policy, version in versions.items():
            if PolicyRef(policy) not in population:
                self._frozen_at.pop(policy, None)
                self._before.pop(policy, None)
                continue
            past = population.past_of(policy)
            if policy not in self._frozen_at:
                self._frozen_at[policy] = past[-1].ref.version if past else 0
            since = version - self._frozen_at[policy]
            if since <= 0 or not (
                (self._config.every is not None and since >= self._config.every)
                or self._wins(population, ledger, policy, past)
            ):
                continue
            self._frozen_at[policy] = version
            live = PolicyRef(policy)
            met, won = (score.tolist() for score in ledger.scores(live, past))
            self._before[policy] = {
                str(member.ref): (met[i], won[i]) for i, member in enumerate(past)
            }
            commands += freeze(policy, past, self._config)
        return commands

    def _wins(
        self, population: Population, ledger: Ledger, policy: str, past: Sequence[Member]
    ) -> bool:
        """Return whether a policy wins often enough against its copies since the last freeze.

        The first copy is made after as many games as the win rate needs.
        """
        wanted, games, live = self._config.win_rate, self._config.games, PolicyRef(policy)
        if wanted is None:
            return False
        if not past:
            return population[live].games >= games
        met, won = (float(score.sum()) for score in ledger.scores(live, past))
        before = self._before.get(policy, {})
        for member in past if before else ():
            met_before, won_before = before.get(str(member.ref), (0.0, 0.0))
            met, won = met - met_before, won - won_before
        return met >= games and won / met >= wanted

    def state(self) -> State:
        """Return when each policy was frozen last, and its results then."""
        before = {
            p: {ref: list(score) for ref, score in b.items()} for p, b in self._before.items()
        }
        return {"frozen_at": dict(self._frozen_at), "before": before}

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""
        frozen_at, before = branch(state, "frozen_at"), branch(state, "before")
        self._frozen_at = {policy: whole(frozen_at, policy) for policy in frozen_at}
        self._before = {}
        for policy in before:
            scores = branch(before, policy)
            self._before[policy] = {
                ref: (
                    real_number(met, where_is(scores, ref)),
                    real_number(won, where_is(scores, ref)),
                )
                for ref, (met, won) in scores.items()
            }


class Replacement:
    """Replaces the weakest policy by a copy of the best, every so many matches.

    The weakest retires once the child plays, so there are never fewer policies than configured.
    Both may take every seat, so that each can stand in for any other. This is the "exploit" step of
    population based training (Jaderberg et al. 2017).

    Noise alone replaces no policy: by their ratings the best must be better than the weakest with
    probability `confidence`, corrected for the number of pairs that could have been picked (Sidak
    1967).
    """

    def __init__(self, config: BirthsConfig) -> None:
        self._config = config
        self._last = 0
        self._expected: tuple[str, str, int] | None = None
        """The place of the ordered child, the policy that makes room for it, and the birth of that
        policy, which distinguishes it from later ones of its name."""

    def step(
        self,
        population: Population,
        ledger: Ledger,  # noqa: ARG002
        versions: Mapping[str, int],  # noqa: ARG002
    ) -> list[Command]:
        """Command the next birth, or the retirement that follows it."""
        if self._expected is not None:
            child, leaves, born = self._expected
            if child in population.expected:
                return []
            self._expected = None
            plays = PolicyRef(child) in population  # else an actor died before it was ordered
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
        if not self._is_sure(best, weakest, len(judged)):
            return []
        if population.empty:
            self._expected = population.empty[0], weakest.ref.policy, weakest.born
            return [Birth(population.empty[0], best.ref)]
        # A due retirement was lost with an actor; else one is still leaving.
        return [Retire(weakest.ref)] if self._surplus(population) > 0 else []

    def _surplus(self, population: Population) -> int:
        absent = len(population.empty) + len(population.expected) + len(population.leaving)
        return self._config.places - absent

    def _is_sure(self, best: Member, weakest: Member, judged: int) -> bool:
        if best.rating == weakest.rating:
            return False
        wanted: float = self._config.confidence ** (1.0 / (judged * (judged - 1)))
        return probability_of_order(best, weakest) >= wanted

    def state(self) -> State:
        """Return the time of the last birth, and the expected child."""
        return {"last": self._last, "expected": list(self._expected or ())}

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""
        self._last = whole(state, "last")
        self._expected = None
        if state["expected"]:
            child, leaves, born = state["expected"]
            born = whole_number(born, where_is(state, "expected"))
            self._expected = (str(child), str(leaves), born)


class Directors:
    """Several directors as one."""

    def __init__(self, directors: Sequence[Director]) -> None:
        self._directors = tuple(directors)

    def step(
        self, population: Population, ledger: Ledger, versions: Mapping[str, int]
    ) -> list[Command]:
        """Return the commands of all, in order."""
        return [
            command
            for director in self._directors
            for command in director.step(population, ledger, versions)
        ]

    def state(self) -> State:
        """Return the state of each."""
        return {str(i): director.state() for i, director in enumerate(self._directors)}

    def restore(self, state: State) -> None:
        """Continue from what `state` returned."""
        for i, director in enumerate(self._directors):
            director.restore(branch(state, str(i)))


def freeze(policy: str, past: Sequence[Member], config: SnapshotsConfig) -> list[Command]:
    """Return commands that copy a policy, and retire a copy if there are too many."""
    room = [Retire(DROPS[config.drop](past).ref)] if len(past) >= config.keep else []
    return [*room, Freeze(policy)]


def oldest(past: Sequence[Member]) -> Member:
    """Return the copy that was frozen first."""
    return past[0]


def weakest(past: Sequence[Member]) -> Member:
    """Return the copy with the lowest rating."""
    return min(past, key=lambda member: member.rating)


def crowded(past: Sequence[Member]) -> Member:
    """Return the copy whose neighbours are closest in versions; the first and newest are kept."""
    if len(past) < 3:
        return past[0]
    gaps = [after.ref.version - before.ref.version for before, after in pairwise(past)]
    least = min(range(1, len(past) - 1), key=lambda i: gaps[i - 1] + gaps[i])
    return past[least]


DROPS: Mapping[str, Callable[[Sequence[Member]], Member]] = {
    "oldest": oldest,
    "weakest": weakest,
    "crowded": crowded,
}
"""Rules that choose the copy to drop; copies are sorted from the oldest."""
