"""A node of a cluster: the run's shared memory, the roles that use it, and the node's bridge."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from socket import socket

from remuda.assembly.assembly import Assembly
from remuda.cluster.bridge import BridgeRole, run_bridge
from remuda.cluster.channel import Count, Traffic
from remuda.cluster.handover import HandoverState, take_over
from remuda.cluster.nodes import Addresses, Placement, Plan
from remuda.cluster.stores import Stores, make_stamps
from remuda.publish.snapshot import PublishedWeights
from remuda.runtime.child import RoleSetup
from remuda.runtime.control import Control
from remuda.runtime.processes import ProcessRuntime
from remuda.system.checkpoint.store import Checkpoints
from remuda.system.memory.waiting import Wakeup

# maximum seconds to wait for links to other nodes before arriving roles start
REACH = 5.0


class Node:
    """One node's share of a run: everything that its roles and its bridge use.

    The memory outlives placements: a role that moves away leaves its part of the memory unchanged.
    """

    def __init__(
        self, assembly: Assembly, number: int, nodes: int, secret: bytes, listener: socket
    ) -> None:
        self.assembly, self.number = assembly, number
        self.listener, self._secret = listener, secret
        self.plan = Plan(len(assembly.wakeups), nodes)
        self.stamps, self.traffic = make_stamps(nodes), Traffic(nodes)

    def runtime(
        self, placement: Placement, addresses: Addresses, logs: Path, checkpoints: Checkpoints
    ) -> ProcessRuntime:
        assembly = self.assembly
        config, wakeup = assembly.config, Wakeup()
        control = Control((*assembly.wakeups, wakeup), bridges=1)
        self.plan.write(placement, addresses)
        role = BridgeRole(
            self.stores(control),
            self.plan,
            self.number,
            self._secret,
            self.listener,
            wakeup,
            self.traffic,
            config.cluster.weights_every,
            config.cluster.silence,
        )
        self.checkpoints = checkpoints
        self.process_runtime = assembly.process_runtime(
            logs,
            checkpoints,
            control,
            placement.roles_of(self.number),
            RoleSetup(role, wakeup, run_bridge),
        )
        return self.process_runtime

    def replace(
        self,
        placement: Placement,
        addresses: Addresses,
        handover: HandoverState,
        is_overtaken: Callable[[], bool],
    ) -> None:
        """Change to another placement.

        Arriving roles start once the data of other nodes is here, or after `REACH` seconds. If a
        newer placement comes first, they do not start. A learner that started without its
        predecessor's last data would repeat updates.
        """
        runtime = self.process_runtime
        self.plan.pause()  # once the bridge has seen this, no other node writes here
        end = time.monotonic() + REACH
        while not self.plan.is_seen and time.monotonic() < end:
            runtime.run_for(0.001)
        take_over(self.assembly, handover, self.checkpoints)
        self.plan.write(placement, addresses)
        end = time.monotonic() + REACH
        peers = placement.peers_of(self.number)
        in_step = self.traffic.counts[:, Count.IN_STEP]
        here = placement.roles_of(self.number)
        while (in_step[peers] != placement.epoch).any() and time.monotonic() < end:
            if is_overtaken():
                here = [role for role in here if role in runtime.here]
                break
            runtime.run_for(0.01)
        runtime.move(here)

    def stores(self, control: Control) -> Stores:
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
            assembly.env_options,
            control,
            self.stamps,
            wakeups[:actors],
            wakeups[actors:],
            assembly.config.schedule == "lockstep",
            assembly.table,
        )

    def stamp(self) -> int:
        """Increment this node's stamp; nodes that see the new stamp see all earlier writes too."""
        stamps = self.stamps["stamps"]
        stamps[self.number] += 1
        return int(stamps[self.number])
