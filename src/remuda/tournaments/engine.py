"""Play the matches of a tournament: many copies of the game at once, in batched passes.

One actor (`remuda.actor.actor`) plays all copies. Each copy takes the next match that is left as
soon as its last one is over, in the order of their numbers, so that all seatings are played equally
often at any time. A tournament that is interrupted begins no more matches and plays those that are
under way to their end: what was begun does not depend on how long it took, so that means over what
is over favour neither short matches nor long ones.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from remuda.actor.actor import Actor
from remuda.envs.registry import GAMES, Game, find_game, make_env
from remuda.envs.vector_env import VectorEnv
from remuda.evaluation import Limits
from remuda.runtime.host import threads
from remuda.scoreboard import Scoreboard
from remuda.tournaments.entrants import Entrant, Participant, Player, with_rates
from remuda.tournaments.record import MatchResults, RecordedResults
from remuda.tournaments.schedule import Numbers, Schedule
from remuda.tournaments.seats import TournamentSeats
from remuda.types import Integers

COPIES = 1024
"""Copies of a game of Remuda's own, at most: their worlds are arrays..."""
OBJECTS = 100
"""...and of any other, which may have an object for each copy..."""
OBSERVATIONS = 1 << 29
"""...so that what their agents observe takes about so many bytes at most."""


@dataclass(frozen=True)
class TournamentSetup:
    """Who plays what: all that the matches of a tournament follow from."""

    game: str
    options: Mapping[str, Any]
    participants: tuple[Participant, ...]
    seed: int = 0
    sampled: bool = False
    """Whether policies explore as at the end of training; else they are greedy."""
    check: bool = True
    """Whether what the game hands over is checked."""

    def description(self, agents: Sequence[str]) -> dict[str, Any]:
        """It as plain data."""
        return {
            "tournament": 1,
            "game": self.game,
            "options": dict(self.options),
            "agents": list(agents),
            "entrants": [
                {"name": each.name, "members": each.summary()} for each in self.participants
            ],
            "seed": self.seed,
            "sampled": self.sampled,
        }

    def digest(self) -> str:
        """Eight characters by which one tournament is told from others."""
        text = json.dumps(self.description(()), default=str, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


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
) -> Played:
    """Play all matches that are not over yet.

    Args:
        setup: who plays what.
        episodes: matches of each seating: one of the row among those of the column, on one seat.
        directory: where matches are written as they end, and gone on from; None: nowhere.
        asked: plain data that is kept there, by which it may be asked for again.
        limits: when to end before, and who watches.
        copies: of the game, at most; None: as many as are good for it.

    Raises:
        UsageError: the directory holds another tournament.
        RunDirectoryError: it is in use, damaged, or cannot be written.
        ConfigError: there is no such game, or it refuses an option.
    """
    limits = limits or Limits()
    game = find_game(setup.game)
    env = make_env(setup.game, 1, **setup.options)
    env.close()
    schedule = Schedule(with_rates(setup.participants, setup.sampled), env.num_agents, episodes)
    if directory is None:
        opened: MatchResults = MatchResults(schedule, env.num_agents)
    else:
        description = setup.description([agent.name for agent in env.agents])
        description |= {"episodes": episodes, "asked": dict(asked or {})}
        opened = RecordedResults(schedule, env.num_agents, directory, description)
    with opened as results, threads(1):  # as actors play; more of them fight on a busy machine
        left = results.left()
        limits.watch(results.done, schedule.num_matches)
        cut = ""
        if len(left):
            number = min(len(left), copies or copies_for(game, env, schedule.players))
            cut = _play(setup, game, schedule, left, results, limits, number)
    means, errors, matches = schedule.means_and_errors(results.returns)
    return Played(means, errors, matches, results.done, schedule.num_matches, cut)


def copies_for(game: Game, env: VectorEnv, players: Sequence[Entrant]) -> int:
    """How many copies of a game are played at once, as far as there are matches."""
    configs = [player.spec.config for player in players if isinstance(player, Player)]
    layouts = {(c.algorithm, c.network.model_dump_json(), c.n_frames) for c in configs}
    numbers = 4 + sum(n_frames for *_, n_frames in layouts)  # each layout has inputs of its own
    most = COPIES if game.name in GAMES else OBJECTS
    seen = sum(int(np.prod(agent.observation_space.shape or (1,))) for agent in env.agents)
    return max(1, min(most, OBSERVATIONS // max(4 * numbers * seen, 1)))


def _play(
    setup: TournamentSetup,
    game: Game,
    schedule: Schedule,
    left: Integers,
    results: MatchResults,
    limits: Limits,
    copies: int,
) -> str:
    """Play these matches; why some of them are missing, or nothing."""
    env = make_env(setup.game, copies, **setup.options)
    env.check = setup.check
    seats = TournamentSeats(env, game, schedule, left, results, setup.seed)
    row = Scoreboard(("tournament",)).play()
    actor = Actor(env, seats, row, seats.seeds, check=setup.check)
    cut, begun, done = "", time.monotonic(), schedule.num_matches - len(left)
    try:
        while not seats.done:
            if not cut and limits.reached(time.monotonic() - begun):
                cut = "interrupted" if limits.interrupted() else "the time was up"
                seats.end_dealing()
            actor.turn()
            results.flush(now=False)
            limits.watch(done + seats.closed, schedule.num_matches)
    finally:
        actor.finish()
    return cut if seats.closed < len(left) else ""
