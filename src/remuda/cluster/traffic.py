"""Traffic counts of a node's bridge, in shared memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np

from remuda.memory.shared import SharedArrays
from remuda.types import Array

if TYPE_CHECKING:
    from remuda.cluster.channel import Channel
    from remuda.cluster.link import Link


class Count(IntEnum):
    """Counts of the link to each node, over all its connections."""

    SENT_BYTES = 0
    RECEIVED_BYTES = 1
    FRAMES = 2
    STEPS_OUT = 3
    STEPS_IN = 4
    IS_OPEN = 5  # 1 while the other node is reached
    IN_STEP = 6  # the last epoch in which all data of the other node arrived


def in_all(counts: Sequence[Iterable[Sequence[int]]]) -> tuple[int, int]:
    """Return bytes and messages sent; `counts` has for each node its counts by peer."""
    rows = [row for node in counts for row in node]
    return sum(int(r[Count.SENT_BYTES]) for r in rows), sum(int(r[Count.FRAMES]) for r in rows)


class Traffic:
    """Counts [nodes, counts], written only by the bridge of this node.

    They restart with a bridge: readers compute differences.
    """

    def __init__(self, nodes: int) -> None:
        self._shared = SharedArrays({"counts": ((nodes, len(Count)), np.int64)})
        self._before: dict[int, list[int]] = {}
        self._last: dict[int, list[int]] = {}
        self._of: dict[int, Link] = {}  # not by id, which another link may reuse

    @property
    def counts(self) -> Array:
        return self._shared["counts"]

    def note(self, node: int, link: Link, channel: Channel | None) -> None:
        is_known = self._of.get(node) is link
        steps = self._last[node][3:] if is_known else [0, 0]  # a link that broke has no channel
        if channel is not None:
            steps = [channel.steps_out, channel.steps_in]
        found = [link.sent_bytes, link.received_bytes, link.frames, *steps]
        if not is_known:  # another connection
            before, last = self._before.get(node, [0] * 5), self._last.get(node, [0] * 5)
            self._before[node] = [a + b for a, b in zip(before, last, strict=True)]
            self._of[node] = link
        self._last[node] = found
        row = self._shared["counts"][node]
        row[:5] = [a + b for a, b in zip(self._before[node], found, strict=True)]
        row[Count.IS_OPEN] = channel is not None
        if channel is not None and channel.in_step:
            row[Count.IN_STEP] = channel.epoch
