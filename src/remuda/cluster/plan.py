"""The placement and the addresses of bridges, in shared memory for a node's bridge.

The process that hosts a node's roles writes it, and increments `revision` before and after: it is
odd meanwhile, and while links are paused. A bridge writes the revision that it uses to `seen`. The
hosting process has no successor: if it dies while writing, its bridge ends with it.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

import numpy as np

from remuda.cluster.placement import Placement
from remuda.memory.atomic import fence_acquire, fence_release, load, store
from remuda.memory.shared import SharedArrays

Addresses = Mapping[int, tuple[str, int]]  # the address of each node's bridge
NOWHERE = 0  # the port of a missing node


class Plan:
    """The newest placement, for this node's bridge."""

    def __init__(self, actors: int, learners: int, nodes: int) -> None:
        self._actors = actors
        self._shared = SharedArrays(
            {
                "revision": ((1,), np.int64),
                "seen": ((1,), np.int64),
                "epoch": ((1,), np.int64),
                "homes": ((actors + learners,), np.int64),
                "addresses": ((nodes, 2), np.int64),  # IPv4 as a number, port
            }
        )

    @property
    def revision(self) -> int:
        """A number that grows with every placement; odd while one is written."""
        return load(self._shared["revision"], 0)

    def pause(self) -> None:
        """Let the bridge close all links, and open none until `write`."""
        if self.revision % 2 == 0:
            store(self._shared["revision"], 0, self.revision + 1)

    @property
    def is_seen(self) -> bool:
        """True if the bridge uses the current revision, or has no link since a pause."""
        return load(self._shared["seen"], 0) == self.revision

    def see(self, revision: int) -> None:
        store(self._shared["seen"], 0, revision)

    def write(self, placement: Placement, addresses: Addresses) -> None:
        shared, revision = self._shared, self.revision
        revision -= revision % 2
        store(shared["revision"], 0, revision + 1)
        fence_release()
        shared["epoch"][0] = placement.epoch
        shared["homes"][:] = placement.homes
        shared["addresses"][:] = NOWHERE
        for node, (address, port) in addresses.items():
            number = int.from_bytes(socket.inet_aton(socket.gethostbyname(address)), "big")
            shared["addresses"][node] = number, port
        store(shared["revision"], 0, revision + 2)

    def read(self) -> tuple[int, Placement, dict[int, tuple[str, int]]] | None:
        """Return the revision, the placement and the addresses; None while they are written."""
        shared, revision = self._shared, self.revision
        if revision % 2 == 1:
            return None
        epoch, homes = int(shared["epoch"][0]), shared["homes"].tolist()
        addresses = shared["addresses"].tolist()
        fence_acquire()
        if self.revision != revision:
            return None
        found = {
            node: (socket.inet_ntoa(number.to_bytes(4, "big")), port)
            for node, (number, port) in enumerate(addresses)
            if port != NOWHERE
        }
        placement = Placement(tuple(homes[: self._actors]), tuple(homes[self._actors :]), epoch)
        return revision, placement, found
