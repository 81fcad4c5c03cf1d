"""The league: in one actor, who plays whom now, what came of it, and who exists."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from remuda.checkpoint.state import fitting, random_state, restore_random
from remuda.errors import ConfigError, RemudaError
from remuda.hyperparameters import names_of
from remuda.population.director import Birth, Director, Freeze
from remuda.population.ledger import BIRTH, FREEZE, MATCH, RETIRE, Ledger, count
from remuda.population.matchmaking import Matchmaker
from remuda.population.ratings import rate_all, sides_of
from remuda.population.records import (
    FRESH,
    RATING,
    UNCERTAINTY,
    Member,
    Numbers,
    PolicyRef,
    Population,
)
from remuda.population.refusals import check_seating
from remuda.population.table import MATCHES, NOBODY, POLICY, PROPOSED, VERSION, Table
from remuda.publish.snapshot import Snapshot
from remuda.types import Bools, Floats, Integers, State


class Stage(Protocol):
    """What a league asks of the seats that it deals."""

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


class League:
    """Deals the seats of so many copies of a game, and keeps the books of its population.

    Everything lasting is in the table, so that the successor of an actor that died goes on with
    it. What it loses: the matches that were being played, and where a matchmaker was in its cycle.
    """

    def __init__(
        self,
        table: Table,
        matchmaker: Matchmaker,
        director: Director | None,
        random: np.random.Generator,
        num_envs: int,
        seats: Mapping[str, frozenset[int]] | None = None,
        teams: Sequence[str] = (),
        once: bool = False,
        agents: Sequence[str] = (),
    ) -> None:
        """Go on with a table.

        Args:
            table: of the population.
            matchmaker: who plays whom.
            director: who exists; None: those who do.
            random: the stream that matches are drawn from.
            num_envs: copies of the game.
            seats: by policy, the seats that it may take, where it may not take all.
            teams: by seat, its team, for ratings.
            once: rings are only as large as if a policy had one seat of a match at most.
            agents: by seat, the name of its agent, for messages.
        """
        table.repair()
        self.table, self.matchmaker = table, matchmaker
        self.population = table.population(seats, own=True)
        self.ledger = Ledger(self.population, table.pairs)
        self._director, self._random = director, random
        self._sides = sides_of(teams, table.seats)
        self._even = len(set(np.bincount(self._sides).tolist())) == 1
        """Whether all sides have as many seats."""
        self.seated: Integers = np.zeros((num_envs, table.seats), np.int64)
        """[num_envs, seats]: the place in the population of the member that sits there."""
        self._matches: Integers = np.zeros(num_envs, np.int64)
        self._leaving = table.leaving
        self._postponed: list[str] = []
        self.seats = dict(seats or {})
        """By policy, the seats that it may take, where it may not take all."""
        self._once = once
        self._agents = tuple(agents) or tuple(f"seat {seat}" for seat in range(table.seats))
        matchmaker.begin_at(table.word(PROPOSED))
        none = np.zeros(num_envs, np.bool_)  # so that everything is compiled before play begins
        self._count(np.zeros(self.seated.shape), none)

    def deal(self, over: Bools) -> None:
        """Seat the next matches in these copies.

        Raises:
            ConfigError: no policy may take a seat, or the matchmaker deals one that may not.
        """
        copies = np.flatnonzero(over)
        matches = self.matchmaker.propose(self.population, self.ledger, len(copies), self._random)
        population = self.population
        for env, match in zip(copies.tolist(), matches, strict=True):
            name = self.matchmaker.name
            check_seating(population, match.seats, name, self._agents, self._once)
            self._matches[env] = match.id
            self.seated[env] = [population[ref].place for ref in match.seats]
        if matches:
            self.table.set_word(PROPOSED, matches[-1].id + 1)

    def close(
        self, over: Bools, returns: Numbers, oldest: Integers, newest: Integers, truncated: Bools
    ) -> None:
        """Note the results of these copies.

        Args:
            over: [num_envs] which of them are over.
            returns: [num_envs, seats].
            oldest: [num_envs, seats] the oldest version that acted...
            newest: ...and the newest.
            truncated: [num_envs] whether the match was cut off.
        """
        self._count(returns, over)
        copies = np.flatnonzero(over)
        identity = self.table.identity[self.seated[copies]]
        records = self.table.empty_records(len(copies))
        records["number"], records["kind"] = self._matches[copies], MATCH
        records["truncated"] = truncated[copies]
        records["policy"], records["version"] = identity[..., POLICY], identity[..., VERSION]
        records["oldest"], records["newest"] = oldest[copies], newest[copies]
        records["returns"] = returns[copies]
        self.table.add_records(records)
        self.table.set_word(MATCHES, self.table.word(MATCHES) + len(copies))

    def _count(self, returns: Numbers, over: Bools) -> None:
        """Add up and rate the matches of these copies."""
        numbers = self.population.numbers
        count(self.seated, returns, over, self.ledger.pairs, numbers)
        rate_all(self.seated, returns, over, self._sides, numbers)

    def step(self, versions: Mapping[str, int], stage: Stage) -> list[int]:
        """Do what the director commands; between two turns.

        Args:
            versions: by policy, that of the live weights that play.
            stage: the seats.

        Returns:
            The places that hold a new frozen copy.
        """
        if self._director is None:
            return []
        population = self.population
        live = population.learning
        self._admit(versions)
        population.matches = self.table.word(MATCHES)
        self._note_places()
        for command in self._director.step(population, self.ledger, versions):
            if isinstance(command, Freeze):
                self._postponed.append(command.policy)
            elif isinstance(command, Birth):
                self._order(command, stage)
            else:
                self._retire(command.ref)
        if population.learning != live:
            self._level()
        self._leaving = [place for place in self._leaving if not self._free(place)]
        self._postponed = [p for p in self._postponed if PolicyRef(p) in population]
        frozen = {policy: self._freeze(policy, stage.look(policy)) for policy in self._postponed}
        self._postponed = [policy for policy, place in frozen.items() if place is None]
        return [place for place in frozen.values() if place is not None]

    def state(self) -> State:
        """The matches that are being played, and what the table does not hold."""
        return {
            "matchmaker": self.matchmaker.state(),
            "director": self._director.state() if self._director is not None else None,
            "random": random_state(self._random),
            "seated": self.seated.copy(),
            "matches": self._matches.copy(),
            "postponed": self._postponed,
        }

    def restore(self, state: State, matches: bool = True) -> None:
        """Go on from what `state` returned; `matches`: with those that were being played too."""
        self.matchmaker.restore(state["matchmaker"])
        if self._director is not None:
            self._director.restore(state["director"])
        restore_random(self._random, state["random"])
        self._postponed = list(state["postponed"])
        if not matches:
            self.matchmaker.begin_at(self.table.word(PROPOSED))
            return
        self.seated[...] = fitting(state, "seated", self.seated)
        self._matches[...] = fitting(state, "matches", self._matches)

    def _note_places(self) -> None:
        """Tell the director which places of live policies are empty, or will be, or were.

        Each place is one of these: of a policy in the population, of one that is expected, of one
        that has retired and plays its last matches, or empty.
        """
        table, population = self.table, self.population
        names = table.policies
        expected = {names[place] for place in table.expected}
        leaving = {names[place] for place in self._leaving if place < len(names)}
        population.expected = tuple(name for name in names if name in expected)
        population.leaving = tuple(name for name in names if name in leaving)
        population.empty = self._empty()

    def _empty(self) -> tuple[str, ...]:
        """Places of live policies where no policy is, was a moment ago, or is expected."""
        taken = {member.place for member in self.population.learning}
        taken |= {*self._leaving, *self.table.expected}
        return tuple(name for i, name in enumerate(self.table.policies) if i not in taken)

    def _order(self, birth: Birth, stage: Stage) -> None:
        """Have a policy begin, and the old experience of its place forgotten.

        Raises:
            RemudaError: the director commands what cannot be.
        """
        name, parent, population, table = birth.policy, birth.parent, self.population, self.table
        said = f"the director commands the birth of {name}"
        if name in population.empty and name not in self._empty():
            return  # another director was faster
        if name not in self._empty():
            there = ", ".join(self._empty()) or "none"
            raise RemudaError(f"{said}, which is no empty place; there are: {there}")
        inherited = table.specified.get(name, {})
        known = names_of([inherited])
        for key in birth.hyperparameters:
            if key not in known:
                raise RemudaError(f"{said} with {key}; there are {', '.join(known)}")
        place = table.policies.index(name)
        if parent is None:
            weights = stage.draw(name, table.ordered(place) + 1)
        elif parent not in population:
            raise RemudaError(f"{said} from {parent}, which is not in the population")
        elif not stage.fits(name, parent.policy):
            raise RemudaError(f"{said} from {parent}, which has another network or other seats")
        else:
            held = population[parent]
            inherited = {**inherited, **held.hyperparameters}
            frozen = parent.is_frozen
            snapshot = table.snapshot(held.place) if frozen else stage.look(parent.policy)
            weights = snapshot.weights
            parent = PolicyRef(parent.policy, snapshot.version)
        newborn = Member(
            PolicyRef(name),
            parent=parent,
            born=table.word(MATCHES),
            hyperparameters={**inherited, **birth.hyperparameters},
        )
        stage.clear(name)
        mean = self._mean_rating()
        if birth.parent is not None:
            newborn.rate(population[birth.parent].rating, FRESH[UNCERTAINTY])
        elif math.isfinite(mean):  # nothing is known of it: like the others
            newborn.rate(mean, FRESH[UNCERTAINTY])
        table.numbers[place] = newborn.numbers
        digest = table.order(place, weights, newborn)
        self._log(BIRTH, newborn.ref, digest, parent)
        stage.wake(name)

    def _admit(self, versions: Mapping[str, int]) -> None:
        """Let the newborn play whose learners have begun, and whose weights are here."""
        for place in self.table.expected:
            policy, since = self.table.policies[place], self.table.since(place)
            if since is not None and versions[policy] >= since:
                numbers = self.table.numbers[place].copy()
                newborn = self.table.admit(place)
                if newborn.ref in self.population:
                    continue  # an actor before this one let it in, and died over it
                newborn.seats, newborn.numbers = self.seats.get(policy), numbers
                self.population.add(newborn, place)

    def _mean_rating(self) -> float:
        """Of live policies; not a number where there are none."""
        places = self.population.places_of(self.population.learning)
        return float(self.table.numbers[places, RATING].mean()) if len(places) else math.nan

    def _level(self) -> None:
        """Move all ratings alike, so that those of live policies are 25 on average, as at first.

        A child is a copy and begins with its parent's rating, and the lowest goes: each birth would
        raise the others without any policy having learned. In the model of Plackett and Luce
        chances are shares of exp(rating / c), the ratings of a side added up (see `rate_all`). So
        where all sides have as many seats no chance that ratings tell changes by this. Where they
        have not, the level itself tells how much a seat more is worth: matches find it and hold it,
        and nothing is moved.
        """
        mean = self._mean_rating()
        if self._even and math.isfinite(mean):
            self.table.move_ratings(FRESH[RATING] - mean)

    def _can_do_without(self, ref: PolicyRef) -> bool:
        """Whether matches can still be made when it is gone, also of those that learn alone."""
        others = [m for m in self.population.members if m.ref != ref]
        for members in (others, [m for m in others if m.learns]):
            left = Population()
            for m in members:
                left.add(Member(m.ref, m.seats, m.parent), m.place)
            matchmaker = copy.deepcopy(self.matchmaker)
            try:
                matchmaker.propose(left, Ledger(left), 1, np.random.default_rng(0))
            except ConfigError:
                return False
        return len(left.learning) >= (self.table.seats if self._once else 1)

    def _retire(self, ref: PolicyRef) -> None:
        if ref not in self.population or not (ref.is_frozen or self._can_do_without(ref)):
            return
        member = self.population.retire(ref)
        self._log(RETIRE, ref, 0)
        self._leaving.append(member.place)
        self.table.leave(member.place)

    def _free(self, place: int) -> bool:
        """Empty a place, once its policy sits on no seat any more."""
        if (self.seated == place).any():
            return False
        self.ledger.forget(place)
        self.table.retire(place)
        return True

    def _freeze(self, policy: str, snapshot: Snapshot) -> int | None:
        """Keep a copy; None: there is no place free at present."""
        if PolicyRef(policy, snapshot.version) in self.population:
            return None
        taken = {member.place for member in self.population.members} | set(self._leaving)
        free = [place for place in self.table.places_of(policy) if place not in taken]
        if not free:
            return None
        born = self.table.word(MATCHES)
        member = self.population.freeze(policy, snapshot.version, born, free[0])
        digest = self.table.freeze(member, snapshot)
        self._log(FREEZE, member.ref, digest)
        return free[0]

    def _log(self, kind: int, ref: PolicyRef, digest: int, parent: PolicyRef | None = None) -> None:
        record = self.table.empty_records(1)
        record["kind"], record["number"] = kind, self.table.word(MATCHES)
        record["policy"][:, 0] = self.table.names.index(ref.policy)
        record["version"][:, 0], record["digest"] = ref.version, digest
        record["oldest"][:, 0] = record["newest"][:, 0] = NOBODY
        if parent is not None:
            record["oldest"][:, 0] = self.table.names.index(parent.policy)
            record["newest"][:, 0] = parent.version
        self.table.add_records(record)
