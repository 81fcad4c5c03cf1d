"""Play the matches of a tournament: many copies of the game at once, in batched passes.

One actor (`remuda.actor.actor`) plays all copies. Each copy takes the next match that is left as
soon as its last one is over, in the order of their numbers, so that all seatings are played equally
often at any time. A tournament that is interrupted begins no more matches and plays those that are
under way to their end: what was begun does not depend on how long it took, so that means over what
is over favour neither short matches nor long ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from remuda.actor.actor import Actor
from remuda.envs.registry import GAMES, Game, find_game, make_env
from remuda.evaluation import Limits
from remuda.runtime.host import threads
from remuda.scoreboard import Scoreboard
from remuda.streams import libraries_kept, seed_libraries
from remuda.tournaments.entrants import Entrant, Player, with_rates
from remuda.tournaments.record import MatchResults, RecordedResults, keep_weights
from remuda.tournaments.schedule import Numbers, Schedule
from remuda.tournaments.seats import TournamentSeats
from remuda.tournaments.setup import TournamentSetup
from remuda.tournaments.workers import Workers, useful_processes
from remuda.types import AgentSpec, Integers

COPIES = 1024
"""Copies of a game of Remuda's own, at most: their worlds are arrays..."""
OBJECTS = 100
"""...and of any other, which may have an object for each copy..."""
OBSERVATIONS = 1 << 29
"""...so that what their agents observe takes about so many bytes at most."""


@dataclass(frozen=True)
class Played:
    """What came of the matches, by cell: each [N, N]."""

    means: Numbers
    errors: Numbers
    matches: Integers
    """Those that the cell's mean is of."""
    done: int
    wanted: int
    cut: str
    """Why matches are missing: `interrupted` or `the time was up`; empty: none are."""


def play(
    setup: TournamentSetup,
    episodes: int,
    directory: Path | None = None,
    asked: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    copies: int | None = None,
    processes: int | None = 1,
) -> Played:
    """Play all matches that are not over yet.

    Args:
        setup: who plays what.
        episodes: matches of each seating: one of the row among those of the column, on one seat.
        directory: where matches are written as they end, and gone on from; None: nowhere.
        asked: plain data that is kept there, by which it may be asked for again.
        limits: when to end before, and who watches.
        copies: of the game in a process, at most; None: as many as are good for it.
        processes: that play; 1: this one; None: as many as are useful, up to its cores.

    Raises:
        UsageError: the directory holds another tournament.
        RunDirectoryError: it is in use, damaged, or cannot be written.
        ConfigError: there is no such game, or it refuses an option.
    """
    limits = limits or Limits()
    with open_tournament(setup, episodes, directory, asked, processes=processes) as opened:
        left = opened.results.left()
        limits.watch(opened.results.done, opened.schedule.num_matches)
        cut = opened.play(left, limits, opened.schedule.num_matches, copies)
    return opened.played(opened.schedule.num_matches, cut)


@dataclass(frozen=True)
class OpenTournament:
    """A tournament whose matches are about to be played."""

    setup: TournamentSetup
    game: Game
    agents: tuple[AgentSpec, ...]
    schedule: Schedule
    results: MatchResults
    processes: int | None
    held: ExitStack
    """Ends the processes that play, once there are any."""
    _workers: list[Workers] = field(default_factory=list)

    def play(
        self, numbers: Integers, limits: Limits, wanted: int, copies: int | None = None
    ) -> str:
        """Play matches that are not over yet; why some are missing then, or nothing.

        Args:
            numbers: of the matches, in the order in which they are begun.
            limits: when to end before, and who watches.
            wanted: matches there are to be in all, which is told to who watches.
            copies: of the game, at most; None: as many as are good for it.
        """
        if not len(numbers):
            return ""
        number = copies or copies_for(self.game, self.agents, self.schedule.players)
        count = self.processes or useful_processes(len(numbers), number)
        if count > 1 and not self._workers:
            made = Workers(self.setup, self.schedule.episodes, count)
            self._workers.append(self.held.enter_context(made))
        elif self._workers:
            self._workers[0].grow(count)
        if self._workers:
            return self._workers[0].play(numbers, self.results, limits, wanted, number)
        return _play(self, numbers, limits, wanted, min(len(numbers), number))

    def played(self, wanted: int, cut: str) -> Played:
        """What came of the matches so far."""
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
    """Make ready to play; see `play`.

    Args:
        setup: who plays what.
        episodes: matches of each seating; 0: as many as it turns out.
        directory: where matches are written as they end, and gone on from; None: nowhere.
        asked: plain data that is kept there, by which it may be asked for again.
        more: plain data by which it differs from other tournaments of this setup.
        processes: that play; 1: this one; None: as many as are useful.
    """
    game = find_game(setup.game)
    env = make_env(setup.game, 1, **setup.options)
    env.close()
    names = [agent.name for agent in env.agents]
    entrants = with_rates(setup.participants, setup.sampled)
    schedule = Schedule(entrants, env.num_agents, episodes, setup.taken_seats(names))
    if directory is None:
        results: MatchResults = MatchResults(schedule, env.num_agents)
    else:
        description = setup.description(names)
        description |= {**(more or {}), "episodes": episodes, "asked": dict(asked or {})}
        results = RecordedResults(schedule, env.num_agents, directory, description)
    with (
        results,
        libraries_kept(),
        threads(1),
    ):  # as actors play; more of them fight on a busy machine
        if directory is not None:
            who = [player.snapshot for player in schedule.players if isinstance(player, Player)]
            keep_weights(directory, who)
        opened = OpenTournament(
            setup, game, tuple(env.agents), schedule, results, processes, ExitStack()
        )
        with opened.held:
            yield opened


def copies_for(game: Game, agents: Sequence[AgentSpec], players: Sequence[Entrant]) -> int:
    """How many copies of a game are played at once, as far as there are matches."""
    configs = [player.spec.config for player in players if isinstance(player, Player)]
    layouts = {(c.algorithm, c.network.model_dump_json(), c.n_frames) for c in configs}
    numbers = 4 + sum(n_frames for *_, n_frames in layouts)  # each layout has inputs of its own
    most = COPIES if game.name in GAMES else OBJECTS
    seen = sum(int(np.prod(agent.observation_space.shape or (1,))) for agent in agents)
    return max(1, min(most, OBSERVATIONS // max(4 * numbers * seen, 1)))


def _play(opened: OpenTournament, left: Integers, limits: Limits, wanted: int, copies: int) -> str:
    """Play these matches; why some of them are missing, or nothing."""
    setup, results = opened.setup, opened.results
    seed_libraries(setup.seed, "tournament")
    env = make_env(setup.game, copies, **setup.options)
    env.check = setup.check
    whole = (opened.schedule, left, results, setup.seed)
    seats = TournamentSeats(env, opened.game, *whole)
    row = Scoreboard(("tournament",)).play()
    actor = Actor(env, seats, row, seats.seeds, check=setup.check)
    cut, begun, done = "", time.monotonic(), results.done
    try:
        while not seats.done:
            if not cut and limits.reached(time.monotonic() - begun):
                cut = "interrupted" if limits.interrupted() else "the time was up"
                seats.end_dealing()
            actor.turn()
            results.flush(now=False)
            limits.watch(done + seats.closed, wanted)
    finally:
        actor.finish()
    return cut if seats.closed < len(left) else ""
