"""Directors: which policies exist. They return commands; `Lifecycle` carries them out."""

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
    """Let a member go, once the matches that it plays in are over.

    The place of one that learns is empty then, and another may be born there. One without whom no
    match could be made stays.
    """

    ref: PolicyRef


@dataclass(frozen=True)
class Birth:
    """Let a policy begin in an empty place; it plays once its learner has begun."""

    policy: str
    """The place, one of `Population.empty`."""
    parent: PolicyRef | None = None
    """Whose weights it begins with; None: weights of its own, drawn at random."""
    hyperparameters: Mapping[str, float] = field(default_factory=dict)
    """Those that differ from its parent's, or else from its specification: names of
    `remuda.hyperparameters`."""
    mutation: float = 0.0
    """Noise on its parent's weights: in standard deviations of the weights of each layer."""
    second: PolicyRef | None = None
    """A second parent, whose some layers are; None: there is none."""
    crossover: float = 0.0
    """How probable it is that a layer is the second parent's."""
    fitness: tuple[float, float] | None = None
    """What the policy before in this place was judged to be worth, and the parent; for the ledger.
    """
    inherits_training: bool = False
    """Whether it is trained on as its parent is, a live one: with the moments of its optimizer, its
    target network and its schedules. Only schedules fit weights that are not the parent's own."""


@dataclass(frozen=True)
class Vacate:
    """Let a live policy go, so that another may be born in its place.

    Where no match could be made without it, a frozen copy of it stands in: it takes its seats in
    new matches until the newborn plays, and then goes. Who cannot be done without even so stays,
    and so does a scripted member: no policy is born in its place.
    """

    policy: str


Command = Freeze | Retire | Birth | Vacate


class Director(Protocol):
    """Decides which policies begin, are frozen, and retire."""

    def step(
        self, population: Population, ledger: Ledger, versions: Mapping[str, int]
    ) -> list[Command]:
        """What is to be done now."""

    def state(self) -> State:
        """What a successor needs to command what this would have."""

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""


class Snapshots:
    """Keeps copies of what every policy was: so many, with a rule for which are dropped.

    A policy is frozen every so many versions, or once it wins often enough against the copies of
    it that there are, whichever comes first.
    """

    def __init__(self, config: SnapshotsConfig) -> None:
        self._config = config
        self._frozen_at: dict[str, int] = {}
        self._before: dict[str, dict[str, tuple[float, float]]] = {}
        """By policy and copy: meetings, and wins of the live weights, when it was frozen last."""

    def step(
        self, population: Population, ledger: Ledger, versions: Mapping[str, int]
    ) -> list[Command]:
        """Freeze who is due, and make room for it."""
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
        """Whether it wins often enough against its copies, in the matches since the last of them.

        The first copy is made once it has played as many games as a win rate takes.
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
        """When each was frozen last, and what had come of its matches then."""
        before = {
            p: {ref: list(score) for ref, score in b.items()} for p, b in self._before.items()
        }
        return {"frozen_at": dict(self._frozen_at), "before": before}

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
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
    """Every so many matches the best policy has a child, and the weakest makes room for it.

    The child is a copy. The weakest retires once the child plays, so that there are never fewer
    policies than were configured. Both are of those that may take every seat: any of these can be
    done without, and stand in for any other. This is the "exploit" of population based training
    (Jaderberg et al. 2017).

    No policy is replaced on noise: by their ratings the best must be better than the weakest with
    the probability `confidence`, although they were picked out as the extremes of many. Each pair
    that could have been picked either way round counts as a test that may be wrong (Sidak 1967).
    """

    def __init__(self, config: BirthsConfig) -> None:
        self._config = config
        self._last = 0
        self._expected: tuple[str, str, int] | None = None
        """The place of the child that was commanded, the policy that will make room for it, and
        when that was born, so that another of its name is not taken for it."""

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
            plays = PolicyRef(child) in population  # else it was never ordered: an actor died
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
        # A retirement that was to come was lost with an actor; else one is still leaving.
        return [Retire(weakest.ref)] if self._surplus(population) > 0 else []

    def _surplus(self, population: Population) -> int:
        """How many policies there are beyond those that were configured."""
        absent = len(population.empty) + len(population.expected) + len(population.leaving)
        return self._config.places - absent

    def _is_sure(self, best: Member, weakest: Member, judged: int) -> bool:
        """Whether the best of so many is better than the weakest, with the confidence asked."""
        if best.rating == weakest.rating:
            return False
        wanted: float = self._config.confidence ** (1.0 / (judged * (judged - 1)))
        return probability_of_order(best, weakest) >= wanted

    def state(self) -> State:
        """When the last was born, and who is expected."""
        return {"last": self._last, "expected": list(self._expected or ())}

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        self._last = whole(state, "last")
        self._expected = None
        if state["expected"]:
            child, leaves, born = state["expected"]
            born = whole_number(born, where_is(state, "expected"))
            self._expected = (str(child), str(leaves), born)


class Directors:
    """Several directors; each commands what is its own."""

    def __init__(self, directors: Sequence[Director]) -> None:
        self._directors = tuple(directors)

    def step(
        self, population: Population, ledger: Ledger, versions: Mapping[str, int]
    ) -> list[Command]:
        """What all of them command, in their order."""
        return [
            command
            for director in self._directors
            for command in director.step(population, ledger, versions)
        ]

    def state(self) -> State:
        """That of each."""
        return {str(i): director.state() for i, director in enumerate(self._directors)}

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        for i, director in enumerate(self._directors):
            director.restore(branch(state, str(i)))


def freeze(policy: str, past: Sequence[Member], config: SnapshotsConfig) -> list[Command]:
    """Copy a policy, and make room for the copy where there are as many as are kept."""
    room = [Retire(DROPS[config.drop](past).ref)] if len(past) >= config.keep else []
    return [*room, Freeze(policy)]


def oldest(past: Sequence[Member]) -> Member:
    """The one that was frozen first."""
    return past[0]


def weakest(past: Sequence[Member]) -> Member:
    """The one of the lowest rating."""
    return min(past, key=lambda member: member.rating)


def crowded(past: Sequence[Member]) -> Member:
    """The one whose neighbours are closest in versions, so that the rest is spread evenly.

    The first and the newest are kept.
    """
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
"""By name, who of the frozen copies is dropped, the oldest first."""
