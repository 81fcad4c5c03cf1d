"""The nodes of a run as Ray knows them.

Ray tells which nodes there are, starts one process on each, carries a few calls a second to it, and
tells when it is gone. What is played and learned never passes through it.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import cloudpickle
import psutil

from remuda.cluster.nodes import HEAD, Call, NodeInfo
from remuda.cluster.ray_calls import LostCall, RayCall, answer_of
from remuda.cluster.ray_code import difference, digests, named_modules, own_code, versions
from remuda.cluster.ray_connect import connect, disconnect, find_address, import_ray
from remuda.cluster.ray_host import THREADS, Host
from remuda.cluster.ray_local import LocalNodes
from remuda.cluster.ray_looks import Looks, Told
from remuda.config import Config
from remuda.errors import NodeLostError, RemudaError, RoleDiedError
from remuda.pickled import names_in

LOG = logging.getLogger(__name__)
STEP = 0.05
"""Seconds between two looks at what is waited for."""
RETURN_AFTER = 5.0
"""Seconds after which a node whose agent is gone, and that Ray still has, may be taken again; twice
as many each time."""
SAME = ("OMP_NUM_THREADS",)
"""Variables of the environment that are on all nodes as they are here; Ray would set them by the
cores that an agent reserves, and sums of floating-point numbers go by the number of threads."""
GONE_AFTER = 20.0
"""Seconds that an answer of Ray's control service is waited for before it is taken for gone. A
minute after it is, Ray's own processes end too."""
KILL_LIMIT = 5.0
"""Seconds that agents have to be gone at the end."""


@dataclass
class _Node:
    """A node of Ray's that the run takes, or may."""

    ray_id: str
    host: Any
    description: Any
    """Ray's reference to what it tells of itself."""
    watch: Any
    """Ray's reference that is answered, with an error, only once its process is gone."""
    cores: int
    gpus: int
    entry: Mapping[str, Any]
    """As Ray lists it."""
    info: NodeInfo | None = None
    process: int = 0
    logs: str = ""
    gone: bool = False


@dataclass
class _Absent:
    """A node of Ray's whose agent is gone: when it may be taken again."""

    times: int = 0
    until: float = field(default_factory=time.monotonic)


