"""A node as the head knows it: what it told last, and for how long it has told nothing."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from remuda.cluster.agent import Glance
from remuda.cluster.nodes import Call, Nodes
from remuda.errors import NodeLostError

log = logging.getLogger(__name__)

ASK = 0.25
"""Seconds between two questions to a node."""
GAP = 2.0
"""Seconds between two looks at a node that are not silence of its own, but of the head."""


@dataclass
class Member:
    """A node with an agent. The head asks it how it is a few times a second, and never waits."""

    number: int
    name: str
    glance: Glance = field(default_factory=Glance)
    """What it told last, as far as the head has taken that."""
    told: list[Glance] = field(default_factory=list)
    """What it told since."""
    is_gone: bool = False
    """Whether its agent is known to be gone."""
    _question: Call | None = None
    _asked: float = 0.0
    _looked: float = field(default_factory=time.monotonic)

    def ask(self, nodes: Nodes) -> None:
        """Hear its answer, and ask it again when that is due."""
        now = time.monotonic()
        if now > self._looked + GAP:  # the head itself was stopped, and hears of answers later
            self._asked += now - self._looked
        self._looked = now
        if self._question is not None and self._question.done():
            question, self._question = self._question, None
            try:
                self.told.append(question.result(0.0))
            except NodeLostError:
                self.is_gone = True
        if self._question is None and not self.is_gone and now >= self._asked + ASK:
            self._asked, self._question = now, nodes.call(self.number, "poll")

    def is_silent(self, silence: float) -> bool:
        """Whether it owes an answer for longer than so many seconds."""
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
        """Whether an answer is worth waiting for: its node is there, and tells how it is."""
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
