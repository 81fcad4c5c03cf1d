"""Request analyses of the population from a helper process, without waiting for it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from remuda.analysis.payoffs.ledger_seats import LedgerSeats
from remuda.config import AnalysisConfig
from remuda.population.ledger.records import PolicyRef
from remuda.population.members.table import Table
from remuda.population.members.table_parts import NO_POLICY, POLICY, VERSION
from remuda.population.run_spec import RunSpec
from remuda.runs.metrics import AnalysisNumbers
from remuda.system.memory.atomic import fence_acquire
from remuda.system.processes import client as forkserver
from remuda.system.processes.process import Process
from remuda.types import Integers

log = logging.getLogger(__name__)

LOOKS = 1.0
"""Maximum seconds that count as waiting between two polls: a longer gap means that Ctrl-Z, or a
sleeping machine, stopped the coordinator too."""


@dataclass(frozen=True)
class PopulationAnalysis:
    """An analysis of the population."""

    requested_at: float  # by `time.monotonic`
    numbers: AnalysisNumbers
    of_members: Mapping[str, tuple[float | None, float | None]]
    """Each analysed member's mean payoff, and its probability in the equilibrium."""


class PopulationAnalyser:
    """The client of a helper process that analyses the population every `analysis.every` seconds.

    Client and helper communicate through a pipe. A request or an answer has a few kilobytes, which
    fit into an empty pipe. The helper reads complete records of the ledger of match results, which
    the coordinator writes.
    Guarantees:

    1. No method waits for the helper, its start or its end.
    2. There is at most one helper and one open request. If an analysis is not finished when the
       next is due, the next one is skipped.
    3. A helper that ends is replaced when the next analysis is due. A helper that does not answer
       for `patience` + `analysis.every` seconds is killed, and its successor gets twice as long.
       The run continues, and each kind of message appears once.
    4. The helper ends with this process (its lifeline), and `close` kills it.
    """

    def __init__(
        self,
        table: Table,
        ledger: Path,
        log_file: Path,
        config: AnalysisConfig,
        seats: LedgerSeats,
        say: Callable[[str], None],
        patience: float = 60.0,
        excluded: Collection[str] = (),
        roles: Sequence[Sequence[tuple[int, int]]] = (),
    ) -> None:
        """Take the run's seats, and the members of each role, by policy index and version."""
        self._table, self._ledger, self._log = table, ledger, log_file
        self._every, self._max_members = config.every, config.members
        self._seats, self._roles = seats, roles
        self._say, self._excluded = say, tuple(excluded)
        self._patience = patience + (config.every or 0.0)
        self._reported: set[str] = set()
        self._process: Process | None = None
        self._pipe: Connection | None = None
        self._request: tuple[float, Integers] | None = None
        """When the open request was sent, and its members."""
        self._waited = 0.0
        now = time.monotonic()
        self._seen, self._due = now, now + (config.every or 0.0)
        self.newest: PopulationAnalysis | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def busy(self) -> bool:
        return self._request is not None

    def poll(self) -> None:
        """Receive an answer, and send a request when one is due; called in every tick."""
        if not self._every:
            return
        now = time.monotonic()
        self._waited += min(now - self._seen, LOOKS)
        self._seen = now
        self._receive()
        if self._request is not None and self._waited > self._patience:
            self._patience *= 2.0
            self.close()
            self._say_once(
                "hangs",
                "an analysis of the population did not end and was stopped; the next one is "
                f"tried in {self._every:g} s (analysis.every)",
            )
        if now < self._due:
            return
        self._due = now + self._every
        if self._request is None:
            self._send(now)
        else:
            self._say_once(
                "slow",
                f"analyses of the population take longer than {self._every:g} s, so some are "
                "skipped; raise analysis.every, or lower analysis.members",
            )

    def close(self) -> None:
        """Kill the helper, if any, without waiting for its end."""
        self._request = None
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        if self._process is not None:
            # The fork server reaps its child; `subprocess` reaps a spawned child at the next start.
            self._process.kill()
            self._process.close()
            self._process = None

    def _send(self, now: float) -> None:
        members = self._members()
        if len(members) < 2:
            return
        try:
            if self._pipe is None:
                self._start()
            assert self._pipe is not None
            self._pipe.send(members)
        except OSError as error:
            if error.errno in forkserver.GONE:
                return  # the helper died since the last poll; the next poll reports that
            self.close()
            self._say_once(
                "start",
                f"the population is not analysed now: {error.strerror or error}; the analysis is "
                f"tried again every {self._every:g} s (analysis.every)",
            )
            return
        self._request, self._waited = (now, members), 0.0

    def _members(self) -> Integers:
        """Choose the members to analyse: those of the roles, or all if a single role has too few.

        A single role may have frozen copies only, besides one policy that learns.
        """
        found = chosen(self._table, self._max_members, self._excluded, self._roles)
        if len(found) < 2 and len(self._roles) == 1:
            return chosen(self._table, self._max_members, self._excluded)
        return found

    def _start(self) -> None:
        local, remote = Pipe()
        args = (remote, self._ledger, self._seats, self._roles)
        with remote:
            try:
                self._process = forkserver.start(_helper, args, name="analysis", log=str(self._log))
            except OSError:
                local.close()
                raise
        self._pipe = local

    def _receive(self) -> None:
        if self._pipe is None:
            return
        try:
            if not self._pipe.poll(0.0):
                return
            found = self._pipe.recv()
        except (EOFError, OSError):
            self.close()
            self._say_once(
                "died",
                "the process that analyses the population died, and is replaced when the next "
                f"analysis is due (analysis.every). Its log is {self._log}",
            )
            return
        request, self._request = self._request, None
        if request is None:
            return
        if isinstance(found, str):
            self._say_once(
                "failed",
                f"an analysis of the population failed: {found}; its traceback is in {self._log}, "
                "and the run continues",
            )
            return
        when, members = request
        numbers, payoffs, mixture = found
        refs = (PolicyRef(self._table.names[p], v) for p, v in members.tolist())
        rows = zip(refs, payoffs.tolist(), mixture.tolist(), strict=True)
        of_members = {str(ref): (_finite(payoff), _finite(nash)) for ref, payoff, nash in rows}
        known: dict[str, Any] = {name: _finite(x) for name, x in vars(numbers).items()}
        self.newest = PopulationAnalysis(when, AnalysisNumbers(**known), of_members)

    def _say_once(self, what: str, message: str) -> None:
        if what not in self._reported:
            self._reported.add(what)
            self._say(message)
            log.warning("%s", message)


