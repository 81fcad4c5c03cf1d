"""The base class of dealers, and the dealer of the lead, the first actor."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

import numpy as np
from numpy.random import Generator

from remuda.errors import CommandError, RemudaError
from remuda.population.births.inheritance import ActingPolicies
from remuda.population.births.lifecycle import Lifecycle
from remuda.population.directors.director import Director
from remuda.population.ledger.ledger import MATCH, Ledger, count, option_records, options_text
from remuda.population.ledger.ratings import (
    count_metrics,
    count_teams,
    rate_all,
    sides_by_agent,
    sides_of,
)
from remuda.population.ledger.records import FRESH, RATING, Numbers, Population
from remuda.population.matchmaking.matchmaker import Matchmaker
from remuda.population.matchmaking.seating import Seating, check_seating
from remuda.population.members.follower_views import PROPOSED as OWN_PROPOSED
from remuda.population.members.table import Table
from remuda.population.members.table_parts import (
    MATCHES,
    NO_POLICY,
    OPTIONS,
    POLICY,
    PROPOSED,
    RECORDS,
    VERSION,
)
from remuda.population.own_code import state_of
from remuda.population.roster import Roster
from remuda.system.checkpoint.fitting import COUNT, Range, branch, fitting, require
from remuda.system.checkpoint.state import restore_rng, rng_state
from remuda.types import Array, Bools, Floats, Integers, State


class Dealer(ABC):
    """The base class of dealers, which seat members of a population in an actor's environments.

    Matches are numbered across actors: match n of actor i has the number `n * actors + i`.
    """

    population: Population  # the members that this actor knows and may seat
    ledger: Ledger

    def __init__(
        self,
        table: Table,
        matchmaker: Matchmaker,
        rng: Generator,
        num_envs: int,
        roster: Roster | None = None,
        once: bool = False,
        episode_metrics: Sequence[int] = (),
        actor: int = 0,
    ) -> None:
        self.table, self.matchmaker = table, matchmaker
        self.roster = roster or Roster(tuple(f"seat {seat}" for seat in range(table.seats)))
        self.teams = sides_by_agent(self.roster.teams or ("",) * table.seats)
        """[seats]: the number of each seat's team; all 0 if there are no teams."""
        self.seated: Integers = np.zeros((num_envs, table.seats), np.int64)
        """[num_envs, seats]: the slot of the member on each seat."""
        self.learns: Bools = np.ones(self.seated.shape, np.bool_)
        """[num_envs, seats]: whether a live policy on that seat learns from the match."""
        self.matches: Integers = np.zeros(num_envs, np.int64)
        self._episode_metrics: Integers = np.array(episode_metrics, np.int64)
        self._rng, self._once, self._actor = rng, once, actor
        self._counters = table.shards[actor - 1] if actor else table
        self._proposed = OWN_PROPOSED if actor else PROPOSED  # a word of `_counters`

    @property
    def is_shared(self) -> bool:
        return self.table.num_actors > 1

    def deal(self, over: Bools) -> None:
        copies = np.flatnonzero(over)
        matches = self.matchmaker.propose(self.population, self.ledger, len(copies), self._rng)
        if not matches:
            return
        actors, dealt = self.table.num_actors, [tuple(match.seats) for match in matches]
        self.matches[copies] = [match.id * actors + self._actor for match in matches]
        self.seated[copies] = [self._slots_of(seats) for seats in dealt]
        self.learns[copies] = True
        if any(match.learns is not None for match in matches):
            agents = range(self.seated.shape[1])
            self.learns[copies] = [
                [match.learns is None or agent in match.learns for agent in agents]
                for match in matches
            ]
        self._counters.set_word(self._proposed, matches[-1].id + 1)

    def _slots_of(self, seats: Seating) -> list[int]:
        """Return the slot of the member on each seat, after checking the seating."""
        population = self.population
        # With few policies the same seatings recur. The view is cleared when members change.
        known: dict[Seating, list[int]] = population.view("seatings", dict)
        found = known.get(seats)
        if found is None:
            check_seating(population, seats, self.matchmaker.name, self.roster.agents, self._once)
            found = [population[ref].slot for ref in seats]
            if len(known) < 256:  # with many policies few seatings recur
                known[seats] = found
        return found

    def close(
        self,
        over: Bools,
        returns: Numbers,
        oldest: Integers,
        newest: Integers,
        truncated: Bools,
        metrics: Floats | None = None,
    ) -> None:
        """Record the results of the environment copies whose episodes have ended.

        over, truncated: [num_envs]; returns: [num_envs, seats], NaN for a seat that took no part;
        oldest, newest: [num_envs, seats], versions that acted; metrics: [metrics, num_envs].
        """
        copies = np.flatnonzero(over)
        identity = self.table.occupants.identity[self.seated[copies]]
        records = self.table.records.empty(len(copies))
        records["number"], records["kind"] = self.matches[copies], MATCH
        records["truncated"] = truncated[copies]
        records["policy"], records["version"] = identity[..., POLICY], identity[..., VERSION]
        records["oldest"], records["newest"] = oldest[copies], newest[copies]
        records["returns"] = returns[copies]
        self._take(
            records, over, returns, None if metrics is None else metrics[self._episode_metrics]
        )

    @abstractmethod
    def _take(self, records: Array, over: Bools, returns: Numbers, metrics: Floats | None) -> None:
        """Count these results, and pass their records on to the ledger."""

    @abstractmethod
    def note_options(self, options: Mapping[str, Any]) -> None:
        """Record the environment's changed options in the ledger; only the lead does."""

    @abstractmethod
    def step(self, versions: Mapping[str, int], acting: ActingPolicies) -> list[int]:
        """Update the population between two turns."""

    @abstractmethod
    def has_news(self) -> bool:
        """Return whether another actor did something that `step` must handle."""

    @abstractmethod
    def settled(self) -> bool:
        """Return whether this actor may end after its last turn, without waiting for others."""

    def state(self) -> State:
        """Return the matches in progress, and all state outside the table."""
        return {
            "matchmaker": state_of(
                self.matchmaker.state(), f"population.matchmaker {self.matchmaker.name}"
            ),
            "random": rng_state(self._rng),
            "seated": self.seated.copy(),
            "learns": self.learns.copy(),
            "matches": self.matches.copy(),
        }

    def restore(self, state: State, matches: bool = True) -> None:
        self.matchmaker.restore(branch(state, "matchmaker"))
        restore_rng(self._rng, state["random"])
        if not matches:
            self.matchmaker.begin_at(self._counters.word(self._proposed))
            return
        identity = self.table.occupants.identity
        slots, held = Range(0, len(identity) - 1), identity[:, POLICY] != NO_POLICY
        seated = fitting(state, "seated", self.seated, slots)
        require(state, "seated", bool(held[seated].all()), "each of these slots has a member")
        self.seated[...] = seated
        self.learns[...] = fitting(state, "learns", self.learns)
        self.matches[...] = fitting(state, "matches", self.matches, COUNT)


