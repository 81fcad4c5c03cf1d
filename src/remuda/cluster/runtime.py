"""`ClusterRuntime`: the roles of a run on several nodes, as the coordinator sees them.

The head is a node like all others, whose roles are children of this process. Each other node has an
agent. The head asks them a few times a second how they are, and never waits for one that does not
answer: one that is silent for `cluster.silence` seconds, or whose death is known, is given up, and
its roles are placed on the nodes that are left.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from remuda.checkpoint.store import Checkpoints
from remuda.cluster.agent import Glance
from remuda.cluster.node import Addresses, Node
from remuda.cluster.nodes import HEAD, Call, Nodes
from remuda.cluster.placement import Placement
from remuda.compiling import Progress
from remuda.errors import NodeLostError, RemudaError
from remuda.runtime.processes import ProcessRuntime
from remuda.types import RoleStatus

log = logging.getLogger(__name__)

ASK = 0.25
"""Seconds between two questions to a node."""
GLANCE = 0.002
"""Seconds between two looks at what is waited for."""


@dataclass
class Member:
    """A node as the head knows it."""

    number: int
    name: str
    glance: Glance = field(default_factory=Glance)
    question: Call | None = None
    asked: float = 0.0
    answered: float = 0.0


class ClusterRuntime:
    """A `Runtime` over the nodes of a cluster."""

    def __init__(
        self,
        node: Node,
        nodes: Nodes,
        placement: Placement,
        addresses: Addresses,
        names: Mapping[int, str],
        logs: Path,
        checkpoints: Checkpoints,
        *,
        silence: float,
        write_limit: float,
    ) -> None:
        """Hold the nodes, whose agents are prepared.

        Args:
            node: the head's end.
            nodes: the others.
            placement: of all roles.
            addresses: where bridges listen, by node.
            names: of nodes, for people.
            logs: the directory of the run's logs.
            checkpoints: of the run.
            silence: seconds after which a node that does not answer is given up.
            write_limit: seconds that parts of a checkpoint are waited for.
        """
        self._node, self._nodes = node, nodes
        self.placement, self._addresses = placement, dict(addresses)
        self._logs, self._checkpoints = logs, checkpoints
        self._silence, self._write_limit = silence, write_limit
        self._local: ProcessRuntime = node.runtime(placement, addresses, logs, checkpoints)
        self._members = {
            number: Member(number, names.get(number, str(number)))
            for number in addresses
            if number != HEAD
        }
        self._names = dict(names)
        self._news: list[str] = []
        self._stopped = False

    def start(self, stopped: Callable[[], bool]) -> None:
        """Start every role on every node, and let them work once all are ready.

        Raises:
            RemudaError: a role, or a node, could not start.
        """
        compiling = Progress(self._news.append)
        self._local.spawn()
        self._wait_for(self._call_all("start", self.placement, self._addresses))
        while not stopped():
            self._look(0.05)
            members = self._members.values()
            compiling.see(self._local.compiled + sum(m.glance.compiled for m in members))
            if self._local.is_ready and all(m.glance.is_ready for m in members):
                self._local.go()
                self._wait_for(self._call_all("go"))
                return

    def run_for(self, seconds: float) -> bool:
        """Watch all nodes for about so long; True when everything is played."""
        self._look(seconds)
        played = all(member.glance.is_played for member in self._members.values())
        return played and self._local.is_played

    def save(self, number: int) -> set[str]:
        """Let every role write its parts of a checkpoint; returns the names of those written.

        Where actor and learners work in turns the actor's node is asked last, so that all others
        know which checkpoint it is.
        """
        self._wait_for(self._call_all("begin_save", number))
        calls = self._call_all("save", number)
        parts = self._local.save(number)
        for node, files in self._wait_for(calls, self._write_limit).items():
            for part, contents in files.items():
                self._write(number, part, contents)
                parts.add(part)
            log.info("node %d wrote %s", node, ", ".join(files) or "nothing")
        self._see_all(self._call_all("stamp"))
        return parts

    def settle(self, number: int) -> None:
        """Tell all nodes that a checkpoint is complete or given up."""
        complete = number in self._checkpoints.numbers()
        manifest = self._checkpoints.manifest(number) if complete else None
        self._local.settle(number)
        self._wait_for(self._call_all("settle", number, manifest))

    def status(self) -> list[RoleStatus]:
        """How every role is doing, those of the head first."""
        found = [replace(each, node=self._name(HEAD)) for each in self._local.status()]
        for member in self._members.values():
            found += [replace(each, node=member.name) for each in member.glance.roles]
        return found

    def news(self) -> list[str]:
        """What happened since this was asked last, for the user."""
        news, self._news = [*self._news, *self._local.news()], []
        return news

    def stop(self) -> None:
        """Stop all roles, then all bridges; what came last is here before they are gone."""
        if self._stopped:
            return
        self._stopped = True
        calls = self._call_all("finish")
        self._local.finish()
        self._see_all(calls)
        self._wait_for(self._call_all("stop"))
        self._local.stop()
        self._nodes.stop()

    # Within.

    def _name(self, number: int) -> str:
        return self._names.get(number, str(number))

    def _look(self, seconds: float) -> None:
        """Watch for so long.

        Raises:
            RemudaError: a role died and is not restarted.
        """
        end = time.monotonic() + seconds
        while True:
            left = max(end - time.monotonic(), 0.0)
            self._local.run_for(min(left, ASK))
            for member in list(self._members.values()):
                self._ask(member)
            if time.monotonic() >= end:
                return

    def _ask(self, member: Member) -> None:
        """Take a node's answer, and ask it again when that is due."""
        now = time.monotonic()
        if member.question is not None and member.question.done():
            question, member.question = member.question, None
            member.glance = question.result()
            member.answered = now
            self._news += [f"node {member.name}: {words}" for words in member.glance.news]
            if member.glance.fatal is not None:
                raise member.glance.fatal
        if member.question is None and now >= member.asked + ASK:
            member.asked, member.question = now, self._nodes.call(member.number, "poll")

    def _call_all(self, method: str, *args: Any) -> dict[int, Call]:
        return {number: self._nodes.call(number, method, *args) for number in self._members}

    def _wait_for(self, calls: Mapping[int, Call], limit: float = 60.0) -> dict[int, Any]:
        """The answers of nodes, by number; of a node that is gone there is none."""
        end = time.monotonic() + limit
        found = {}
        for number, call in calls.items():
            try:
                found[number] = call.result(max(end - time.monotonic(), 0.0))
            except NodeLostError:
                log.warning("node %d is gone", number)
            except TimeoutError:
                log.warning("node %d did not answer within %.0f s", number, limit)
        return found

    def _see_all(self, stamps: Mapping[int, Call]) -> None:
        """Wait until all is here that nodes had written when they were stamped."""
        wanted = self._wait_for(stamps)
        end = time.monotonic() + self._silence
        seen = self._node.stamps.all
        while any(seen[number] < stamp for number, stamp in wanted.items()):
            if time.monotonic() > end:
                log.warning("what nodes wrote last did not arrive")
                return
            time.sleep(GLANCE)

    def _write(self, number: int, part: str, contents: bytes) -> None:
        try:
            path = self._checkpoints.partial(number) / f"{part}.safetensors"
            path.write_bytes(contents)
        except OSError as error:
            raise RemudaError(f"cannot write checkpoint {number}: {error.strerror}") from None
