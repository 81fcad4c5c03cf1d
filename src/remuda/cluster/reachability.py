"""Detection of missing links between nodes, from their reports to the head."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from remuda.cluster.placement import Placement
from remuda.cluster.traffic import Count

if TYPE_CHECKING:
    from remuda.cluster.member import Member


class LinkMonitor:
    """Finds pairs of nodes that need a link and have had none for too long."""

    def __init__(self, limit: float) -> None:
        """Find pairs without a link for `limit` seconds."""
        self._limit = limit
        self._epoch = 0
        self._since: dict[tuple[int, int], float] = {}
        self._reported: set[tuple[int, int]] = set()

    def news(
        self, placement: Placement, members: Iterable[Member], name: Callable[[int], str]
    ) -> list[str]:
        """Return the user messages, one for each pair in a placement."""
        traffic = {member.number: member.status.traffic for member in members}
        return [
            f"node {name(node)} cannot reach node {name(peer)}, so that nothing crosses between "
            "them: let cluster.ports through between all nodes"
            for node, peer in self.missing(placement, traffic)
        ]

    def missing(
        self, placement: Placement, traffic: Mapping[int, Sequence[Sequence[int]]]
    ) -> list[tuple[int, int]]:
        """Return the newly found pairs, each once in a placement."""
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
