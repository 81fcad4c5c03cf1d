"""Play matches in several processes: each takes its share, and one writes down what came of them.

The random numbers of a match follow from its number (`random_numbers`), so that it does not matter
which process plays it.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any

import numpy as np

from remuda.actor.actor import Actor
from remuda.envs.registry import find_game, make_env
from remuda.errors import RemudaError, UnguardedScriptError
from remuda.evaluation import Limits
from remuda.forkserver import client as forkserver
from remuda.forkserver.child import UNGUARDED, ignore_held_signals, script_name
from remuda.forkserver.process import Process
from remuda.memory.lifeline import Lifeline
from remuda.pickled import add_pickles, pickles_in
from remuda.runtime.host import threads
from remuda.scoreboard import Scoreboard
from remuda.streams import seed_libraries
from remuda.tournaments.entrants import with_rates
from remuda.tournaments.record import MatchResults
from remuda.tournaments.schedule import Schedule
from remuda.tournaments.seats import TournamentSeats
from remuda.tournaments.setup import TournamentSetup
from remuda.types import Bools, Floats, Integers
from remuda.user_code import naming_user_code

GLANCE = 0.1
"""Seconds between two looks at the limits, and between two messages of a process, at most."""
ENDING = 10.0
"""Seconds that a process has to end when it is told to."""


@dataclass(frozen=True)
class Share:
    """What a process is told when it begins."""

    setup: TournamentSetup
    episodes: int
    part: int
    """Which of the processes it is."""
    pickles: Mapping[str, bytes]
    """The code that the game and its options name."""


class Workers:
    """Processes that play.

    What it guarantees:

    1. What comes of a match is the same in whichever process it is played; but for scripted
       policies and games of the user's that draw random numbers of their own.
    2. Where a process is killed, the others are ended, and what came in before is kept.
    3. They end with this process, whatever that dies of.
    """

    def __init__(self, setup: TournamentSetup, episodes: int, count: int) -> None:
        """Start them; they make ready while this process goes on.

        Args:
            setup: who plays what.
            episodes: matches of each seating; 0: as many as it turns out.
            count: how many processes.

        Raises:
            RemudaError: a process cannot be started.
        """
        self._setup, self._episodes = setup, episodes
        self._lifeline = Lifeline()
        self._connections: list[Connection] = []
        self._processes: list[Process] = []
        self.grow(count)

    def grow(self, count: int) -> None:
        """Start more of them, if there are less than so many; they are started as in the first.

        Raises:
            RemudaError: a process cannot be started.
        """
        pickles = pickles_in([self._setup.game, self._setup.options])
        for part in range(len(self._processes), count):
            ours, theirs = Pipe()
            self._connections.append(ours)
            args = (theirs, Share(self._setup, self._episodes, part, pickles))
            try:
                started = forkserver.start(
                    work, args, name=f"tournament-{part}", lifeline=self._lifeline
                )
            except OSError as error:
                self.close()
                raise RemudaError(
                    f"a process of the tournament could not be started: {error.strerror}; lower "
                    "--processes"
                ) from None
            self._processes.append(started)
            theirs.close()

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """The ids of the processes that have begun."""
        return [pid for process in self._processes if (pid := process.pid) is not None]

    def play(
        self, numbers: Integers, results: MatchResults, limits: Limits, wanted: int, copies: int
    ) -> str:
        """Play matches; why some of them are missing then, or nothing.

        Args:
            numbers: of the matches, each process takes every so many-th of them.
            results: takes note of what came of them.
            limits: when to end before, and who watches.
            wanted: matches there are to be in all, which is told to who watches.
            copies: of the game in each process, at most.

        Raises:
            RemudaError: a process was killed, or failed.
        """
        count = len(self._connections)
        for part, connection in enumerate(self._connections):
            self._send(connection, (numbers[part::count], copies))
        busy = list(self._connections)
        begun, cut, done = time.monotonic(), "", results.done
        missing = len(numbers)
        while busy:
            for ready in wait(busy, GLANCE):
                connection = next(each for each in busy if each is ready)
                message = self._receive(connection)
                if message is None:
                    busy.remove(connection)
                    continue
                results.add(*message)
                missing -= len(message[0])
            results.flush(now=False)
            limits.watch(done + len(numbers) - missing, wanted)
            if not cut and limits.reached(time.monotonic() - begun):
                cut = "interrupted" if limits.interrupted() else "the time was up"
                for connection in self._connections:
                    self._send(connection, None)
        return cut if missing else ""

    def close(self) -> None:
        """End all of them."""
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            if not process.join(ENDING):
                process.kill()
                process.join(ENDING)
            process.close()
        self._processes.clear()
        self._lifeline.close()

    def _send(self, connection: Connection, message: object) -> None:
        try:
            connection.send(message)
        except OSError:
            self._fail(connection)

    def _receive(self, connection: Connection) -> Any:
        try:
            found = connection.recv()
        except (OSError, EOFError):
            self._fail(connection)
        if isinstance(found, str):
            raise RemudaError(found)
        return found

    def _fail(self, connection: Connection) -> None:
        """Raise a `RemudaError` that tells what became of a process."""
        process = self._processes[self._connections.index(connection)]
        process.join(ENDING)
        code = process.exitcode
        if code == UNGUARDED:
            raise UnguardedScriptError(script_name(), "plays a tournament", "processes=1") from None
        how = f"was killed by signal {-code}" if code is not None and code < 0 else "has ended"
        raise RemudaError(
            f"a process of the tournament {how}; what is over is kept where the tournament has a "
            "directory, and the same command goes on"
        ) from None


class _Sent(MatchResults):
    """Sends what came of matches to the process that writes it down."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._kept: list[tuple[Integers, Integers, Floats, Bools]] = []
        self._sent = time.monotonic()

    def add(self, numbers: Integers, versions: Integers, returns: Floats, truncated: Bools) -> None:
        """Keep them for the next message."""
        self._kept.append((numbers, versions, returns, truncated))

    def flush(self, now: bool = True) -> None:
        """Send what is kept, unless that was done a moment ago."""
        if self._kept and (now or time.monotonic() - self._sent >= GLANCE):
            parts = zip(*self._kept, strict=True)
            self._connection.send(tuple(np.concatenate(part) for part in parts))
            self._kept, self._sent = [], time.monotonic()


