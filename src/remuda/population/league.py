"""The league: deals matches in one actor, counts and rates the results of all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from remuda.checkpoint.fitting import branch
from remuda.errors import CommandError, RemudaError
from remuda.population.dealer import Dealer
from remuda.population.director import Director
from remuda.population.inheritance import ActingPolicies
from remuda.population.ledger import Ledger, count
from remuda.population.lifecycle import Lifecycle
from remuda.population.matchmaking import Matchmaker
from remuda.population.ratings import rate_all, sides_of
from remuda.population.records import FRESH, RATING, Numbers
from remuda.population.roster import Roster
from remuda.population.table import Table
from remuda.population.table_layout import MATCHES, PROPOSED, RECORDS
from remuda.population.team_returns import count_metrics, count_teams
from remuda.types import Bools, Floats, Integers, State


class League(Dealer):
    """Deals the seats of so many copies of a game, and counts the results into its population.

    Everything lasting is in the table, so that the successor of an actor that died goes on with
    it. What it loses: the matches that were being played, and where a matchmaker was in its cycle.

    Where other actors deal from the table too (`FollowingLeague`), this one is the lead: it alone
    changes who exists, and it counts, rates and passes on what they played as its own.
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
        """Go on with a table."""
        table.repair()
        super().__init__(table, matchmaker, random, num_envs, roster, once, episode_metrics)
        self.population = table.population(self.roster.seats, own=True)
        self.population.dealt = frozenset(self.roster.left)
        self.ledger = Ledger(self.population, table.pairs, table.recent, memory)
        self.followers = table.followers
        self._director = director
        self._sides = sides_of(self.roster.teams, table.seats)
        self._even = len(set(np.bincount(self._sides).tolist())) == 1
        """Whether all sides have as many seats."""
        self.lifecycle = Lifecycle(
            table, self.population, self.ledger, self.seated, self.roster, once
        )
        if not table.word(RECORDS):
            self.lifecycle.log_first()
        matchmaker.begin_at(table.word(PROPOSED))
        none = np.zeros(num_envs, np.bool_)  # so that everything is compiled before play begins
        untold = np.zeros((len(self._episode_metrics), num_envs), np.float32)
        self._count(self.seated, np.zeros(self.seated.shape), none, untold)

    def close(
        self,
        over: Bools,
        returns: Numbers,
        oldest: Integers,
        newest: Integers,
        truncated: Bools,
        told: Floats | None = None,
    ) -> None:
        """Count and rate the results of these copies, and pass them on to the ledger.

        over: [num_envs] which of them are over.
        returns: [num_envs, seats]; NaN: that seat took no part.
        oldest: [num_envs, seats] the oldest version that acted...
        truncated: [num_envs] whether the match was cut off.
        told: [facts, num_envs] what the game tells of these episodes; None: nothing.
        """
        self._count(self.seated, returns, over, None if told is None else self._added(told))
        copies = np.flatnonzero(over)
        self.table.records.add(self._records(copies, returns, oldest, newest, truncated))
        self.table.set_word(MATCHES, self.table.word(MATCHES) + len(copies))

    def _added(self, told: Floats) -> Floats:
        """Of what the game tells, what is added up: [metrics, num_envs]."""
        found: Floats = told[self._episode_metrics]
        return found

    def _count(self, seated: Integers, returns: Numbers, over: Bools, told: Floats | None) -> None:
        """Add up and rate matches: those of [M] that are over."""
        numbers = self.population.numbers
        ledger = self.ledger
        count(seated, returns, over, ledger.pairs, numbers, ledger.recent, ledger.kept)
        rate_all(seated, returns, over, self._sides, numbers)
        count_teams(seated, returns, over, self.teams, numbers)
        if told is not None and len(told):
            count_metrics(seated, returns, told, over, numbers, len(FRESH))

    def _count_of_others(self, seated: Integers, returns: Numbers, told: Floats) -> None:
        """Likewise, matches of other actors, which are all over."""
        self._count(seated, returns, np.ones(len(seated), np.bool_), told)

    def step(self, versions: Mapping[str, int], acting: ActingPolicies) -> list[int]:
        """Take what other actors played, and do what the director commands; between two turns."""
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
        lifecycle.note_places()
        for command in self._director.step(population, self.ledger, versions):
            try:
                lifecycle.carry_out(command, acting, self.matchmaker)
            except RemudaError as error:  # only a user's own commands what cannot be
                raise CommandError(f"population.director: {error}") from None
        if population.learning != live:
            self.level_ratings()
        found = lifecycle.settle(acting)
        followers.end_change()
        return found

    def has_news(self) -> bool:
        """Whether other actors have played something, or may have left a place that is awaited."""
        return self.followers.have_results or self.followers.is_waited_for

    def settled(self) -> bool:
        """Whether all that other actors played is counted, and they will play no more."""
        self.followers.take(self._count_of_others)
        return self.followers.have_finished

    def state(self) -> State:
        """The matches that are being played, and what the table does not hold."""
        return super().state() | {
            "director": self._director.state() if self._director is not None else None,
            "postponed": self.lifecycle.postponed,
        }

    def restore(self, state: State, matches: bool = True) -> None:
        """Go on from what `state` returned; `matches`: with those that were being played too."""
        super().restore(state, matches)
        if self._director is not None:
            self._director.restore(branch(state, "director"))
        self.lifecycle.postponed = [str(name) for name in state["postponed"]]

    def _note_proposed(self, count: int) -> None:
        self.table.set_word(PROPOSED, count)

    def _proposed(self) -> int:
        return self.table.word(PROPOSED)

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
