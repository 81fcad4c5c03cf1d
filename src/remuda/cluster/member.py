"""The head's records of other nodes: their last status, logs and links, and joining nodes."""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from remuda.cluster.agent import NodeStatus
from remuda.cluster.channel import Count
from remuda.cluster.nodes import Call, NodeInfo, Nodes, Placement
from remuda.errors import NodeLostError, RemudaError

log = logging.getLogger(__name__)

POLL = 0.25  # seconds between two polls of a node
GAP = 2.0  # a longer gap between two checks, in seconds, shows that the head itself was stopped
# the path of a log on its own node
REMOTE_LOG = re.compile(r"\S*/remuda-node-[\w-]+/logs/(\S+)\.log")


@dataclass
class Member:
    """A node with an agent. The head polls it a few times a second, and never waits."""

    number: int
    name: str
    status: NodeStatus = field(default_factory=NodeStatus)  # the last one that the head processed
    unread: list[NodeStatus] = field(default_factory=list)  # not processed yet
    is_lost: bool = False  # True once its agent is known to be lost
    _request: Call | None = None
    _requested_at: float = 0.0
    _checked_at: float = field(default_factory=time.monotonic)

    def poll(self, nodes: Nodes) -> None:
        """Store the node's answer if it has arrived, and poll the node again when that is due."""
        now = time.monotonic()
        if now > self._checked_at + GAP:  # the head itself was stopped, so answers are read late
            self._requested_at += now - self._checked_at
        self._checked_at = now
        if self._request is not None and self._request.done():
            request, self._request = self._request, None
            try:
                self.unread.append(request.result(0.0))
            except NodeLostError:
                self.is_lost = True
        if self._request is None and not self.is_lost and now >= self._requested_at + POLL:
            self._requested_at, self._request = now, nodes.call(self.number, "poll")

    def is_silent(self, silence: float) -> bool:
        """Return whether an answer is overdue by more than `silence` seconds."""
        is_late = time.monotonic() > self._requested_at + silence
        return is_late and self._request is not None and not self._request.done()


@dataclass
class JoiningNodes:
    """The nodes that are joining the run. Nothing here waits for them.

    A node that cannot be used is given up, and the run continues without it.
    """

    nodes: Nodes
    prepare: Callable[[NodeInfo], Call]  # starts a node's agent; the call returns its bridge's port
    news: list[str] = field(default_factory=list)  # messages about nodes that cannot be used
    # nodes whose bridges are starting; they must not get roles yet
    starting: set[int] = field(default_factory=set)
    _preparing: dict[int, tuple[NodeInfo, Call]] = field(default_factory=dict)

    def prepared(self) -> list[tuple[NodeInfo, int]]:
        """Return the newly prepared nodes, with their ports."""
        for info in self.nodes.joined():
            self._preparing[info.number] = (info, self.prepare(info))
        found = []
        for number, (info, call) in list(self._preparing.items()):
            if call.done():
                del self._preparing[number]
                try:
                    found.append((info, int(call.result(0.0))))
                except RemudaError as error:
                    self.nodes.give_up(number)
                    self.news.append(f"the node {info.name} joined, but cannot be used: {error}")
        return found

    def ready(self, members: Mapping[int, Member]) -> list[int]:
        """Return the nodes whose bridges have just become ready; they may get roles."""
        self.starting &= members.keys()
        ready = [number for number in sorted(self.starting) if members[number].status.is_ready]
        self.starting.difference_update(ready)
        return ready

    def lose(self, number: int) -> None:
        self._preparing.pop(number, None)
        self.starting.discard(number)


class FetchedLogs:
    """Copies of other nodes' log files, `ROLE@NODE.log`. If the disk is full, they are skipped."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._expected: dict[str, Call] = {}

    def expect(self, node: str, call: Call) -> None:
        self._expected[node] = call

    def hear(self) -> None:
        """Write the logs that have arrived; lost nodes send none."""
        for node in [node for node, call in self._expected.items() if call.done()]:
            with contextlib.suppress(RemudaError):
                self.keep(node, self._expected.pop(node).result(0.0))

    def keep(self, node: str, logs: Mapping[str, str]) -> None:
        for role, text in logs.items():
            with contextlib.suppress(OSError):
                (self._directory / f"{role}@{node}.log").write_text(text)

    def named(self, node: str, message: str) -> str:
        """Replace paths of logs on a node by the paths of their copies here."""
        return REMOTE_LOG.sub(lambda match: f"{self._directory}/{match[1]}@{node}.log", message)


class LinkMonitor:
    """A monitor of pairs of nodes that need a link and have had none for `limit` seconds."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._epoch = 0
        self._since: dict[tuple[int, int], float] = {}
        self._reported: set[tuple[int, int]] = set()

    def news(
        self, placement: Placement, members: Iterable[Member], name: Callable[[int], str]
    ) -> list[str]:
        traffic = {member.number: member.status.traffic for member in members}
        return [
            f"node {name(node)} cannot reach node {name(peer)}, so they exchange no data: "
            "open cluster.ports between all nodes"
            for node, peer in self.missing(placement, traffic)
        ]

    def missing(
        self, placement: Placement, traffic: Mapping[int, Sequence[Sequence[int]]]
    ) -> list[tuple[int, int]]:
        """Return pairs (node, peer) without a link, each once per placement."""
        if placement.epoch != self._epoch:
            self._epoch, self._since, self._reported = placement.epoch, {}, set()
        now, pairs = time.monotonic(), []
        for node, rows in traffic.items():
            for peer in placement.peers_of(node):
                if peer > node or not rows or rows[peer][Count.IS_OPEN]:
                    self._since.pop((node, peer), None)
                elif now > self._since.setdefault((node, peer), now) + self._limit:
                    pairs.append((node, peer))
        new = [pair for pair in pairs if pair not in self._reported]
        self._reported.update(new)
        return new