def work(connection: Connection, share: Share) -> None:
    """Play what is sent. What every process is started for."""
    ignore_held_signals()
    setup = share.setup
    with threads(1):
        try:
            add_pickles(share.pickles)
            env = make_env(setup.game, 1, **setup.options)
            env.close()
            seed_libraries(setup.seed, "tournament", share.part)
            participants = with_rates(setup.participants, setup.sampled)
            taken = setup.taken_seats([agent.name for agent in env.agents])
            schedule = Schedule(participants, env.num_agents, share.episodes, taken)
            while True:
                told = connection.recv()
                if told is not None:  # else it came too late to end anything
                    numbers, copies = told
                    results = _Sent(connection)
                    with naming_user_code():
                        play_share(
                            setup, schedule, numbers, results, copies, share.part, connection
                        )
                    results.flush()
                    connection.send(None)
        except (EOFError, ConnectionError):
            return  # the tournament is over
        except RemudaError as error:
            _tell(connection, str(error))
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            _tell(
                connection,
                f"a process of the tournament failed: {type(error).__name__}: {error} "
                f"({place.filename}, line {place.lineno}, in {place.name})",
            )


def _tell(connection: Connection, words: str) -> None:
    """Say what failed, unless another process has ended the tournament by then."""
    with suppress(OSError):
        connection.send(words)


def play_share(
    setup: TournamentSetup,
    schedule: Schedule,
    numbers: Integers,
    results: MatchResults,
    copies: int,
    part: int,
    connection: Connection,
) -> None:
    """Play matches in this process, until all are over, or no more are to be begun."""
    if not len(numbers):
        return
    env = make_env(setup.game, min(copies, len(numbers)), **setup.options)
    env.check = setup.check
    game = find_game(setup.game)
    whole = (schedule, numbers, results, setup.seed, part)
    seats = TournamentSeats(env, game, *whole)
    row = Scoreboard(("tournament",)).play()
    actor = Actor(env, seats, row, seats.seeds, check=setup.check)
    try:
        while not seats.done:
            if connection.poll():
                connection.recv()
                seats.end_dealing()
            actor.turn()
            results.flush(now=False)
    finally:
        actor.finish()


def useful_processes(matches: int, copies: int) -> int:
    """How many processes are worth their start: one for each core, if all have much to play.

    Args:
        matches: that are to be played.
        copies: of the game that a process plays at once.
    """
    return max(1, min(available_cores(), matches // (ROUNDS_EACH * copies)))


ROUNDS_EACH = 4
"""So often each copy of a process is to be filled, for the process to be worth its start."""


def available_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


__all__: Sequence[str] = ("Share", "Workers", "available_cores", "useful_processes", "work")
