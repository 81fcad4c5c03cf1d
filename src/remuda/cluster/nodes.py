"""The nodes of a cluster, calls to their agents, and the placement of roles on nodes."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from remuda.system.memory.atomic import fence_acquire, fence_release, load, store
from remuda.system.memory.shared import SharedArrays

HEAD = 0  # the number of the head: the node where the run was started


@dataclass(frozen=True)
class NodeInfo:
    """A node, with the resources that it had when it joined."""

    number: int  # 0 for the head; never reused
    name: str  # name for users: its host name, or a label
    address: str  # the IP address at which other nodes reach it
    cores: int  # cores that the run may use
    memory: int  # bytes that the run may use
    gpus: int  # GPUs that the run may use
    labels: Mapping[str, str] = field(default_factory=dict)  # labels set when the node was started
    plays: bool = True  # actors may run there (`actor.nodes`)

    def has_label(self, label: str) -> bool:
        """Return whether `label` in a setting matches this node."""
        name, separator, value = label.partition("=")
        if separator:
            return self.labels.get(name) == value
        return label == self.name or label in self.labels


class Call(Protocol):
    """A call of an agent's method, whose answer may be pending."""

    def done(self) -> bool:
        """Return whether `result` would return or raise at once."""

    def result(self, timeout: float | None = None) -> Any:
        """Return the result of the method."""


class Nodes(Protocol):
    """The nodes of a run, each with one agent: an object in a separate process on that node.

    1. A node's number is never reused: a node that comes back gets a new number.
    2. A node has at most one agent, and a dead agent is not replaced.
    3. `call` never waits, neither for the node nor for other calls to it.
    4. Agents end with this process, however it dies, and with `stop`.
    """

    def gather(self) -> list[NodeInfo]:
        """Wait for the first nodes of the run; the head comes first."""

    def start(self, number: int, agent: str, args: tuple[Any, ...]) -> None:
        """Start the node's agent without waiting; if that fails, later calls raise the error."""

    def call(self, number: int, method: str, *args: Any) -> Call:
        """Call a method of the node's agent, which runs several calls at once in threads."""

    def lost(self) -> list[int]:
        """Return the nodes found lost since the last call."""

    def joined(self) -> list[NodeInfo]:
        """Return the nodes that joined since the last call; they have no agent yet."""

    def give_up(self, number: int) -> None:
        """Kill the node's agent unconditionally, and count the node as lost."""

    def stop(self) -> None:
        """Kill all agents, and end every process that this object started."""


Addresses = Mapping[int, tuple[str, int]]  # the address of each node's bridge
NOWHERE = 0  # the port of a missing node