def analyser_of(
    spec: RunSpec,
    table: Table | None,
    ledger: Path,
    logs: Path,
    say: Callable[[str], None],
) -> PopulationAnalyser | None:
    """Make the analyser of a run's population; None without a population or `analysis.every`."""
    config = spec.config
    if table is None or not config.analysis.every:
        return None
    log_file, taken = logs / "analysis.log", config.seats_taken
    seats = LedgerSeats.of(spec)
    roles = _members_of_roles(spec, table, seats)
    return PopulationAnalyser(
        table, ledger, log_file, config.analysis, seats, say, excluded=taken, roles=roles
    )


def _members_of_roles(
    spec: RunSpec, table: Table, seats: LedgerSeats
) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return the members of each role: policies that learn, or all of a role that has none."""
    roster = spec.roster.with_imported(table.slots.origins)
    outsiders = [
        each
        for each in table.slots.outsiders.values()
        if each.policy not in roster.reserved_members
    ]
    found = []
    for group in seats.groups:
        first = group.seats[0]
        refs = [PolicyRef(name) for name in roster.policies if first in roster.seats_of(name)]
        refs = refs or [each for each in outsiders if first in roster.seats_of(each.policy)]
        found.append(tuple((table.names.index(each.policy), each.version) for each in refs))
    return tuple(found)


def chosen(
    table: Table,
    max_members: int,
    excluded: Collection[str] = (),
    roles: Sequence[Sequence[tuple[int, int]]] = (),
) -> Integers:
    """Choose at most `max_members` members to analyse: [N, 2], policy index and version of each.

    `excluded`: names; `roles`: the members of each role to choose from; empty: all members.
    Learning members come first, then each policy's newest copy, its second newest, and so on.
    Several roles take turns, and each has at least one member.
    """
    occupants = table.occupants
    before = occupants.sequence.copy()
    fence_acquire()
    identity, is_present = occupants.identity[:, : VERSION + 1].copy(), occupants.there
    fence_acquire()
    is_present &= (identity[:, POLICY] != NO_POLICY) & (before % 2 == 0)
    is_present &= occupants.sequence == before
    found = identity[is_present][:, [POLICY, VERSION]]
    found = found[~np.isin(found[:, 0], [table.names.index(name) for name in excluded])]
    role_of = {member: number for number, role in enumerate(roles) for member in role}
    if roles:
        found = found[[tuple(member) in role_of for member in found.tolist()]]
    live, frozen = found[found[:, 1] < 0], found[found[:, 1] >= 0]
    frozen = frozen[np.lexsort((-frozen[:, 1], frozen[:, 0]))]
    # For each copy, the number of newer copies of its policy.
    first = np.searchsorted(frozen[:, 0], frozen[:, 0])
    newer = np.arange(len(frozen)) - first
    frozen = frozen[np.lexsort((frozen[:, 0], newer))]
    ordered = np.concatenate([live, frozen])
    turns, taken = [], [0] * (len(roles) or 1)
    for member in ordered.tolist():
        role = role_of.get(tuple(member), 0)
        turns.append(taken[role])
        taken[role] += 1
    first = np.argsort(turns, kind="stable")[: max(max_members, len(roles))]
    return ordered[np.sort(first)].astype(np.int64)


def _helper(
    pipe: Connection, ledger: Path, seats: LedgerSeats, roles: Sequence[Sequence[tuple[int, int]]]
) -> None:
    """Serve in the child process; imported late, since the coordinator does not need the module."""
    from remuda.coordinator.analysis_helper import serve

    serve(pipe, ledger, seats, roles)


def _finite(x: float | None) -> float | None:
    return x if x is not None and np.isfinite(x) else None
