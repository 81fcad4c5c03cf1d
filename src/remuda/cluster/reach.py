"""Whether nodes reach each other, by what they tell of their links: the head alone hears of all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from remuda.cluster.placement import Placement
from remuda.cluster.traffic import Count

if TYPE_CHECKING:
    from remuda.cluster.member import Member


class Reach:
    """Finds pairs of nodes that have roles for each other, and no link for too long."""

    def __init__(self, limit: float) -> None:
        """Find those without a link for so many seconds."""
        self._limit = limit
        self._epoch = 0
        self._since: dict[tuple[int, int], float] = {}
        self._told: set[tuple[int, int]] = set()

    def news(
        self, placement: Placement, members: Iterable[Member], name: Callable[[int], str]
    ) -> list[str]:
        """What users are told, once of each pair in a placement."""
        told = {member.number: member.glance.traffic for member in members}
        return [
            f"node {name(node)} cannot reach node {name(peer)}, so that nothing crosses between "
            "them: let cluster.ports through between all nodes"
            for node, peer in self.missing(placement, told)
        ]

    def missing(
        self, placement: Placement, told: Mapping[int, Sequence[Sequence[int]]]
    ) -> list[tuple[int, int]]:
        """The pairs that were found since this was asked last, each once in a placement."""
        if placement.epoch != self._epoch:
            self._epoch, self._since, self._told = placement.epoch, {}, set()
        now, found = time.monotonic(), []
        for node, rows in told.items():
            for peer in placement.peers_of(node):
                if peer > node or not rows or rows[peer][Count.IS_OPEN]:
                    self._since.pop((node, peer), None)
                elif now > self._since.setdefault((node, peer), now) + self._limit:
                    found.append((node, peer))
        new = [pair for pair in found if pair not in self._told]
        self._told.update(new)
        return new
