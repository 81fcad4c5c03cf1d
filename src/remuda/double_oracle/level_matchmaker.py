"""Who plays whom while several levels of oracles train at once (pipelined PSRO).

McAleer et al. 2020, "Pipeline PSRO: A scalable approach for finding approximate Nash equilibria in
large games", algorithm 2: each level trains against the meta-mixture of all that is below it, which
is of fixed policies and of levels that still learn, as they are now. What these earn against each
other changes while they learn, and so the mixtures are worked out anew as matches are played.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from remuda.checkpoint.fitting import FINITE_64, fitting_all, whole
from remuda.double_oracle.meta_solvers import solve
from remuda.envs.registry import RANDOM
from remuda.errors import UsageError
from remuda.population.ledger import CONCEDED, EARNED, MET, Ledger
from remuda.population.matchmaking import Matchmaker
from remuda.population.records import Match, PolicyRef, Population
from remuda.population.seating import Seating
from remuda.types import State

Numbers = npt.NDArray[np.float64]
MEMORY = 20_000
"""Matches after which what was earned before counts half: live policies change..."""
PER_PAIR = 300
"""...or so many for each pair with one, if that is more."""
LEAST = 16.0
"""Meetings of each pair of a level's policies with those below, before it is played as one of them.
"""
MEASURED = 8
"""Of so many matches one is of a pair whose payoff is least known, and teaches no policy..."""
UNKNOWN = 2
"""...and while not all levels are played yet, of so many."""
LOOK = 4000
"""Matches after which mixtures are worked out anew..."""
FIRST_LOOK = 500
"""...and while not all levels are played yet."""
SEATS = frozenset((0,)), frozenset((1,))
"""By player, its seat."""


class LevelMatchmaker(Matchmaker):
    """Deals each learner of a level a policy of the other player from below, by the meta-mixture.

    Learners take turns, so that all have the same number of matches. What it guarantees:

    1. In the match of a learner it alone learns. A live policy of a level below plays as it is
       then, and nothing that it does there is kept.
    2. A level meets fixed policies and levels below it, and none of its own or above.
    3. In some matches two policies meet whose payoff is known least, and neither learns.
    4. A level that has not met all those below often enough is not played as an opponent yet.
    """

    def __init__(
        self,
        num_seats: int,
        *,
        fixed: Sequence[Sequence[str]],
        levels: Sequence[Sequence[Sequence[str]]],
        payoffs: Sequence[Any],
        meta_solver: str,
        tolerance: float,
    ) -> None:
        """Deal for these levels.

        Args:
            num_seats: of the game: 2.
            fixed: by player, the names of its fixed policies; the first plays at random.
            levels: from the lowest, and by player, the names of those that learn there.
            payoffs: [2, n, m] what the fixed policies earn against each other.
            meta_solver: its name.
            tolerance: as `solve` takes it.
        """
        super().__init__(num_seats)
        self._solver, self._tolerance = meta_solver, tolerance
        self._learners = [
            (level, player, name)
            for level, both in enumerate(levels)
            for player, names in enumerate(both)
            for name in names
        ]
        self._names = [list(own) for own in fixed]
        """By player, all that may be opponents: fixed ones, and those of all levels but the top."""
        self._sizes = [(len(fixed[0]), len(fixed[1]))]
        """By level, of how many of these its opponents' meta-game is."""
        for both in levels[:-1]:
            for player, names in enumerate(both):
                self._names[player] += names
            self._sizes.append((len(self._names[0]), len(self._names[1])))
        shape = (len(self._names[0]), len(self._names[1]))
        self._known = np.zeros((2, *shape))
        self._known[:, : len(fixed[0]), : len(fixed[1])] = payoffs
        self._live = np.ones(shape, np.bool_)
        self._live[: len(fixed[0]), : len(fixed[1])] = False
        self._measures = bool(self._live.any())
        self._sums: Numbers = np.zeros((3, *shape))
        """Of each pair: meetings, what player 0 earned, and player 1; the older, the less."""
        self._before: Numbers = np.zeros((3, *shape))
        """The ledger's sums when it was looked at last."""
        self._measured: Numbers = np.zeros(shape)
        """Matches since then in which no policy learned."""
        self._taught, self._looked, self._next_look = 0, 0, 0
        self._edges: list[tuple[list[float], list[float]]] = []
        """By level and player, sums of the shares of those below, up to each."""
        self._played = 0
        """Levels that are played as opponents."""
        self._solve()

    @property
    def shares(self) -> list[tuple[Numbers, Numbers]]:
        """By level and player, how often those below are played: [n], in the order of names."""
        return [(np.diff(x, prepend=0.0), np.diff(y, prepend=0.0)) for x, y in self._edges]

    def expected_shares(self, population: Population) -> dict[str, float]:
        """All learners alike, of the matches in which a policy learns."""
        share = taught(len(self._sizes)) / len(self._learners)
        return {member.ref.policy: share for member in population.learning}

    def propose(
        self, population: Population, ledger: Ledger, count: int, random: np.random.Generator
    ) -> list[Match]:
        """So many matches, numbered on from those before."""
        refs = by_name(population)
        matches = []
        for drawn in random.random(count).tolist():
            if self.proposed >= self._next_look:
                self._look(population, ledger, refs)
            matches.append(Match(self.proposed, *self._deal(refs, drawn)))
            self.proposed += 1
        return matches

    def seat(self, population: Population, ledger: Ledger, random: np.random.Generator) -> Seating:
        """A pair to be measured, or the next learner and whom it meets."""
        (match,) = self.propose(population, ledger, 1, random)
        return match.seats

    def _deal(self, refs: Mapping[str, PolicyRef], drawn: float) -> tuple[Seating, frozenset[int]]:
        """Who sits where, and who of them learns; `drawn`: from 0 to 1, chooses the opponent."""
        waits = self._played < len(self._sizes) - 1
        if self._measures and self.proposed % (UNKNOWN if waits else MEASURED) == 0:
            return self._measure(refs), frozenset()
        level, player, name = self._learners[self._taught % len(self._learners)]
        self._taught += 1
        edges, names = self._edges[level][1 - player], self._names[1 - player]
        opponent = names[min(bisect_right(edges, drawn * edges[-1]), len(edges) - 1)]
        # While a run is put together there are no members from other runs yet.
        own = PolicyRef(name)
        other = refs.get(opponent) or refs.get(RANDOM, own)
        return ((own, other) if player == 0 else (other, own)), SEATS[player]

    def _measure(self, refs: Mapping[str, PolicyRef]) -> Seating:
        """The pair with a live policy that is known least."""
        count = np.where(self._live, self._sums[0] + self._measured, np.inf)
        row, column = divmod(int(count.argmin()), count.shape[1])
        self._measured[row, column] += 1.0
        own = PolicyRef(self._learners[0][2])
        return refs.get(self._names[0][row], own), refs.get(self._names[1][column], own)

    def _look(self, population: Population, ledger: Ledger, refs: Mapping[str, PolicyRef]) -> None:
        """Add what came of matches since the last look, and work the mixtures out."""
        now = self._totals(population, ledger, refs)
        new = np.where(now[0] >= self._before[0], now - self._before, now)
        memory = max(MEMORY, PER_PAIR * int(self._live.sum()))
        self._sums = self._sums * 0.5 ** ((self.proposed - self._looked) / memory) + new
        self._before, self._looked = now, self.proposed
        self._measured[...] = 0.0
        self._solve()
        waits = self._played < len(self._sizes) - 1
        self._next_look = self.proposed + (FIRST_LOOK if waits else LOOK)

    def _totals(
        self, population: Population, ledger: Ledger, refs: Mapping[str, PolicyRef]
    ) -> Numbers:
        """[3, n, m]: the ledger's sums of each pair with a live policy; 0 of others."""
        found = np.zeros_like(self._sums)
        places = [
            [population[refs[name]].place if name in refs else -1 for name in own]
            for own in self._names
        ]
        first, last = self._sizes[0]
        for row, column in np.argwhere(self._live).tolist():
            one, other = places[0][row], places[1][column]
            if one < 0 or other < 0:
                continue
            if row >= first:
                found[:, row, column] = ledger.pairs[[MET, EARNED, CONCEDED], one, other]
            elif column >= last:
                found[:, row, column] = ledger.pairs[[MET, CONCEDED, EARNED], other, one]
        return found

    def _solve(self) -> None:
        """Work out what each level meets.

        A meta-solver that finds nothing leaves a level with what the one below it meets.
        """
        weights = np.where(self._sums[0] > 0.0, self._sums[0], 1.0)
        payoffs = np.where(self._live, self._sums[1:] / weights, self._known)
        self._edges, self._played = [], 0
        for level, (rows, columns) in enumerate(self._sizes):
            at = np.s_[:rows, :columns]
            if (self._live[at] & (self._sums[0][at] < LEAST)).any():
                break
            try:
                mixtures = solve(self._solver, payoffs[:, *at], self._tolerance).mixtures
            except UsageError:
                if not self._edges:
                    raise
                break
            self._edges.append((mixtures[0].cumsum().tolist(), mixtures[1].cumsum().tolist()))
            self._played = level
        self._edges += [self._edges[-1]] * (len(self._sizes) - len(self._edges))

    def state(self) -> State:
        """What is known of payoffs, and whose turn it is."""
        return {
            **super().state(),
            "taught": self._taught,
            "looked": self._looked,
            "next_look": self._next_look,
            "sums": self._sums.copy(),
            "before": self._before.copy(),
            "measured": self._measured.copy(),
        }

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
        super().restore(state)
        self._taught, self._looked = whole(state, "taught"), whole(state, "looked")
        self._next_look = whole(state, "next_look")
        sums = {"sums": self._sums, "before": self._before, "measured": self._measured}
        found = fitting_all(state, {name: (array, FINITE_64) for name, array in sums.items()})
        for name, array in sums.items():
            array[...] = found[name]
        self._solve()


def taught(levels: int) -> float:
    """The share of matches from which a policy learns, once all of these levels are played."""
    return 1.0 if levels == 1 else 1.0 - 1.0 / MEASURED


def by_name(population: Population) -> Mapping[str, PolicyRef]:
    """Members by the names of their policies: no two have the same here."""
    return population.view(
        "by name", lambda: {member.ref.policy: member.ref for member in population.members}
    )
