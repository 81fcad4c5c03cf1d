"""Which role lives on which node, and where bridges listen: in shared memory, for a node's bridge.

The process that hosts a node's roles writes it, and counts `revision` up before and after: it is
odd meanwhile, and as long as no link is to be. A bridge looks in every round, and says in `seen`
which revision it works by. Who hosts the roles has no successor: if it dies in the middle, its
bridge ends with it.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

import numpy as np

from remuda.cluster.placement import Placement
from remuda.memory.atomic import fence_acquire, fence_release, load, store
from remuda.memory.shared import SharedArrays

Addresses = Mapping[int, tuple[str, int]]
"""By node, where its bridge listens."""
NOWHERE = 0
"""The port of a node that there is none of."""


class Plan:
    """The newest placement, as this node's bridge is told."""

    def __init__(self, actors: int, learners: int, nodes: int) -> None:
        """Make room for so many roles, and for so many nodes at most."""
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
        """Grows with every placement; odd while one is written."""
        return load(self._shared["revision"], 0)

    def pause(self) -> None:
        """Let the bridge give up all links, and make none until `write`."""
        if self.revision % 2 == 0:
            store(self._shared["revision"], 0, self.revision + 1)

    @property
    def is_seen(self) -> bool:
        """Whether the bridge works by what stands here now, or has no link since it is paused."""
        return load(self._shared["seen"], 0) == self.revision

    def see(self, revision: int) -> None:
        """For the bridge: tell that it works by this revision."""
        store(self._shared["seen"], 0, revision)

    def write(self, placement: Placement, addresses: Addresses) -> None:
        """Let the bridge work by this from now on."""
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
        """Its revision, the placement and the addresses; None: it is just being written."""
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
