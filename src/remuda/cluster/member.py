"""A node as the head knows it: its last status, and how long it has been silent."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from remuda.cluster.agent import NodeStatus
from remuda.cluster.nodes import Call, Nodes
from remuda.errors import NodeLostError

log = logging.getLogger(__name__)

ASK = 0.25  # seconds between two polls of a node
GAP = 2.0  # gaps between looks, in seconds, above which the head itself was stopped, not the node


@dataclass
class Member:
    """A node with an agent. The head polls it a few times a second, and never waits."""

    number: int
    name: str
    status: NodeStatus = field(default_factory=NodeStatus)  # the last that the head has processed
    unread: list[NodeStatus] = field(default_factory=list)  # those not processed yet
    is_gone: bool = False  # True once its agent is known to be lost
    _question: Call | None = None
    _asked: float = 0.0
    _looked: float = field(default_factory=time.monotonic)

    def ask(self, nodes: Nodes) -> None:
        """Take its answer, and poll it again when that is due."""
        now = time.monotonic()
        if now > self._looked + GAP:  # the head itself was stopped, and hears of answers later
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
        """Return whether an answer is due for longer than `silence` seconds."""
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
    """Wait for the answers of nodes, by number; nodes that are lost or silent have none."""

    def is_to_come(number: int) -> bool:
        """Return whether an answer is worth waiting for: its node is there and responds."""
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
