"""The head's records of other nodes: their last status, logs and links, and joining nodes."""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remuda.cluster.agent import NodeStatus
from remuda.cluster.channel import Count
from remuda.cluster.nodes import Call, NodeInfo, Nodes, Placement
from remuda.errors import NodeLostError, RemudaError

log = logging.getLogger(__name__)

ASK = 0.25  # seconds between two polls of a node
GAP = 2.0  # a longer gap between two checks, in seconds, shows that the head itself was stopped
THERE = re.compile(r"\S*/remuda-node-[\w-]+/logs/(\S+)\.log")  # the path of a log on its own node


@dataclass
class Member:
    """A node with an agent. The head polls it a few times a second, and never waits."""

    number: int
    name: str
    status: NodeStatus = field(default_factory=NodeStatus)  # the last one that the head processed
    unread: list[NodeStatus] = field(default_factory=list)  # not processed yet
    is_gone: bool = False  # True once its agent is known to be lost
    _question: Call | None = None
    _asked: float = 0.0
    _looked: float = field(default_factory=time.monotonic)

    def ask(self, nodes: Nodes) -> None:
        """Store the node's answer if it has arrived, and poll the node again when that is due."""
        now = time.monotonic()
        if now > self._looked + GAP:  # the head itself was stopped, so answers are seen late
            self._asked += now - self._looked
        self._looked = now
        if self._question is not None and self._question.done():
            question, self._question = self._question, None
            try:
                self.unread.append(question.result(0.0))
            except NodeLostError:
                self.is_gone = True
        if self._question is None and not self.is_gone and now >= self._asked + ASK:
            self._asked, self._question = now, nodes.call(self.number, "poll")

    def is_silent(self, silence: float) -> bool:
        """Return whether an answer is overdue by more than `silence` seconds."""
        is_late = time.monotonic() > self._asked + silence
        return is_late and self._question is not None and not self._question.done()


def answers_of(
    calls: Mapping[int, Call],
    members: Mapping[int, Member],
    nodes: Nodes,
    silence: float,
    limit: float,
    meanwhile: Callable[[], None],
) -> dict[int, Any]:
    """Wait for the answers of nodes, by number; lost and silent nodes are left out."""

    def is_to_come(number: int) -> bool:
        """Return whether an answer may still come, because the node is alive and responds."""
        member = members.get(number)
        if calls[number].done() or member is None:
            return not calls[number].done()
        member.ask(nodes)
        return not (member.is_gone or member.is_silent(silence))

    end = time.monotonic() + limit
    while time.monotonic() < end and any(map(is_to_come, calls)):
        meanwhile()
    found = {}
    for number, call in calls.items():
        if not call.done():
            log.warning("node %d did not answer", number)
            continue
        try:
            found[number] = call.result(0.0)
        except NodeLostError:
            log.warning("node %d is gone", number)
    return found


@dataclass
class JoiningNodes:
    """The nodes that are joining the run. Nothing here waits for them.

    A node that cannot be used is given up, and the run continues without it.
    """

    nodes: Nodes
    prepare: Callable[[NodeInfo], Call]  # starts a node's agent; the call returns its bridge's port
    news: list[str] = field(default_factory=list)  # messages about nodes that cannot be used
    _preparing: dict[int, tuple[NodeInfo, Call]] = field(default_factory=dict)
    # pending requests of nodes whose bridges are starting
    _beginning: dict[int, Sequence[Call]] = field(default_factory=dict)

    @property
    def beginning(self) -> frozenset[int]:
        """The nodes whose bridges are starting; they must not get roles yet."""
        return frozenset(self._beginning)

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
                    self.refuse(number, info.name, error)
        return found

    def refuse(self, number: int, name: str, why: object) -> None:
        self.lose(number)
        self.nodes.give_up(number)
        self.news.append(f"the node {name} joined, but cannot be used: {why}")

    def begins(self, number: int, calls: Sequence[Call]) -> None:
        self._beginning[number] = calls

    def ready(self, members: Mapping[int, Member]) -> list[int]:
        """Return the nodes whose bridges have just become ready; they may get roles."""
        found = []
        for number, calls in list(self._beginning.items()):
            member = members.get(number)
            if member is None or member.is_gone:
                self.lose(number)
                continue
            try:
                for call in calls:
                    if call.done():
                        call.result(0.0)
            except NodeLostError:
                member.is_gone = True  # reported elsewhere
            except RemudaError as error:
                self.refuse(number, member.name, error)
                member.is_gone = True
            else:
                if member.status.is_ready:
                    del self._beginning[number]
                    found.append(number)
        return found

    def lose(self, number: int) -> None:
        self._preparing.pop(number, None)
        self._beginning.pop(number, None)


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

    def named(self, node: str, words: str) -> str:
        """Replace paths of logs on a node by the paths of their copies here."""
        return THERE.sub(lambda found: f"{self._directory}/{found[1]}@{node}.log", words)


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
        """Return pairs (node, peer) found without a link, each once per placement."""
        if placement.epoch != self._epoch:
            self._epoch, self._since, self._reported = placement.epoch, {}, set()
        now, found = time.monotonic(), []
        for node, rows in traffic.items():
            for peer in placement.peers_of(node):
                if peer > node or not rows or rows[peer][Count.IS_OPEN]:
                    self._since.pop((node, peer), None)
                elif now > self._since.setdefault((node, peer), now) + self._limit:
                    found.append((node, peer))
        new = [pair for pair in found if pair not in self._reported]
        self._reported.update(new)
        return new