@dataclass(frozen=True)
class Placement:
    """The node of every role. Roles are numbered: first the actors, then the learners."""

    actors: tuple[int, ...]  # node of each actor
    learners: tuple[int, ...]  # node of each learner process
    epoch: int = 1  # number of placements so far; nodes of different epochs have no links

    @property
    def homes(self) -> tuple[int, ...]:
        return (*self.actors, *self.learners)

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes with a role, and the head."""
        return tuple(sorted({HEAD, *self.homes}))

    def roles_of(self, node: int) -> list[int]:
        return [role for role, home in enumerate(self.homes) if home == node]

    def in_words(self, roles: Sequence[str], name: Callable[[int], str]) -> str:
        return "; ".join(
            f"{name(node)}: {', '.join(roles[role] for role in self.roles_of(node))}"
            for node in sorted(set(self.homes))
        )

    def peers_of(self, node: int) -> list[int]:
        """Return the nodes that exchange data with a node.

        Every node exchanges data with the head. A node with actors also exchanges data with nodes
        with learners.
        """
        plays, learns = set(self.actors), set(self.learners)
        if node not in self.nodes:
            return []  # it has no data to send
        peers = set(self.nodes) if node == HEAD else {HEAD}
        if node in plays:
            peers |= learns
        if node in learns:
            peers |= plays
        return sorted(peers - {node})

    def moved(self, homes: Mapping[int, int]) -> Placement:
        found = [homes.get(role, home) for role, home in enumerate(self.homes)]
        actors = len(self.actors)
        return Placement(tuple(found[:actors]), tuple(found[actors:]), self.epoch + 1)


def place(
    nodes: Sequence[NodeInfo],
    actors: int,
    devices: Sequence[str],
    wanted: Sequence[str] = (),
    beside: Sequence[int] = (),
    epoch: int = 1,
    lead: bool = False,
) -> Placement:
    """Assign a node to every role.

    Learners that need a GPU go to a node with GPUs; a policy's label (`policy.node`) has priority.
    Each other role goes to the node with the most remaining cores, learners before actors. For
    `devices`, `wanted` and `beside` see `needs_of`. If `lead`, the head hosts the first actor.
    """
    left = {node.number: float(node.cores) for node in nodes}
    gpus = {node.number: node.gpus for node in nodes}
    by_number = {node.number: node for node in nodes}

    def take(allowed: Sequence[int]) -> int:
        best = max(allowed, key=lambda number: (left[number], -number))
        left[best] -= 1.0
        return best

    learners: list[int] = []
    for i, device in enumerate(devices):
        label = wanted[i] if i < len(wanted) else ""
        allowed = [n for n, node in by_number.items() if not label or node.has_label(label)]
        if i < len(beside) and beside[i] != i:
            home = learners[beside[i]]
            if home not in allowed:
                raise LookupError(
                    f"has the label {label!r} (policy.node) and trains the other policies of the "
                    "same experience.group, which must share a node"
                )
            allowed = [home]
        if not allowed:
            raise LookupError(f"has the label {label!r} (policy.node)")
        able = [n for n in allowed if by_number[n].gpus > 0]
        if device.startswith("cuda") and able:  # learners share GPUs if there are too few
            most = max(gpus[n] for n in able)
            allowed = [n for n in able if gpus[n] == most]
        home = take(allowed)
        gpus[home] -= device.startswith("cuda")
        learners.append(home)
    left[HEAD] -= lead
    players = [node.number for node in nodes if node.plays]
    if not players:
        raise LookupError("has a label of actor.nodes")
    found = [HEAD] if lead else []
    found += [take(players) for _ in range(actors - len(found))]
    return Placement(tuple(found), tuple(learners), epoch)


def relieved(placement: Placement, nodes: Sequence[NodeInfo], new: int) -> Placement | None:
    """Move actors of overloaded nodes to a new node, most overloaded first; None if none moves."""
    by_number = {node.number: node for node in nodes}
    if not by_number[new].plays:
        return None
    found, moved = placement, False
    while len(found.roles_of(new)) < by_number[new].cores:
        lack = {n: len(found.roles_of(n)) - o.cores for n, o in by_number.items() if n != new}
        # The first actor stays, because it may lead a population.
        crowded = [n for n in lack if lack[n] > 0 and n in found.actors[1:]]
        if not crowded:
            break
        most = max(crowded, key=lambda number: lack[number])
        actor = max(a for a, home in enumerate(found.actors) if home == most and a)
        found, moved = found.moved({actor: new}), True
    return replace(found, epoch=placement.epoch + 1) if moved else None


def without(
    placement: Placement,
    gone: Collection[int],
    nodes: Sequence[NodeInfo],
    devices: Sequence[str] = (),
    wanted: Sequence[str] = (),
    beside: Sequence[int] = (),
) -> Placement:
    """Move each role of a lost node to the remaining node with the most free cores.

    Learners prefer nodes with the wanted label, and with a GPU if they train on one; see `place`.
    """
    load = {node.number: 0 for node in nodes}
    for home in placement.homes:
        if home in load:
            load[home] += 1
    homes: dict[int, int] = {}
    for role in [role for role, home in enumerate(placement.homes) if home in gone]:
        plays = role < len(placement.actors)
        fit = [o for o in nodes if o.plays or not plays] or list(nodes)
        learner = role - len(placement.actors)
        if not plays and learner < len(beside) and beside[learner] != learner:
            home = homes[role - learner + beside[learner]]  # both were on the same node
        else:
            if not plays:
                label = wanted[learner] if learner < len(wanted) else ""
                device = devices[learner] if learner < len(devices) else ""
                fit = [o for o in fit if label and o.has_label(label)] or fit
                fit = [o for o in fit if o.gpus and device.startswith("cuda")] or fit
            home = max(fit, key=lambda o: (o.cores - load[o.number], -o.number)).number
        load[home] += 1
        homes[role] = home
    return placement.moved(homes)


class Plan:
    """The newest placement and the addresses of bridges, in shared memory for this node's bridge.

    The process that hosts a node's roles writes the plan; it increments `revision` before and
    after. `revision` is odd during a write, and while links are paused. The bridge stores the
    revision that it uses in `seen`. If the hosting process dies while writing, the bridge ends too.
    """

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
        """Number that grows with every placement; odd during a write or while links are paused."""
        return load(self._shared["revision"], 0)

    def pause(self) -> None:
        """Let the bridge close all links, and open none until `write`."""
        if self.revision % 2 == 0:
            store(self._shared["revision"], 0, self.revision + 1)

    @property
    def is_seen(self) -> bool:
        """True if the bridge uses the current revision, or has closed its links for a pause."""
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
        """Return revision, placement and addresses; None while `revision` is odd or changes."""
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
