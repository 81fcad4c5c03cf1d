"""A node as the head knows it: what it told last, and for how long it has told nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from remuda.cluster.agent import Glance
from remuda.cluster.nodes import Call, Nodes
from remuda.errors import NodeLostError

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
        """Hear its answer, and ask it again when that is due.

        Raises:
            RemudaError: what its agent raised.
        """
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
