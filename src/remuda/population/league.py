"""The league: deals matches in one actor, counts and rates their results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from remuda.checkpoint.state import fitting, random_state, restore_random
from remuda.population.director import Director
from remuda.population.inheritance import ActingPolicies
from remuda.population.ledger import MATCH, Ledger, count
from remuda.population.lifecycle import Lifecycle
from remuda.population.matchmaking import Matchmaker
from remuda.population.ratings import rate_all, sides_of
from remuda.population.records import FRESH, RATING, Numbers
from remuda.population.refusals import check_seating
from remuda.population.roster import Roster
from remuda.population.seating import Seating
from remuda.population.table import Table
from remuda.population.table_layout import MATCHES, POLICY, PROPOSED, RECORDS, VERSION
from remuda.population.team_returns import count_metrics, count_teams, sides_by_agent
from remuda.types import Bools, Floats, Integers, State


class League:
    """Deals the seats of so many copies of a game, and counts the results into its population.

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
        roster: Roster | None = None,
        once: bool = False,
        memory: float | None = None,
        episode_metrics: Sequence[int] = (),
    ) -> None:
        """Go on with a table.

        Args:
            table: of the population.
            matchmaker: who plays whom.
            director: who exists; None: those who do.
            random: the generator that matches are drawn from.
            num_envs: copies of the game.
            roster: the seats of the game, their teams, and who may take them; None: any policy may
                take any, and each stands for itself.
            once: rings are only as large as if a policy had one seat of a match at most.
            memory: matches of a policy after which a result counts half in its win rates; None:
                they never forget.
            episode_metrics: which of the facts that the game tells are added up for each member.
        """
        table.repair()
        self.table, self.matchmaker = table, matchmaker
        self.roster = roster or Roster(tuple(f"seat {seat}" for seat in range(table.seats)))
        self.population = table.population(self.roster.seats, own=True)
        self.ledger = Ledger(self.population, table.pairs, table.recent, memory)
        self._director, self._random = director, random
        self._sides = sides_of(self.roster.teams, table.seats)
        self.teams = sides_by_agent(self.roster.teams or ("",) * table.seats)
        """[seats]: the number of each seat's team; where there are no teams, all are one."""
        self._even = len(set(np.bincount(self._sides).tolist())) == 1
        """Whether all sides have as many seats."""
        self.seated: Integers = np.zeros((num_envs, table.seats), np.int64)
        """[num_envs, seats]: the place in the population of the member that sits there."""
        self.learns: Bools = np.ones(self.seated.shape, np.bool_)
        """[num_envs, seats]: whether a live policy that sits there learns from the match."""
        self._matches: Integers = np.zeros(num_envs, np.int64)
        self._episode_metrics: Integers = np.array(episode_metrics, np.int64)
        self._once = once
        self.lifecycle = Lifecycle(
            table, self.population, self.ledger, self.seated, self.roster, once
        )
        if not table.word(RECORDS):
            self.lifecycle.log_first()
        matchmaker.begin_at(table.word(PROPOSED))
        none = np.zeros(num_envs, np.bool_)  # so that everything is compiled before play begins
        untold = np.zeros((len(self._episode_metrics), num_envs), np.float32)
        self._count(np.zeros(self.seated.shape), none, untold)

    def deal(self, over: Bools) -> None:
        """Seat the next matches in these copies.

        Raises:
            ConfigError: no policy may take a seat, or the matchmaker deals one that may not.
        """
        copies = np.flatnonzero(over)
        matches = self.matchmaker.propose(self.population, self.ledger, len(copies), self._random)
        if not matches:
            return
        dealt = [tuple(match.seats) for match in matches]
        # The same policies meet again and again: each seating is looked up once.
        places = {seats: self._places_of(seats) for seats in dict.fromkeys(dealt)}
        self._matches[copies] = [match.id for match in matches]
        self.seated[copies] = [places[seats] for seats in dealt]
        self.learns[copies] = True
        if any(match.learns is not None for match in matches):
            agents = range(self.seated.shape[1])
            self.learns[copies] = [
                [match.learns is None or agent in match.learns for agent in agents]
                for match in matches
            ]
        self.table.set_word(PROPOSED, matches[-1].id + 1)

    def _places_of(self, seats: Seating) -> list[int]:
        """By seat, the place of who is dealt it, if all may sit there."""
        population = self.population
        check_seating(population, seats, self.matchmaker.name, self.roster.agents, self._once)
        return [population[ref].place for ref in seats]

    def close(
        self,
        over: Bools,
        returns: Numbers,
        oldest: Integers,
        newest: Integers,
        truncated: Bools,
        told: Floats | None = None,
    ) -> None:
        """Note the results of these copies.

        Args:
            over: [num_envs] which of them are over.
            returns: [num_envs, seats].
            oldest: [num_envs, seats] the oldest version that acted...
            newest: ...and the newest.
            truncated: [num_envs] whether the match was cut off.
            told: [facts, num_envs] what the game tells of these episodes; None: nothing.
        """
        self._count(returns, over, None if told is None else told[self._episode_metrics])
        copies = np.flatnonzero(over)
        identity = self.table.occupants.identity[self.seated[copies]]
        records = self.table.records.empty(len(copies))
        records["number"], records["kind"] = self._matches[copies], MATCH
        records["truncated"] = truncated[copies]
        records["policy"], records["version"] = identity[..., POLICY], identity[..., VERSION]
        records["oldest"], records["newest"] = oldest[copies], newest[copies]
        records["returns"] = returns[copies]
        self.table.records.add(records)
        self.table.set_word(MATCHES, self.table.word(MATCHES) + len(copies))

    def _count(self, returns: Numbers, over: Bools, told: Floats | None) -> None:
        """Add up and rate the matches of these copies."""
        numbers = self.population.numbers
        ledger = self.ledger
        count(self.seated, returns, over, ledger.pairs, numbers, ledger.recent, ledger.kept)
        rate_all(self.seated, returns, over, self._sides, numbers)
        count_teams(self.seated, returns, over, self.teams, numbers)
        if told is not None and len(told):
            count_metrics(self.seated, told, over, numbers, len(FRESH))

    def step(self, versions: Mapping[str, int], acting: ActingPolicies) -> list[int]:
        """Do what the director commands; between two turns.

        Args:
            versions: by policy, that of the live weights that play.
            acting: the policies as they play on the seats.

        Returns:
            The places that hold a new frozen copy.
        """
        if self._director is None:
            return []
        population, lifecycle = self.population, self.lifecycle
        live = population.learning
        lifecycle.admit(versions)
        population.matches = self.table.word(MATCHES)
        lifecycle.note_places()
        for command in self._director.step(population, self.ledger, versions):
            lifecycle.carry_out(command, acting, self.matchmaker)
        if population.learning != live:
            self.level_ratings()
        return lifecycle.settle(acting)

    def state(self) -> State:
        """The matches that are being played, and what the table does not hold."""
        return {
            "matchmaker": self.matchmaker.state(),
            "director": self._director.state() if self._director is not None else None,
            "random": random_state(self._random),
            "seated": self.seated.copy(),
            "learns": self.learns.copy(),
            "matches": self._matches.copy(),
            "postponed": self.lifecycle.postponed,
        }

    def restore(self, state: State, matches: bool = True) -> None:
        """Go on from what `state` returned; `matches`: with those that were being played too."""
        self.matchmaker.restore(state["matchmaker"])
        if self._director is not None:
            self._director.restore(state["director"])
        restore_random(self._random, state["random"])
        self.lifecycle.postponed = list(state["postponed"])
        if not matches:
            self.matchmaker.begin_at(self.table.word(PROPOSED))
            return
        self.seated[...] = fitting(state, "seated", self.seated)
        # In what an earlier version saved all learn.
        self.learns[...] = fitting(state, "learns", self.learns) if "learns" in state else True
        self._matches[...] = fitting(state, "matches", self._matches)

    def level_ratings(self) -> None:
        """Move all ratings alike, so that those of live policies are 25 on average, as at first.

        A child is a copy and begins with its parent's rating, and the lowest goes: each birth would
        raise the others without any policy having learned. In the model of Plackett and Luce
        probabilities are shares of exp(rating / c), the ratings of a side added up (see
        `rate_all`). So where all sides have as many seats, none that ratings tell changes by this.
        Where they have not, the level itself tells how much a seat more is worth: matches find it
        and hold it, and nothing is moved.
        """
        mean = self.lifecycle.mean_rating()
        if self._even and math.isfinite(mean):
            self.table.member_numbers.move_ratings(FRESH[RATING] - mean)
