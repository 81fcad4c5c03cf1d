"""Nodes that come while a run goes on: each prepares itself before it has any role."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from remuda.cluster.member import Member
from remuda.cluster.nodes import Call, NodeInfo, Nodes
from remuda.errors import RemudaError


@dataclass
class Arrivals:
    """The nodes on their way, as the head sees them; nothing here waits for any of them."""

    nodes: Nodes
    prepare: Callable[[NodeInfo], Call]
    """Makes the agent of a node; the call tells the port of its bridge."""
    _preparing: dict[int, tuple[NodeInfo, Call]] = field(default_factory=dict)
    _beginning: list[int] = field(default_factory=list)
    """Nodes that have no role yet, since their bridges begin."""

    def prepared(self) -> list[tuple[NodeInfo, int | RemudaError]]:
        """The nodes that are prepared since this was asked last, with their ports, or why not."""
        for info in self.nodes.joined():
            self._preparing[info.number] = (info, self.prepare(info))
        found: list[tuple[NodeInfo, int | RemudaError]] = []
        for number, (info, call) in list(self._preparing.items()):
            if call.done():
                del self._preparing[number]
                try:
                    found.append((info, int(call.result(0.0))))
                except RemudaError as error:
                    found.append((info, error))
        return found

    def begins(self, number: int) -> None:
        """Note that a node's bridge was asked to begin."""
        self._beginning.append(number)

    def ready(self, members: Mapping[int, Member]) -> list[int]:
        """The nodes whose bridges have begun since this was asked last; they may be given roles."""
        found = [n for n in self._beginning if n in members and members[n].glance.is_ready]
        self._beginning = [n for n in self._beginning if n in members and n not in found]
        return found

    def lose(self, number: int) -> None:
        """Forget a node that is gone."""
        self._preparing.pop(number, None)
