"""Play matches in several processes, and record the results in one."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from remuda.actor.actor import Actor
from remuda.envs.registry import find_game
from remuda.errors import RemudaError, UnguardedScriptError
from remuda.evaluation.results import Limits
from remuda.evaluation.tournaments.entrants import TournamentSetup
from remuda.evaluation.tournaments.game_schedule import schedule_of
from remuda.evaluation.tournaments.record import MatchResults
from remuda.evaluation.tournaments.schedule import Schedule
from remuda.evaluation.tournaments.seats import TournamentSeats
from remuda.runtime.host import threads
from remuda.system.loading import Code, add_code, code_of
from remuda.system.memory.lifeline import Lifeline
from remuda.system.processes import client as forkserver
from remuda.system.processes.child import UNGUARDED, ignore_held_signals, script_name
from remuda.system.processes.process import Process
from remuda.system.rng import seed_libraries
from remuda.system.scoreboard import Scoreboard
from remuda.system.user_errors import naming_user_code
from remuda.types import Bools, Floats, Integers

GLANCE = 0.1  # seconds: longest between limit checks, shortest between a process's messages
ENDING = 10.0  # seconds that a process may take to end


@dataclass(frozen=True)
class WorkerShare:
    """The first message to a process."""

    setup: TournamentSetup
    episodes: int
    part: int  # the index of the process
    code: Code  # of the game and its options


class Workers:
    """Processes that play the matches of a tournament.

    Guarantees:

    1. The result of a match is the same in every process, except for user-made scripted policies
       and games with their own random numbers.
    2. If a process is killed, the others are ended, and earlier results are kept.
    3. The processes end with this process, however it dies.
    """

    def __init__(self, setup: TournamentSetup, episodes: int, count: int) -> None:
        self._setup, self._episodes = setup, episodes
        self._lifeline = Lifeline()
        self._connections: list[Connection] = []
        self.processes: list[Process] = []
        self.grow(count)

    def grow(self, count: int) -> None:
        """Start more processes, up to `count` in total."""
        code = code_of([self._setup.game, self._setup.env.options])
        for part in range(len(self.processes), count):
            local, remote = Pipe()
            self._connections.append(local)
            args = (remote, WorkerShare(self._setup, self._episodes, part, code))
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
            self.processes.append(started)
            remote.close()

    def play(
        self, numbers: Integers, results: MatchResults, limits: Limits, wanted: int, copies: int
    ) -> str:
        """Play matches; return the reason for missing ones, or an empty string."""
        count = len(self._connections)
        for part, connection in enumerate(self._connections):
            self._send(connection, (numbers[part::count], copies))
        busy = list(self._connections)
        start, cut, done = time.monotonic(), "", results.done
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
            if not cut and (cut := limits.cut(time.monotonic() - start)):
                for connection in self._connections:
                    self._send(connection, None)
        return cut if missing else ""

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        for process in self.processes:
            if not process.join(ENDING):
                process.kill()
                process.join(ENDING)
            process.close()
        self.processes.clear()
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
        process = self.processes[self._connections.index(connection)]
        process.join(ENDING)
        code = process.exitcode
        if code == UNGUARDED:
            raise UnguardedScriptError(script_name(), "plays a tournament", "processes=1") from None
        how = f"was killed by signal {-code}" if code is not None and code < 0 else "has ended"
        raise RemudaError(
            f"a process of the tournament {how}; finished matches are kept if the "
            "tournament has a directory, and the same command resumes it"
        ) from None


class _Sent(MatchResults):
    """A buffer of results to send to the recording process."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._kept: list[tuple[Integers, Integers, Floats, Bools]] = []
        self._sent = time.monotonic()

    def add(self, numbers: Integers, versions: Integers, returns: Floats, truncated: Bools) -> None:
        self._kept.append((numbers, versions, returns, truncated))

    def flush(self, now: bool = True) -> None:
        """Send the kept results, at most every `GLANCE` seconds."""
        if self._kept and (now or time.monotonic() - self._sent >= GLANCE):
            parts = zip(*self._kept, strict=True)
            self._connection.send(tuple(np.concatenate(part) for part in parts))
            self._kept, self._sent = [], time.monotonic()


def work(connection: Connection, share: WorkerShare) -> None:
    """Run a worker process: play the matches that it receives."""
    ignore_held_signals()
    setup = share.setup
    with threads(1):
        try:
            add_code(share.code)
            seed_libraries(setup.seed, "tournament", share.part)
            schedule = schedule_of(setup, share.episodes)
            while True:
                message = connection.recv()
                if message is not None:  # None: a request to stop, after the last match
                    numbers, copies = message
                    results = _Sent(connection)
                    with naming_user_code():
                        # Any message during play stops dealing.
                        whole = (setup, schedule, numbers, results, copies)
                        play_here(*whole, partial(_received, connection), part=share.part)
                    results.flush()
                    connection.send(None)
        except (EOFError, ConnectionError):
            return  # the tournament has ended
        except RemudaError as error:
            _report(connection, str(error))
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            _report(
                connection,
                f"a process of the tournament failed: {type(error).__name__}: {error} "
                f"({place.filename}, line {place.lineno}, in {place.name})",
            )


def _report(connection: Connection, message: str) -> None:
    """Report a failure, unless the tournament has already ended."""
    with suppress(OSError):
        connection.send(message)


def _received(connection: Connection) -> bool:
    return connection.poll() and connection.recv() is None


def play_here(
    setup: TournamentSetup,
    schedule: Schedule,
    numbers: Integers,
    results: MatchResults,
    copies: int,
    stopped: Callable[[], bool],
    watch: Callable[[int], None] = lambda closed: None,  # noqa: ARG005
    part: int = 0,
    abandons: bool = False,
) -> int:
    """Play matches in this process, and return how many were finished.

    - `copies`: maximum environment copies.
    - `stopped`: called before each turn; after it returns True no match is started. With `abandons`
      unfinished matches end at once, else they are finished.
    - `watch`: called after each turn with the number of finished matches.
    - `part`: distinguishes the draws of user-made scripted policies in several processes.
    """
    if not len(numbers) or stopped():  # environments may be slow to make
        return 0
    env = setup.env.make(min(copies, len(numbers)), setup.check)
    game = find_game(setup.game)
    seats = TournamentSeats(env, game, schedule, numbers, results, setup.seed, part)
    row = Scoreboard(("tournament",)).play()
    actor = Actor(env, seats, row, seats.seeds, check=setup.check)
    try:
        while not seats.done:
            if stopped():
                if abandons:
                    break
                seats.end_dealing()
            actor.turn()
            results.flush(now=False)
            watch(seats.closed)
    finally:
        actor.finish()  # it closes the environment
    return seats.closed


def useful_processes(matches: int, copies: int) -> int:
    """Return the number of worthwhile processes: one per core, if each copy has four matches."""
    return max(1, min(available_cores(), matches // (4 * copies)))


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
