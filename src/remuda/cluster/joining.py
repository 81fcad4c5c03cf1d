"""Nodes that join during a run: each is prepared before it gets roles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from remuda.cluster.member import Member
from remuda.cluster.nodes import Call, NodeInfo, Nodes
from remuda.errors import NodeLostError, RemudaError


@dataclass
class JoiningNodes:
    """The joining nodes, as the head sees them; nothing here waits for any of them.

    A node that cannot be used is given up, at no cost to the run.
    """

    nodes: Nodes
    prepare: Callable[[NodeInfo], Call]  # makes a node's agent; returns its port
    news: list[str] = field(default_factory=list)  # messages about nodes that cannot be used
    _preparing: dict[int, tuple[NodeInfo, Call]] = field(default_factory=dict)
    # pending requests, while bridges start
    _beginning: dict[int, Sequence[Call]] = field(default_factory=dict)

    @property
    def beginning(self) -> frozenset[int]:
        """The nodes that must not get roles yet."""
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
        """Give up a joining node that cannot be used."""
        self.lose(number)
        self.nodes.give_up(number)
        self.news.append(f"the node {name} came, and cannot be used: {why}")

    def begins(self, number: int, calls: Sequence[Call]) -> None:
        self._beginning[number] = calls

    def ready(self, members: Mapping[int, Member]) -> list[int]:
        """Return the nodes whose bridges have newly started; they may get roles."""
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
