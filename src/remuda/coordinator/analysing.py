"""Asks a helper process for analyses of the population, and never waits for it."""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from remuda.config import AnalysisConfig, Config
from remuda.coordinator.analysis_messages import LONGEST, answered, request
from remuda.coordinator.population_record import AnalysisNumbers
from remuda.forkserver import client as forkserver
from remuda.forkserver.process import Process
from remuda.memory.atomic import fence_acquire
from remuda.population.ratings import sides_of
from remuda.population.records import PolicyRef
from remuda.population.roster import Roster
from remuda.population.table import Table
from remuda.population.table_layout import NO_POLICY, POLICY, VERSION
from remuda.types import AgentSpec, Integers

log = logging.getLogger(__name__)

LOOKS = 1.0
"""The most seconds between two looks that count as waiting: the coordinator may itself have been
stopped meanwhile, as by Ctrl-Z, and its helper with it."""


@dataclass(frozen=True)
class PopulationAnalysis:
    """An analysis of the population."""

    asked: float
    """When it was asked for, by `time.monotonic`."""
    numbers: AnalysisNumbers
    of_members: Mapping[str, tuple[float | None, float | None]]
    """By name of each member that was looked at, its mean payoff and its probability in the
    equilibrium; None: there is none."""


class PopulationAnalyser:
    """Has the population analysed every so many seconds, by a process that it starts when it must.

    Two share a pair of sockets, and nothing else: this process writes requests, the helper writes
    answers, and each message is handed over whole or not at all. The ledger of matches is the
    coordinator's; the helper reads what is whole of it. What it guarantees:

    1. Nothing here waits: not for the helper, its start or its end.
    2. There is one helper at most, and one request at most is open. Where an analysis is not done
       when the next is due, that one is left out.
    3. A helper that ends, by whatever, is replaced when the next analysis is due. One that has not
       answered for `patience` seconds (it hangs or was stopped) is killed, and its successor has
       twice as long. The run goes on all the same; each of these is told once.
    4. It ends with this process (its lifeline), and is killed by `close`.
    """

    def __init__(
        self,
        table: Table,
        ledger: Path,
        log_file: Path,
        config: AnalysisConfig,
        sides: Sequence[int],
        say: Callable[[str], None],
        patience: float = 60.0,
        apart: Collection[str] = (),
    ) -> None:
        """Begin without a helper, and without an analysis."""
        self._table, self._ledger, self._log = table, ledger, log_file
        self._every, self._most = config.every, config.members
        self._sides, self._say, self._apart = tuple(sides), say, tuple(apart)
        self._patience = patience + (config.every or 0.0)
        self._told: set[str] = set()
        self._process: Process | None = None
        self._socket: socket.socket | None = None
        self._asked: tuple[float, Integers] | None = None
        """Of the open request: when it was, and of which members."""
        self._waited = 0.0
        now = time.monotonic()
        self._seen, self._due = now, now + (config.every or 0.0)
        self.newest: PopulationAnalysis | None = None
        """The newest analysis; None: there is none."""

    @property
    def pid(self) -> int | None:
        """The helper's process id; None: there is none, or it has not begun."""
        return self._process.pid if self._process is not None else None

    @property
    def busy(self) -> bool:
        """Whether an analysis was asked for, and is not answered yet."""
        return self._asked is not None

    def look(self) -> None:
        """Take in what was answered, and ask for an analysis when it is due; once in every tick."""
        if not self._every:
            return
        now = time.monotonic()
        self._waited += min(now - self._seen, LOOKS)
        self._seen = now
        self._receive()
        if self._asked is not None and self._waited > self._patience:
            self._patience *= 2.0
            self._end_helper()
            self._tell_once(
                "hangs",
                "an analysis of the population did not end and was given up; the next one is "
                f"tried in {self._every:g} s (analysis.every)",
            )
        if now < self._due:
            return
        self._due = now + self._every
        if self._asked is None:
            self._ask(now)
        else:
            self._tell_once(
                "slow",
                f"analyses of the population take longer than {self._every:g} s, so that some are "
                "left out; raise analysis.every, or lower analysis.members",
            )

    def close(self) -> None:
        """Kill the helper, if there is one."""
        self._end_helper()

    def _ask(self, now: float) -> None:
        members = chosen(self._table, self._most, self._apart)
        if len(members) < 2:
            return
        try:
            if self._socket is None:
                self._start()
            assert self._socket is not None
            self._socket.send(request(members))
        except OSError as error:
            if error.errno in forkserver.GONE:
                return  # it died since the last look, and the next one finds that
            self._end_helper()
            self._tell_once(
                "start",
                f"the population is not analysed just now: {error.strerror or error}; it is tried "
                f"again every {self._every:g} s (analysis.every)",
            )
            return
        self._asked, self._waited = (now, members), 0.0

    def _start(self) -> None:
        """Start a helper."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, contextlib.ExitStack() as if_it_fails:
            if_it_fails.callback(ours.close)
            ours.setblocking(False)
            self._process = forkserver.start(
                _helper,
                (theirs, self._ledger, self._sides),
                name="analysis",
                log=str(self._log),
            )
            if_it_fails.pop_all()
        self._socket = ours

    def _receive(self) -> None:
        """Take in an answer, or note that the helper is gone."""
        if self._socket is None:
            return
        try:
            message = self._socket.recv(LONGEST)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if not message:
            self._end_helper()
            self._tell_once(
                "died",
                "the process that analyses the population died, and is replaced when the next "
                f"analysis is due (analysis.every). What it said is in {self._log}",
            )
            return
        asked, self._asked = self._asked, None
        if asked is None:
            return
        found, (when, members) = answered(message), asked
        if isinstance(found, str):
            self._tell_once(
                "failed",
                f"an analysis of the population failed: {found}; its traceback is in {self._log}, "
                "and the run goes on",
            )
            return
        numbers, earned, mixed = found
        refs = (PolicyRef(self._table.names[p], v) for p, v in members.tolist())
        rows = zip(earned.tolist(), mixed.tolist(), strict=True)
        of_members = {
            str(ref): (_number(payoff), _number(nash))
            for ref, (payoff, nash) in zip(refs, rows, strict=True)
        }
        self.newest = PopulationAnalysis(when, numbers, of_members)

    def _end_helper(self) -> None:
        """Let go of the helper, which is killed; nothing is waited for."""
        self._asked = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            # It is the fork server's child, which takes note of its end. One that was spawned is
            # taken note of by `subprocess`, when the next one is started.
            self._process.kill()
            self._process.close()
            self._process = None

    def _tell_once(self, what: str, words: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self._say(words)
            log.warning("%s", words)


def analyser_of(
    config: Config,
    table: Table | None,
    agents: Sequence[AgentSpec],
    ledger: Path,
    logs: Path,
    say: Callable[[str], None],
) -> PopulationAnalyser | None:
    """Make the population analyser of a run; None if seats are not dealt or it is off."""
    if table is None or not config.analysis.every:
        return None
    roster = Roster.of(config, agents)
    sides = sides_of(roster.teams, table.seats, roster.taken).tolist()
    where, taken = logs / "analysis.log", config.seats_taken
    return PopulationAnalyser(table, ledger, where, config.analysis, sides, say, apart=taken)


def chosen(table: Table, most: int, apart: Collection[str] = ()) -> Integers:
    """The members that are looked at: [N, 2] the number of each one's policy, and its version.

    Those that learn, by place, then frozen ones: the newest of each policy, then the second newest
    of each, and so on. One that is just being frozen is left out.
    """
    occupants = table.occupants
    before = occupants.sequence.copy()
    fence_acquire()
    identity, there = occupants.identity[:, : VERSION + 1].copy(), occupants.there
    fence_acquire()
    there &= (identity[:, POLICY] != NO_POLICY) & (before % 2 == 0)
    there &= occupants.sequence == before
    found = identity[there][:, [POLICY, VERSION]]
    found = found[~np.isin(found[:, 0], [table.names.index(name) for name in apart])]
    live, frozen = found[found[:, 1] < 0], found[found[:, 1] >= 0]
    frozen = frozen[np.lexsort((-frozen[:, 1], frozen[:, 0]))]
    # How many newer copies of its policy there are, of each.
    first = np.searchsorted(frozen[:, 0], frozen[:, 0])
    newer = np.arange(len(frozen)) - first
    frozen = frozen[np.lexsort((frozen[:, 0], newer))]
    members: Integers = np.concatenate([live, frozen])[:most].astype(np.int64)
    return members


def _helper(asked: socket.socket, ledger: Path, sides: Sequence[int]) -> None:
    """In the child: what it needs is imported there, and not by the coordinator."""
    from remuda.coordinator.analysis_helper import serve

    serve(asked, ledger, sides)


def _number(x: float) -> float | None:
    return x if np.isfinite(x) else None
