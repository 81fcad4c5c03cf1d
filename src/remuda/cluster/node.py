"""What a node of a cluster has: the run's shared memory, its own roles in it, and a bridge."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from remuda.assembly import Assembly
from remuda.checkpoint.store import Checkpoints
from remuda.cluster.bridge import BridgeRole, Listener
from remuda.cluster.bridge_loop import BridgeLoop
from remuda.cluster.link import Identity
from remuda.cluster.placement import Placement
from remuda.cluster.stores import Stamps, Stores
from remuda.cluster.traffic import Traffic
from remuda.memory.waiting import Wakeup
from remuda.publish.snapshot import PublishedWeights
from remuda.runtime.child import Place
from remuda.runtime.control import Control
from remuda.runtime.processes import ProcessRuntime

Addresses = Mapping[int, tuple[str, int]]
"""By node, where its bridge listens."""


class Node:
    """One node's end of a run: everything that its roles and its bridge share.

    The memory outlives placements: roles that move elsewhere leave theirs as it is.
    """

    def __init__(
        self,
        assembly: Assembly,
        number: int,
        nodes: int,
        secret: bytes,
        listener: Listener,
    ) -> None:
        """Hold it.

        Args:
            assembly: of the run, alike on every node.
            number: of this node; 0: the head.
            nodes: the most that there will be.
            secret: of the run.
            listener: where the bridges of other nodes find this one.
        """
        self.assembly, self.number = assembly, number
        self.listener, self._secret = listener, secret
        self.stamps, self.traffic = Stamps(nodes), Traffic(nodes)

    def runtime(
        self,
        placement: Placement,
        addresses: Addresses,
        logs: Path,
        checkpoints: Checkpoints,
    ) -> ProcessRuntime:
        """The roles that live here, and the bridge, for one placement.

        Args:
            placement: who lives where.
            addresses: of all nodes' bridges.
            logs: the directory of the logs.
            checkpoints: where the roles write their parts, and find them.
        """
        assembly = self.assembly
        config, wakeup = assembly.config, Wakeup()
        control = Control((*assembly.wakeups, wakeup), bridges=1)
        role = BridgeRole(
            self.stores(control),
            placement,
            Identity(self._secret, placement.epoch, self.number),
            addresses,
            self.listener,
            wakeup,
            self.traffic,
            config.cluster.weights_every,
            config.cluster.silence,
        )
        return assembly.process_runtime(
            logs,
            checkpoints,
            control,
            placement.roles_of(self.number),
            Place(role, wakeup, BridgeLoop()),
        )

    def stores(self, control: Control) -> Stores:
        """What crosses to other nodes."""
        assembly = self.assembly
        published = assembly.published
        assert isinstance(published, PublishedWeights)
        wakeups = assembly.wakeups
        actors = len(assembly.layout.copies)
        return Stores(
            tuple(spec.name for spec in assembly.specs),
            assembly.layout.groups,
            assembly.experience,
            published,
            assembly.scoreboard,
            assembly.changes,
            control,
            self.stamps,
            wakeups[:actors],
            wakeups[actors:],
            assembly.config.schedule == "lockstep",
        )

    def stamp(self) -> int:
        """Count up this node's stamp; who sees it there sees all that was written here before."""
        stamps = self.stamps.all
        stamps[self.number] += 1
        return int(stamps[self.number])
