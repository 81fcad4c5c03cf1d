"""Play the matches of a tournament: many environment copies at once, in batched passes.

One actor (`remuda.actor.actor`) plays all copies. Each copy starts the next match, in the order of
match numbers, as soon as its previous match ends. So all seatings are played equally often at any
time. An interrupted tournament starts no more matches and finishes those in progress, so means over
finished matches favour neither short nor long ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from remuda.envs.registry import GAMES, Game, find_game
from remuda.evaluation.results import Limits
from remuda.evaluation.tournaments.entrants import Entrant, Player, TournamentSetup, with_rates
from remuda.evaluation.tournaments.record import MatchResults, RecordedResults, keep_weights
from remuda.evaluation.tournaments.schedule import Schedule
from remuda.evaluation.tournaments.workers import Workers, play_here, useful_processes
from remuda.runtime.host import threads
from remuda.system.rng import libraries_kept, seed_libraries
from remuda.types import AgentSpec, Integers, Numbers

COPIES = 1024  # most copies of one of Remuda's own games, whose states are arrays
OBJECTS = 100  # most copies of any other game, which may have one object per copy
OBSERVATIONS = 1 << 29  # approximate limit of all agents' observations, in bytes


@dataclass(frozen=True)
class Played:
    """The results of the matches, by cell: each [N, N]."""

    means: Numbers
    errors: Numbers
    matches: Integers
    done: int
    wanted: int
    cut: str  # the reason for missing matches, such as `the time was up`; empty: none


def play(
    setup: TournamentSetup,
    episodes: int,
    directory: Path | None = None,
    asked: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    copies: int | None = None,
    processes: int | None = 1,
) -> Played:
    """Play all unfinished matches.

    - `episodes`: matches of each seating. A seating is one agent of the row's entrant among agents
      of the column's, in one seat.
    - `directory`: where matches are recorded, and from which play resumes; None: no record.
    - `asked`: settings to save in the directory, with which the tournament can be repeated.
    - `copies`: maximum environment copies in a process; None: chosen automatically.
    - `processes`: number of processes that play; 1: only this one; None: as many as are useful, at
      most one for each core.
    """
    limits = limits or Limits()
    with open_tournament(setup, episodes, directory, asked, processes=processes) as opened:
        left = opened.results.left()
        limits.watch(opened.results.done, opened.schedule.num_matches)
        cut = opened.play(left, limits, opened.schedule.num_matches, copies)
    return opened.played(opened.schedule.num_matches, cut)


@dataclass(frozen=True)
class OpenTournament:
    """A tournament ready to play."""

    setup: TournamentSetup
    game: Game
    agents: tuple[AgentSpec, ...]
    schedule: Schedule
    results: MatchResults
    processes: int | None
    held: ExitStack  # ends the processes that play
    _workers: list[Workers] = field(default_factory=list)

    def play(
        self, numbers: Integers, limits: Limits, wanted: int, copies: int | None = None
    ) -> str:
        """Play unfinished matches; return the reason for missing ones, or an empty string."""
        if not len(numbers):
            return ""
        number = copies or copies_for(self.game, self.agents, self.schedule.players)
        count = self.processes or useful_processes(len(numbers), number)
        if count > 1 and not self._workers:
            made = Workers(self.setup, self.schedule.episodes, count)
            self._workers.append(self.held.enter_context(closing(made)))
        elif self._workers:
            self._workers[0].grow(count)
        if self._workers:
            return self._workers[0].play(numbers, self.results, limits, wanted, number)
        return self._play_here(numbers, limits, wanted, number)

    def _play_here(self, numbers: Integers, limits: Limits, wanted: int, copies: int) -> str:
        seed_libraries(self.setup.seed, "tournament")
        cut, start, done = "", time.monotonic(), self.results.done

        def stopped() -> bool:
            nonlocal cut
            if not cut and limits.reached(time.monotonic() - start):
                cut = "interrupted" if limits.interrupted() else "the time was up"
            return bool(cut)

        def watch(closed: int) -> None:
            limits.watch(done + closed, wanted)

        whole = (self.setup, self.schedule, numbers, self.results, copies)
        return cut if play_here(*whole, stopped, watch) < len(numbers) else ""

    def played(self, wanted: int, cut: str) -> Played:
        """Return the results of the matches so far."""
        means, errors, matches = self.schedule.means_and_errors(self.results.of_seatings())
        return Played(means, errors, matches, self.results.done, wanted, cut)


@contextmanager
def open_tournament(
    setup: TournamentSetup,
    episodes: int,
    directory: Path | None = None,
    asked: Mapping[str, Any] | None = None,
    more: Mapping[str, Any] | None = None,
    processes: int | None = 1,
) -> Iterator[OpenTournament]:
    """Prepare a tournament; see `play`.

    `more`: plain data that distinguishes the tournament from others with this setup.
    """
    game = find_game(setup.game)
    seats = len(setup.env.agents)
    entrants = with_rates(setup.participants, setup.sampled)
    schedule = Schedule(entrants, seats, episodes, setup.taken_seats)
    if directory is None:
        results: MatchResults = MatchResults(schedule, seats)
    else:
        description = setup.description()
        description |= {**(more or {}), "episodes": episodes, "asked": dict(asked or {})}
        results = RecordedResults(schedule, seats, directory, description)
    with (
        closing(results),
        libraries_kept(),
        threads(1),
    ):  # as in actors; more threads compete on a busy machine
        if directory is not None:
            snapshots = [
                player.snapshot for player in schedule.players if isinstance(player, Player)
            ]
            keep_weights(directory, snapshots)
        opened = OpenTournament(
            setup, game, setup.env.agents, schedule, results, processes, ExitStack()
        )
        with opened.held:
            yield opened


def copies_for(game: Game, agents: Sequence[AgentSpec], players: Sequence[Entrant]) -> int:
    """Return the number of environment copies to play at once."""
    configs = [player.spec.config for player in players if isinstance(player, Player)]
    layouts = {(c.algorithm, c.network.model_dump_json(), c.n_frames) for c in configs}
    numbers = 4 + sum(n_frames for *_, n_frames in layouts)  # inputs of each network layout
    most = COPIES if game.name in GAMES else OBJECTS
    size = sum(int(np.prod(agent.observation_space.shape or (1,))) for agent in agents)
    return max(1, min(most, OBSERVATIONS // max(4 * numbers * size, 1)))
