"""The nodes of a cluster, calls to their agents, and the placement of roles on nodes."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from socket import gethostbyname
from typing import Any, NamedTuple, Protocol

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
        return tuple(sorted({HEAD, *self.homes}))

    def roles_of(self, node: int) -> list[int]:
        return [role for role, home in enumerate(self.homes) if home == node]

    def describe(self, roles: Sequence[str], name: Callable[[int], str]) -> str:
        return "; ".join(
            f"{name(node)}: {', '.join(roles[role] for role in self.roles_of(node))}"
            for node in sorted(set(self.homes))
        )

    def peers_of(self, node: int) -> list[int]:
        """Return the nodes that exchange data with a node."""
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


class Need(NamedTuple):
    """The requirements of a learner process for its node."""

    device: str = "cpu"
    label: str = ""  # of the node (`policy.node`)
    beside: int | None = None  # an earlier learner process, on the same node

    def fits(self, node: NodeInfo) -> bool:
        return not self.label or node.has_label(self.label)


def place(
    nodes: Sequence[NodeInfo], actors: int, needs: Sequence[Need], lead: bool = False
) -> Placement:
    """Assign a node to every role.

    Learners that need a GPU go to a node with GPUs; a policy's label (`policy.node`) has priority.
    Each other role goes to the node with the most remaining cores, learners before actors. If
    `lead`, the head hosts the first actor.
    """
    cores = {node.number: node.cores for node in nodes}
    gpus = {node.number: node.gpus for node in nodes}

    def take(allowed: Sequence[NodeInfo]) -> int:
        best = max((node.number for node in allowed), key=lambda n: (cores[n], -n))
        cores[best] -= 1
        return best

    learners: list[int] = []
    for need in needs:
        allowed = [node for node in nodes if need.fits(node)]
        if need.beside is not None:
            allowed = [node for node in allowed if node.number == learners[need.beside]]
        if not allowed:
            message = f"has the label {need.label!r} (policy.node)"
            if need.beside is not None:
                message += " and trains the other policies of the same experience.group, which "
                message += "must share a node"
            raise LookupError(message)
        uses_gpu = need.device.startswith("cuda")
        able = [node for node in allowed if node.gpus]
        if uses_gpu and able:  # learners share GPUs if there are too few
            most_free = max(gpus[node.number] for node in able)
            allowed = [node for node in able if gpus[node.number] == most_free]
        learners.append(take(allowed))
        gpus[learners[-1]] -= uses_gpu
    cores[HEAD] -= lead
    players = [node for node in nodes if node.plays]
    if not players:
        raise LookupError("has a label of actor.nodes")
    homes = [HEAD] if lead else []
    homes += [take(players) for _ in range(actors - len(homes))]
    return Placement(tuple(homes), tuple(learners))


def relieved(placement: Placement, nodes: Sequence[NodeInfo], new: int) -> Placement | None:
    """Move actors of overloaded nodes to a new node, most overloaded first; None if none moves."""
    by_number = {node.number: node for node in nodes}
    if not by_number[new].plays:
        return None
    found = placement
    while len(found.roles_of(new)) < by_number[new].cores:
        lack = {n: len(found.roles_of(n)) - o.cores for n, o in by_number.items() if n != new}
        # The first actor stays, because it may lead a population.
        crowded = [n for n in lack if lack[n] > 0 and n in found.actors[1:]]
        if not crowded:
            break
        most = max(crowded, key=lambda number: lack[number])
        actor = max(a for a, home in enumerate(found.actors) if home == most and a)
        found = found.moved({actor: new})
    return None if found is placement else replace(found, epoch=placement.epoch + 1)


def without(
    placement: Placement, lost: Collection[int], nodes: Sequence[NodeInfo], needs: Sequence[Need]
) -> Placement:
    """Move each role of a lost node to the remaining node with the most free cores.

    Learners prefer nodes with the wanted label, and with a GPU if they train on one; see `place`.
    """
    roles = Counter(placement.homes)
    actors = len(placement.actors)
    homes: dict[int, int] = {}
    for role in [role for role, home in enumerate(placement.homes) if home in lost]:
        fit = list(nodes)
        if role < actors:
            fit = [node for node in nodes if node.plays] or fit
        else:
            need = needs[role - actors]
            fit = [node for node in fit if need.fits(node)] or fit
            if need.beside is not None:  # both were on the same node
                fit = [node for node in nodes if node.number == homes[actors + need.beside]]
            elif need.device.startswith("cuda"):
                fit = [node for node in fit if node.gpus] or fit
        home = max(fit, key=lambda node: (node.cores - roles[node.number], -node.number)).number
        roles[home] += 1
        homes[role] = home
    return placement.moved(homes)


class Plan:
    """The newest placement and the addresses of bridges, in shared memory for this node's bridge.

    The process that hosts a node's roles writes the plan; it increments `revision` before and
    after. `revision` is odd during a write, and while links are paused. The bridge stores the
    revision that it uses in `seen`. If the hosting process dies while writing, the bridge ends too.
    """

    def __init__(self, roles: int, nodes: int) -> None:
        self._shared = SharedArrays(
            {
                "revision": ((1,), np.int64),
                "seen": ((1,), np.int64),
                "size": ((1,), np.int64),
                "data": ((1024 + 16 * roles + 64 * nodes,), np.uint8),
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
        resolved = {node: (gethostbyname(host), port) for node, (host, port) in addresses.items()}
        data = pickle.dumps((placement, resolved))
        shared, revision = self._shared, self.revision
        revision -= revision % 2
        store(shared["revision"], 0, revision + 1)
        fence_release()
        shared["data"][: len(data)] = np.frombuffer(data, np.uint8)
        shared["size"][0] = len(data)
        store(shared["revision"], 0, revision + 2)

    def read(self) -> tuple[int, Placement, Addresses] | None:
        """Return revision, placement and addresses; None while `revision` is odd or changes."""
        shared, revision = self._shared, self.revision
        if revision % 2 == 1:
            return None
        data = shared["data"][: shared["size"][0]].tobytes()
        fence_acquire()
        if self.revision != revision:
            return None
        return revision, *pickle.loads(data)
