"""The league: deals matches in one actor, and counts and rates the results of all actors."""

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
    """Deals the seats of an actor's copies, and counts the results.

    All lasting state is in the table, so that the successor of a crashed actor continues with it.
    Only the current matches and the matchmaker's position in a cycle are lost.

    If other actors deal from the table too (`FollowingLeague`), this one is the lead: it alone
    changes the members, and it counts, rates and passes on the others' results like its own.
    """

    def __init__(
        self,
        table: Table,
        matchmaker: Matchmaker,
        director: Director | None,
        rng: np.random.Generator,
        num_envs: int,
        roster: Roster | None = None,
        once: bool = False,
        memory: float | None = None,
        episode_metrics: Sequence[int] = (),
    ) -> None:
        """Continue with a table."""
        table.repair()
        super().__init__(table, matchmaker, rng, num_envs, roster, once, episode_metrics)
        self.population = table.population(self.roster.seats, own=True)
        self.population.dealt = frozenset(self.roster.left)
        self.ledger = Ledger(self.population, table.pairs, table.recent, memory)
        self.followers = table.followers
        self._director = director
        self._sides = sides_of(self.roster.teams, table.seats)
        self._even = len(set(np.bincount(self._sides).tolist())) == 1
        """True if all sides have the same number of seats."""
        self.lifecycle = Lifecycle(
            table, self.population, self.ledger, self.seated, self.roster, once
        )
        if not table.word(RECORDS):
            self.lifecycle.log_first()
        matchmaker.begin_at(table.word(PROPOSED))
        none = np.zeros(num_envs, np.bool_)  # so that everything is compiled before play begins
        empty = np.zeros((len(self._episode_metrics), num_envs), np.float32)
        self._count(self.seated, np.zeros(self.seated.shape), none, empty)

    def close(
        self,
        over: Bools,
        returns: Numbers,
        oldest: Integers,
        newest: Integers,
        truncated: Bools,
        metrics: Floats | None = None,
    ) -> None:
        """Count and rate the results of these copies, and pass them to the ledger."""
        self._count(self.seated, returns, over, None if metrics is None else self._added(metrics))
        copies = np.flatnonzero(over)
        self.table.records.add(self._records(copies, returns, oldest, newest, truncated))
        self.table.set_word(MATCHES, self.table.word(MATCHES) + len(copies))

    def _added(self, metrics: Floats) -> Floats:
        return metrics[self._episode_metrics]

    def _count(
        self, seated: Integers, returns: Numbers, over: Bools, metrics: Floats | None
    ) -> None:
        """Add up and rate the matches among [M] that are over."""
        numbers = self.population.numbers
        ledger = self.ledger
        count(seated, returns, over, ledger.pairs, numbers, ledger.recent, ledger.kept)
        rate_all(seated, returns, over, self._sides, numbers)
        count_teams(seated, returns, over, self.teams, numbers)
        if metrics is not None and len(metrics):
            count_metrics(seated, returns, metrics, over, numbers, len(FRESH))

    def _count_of_others(self, seated: Integers, returns: Numbers, metrics: Floats) -> None:
        self._count(seated, returns, np.ones(len(seated), np.bool_), metrics)

    def step(self, versions: Mapping[str, int], acting: ActingPolicies) -> list[int]:
        """Take results of other actors, and carry out the director's commands; between turns."""
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
        """Return whether other actors have results, or may have left an awaited place."""
        return self.followers.have_results or self.followers.is_waited_for

    def settled(self) -> bool:
        """Return whether all results of the other actors are counted, and no more will come."""
        self.followers.take(self._count_of_others)
        return self.followers.have_finished

    def state(self) -> State:
        """Return the matches in progress, and all state outside the table."""
        return super().state() | {
            "director": self._director.state() if self._director is not None else None,
            "postponed": self.lifecycle.postponed,
        }

    def restore(self, state: State, matches: bool = True) -> None:
        """Continue from what `state` returned; with `matches`, those in progress too."""
        super().restore(state, matches)
        if self._director is not None:
            self._director.restore(branch(state, "director"))
        self.lifecycle.postponed = [str(name) for name in state["postponed"]]

    def _note_proposed(self, count: int) -> None:
        self.table.set_word(PROPOSED, count)

    def _proposed(self) -> int:
        return self.table.word(PROPOSED)

    def level_ratings(self) -> None:
        """Shift all ratings so that the mean of live policies is 25 again.

        A child begins with its parent's rating and the lowest-rated policy goes, so each birth
        would raise the mean although no policy has learned. In the Plackett-Luce model
        probabilities are shares of exp(rating / c) with the ratings of a side added up (see
        `rate_all`), so a shift changes none of them if all sides have the same number of seats.
        Otherwise the level itself carries the value of an additional seat, and nothing is shifted.
        """
        mean = self.lifecycle.mean_rating()
        if self._even and math.isfinite(mean):
            self.table.member_numbers.move_ratings(FRESH[RATING] - mean)
