"""Play the matches of a tournament: many environment copies at once, in batched passes.

One actor (`remuda.actor.actor`) plays all copies. Each copy starts the next match, in the order of
match numbers, as soon as its previous match ends. So all seatings are played equally often at any
time. An interrupted tournament starts no more matches and finishes those in progress, so means over
finished matches favour neither short nor long ones.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from remuda.analysis.as_json import as_json
from remuda.analysis.payoffs.self_and_cross_play import SelfAndCrossPlay, self_and_cross_play
from remuda.envs.description import EnvSpec
from remuda.envs.registry import GAMES
from remuda.evaluation.evaluate import copies_in_time, most_copies
from remuda.evaluation.results import Limits
from remuda.evaluation.tournaments.entrants import (
    Entrant,
    Player,
    TournamentSetup,
    setup_of_snapshots,
)
from remuda.evaluation.tournaments.game_schedule import schedule_of
from remuda.evaluation.tournaments.record import MatchResults, RecordedResults, keep_weights
from remuda.evaluation.tournaments.schedule import Schedule
from remuda.evaluation.tournaments.sequential_test import Look
from remuda.evaluation.tournaments.workers import Workers, play_here, useful_processes
from remuda.population.run_spec import RunSpec
from remuda.publish.snapshot import Snapshot
from remuda.runtime.host import threads
from remuda.system.rng import libraries_kept, seed_libraries
from remuda.system.user_errors import naming_user_code
from remuda.types import Integers, Numbers

COPIES = 1024  # most copies of one of Remuda's own games, whose states are arrays
OBJECTS = 100  # most copies of another game, if no entrant's run limits them
OBSERVATIONS = 1 << 29  # approximate limit of all agents' observations, in bytes


@dataclass(frozen=True)
class Tournament:
    """The returns of each entrant against each other entrant."""

    entrants: tuple[str, ...]
    means: Numbers
    """[N, N]: the mean return of one agent of the row's entrant among agents of the column's, with
    equal weight for all seats. On the diagonal all agents are of the same entrant. NaN: no match.
    """
    errors: Numbers
    """[N, N]: standard errors of these means, over the episodes."""
    episodes: int
    """Requested episodes for each cell and seat."""
    matches: Integers | None = None
    """[N, N]: matches behind each mean, over all seats."""
    directory: Path | None = None
    """The directory of the saved matches; None: they were not saved."""
    cut: str = ""
    """The reason for missing matches, such as `interrupted`; empty: none is missing."""
    until: Look | None = None
    """The last look at the answer; None if the tournament was not played to answer a question."""
    scripted: Mapping[str, str] = field(default_factory=dict)
    """The scripted policy of each reserved seat, by agent."""
    num_matches: int = 0
    """Number of finished matches."""
    line_ups: bool = False
    """True if any entrants shared a match; means are then over matches with the column."""
    self_and_cross_play: SelfAndCrossPlay | None = None
    """The mean return of entrants with themselves and with others; None: not comparable."""

    def as_summary(self) -> dict[str, object]:
        """Return JSON values; None replaces NaN."""
        summary: dict[str, object] = {
            "entrants": list(self.entrants),
            "means": as_json(self.means),
            "standard_errors": as_json(self.errors),
            "episodes": self.episodes,
            "cut": self.cut,
        }
        if self.matches is not None:
            summary["matches"] = self.matches.tolist()
        if self.directory is not None:
            summary["directory"] = str(self.directory)
        if self.until is not None:
            summary["until"] = self.until.as_summary()
        if self.scripted:
            summary["scripted"] = dict(self.scripted)
        if self.self_and_cross_play is not None:
            summary["self_and_cross_play"] = asdict(self.self_and_cross_play)
        return summary


@naming_user_code()
def play(
    setup: TournamentSetup,
    episodes: int,
    directory: Path | None = None,
    arguments: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    processes: int | None = 1,
    copies: int | None = None,
) -> Tournament:
    """Play all unfinished matches.

    - `episodes`: matches of each seating. A seating is one agent of the row's entrant among agents
      of the column's, in one seat.
    - `directory`: where matches are recorded, and from which play resumes; None: no record.
    - `arguments`: settings to save in the directory, with which the tournament can be repeated.
    - `processes`: number of processes that play; 1: only this one; None: as many as are useful, at
      most one for each core.
    - `copies`: maximum environment copies in a process; None: see `copies_for`.
    """
    limits = limits or Limits()
    with open_tournament(setup, episodes, directory, arguments, processes=processes) as opened:
        unfinished = opened.results.unfinished()
        limits.watch(opened.results.done, opened.schedule.num_matches)
        cut = opened.play(unfinished, limits, opened.schedule.num_matches, copies)
    return opened.tournament(cut)


@dataclass(frozen=True)
class OpenTournament:
    """A tournament ready to play."""

    setup: TournamentSetup
    directory: Path | None
    schedule: Schedule
    results: MatchResults
    processes: int | None
    stack: ExitStack  # ends the processes that play
    _workers: list[Workers] = field(default_factory=list)

    def play(
        self,
        numbers: Integers,
        limits: Limits,
        wanted: int,
        copies: int | None = None,
        abandons: bool = False,  # in this process, and end in mid-match at the limits
    ) -> str:
        """Play unfinished matches; return the reason for missing ones, or an empty string."""
        if not len(numbers):
            return ""
        number = copies or copies_for(self.setup.env, self.schedule.players)
        number, limits = copies_in_time(self.setup.env, min(number, len(numbers)), limits)
        each = copies or max(number, OBJECTS)  # a process takes long to start
        count = 1 if abandons else self.processes or useful_processes(len(numbers), each)
        if count > 1 and not self._workers:
            workers = Workers(self.setup, self.schedule.episodes, count)
            self._workers.append(self.stack.enter_context(closing(workers)))
        elif self._workers:
            self._workers[0].grow(count)
        if self._workers:
            return self._workers[0].play(numbers, self.results, limits, wanted, number)
        seed_libraries(self.setup.seed, "tournament")
        cut, start, done = "", time.monotonic(), self.results.done

        def stopped() -> bool:
            nonlocal cut
            cut = cut or limits.cut(time.monotonic() - start)
            return bool(cut)

        def watch(closed: int) -> None:
            limits.watch(done + closed, wanted)

        whole = (self.setup, self.schedule, numbers, self.results, number)
        return cut if play_here(*whole, stopped, watch, abandons=abandons) < len(numbers) else ""

    def tournament(self, cut: str, until: Look | None = None) -> Tournament:
        of_seatings, line_ups = self.results.of_seatings(), self.setup.line_ups
        means, errors, matches = self.schedule.means_and_errors(of_seatings)
        returns = np.concatenate(of_seatings)[:, self.schedule.dealt]
        return Tournament(
            tuple(each.name for each in self.setup.participants),
            means,
            errors,
            self.schedule.episodes,
            matches,
            self.directory,
            cut,
            until,
            self.setup.taken,
            self.results.done,
            line_ups,
            None if line_ups else self_and_cross_play(means, returns),
        )


@contextmanager
def open_tournament(
    setup: TournamentSetup,
    episodes: int,
    directory: Path | None = None,
    arguments: Mapping[str, Any] | None = None,
    more: Mapping[str, Any] | None = None,
    processes: int | None = 1,
) -> Iterator[OpenTournament]:
    """Prepare a tournament; `more` distinguishes it from others with this setup; see `play`."""
    seats = len(setup.env.agents)
    schedule = schedule_of(setup, episodes)
    if directory is None:
        results: MatchResults = MatchResults(schedule, seats)
    else:
        description = setup.description()
        description |= {**(more or {}), "episodes": episodes, "asked": dict(arguments or {})}
        results = RecordedResults(schedule, seats, directory, description)
    # One thread, as in actors: more threads compete on a busy machine.
    with closing(results), libraries_kept(), threads(1), ExitStack() as stack:
        if directory is not None:
            snapshots = [
                player.snapshot for player in schedule.players if isinstance(player, Player)
            ]
            keep_weights(directory, snapshots)
        yield OpenTournament(setup, directory, schedule, results, processes, stack)


def margin(
    spec: RunSpec,
    one: Mapping[str, Snapshot],
    other: Mapping[str, Snapshot],
    episodes: int,
    seed: int,
    limits: Limits,
) -> float:
    """Return the mean return of an agent of `one` among agents of `other`, minus the reverse.

    Each seat is played for `episodes` both ways, greedily unless `run.evaluate_sampled` is set.
    NaN: the limits cut play short.
    """
    sampled = spec.config.run.evaluate_sampled
    setup = setup_of_snapshots(spec, {"one": one, "other": other}, seed, sampled)
    if len(spec.agents) - len(setup.taken) == 2:
        episodes *= 2  # a match is one of both ways
    with open_tournament(setup, episodes) as opened:
        schedule = opened.schedule
        between = [schedule.cells[0, 1], schedule.cells[1, 0]]
        numbers = np.arange(schedule.num_matches)
        numbers = numbers[np.isin(numbers % len(schedule.seatings), between)]
        copies = most_copies(spec, len(numbers))
        if opened.play(numbers, limits, len(numbers), copies, abandons=True):
            return math.nan
        means = opened.tournament("").means
    return float(means[0, 1] - means[1, 0])


def copies_for(env: EnvSpec, players: Sequence[Entrant]) -> int:
    """Return the number of environment copies to play at once.

    A game that is not Remuda's own may have an object for each copy, so the entrants' runs limit
    their number.
    """
    configs = [player.spec.config for player in players if isinstance(player, Player)]
    layouts = {(c.algorithm, c.network.model_dump_json(), c.n_frames) for c in configs}
    numbers = 4 + sum(n_frames for *_, n_frames in layouts)  # inputs of each network layout
    runs = [player.num_envs for player in players if isinstance(player, Player)]
    limit = COPIES if env.game in GAMES else max(runs, default=0) or OBJECTS
    size = sum(int(np.prod(agent.observation_space.shape or (1,))) for agent in env.agents)
    return max(1, min(limit, OBSERVATIONS // max(4 * numbers * size, 1)))
