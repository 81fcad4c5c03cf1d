"""The base of all actors that deal seats: the matches of their copies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from remuda.checkpoint.fitting import COUNT, Range, branch, fitting, require
from remuda.checkpoint.state import restore_rng, rng_state
from remuda.population.inheritance import ActingPolicies
from remuda.population.ledger import MATCH, Ledger
from remuda.population.matchmaking import Matchmaker
from remuda.population.records import Numbers, Population
from remuda.population.roster import Roster
from remuda.population.seating import Seating, check_seating
from remuda.population.table import Table
from remuda.population.table_layout import NO_POLICY, POLICY, VERSION
from remuda.population.team_returns import sides_by_agent
from remuda.types import Array, Bools, Floats, Integers, State

MOST_SEATINGS = 256  # seatings to cache; with many policies few recur


class Dealer(ABC):
    """Deals the seats of one actor's copies of an environment, from a population's table.

    Matches are numbered across actors: the n-th of actor i is `n * actors + i`.
    """

    population: Population  # the members that this actor may deal, as far as it knows
    ledger: Ledger

    def __init__(
        self,
        table: Table,
        matchmaker: Matchmaker,
        rng: np.random.Generator,
        num_envs: int,
        roster: Roster | None = None,
        once: bool = False,
        episode_metrics: Sequence[int] = (),
        actor: int = 0,
    ) -> None:
        """Begin with no match."""
        self.table, self.matchmaker = table, matchmaker
        self.roster = roster or Roster(tuple(f"seat {seat}" for seat in range(table.seats)))
        self.teams = sides_by_agent(self.roster.teams or ("",) * table.seats)
        """[seats]: the number of each seat's team; without teams all are one."""
        self.seated: Integers = np.zeros((num_envs, table.seats), np.int64)
        """[num_envs, seats]: the place of the member on each seat."""
        self.learns: Bools = np.ones(self.seated.shape, np.bool_)
        """[num_envs, seats]: whether a live policy on that seat learns from the match."""
        self._matches: Integers = np.zeros(num_envs, np.int64)
        self._episode_metrics: Integers = np.array(episode_metrics, np.int64)
        self._rng, self._once, self._actor = rng, once, actor

    @property
    def is_shared(self) -> bool:
        """Return whether other actors deal from the table too."""
        return self.table.num_actors > 1

    def deal(self, over: Bools) -> None:
        """Seat the next matches in these copies."""
        copies = np.flatnonzero(over)
        matches = self.matchmaker.propose(self.population, self.ledger, len(copies), self._rng)
        if not matches:
            return
        actors, dealt = self.table.num_actors, [tuple(match.seats) for match in matches]
        self._matches[copies] = [match.id * actors + self._actor for match in matches]
        self.seated[copies] = [self._places_of(seats) for seats in dealt]
        self.learns[copies] = True
        if any(match.learns is not None for match in matches):
            agents = range(self.seated.shape[1])
            self.learns[copies] = [
                [match.learns is None or agent in match.learns for agent in agents]
                for match in matches
            ]
        self._note_proposed(matches[-1].id + 1)

    def _places_of(self, seats: Seating) -> list[int]:
        """Return the place of the member on each seat, after checking the seating."""
        population = self.population
        # Few policies meet again and again; the view is cleared when members change.
        known: dict[Seating, list[int]] = population.view("seatings", dict)
        found = known.get(seats)
        if found is None:
            check_seating(population, seats, self.matchmaker.name, self.roster.agents, self._once)
            found = [population[ref].place for ref in seats]
            if len(known) < MOST_SEATINGS:
                known[seats] = found
        return found

    @abstractmethod
    def close(
        self,
        over: Bools,
        returns: Numbers,
        oldest: Integers,
        newest: Integers,
        truncated: Bools,
        metrics: Floats | None = None,
    ) -> None:
        """Note the results of these copies.

        over: [num_envs] which of them are over.
        returns: [num_envs, seats]; NaN: that seat took no part.
        oldest: [num_envs, seats] the oldest version that acted...
        truncated: [num_envs] whether the match was truncated.
        metrics: [metrics, num_envs] metrics of these episodes, if there are any.
        """

    @abstractmethod
    def step(self, versions: Mapping[str, int], acting: ActingPolicies) -> list[int]:
        """Update the population; between two turns."""

    @abstractmethod
    def has_news(self) -> bool:
        """Return whether another actor did something that `step` must handle."""

    @abstractmethod
    def settled(self) -> bool:
        """Return whether nothing of the other actors is awaited, after all turns are played."""

    @abstractmethod
    def _note_proposed(self, count: int) -> None: ...

    @abstractmethod
    def _proposed(self) -> int: ...

    def state(self) -> State:
        """Return the matches in progress, and all state outside the table."""
        return {
            "matchmaker": self.matchmaker.state(),
            "random": rng_state(self._rng),
            "seated": self.seated.copy(),
            "learns": self.learns.copy(),
            "matches": self._matches.copy(),
        }

    def restore(self, state: State, matches: bool = True) -> None:
        """Continue from what `state` returned; with `matches`, those in progress too."""
        self.matchmaker.restore(branch(state, "matchmaker"))
        restore_rng(self._rng, state["random"])
        if not matches:
            self.matchmaker.begin_at(self._proposed())
            return
        identity = self.table.occupants.identity
        places, held = Range(0, len(identity) - 1), identity[:, POLICY] != NO_POLICY
        seated = fitting(state, "seated", self.seated, places)
        require(state, "seated", bool(held[seated].all()), "there is a member in each place")
        self.seated[...] = seated
        self.learns[...] = fitting(state, "learns", self.learns)
        self._matches[...] = fitting(state, "matches", self._matches, COUNT)

    def _records(
        self,
        copies: Integers,
        returns: Numbers,
        oldest: Integers,
        newest: Integers,
        truncated: Bools,
    ) -> Array:
        identity = self.table.occupants.identity[self.seated[copies]]
        records = self.table.records.empty(len(copies))
        records["number"], records["kind"] = self._matches[copies], MATCH
        records["truncated"] = truncated[copies]
        records["policy"], records["version"] = identity[..., POLICY], identity[..., VERSION]
        records["oldest"], records["newest"] = oldest[copies], newest[copies]
        records["returns"] = returns[copies]
        return records