class RayNodes:
    """Ray's cluster, or one on this machine, as the nodes of a run.

    1. A node has one agent: a Ray actor that reserves what Ray has free there, so that neither
       another's work nor another run's is beside it; and that Ray never starts again.
    2. What Ray says is gone is gone: an agent whose connection broke is killed before its node is
       taken again, under another number.
    3. Nothing waits for Ray's control service once the run goes on; a thread does. Where the
       service is gone, so is the cluster: the run ends with a message.
    4. Nodes are looked at before they are taken: another version of Python, of Remuda or of torch,
       or another source of Remuda or of what the configuration names, is refused.
    """

    def __init__(self, config: Config) -> None:
        """Check what can be checked at once, and begin to start what is to be started."""
        self._config = config
        self._cluster = config.cluster
        self._ray: ModuleType = import_ray(bool(config.cluster.local))
        self._nodes: dict[int, _Node] = {}
        self._coming: dict[str, _Node] = {}
        self._absent: dict[str, _Absent] = {}
        self._refused: set[str] = set()
        self._lost: list[int] = []
        self._looks = Looks(self._told)
        self._here = ""
        self._host: Any = None
        self._number = HEAD
        self._local: LocalNodes | None = None
        self._address = ""
        if config.cluster.local:
            count = config.cluster.local
            self._local = LocalNodes(
                count,
                cores=max(1, (os.cpu_count() or 1) // count),
                memory=max(10**9, psutil.virtual_memory().available // count),
            )
        else:
            self._address = find_address(self._ray, config.cluster.address)
        tree = config.model_dump(mode="json")
        self._modules = named_modules(tree)
        own = not config.cluster.local  # nodes on this machine find what this process finds
        self._sent = own_code(self._modules, any(names_in(tree))) if own else []
        self._expected = {"versions": versions(), "digests": digests(["remuda", *self._modules])}

    @property
    def local(self) -> LocalNodes | None:
        """What was started on this machine; None: the cluster was there."""
        return self._local

    def gather(self) -> list[NodeInfo]:
        """Wait for the nodes that the run is to begin with; the head is the first."""
        end = time.monotonic() + self._cluster.start_limit
        said = self._cluster.address or f"local {self._cluster.local}"
        try:
            if self._local is not None:
                self._local.wait(self._cluster.local, self._cluster.start_limit)
                self._address = self._local.address
            connect(self._ray, self._address, said, self._sent)
            self._here = self._ray.get_runtime_context().get_node_id()
            self._host = self._ray.remote(Host)
            for entry in self._wait_for_nodes(end):
                self._coming[entry["NodeID"]] = self._begin(entry, *self._wait_for_free(entry, end))
            for node in list(self._coming.values()):
                self._take(node, max(end - time.monotonic(), 1.0))
            infos = [node.info for node in self._nodes.values() if node.info is not None]
            self._check_labels(infos)
        except BaseException:
            self.stop()
            raise
        return infos

    def _wait_for_nodes(self, end: float) -> Sequence[Mapping[str, Any]]:
        """Ray's entries of as many nodes as are wanted, this machine's first."""
        wanted = self._cluster.local or self._cluster.nodes
        while True:
            found = self._ask(end).entries
            if found and len(found) >= wanted:
                return found[:wanted] if wanted else found
            if time.monotonic() > end:
                names = ", ".join(_name_of(entry) for entry in found)
                raise RemudaError(
                    f"{len(found)} of {wanted} nodes are there after {self._cluster.start_limit:g} "
                    f"s (cluster.start_limit): {names}; start more with `ray start --address "
                    f"{self._address}`, or lower cluster.nodes"
                )
            time.sleep(STEP)

    def _ask(self, end: float) -> Told:
        """Wait for what Ray says of the nodes, from now on."""
        while (told := self._looks.newest()) is None:
            if time.monotonic() > end and self._looks.waits > STEP:
                raise RemudaError(self._silent())
            time.sleep(STEP / 5)
        return told

    def _silent(self) -> str:
        """What is said where Ray does not answer."""
        again = "" if self._local is not None else "; start Ray again"
        why = f" ({self._looks.failure})" if self._looks.failure else ""
        return (
            f"Ray, at {self._address}, has not said for {self._looks.waits:.0f} s which nodes "
            f"there are{why}: its control service is gone, and with it the cluster{again}"
        )

    def _told(self) -> Told:
        """What Ray says of the nodes that are there; it does not return where Ray is gone."""
        found = [entry for entry in self._ray.nodes() if entry["Alive"]]
        found.sort(key=lambda entry: entry["NodeID"] != self._here)
        is_whole = found and found[0]["NodeID"] == self._here
        tell = getattr(self._ray._private.state, "available_resources_per_node", None)
        return Told(found if is_whole else (), tell() if tell is not None else {})

    def _begin(self, entry: Mapping[str, Any], cores: int, gpus: int) -> _Node:
        """Start the process of a node, which reserves all that is free there."""
        ray_id = entry["NodeID"]
        affinity = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        options: dict[str, Any] = {
            "num_cpus": cores,
            "num_gpus": gpus,
            "max_restarts": 0,
            "max_task_retries": 0,
            "max_concurrency": THREADS,
            "enable_task_events": False,  # of each call, which Ray would keep on the head
            "scheduling_strategy": affinity(ray_id, soft=False),
        }
        same = {name: os.environ.get(name) for name in SAME}
        host = self._host.options(**options).remote(same)
        description = host.describe.remote(list(self._expected["digests"]))
        return _Node(ray_id, host, description, host.watch.remote(), cores, gpus, entry)

    def _wait_for_free(self, entry: Mapping[str, Any], end: float) -> tuple[int, int]:
        """Cores and GPUs that are not reserved there; an earlier run may just be ending."""
        while (found := _free(entry, self._ask(end))) is None:
            if time.monotonic() > end:
                raise RemudaError(
                    f"node {_name_of(entry)} has no free core: another run, or another job of "
                    "Ray's, has reserved them; end that, or wait for it"
                )
            time.sleep(STEP)
        return found

    def _take(self, node: _Node, seconds: float) -> NodeInfo:
        """Give a node its number, once it has told what it is and was found to fit."""
        name = self._unique(_name_of(node.entry))
        try:
            told = answer_of(self._ray, node.description, name, seconds)
        except TimeoutError:
            raise RemudaError(
                f"node {name} did not say what it is within {self._cluster.start_limit:g} s "
                "(cluster.start_limit): look whether it is overloaded, or cannot be reached, and "
                "leave it out, or raise the limit"
            ) from None
        finally:
            self._coming.pop(node.ray_id, None)
        fault = difference(self._expected, told, name)
        if fault is not None:
            self._refused.add(node.ray_id)
            self._kill(node)
            raise RemudaError(fault)
        reserved = int(node.entry["Resources"].get("memory", told["memory"]))
        labels = node.entry.get("Labels") or {}
        info = node.info = NodeInfo(
            number=self._number,
            name=name,
            address=node.entry["NodeManagerAddress"],
            cores=node.cores,
            memory=min(told["memory"] // max(self._cluster.local, 1), reserved),
            gpus=node.gpus,
            labels={key: value for key, value in labels.items() if key != "ray.io/node-id"},
        )
        node.process, node.logs = told["process"], told["logs"]
        self._nodes[self._number] = node
        self._number += 1
        return info

    def _unique(self, name: str) -> str:
        taken = {n.info.name for n in self._nodes.values() if n.info is not None and not n.gone}
        return name if name not in taken else f"{name}-{self._number}"

    def _check_labels(self, infos: list[NodeInfo]) -> None:
        """Refuse settings that name a node which is not there."""
        config = self._config
        named = [("actor.nodes", label) for label in config.actor.nodes]
        named.append(("policy.node", config.policy.node))
        named += [
            (f"policies.{name}.node", config.policy_of(name).node) for name in config.policies
        ]
        for key, label in named:
            if label and not any(info.has_label(label) for info in infos):
                there = [info.name for info in infos]
                there += [f"{k}={v}" for info in infos for k, v in info.labels.items()]
                raise RemudaError(
                    f"{key} is {label!r}, and no node has this name or label; there are "
                    f"{', '.join(dict.fromkeys(there))}"
                )

    def start(self, number: int, agent: str, args: tuple[Any, ...]) -> None:
        """Make the node's agent, in a process of its own; nothing is waited for."""
        node = self._nodes[number]
        if not node.gone:
            node.host.make.remote(agent, cloudpickle.dumps(args))

    def call(self, number: int, method: str, *args: Any) -> Call:
        """Call a method of the node's agent; several run at once, in threads there."""
        node = self._nodes[number]
        assert node.info is not None
        if node.gone:
            return LostCall(node.info.name)
        answer = node.host.call.remote(method, cloudpickle.dumps(args))
        return RayCall(self._ray, answer, node.info.name, node.logs)

    def lost(self) -> list[int]:
        """The nodes that were found to be gone since this was asked last."""
        watches = {node.watch: n for n, node in self._nodes.items() if not node.gone}
        if watches:
            ready, _ = self._ray.wait(
                list(watches), num_returns=len(watches), timeout=0, fetch_local=False
            )
            for watch in ready:
                self._give_up(self._nodes[watches[watch]])
                self._lost.append(watches[watch])
        found, self._lost = self._lost, []
        return found

    def joined(self) -> list[NodeInfo]:
        """The nodes that have come since this was asked last; they have no agent yet."""
        found = []
        for node in list(self._coming.values()):
            if self._ray.wait([node.description], timeout=0, fetch_local=False)[0]:
                try:
                    found.append(self._take(node, 1.0))
                except NodeLostError:
                    self._give_up(node)  # gone before it was taken
                except RemudaError as error:
                    self._refused.add(node.ray_id)
                    LOG.warning("%s; it is left out", error)
        told = self._looks.newest()
        if self._looks.waits > GONE_AFTER:
            raise RoleDiedError(self._silent())
        if told is None:
            return found
        taken = {node.ray_id for node in self._nodes.values() if not node.gone}
        room = self._cluster.nodes - len(taken) - len(self._coming)
        for entry in told.entries:
            ray_id = entry["NodeID"]
            if ray_id in taken or ray_id in self._coming or ray_id in self._refused:
                continue
            if not self._may_return(ray_id) or (self._cluster.nodes and room <= 0):
                continue
            free = _free(entry, told)
            if free is not None:  # else it is looked at again
                self._coming[ray_id] = self._begin(entry, *free)
                room -= 1
        return found

    def _may_return(self, ray_id: str) -> bool:
        absent = self._absent.get(ray_id)
        return absent is None or time.monotonic() > absent.until

    def give_up(self, number: int) -> None:
        """Kill the node's agent, whatever it does, and count the node as gone."""
        self._give_up(self._nodes[number])

    def _give_up(self, node: _Node) -> None:
        if node.gone:
            return
        node.gone = True
        self._kill(node)
        absent = self._absent.setdefault(node.ray_id, _Absent())
        absent.until = time.monotonic() + RETURN_AFTER * 2**absent.times
        absent.times += 1

    def _kill(self, node: _Node) -> None:
        with suppress(Exception):  # Ray raises where it is gone already
            self._ray.kill(node.host, no_restart=True)
        if self._local is not None and node.process:  # Ray cannot reach what is stopped
            with suppress(OSError):
                os.kill(node.process, signal.SIGKILL)

    def stop(self) -> None:
        """Kill all agents, and end all that was started here; nothing of it stays."""
        self._looks.stop()
        nodes = [*self._nodes.values(), *self._coming.values()]
        if self._ray.is_initialized():
            for node in nodes:
                self._kill(node)
            watches = [node.watch for node in nodes if not node.gone]
            if watches and self._local is None:
                with suppress(Exception):
                    self._ray.wait(watches, num_returns=len(watches), timeout=KILL_LIMIT)
            with suppress(Exception):
                disconnect(self._ray)
        for node in nodes:
            node.gone = True
        self._coming.clear()
        if self._local is not None:
            self._local.stop()


def _name_of(entry: Mapping[str, Any]) -> str:
    """What people call a node: a label `name`, or what Ray or the system calls it."""
    labels = entry.get("Labels") or {}
    address = entry["NodeManagerAddress"]
    ray_name = entry.get("NodeName") or address
    return str(
        labels.get("name") or (ray_name if ray_name != address else entry["NodeManagerHostname"])
    )


def _free(entry: Mapping[str, Any], told: Told) -> tuple[int, int] | None:
    """Cores and GPUs of a node that are not reserved; None: it has cores, and none is free."""
    total = entry["Resources"]
    free = told.free.get(entry["NodeID"], total)
    cores, gpus = int(free.get("CPU", 0)), int(free.get("GPU", 0))
    return (cores, gpus) if cores or not total.get("CPU") else None