class League(Dealer):
    """The lead's dealer, which also counts and rates the results.

    All lasting state is in the table, so that the successor of a crashed actor continues with it.
    Only the current matches and the matchmaker's position in a cycle are lost.

    If other actors deal from the table too (`FollowingLeague`), only this actor, the lead, changes
    the members. It counts, rates and passes on the others' results like its own.
    """

    def __init__(
        self,
        table: Table,
        matchmaker: Matchmaker,
        director: Director | None,
        rng: Generator,
        num_envs: int,
        roster: Roster | None = None,
        once: bool = False,
        memory: float | None = None,
        episode_metrics: Sequence[int] = (),
    ) -> None:
        table.repair()
        super().__init__(table, matchmaker, rng, num_envs, roster, once, episode_metrics)
        self.population = table.population(self.roster.seats, own=True)
        self.population.dealt = frozenset(self.roster.dealt_seats)
        self.ledger = Ledger(self.population, table.pairs, table.recent, memory)
        self.followers = table.followers
        self._director = director
        self.sides = sides_of(self.roster.teams, table.seats)
        self._even = len(set(np.bincount(self.sides).tolist())) == 1
        """True if all sides have the same number of seats."""
        self.lifecycle = Lifecycle(
            table, self.population, self.ledger, self.seated, self.roster, once
        )
        if not table.word(RECORDS):
            self.lifecycle.log_first()
        matchmaker.begin_at(table.word(PROPOSED))
        none = np.zeros(num_envs, np.bool_)  # compile everything before play starts
        empty = np.zeros((len(self._episode_metrics), num_envs), np.float32)
        self._count(self.seated, np.zeros(self.seated.shape), none, empty)

    def _take(self, records: Array, over: Bools, returns: Numbers, metrics: Floats | None) -> None:
        self._count(self.seated, returns, over, metrics)
        self.table.records.add(records)
        self.table.set_word(MATCHES, self.table.word(MATCHES) + len(records))

    def note_options(self, options: Mapping[str, Any]) -> None:
        """Record the environment's changed options, unless they are the last recorded ones."""
        table, checksum = self.table, crc32(options_text(options))
        if checksum != table.word(OPTIONS):
            empty, matches = table.records.empty(1), table.word(MATCHES)
            table.records.add(option_records(options, matches, empty))
            table.set_word(OPTIONS, checksum)

    def _count(
        self, seated: Integers, returns: Numbers, over: Bools, metrics: Floats | None
    ) -> None:
        """Add up and rate the finished matches; `over` [M] marks them."""
        numbers = self.population.numbers
        ledger = self.ledger
        count(seated, returns, over, ledger.pairs, numbers, ledger.recent, ledger.retention)
        rate_all(seated, returns, over, self.sides, numbers)
        count_teams(seated, returns, over, self.teams, numbers)
        if metrics is not None and len(metrics):
            count_metrics(seated, returns, metrics, over, numbers, len(FRESH))

    def _count_of_others(self, seated: Integers, returns: Numbers, metrics: Floats) -> None:
        self._count(seated, returns, np.ones(len(seated), np.bool_), metrics)

    def step(self, versions: Mapping[str, int], acting: ActingPolicies) -> list[int]:
        """Take the followers' results between two turns, and carry out the director's commands."""
        followers = self.followers
        if followers:
            followers.look()
            followers.take(self._count_of_others)
        if self._director is None:
            return []
        population, lifecycle = self.population, self.lifecycle
        live = population.learning
        lifecycle.admit(versions)
        population.matches = self.table.word(MATCHES)
        lifecycle.note_slots()
        for command in self._director.step(population, self.ledger, versions):
            try:
                lifecycle.carry_out(command, acting, self.matchmaker)
            except RemudaError as error:  # only a user's own director can cause this
                raise CommandError(f"population.director: {error}") from None
        if population.learning != live:
            self.level_ratings()
        found = lifecycle.settle(acting)
        followers.end_change()
        return found

    def has_news(self) -> bool:
        return self.followers.have_results or self.followers.is_waited_for

    def settled(self) -> bool:
        """Return whether the followers have finished and all their results are counted."""
        self.followers.take(self._count_of_others)
        return self.followers.have_finished

    def state(self) -> State:
        return super().state() | {
            "director": self._director.state() if self._director is not None else None,
            "postponed": self.lifecycle.postponed,
        }

    def restore(self, state: State, matches: bool = True) -> None:
        super().restore(state, matches)
        if self._director is not None:
            self._director.restore(branch(state, "director"))
        self.lifecycle.postponed = [str(name) for name in state["postponed"]]

    def level_ratings(self) -> None:
        """Shift all ratings so that the mean rating of live policies is 25.

        A child starts with its parent's rating and the lowest-rated policy leaves. So each birth
        raises the mean although no policy has learned. Win probabilities are shares of
        exp(rating / c), where a side's rating is the sum over its seats (see `rate_all`). If all
        sides have the same number of seats, a shift changes no probability. Otherwise it would
        change them, so nothing is shifted.
        """
        mean = self.lifecycle.mean_rating()
        if self._even and math.isfinite(mean):
            self.table.member_numbers.move_ratings(FRESH[RATING] - mean)
