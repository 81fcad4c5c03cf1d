"""The nodes of a run, managed by Ray.

Ray lists the nodes, starts one process on each, carries a few calls a second to that process, and
reports its death. Experience and weights pass through Ray only in checkpoints and when roles move.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import cloudpickle
import psutil

from remuda.cluster.nodes import HEAD, Call, NodeInfo
from remuda.cluster.ray_calls import THREADS, Host, RayCall, answer_of
from remuda.cluster.ray_code import difference, digests, named_modules, own_code, versions
from remuda.cluster.ray_connect import (
    NodePoller,
    NodeSnapshot,
    connect,
    disconnect,
    find_address,
    import_ray,
)
from remuda.cluster.ray_local import LocalNodes
from remuda.config import Config
from remuda.errors import NodeLostError, RemudaError, RoleDiedError
from remuda.system.loading import names_in

LOG = logging.getLogger(__name__)
STEP = 0.05  # seconds between two checks while waiting
# Seconds after which a lost node that Ray still lists may be used again; doubled each time.
RETURN_AFTER = 5.0
# Environment variables copied from the head node. Ray would set this variable to the number of
# reserved cores, and floating-point sums depend on the number of threads.
SAME = ("OMP_NUM_THREADS",)
GONE_AFTER = 20.0  # seconds without an answer after which Ray's control service counts as dead


@dataclass
class _Node:
    """A Ray node that the run uses or may use."""

    ray_id: str
    host: Any
    description: Any  # Ray's reference to the node's description
    watch: Any  # Ray's reference that fails once the node's process is dead
    cores: int
    gpus: int
    entry: Mapping[str, Any]  # Ray's entry of the node
    info: NodeInfo | None = None
    process: int = 0
    logs: str = ""
    gone: bool = False


class RayNodes:
    """The nodes of an existing Ray cluster, or of a Ray cluster started on this machine.

    1. A run has one process on each node, a Ray actor. It reserves all free cores and GPUs there,
       so no other Ray job shares the node. Ray never restarts the process.
    2. A node that Ray reports as dead is lost. Its process is killed, because it may only have lost
       its connection. The node may then rejoin, with a new number.
    3. Only a separate thread waits for Ray's control service, so the service never blocks the run.
       If the service dies, the cluster is lost, and the run ends with a message.
    4. Nodes are checked before use. A node is refused if it differs from the head in the version
       of Python, Remuda or torch, or in the source of Remuda or of a configured module.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._cluster = config.cluster
        self._ray: ModuleType = import_ray(bool(config.cluster.local))
        self._nodes: dict[int, _Node] = {}
        self._coming: dict[str, _Node] = {}
        # lost Ray nodes: how often each was lost, and when it may be used again
        self._absent: dict[str, tuple[int, float]] = {}
        self._refused: set[str] = set()
        self._poller = NodePoller(self._list_nodes)
        self._here = ""
        self._host: Any = None
        self._number = HEAD
        self.local: LocalNodes | None = None  # nodes started on this machine
        self._address = ""
        if config.cluster.local:
            count = config.cluster.local
            self.local = LocalNodes(
                count,
                cores=max(1, (os.cpu_count() or 1) // count),
                memory=max(10**9, psutil.virtual_memory().available // count),
            )
        else:
            self._address = find_address(self._ray, config.cluster.address)
        tree = config.model_dump(mode="json")
        self._modules = named_modules(tree)
        own = not config.cluster.local  # nodes on this machine find the same modules
        self._sent = own_code(self._modules, any(names_in(tree))) if own else []
        self._expected = {"versions": versions(), "digests": digests(["remuda", *self._modules])}

    def gather(self) -> list[NodeInfo]:
        end = time.monotonic() + self._cluster.start_limit
        named_in = self._cluster.address or f"local {self._cluster.local}"
        try:
            if self.local is not None:
                self.local.wait(self._cluster.local, self._cluster.start_limit)
                self._address = self.local.address
            connect(self._ray, self._address, named_in, self._sent)
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
        wanted = self._cluster.local or self._cluster.nodes
        while True:
            entries = self._ask(end).entries
            if entries and len(entries) >= wanted:
                return entries[:wanted] if wanted else entries
            if time.monotonic() > end:
                names = ", ".join(_name_of(entry) for entry in entries)
                raise RemudaError(
                    f"only {len(entries)} of {wanted} nodes joined within "
                    f"{self._cluster.start_limit:g} s (cluster.start_limit): {names}; start more "
                    f"with `ray start --address {self._address}`, or lower cluster.nodes"
                )
            time.sleep(STEP)

    def _ask(self, end: float) -> NodeSnapshot:
        while (snapshot := self._poller.newest()) is None:
            if time.monotonic() > end and self._poller.waits > STEP:
                raise RemudaError(self._silent())
            time.sleep(STEP / 5)
        return snapshot

    def _silent(self) -> str:
        again = "" if self.local is not None else "; start Ray again"
        why = f" ({self._poller.failure})" if self._poller.failure else ""
        return (
            f"Ray, at {self._address}, has not listed its nodes for {self._poller.waits:.0f} s"
            f"{why}: its control service has ended, so the cluster is lost{again}"
        )

    def _list_nodes(self) -> NodeSnapshot:
        """List Ray's living nodes; does not return if Ray is gone."""
        entries = [entry for entry in self._ray.nodes() if entry["Alive"]]
        entries.sort(key=lambda entry: entry["NodeID"] != self._here)
        is_whole = entries and entries[0]["NodeID"] == self._here
        free = getattr(self._ray._private.state, "available_resources_per_node", None)
        return NodeSnapshot(entries if is_whole else (), free() if free is not None else {})

    def _begin(self, entry: Mapping[str, Any], cores: int, gpus: int) -> _Node:
        """Start the process of a node, which reserves these cores and GPUs."""
        ray_id = entry["NodeID"]
        affinity = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        host_class = self._host.options(
            num_cpus=cores,
            num_gpus=gpus,
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=THREADS,
            enable_task_events=False,  # else Ray keeps an event of each call on the head
            scheduling_strategy=affinity(ray_id, soft=False),
        )
        host = host_class.remote({name: os.environ.get(name) for name in SAME})
        description = host.describe.remote(list(self._expected["digests"]))
        return _Node(ray_id, host, description, host.watch.remote(), cores, gpus, entry)

    def _wait_for_free(self, entry: Mapping[str, Any], end: float) -> tuple[int, int]:
        """Wait for free cores and GPUs; an earlier run may just be ending."""
        while (free := _free(entry, self._ask(end))) is None:
            if time.monotonic() > end:
                raise RemudaError(
                    f"node {_name_of(entry)} has no free core: another run, or another Ray job, "
                    "has reserved them; end that job, or wait for it"
                )
            time.sleep(STEP)
        return free

    def _take(self, node: _Node, seconds: float) -> NodeInfo:
        """Give a node its number once its description arrives and matches the head's code."""
        name = _name_of(node.entry)
        if name in {n.info.name for n in self._nodes.values() if n.info is not None and not n.gone}:
            name = f"{name}-{self._number}"
        try:
            snapshot = answer_of(self._ray, node.description, name, seconds)
        except TimeoutError:
            raise RemudaError(
                f"node {name} did not describe itself within {self._cluster.start_limit:g} s "
                "(cluster.start_limit): check whether it is overloaded or unreachable, and "
                "leave it out, or raise the limit"
            ) from None
        finally:
            self._coming.pop(node.ray_id, None)
        fault = difference(self._expected, snapshot, name)
        if fault is not None:
            self._refused.add(node.ray_id)
            self._kill(node)
            raise RemudaError(fault)
        labels = node.entry.get("Labels") or {}
        players = self._config.actor.nodes
        info = NodeInfo(
            number=self._number,
            name=name,
            address=node.entry["NodeManagerAddress"],
            cores=node.cores,
            gpus=node.gpus,
            labels={key: value for key, value in labels.items() if key != "ray.io/node-id"},
        )
        node.info = info = replace(info, plays=not players or any(map(info.has_label, players)))
        node.process, node.logs = snapshot["process"], snapshot["logs"]
        self._nodes[self._number] = node
        self._number += 1
        return info

    def _check_labels(self, infos: list[NodeInfo]) -> None:
        config = self._config
        named = [("actor.nodes", label) for label in config.actor.nodes]
        named.append(("policy.node", config.policy.node))
        named += [
            (f"policies.{name}.node", config.policy_of(name).node) for name in config.policies
        ]
        for key, label in named:
            if label and not any(info.has_label(label) for info in infos):
                choices = [info.name for info in infos]
                choices += [f"{k}={v}" for info in infos for k, v in info.labels.items()]
                raise RemudaError(
                    f"{key} is {label!r}, and no node has this name or label; there are "
                    f"{', '.join(dict.fromkeys(choices))}"
                )

    def start(self, number: int, agent: str, args: tuple[Any, ...]) -> None:
        node = self._nodes[number]
        if not node.gone:
            node.host.make.remote(agent, cloudpickle.dumps(args))

    def call(self, number: int, method: str, *args: Any) -> Call:
        node = self._nodes[number]
        assert node.info is not None
        if node.gone:
            lost: Future[Any] = Future()
            lost.set_exception(NodeLostError(f"node {node.info.name} is gone"))
            return lost
        answer = node.host.call.remote(method, cloudpickle.dumps(args))
        return RayCall(self._ray, answer, node.info.name, node.logs)

    def lost(self) -> list[int]:
        watches = {node.watch: n for n, node in self._nodes.items() if not node.gone}
        if not watches:
            return []
        ready, _ = self._ray.wait(
            list(watches), num_returns=len(watches), timeout=0, fetch_local=False
        )
        for watch in ready:
            self._give_up(self._nodes[watches[watch]])
        return [watches[watch] for watch in ready]

    def joined(self) -> list[NodeInfo]:
        found = []
        for node in list(self._coming.values()):
            if self._ray.wait([node.description], timeout=0, fetch_local=False)[0]:
                try:
                    found.append(self._take(node, 1.0))
                except NodeLostError:
                    self._give_up(node)  # the node died before it was used
                except RemudaError as error:
                    self._refused.add(node.ray_id)
                    LOG.warning("%s; the run does not use this node", error)
        snapshot = self._poller.newest()
        if self._poller.waits > GONE_AFTER:
            raise RoleDiedError(self._silent())
        if snapshot is None:
            return found
        taken = {node.ray_id for node in self._nodes.values() if not node.gone}
        room = self._cluster.nodes - len(taken) - len(self._coming)
        for entry in snapshot.entries:
            ray_id = entry["NodeID"]
            if ray_id in taken or ray_id in self._coming or ray_id in self._refused:
                continue
            _, returns_at = self._absent.get(ray_id, (0, 0.0))
            if time.monotonic() <= returns_at or (self._cluster.nodes and room <= 0):
                continue
            free = _free(entry, snapshot)
            if free is not None:  # otherwise it is checked again later
                self._coming[ray_id] = self._begin(entry, *free)
                room -= 1
        return found

    def give_up(self, number: int) -> None:
        self._give_up(self._nodes[number])

    def _give_up(self, node: _Node) -> None:
        if node.gone:
            return
        node.gone = True
        self._kill(node)
        times, _ = self._absent.get(node.ray_id, (0, 0.0))
        self._absent[node.ray_id] = times + 1, time.monotonic() + RETURN_AFTER * 2**times

    def _kill(self, node: _Node) -> None:
        with suppress(Exception):  # Ray raises if the process is already dead
            self._ray.kill(node.host, no_restart=True)
        if self.local is not None and node.process:  # Ray cannot kill a stopped process
            with suppress(OSError):
                os.kill(node.process, signal.SIGKILL)

    def stop(self) -> None:
        self._poller.stop()
        nodes = [*self._nodes.values(), *self._coming.values()]
        if self._ray.is_initialized():
            for node in nodes:
                self._kill(node)
            watches = [node.watch for node in nodes if not node.gone]
            if watches and self.local is None:
                with suppress(Exception):
                    self._ray.wait(watches, num_returns=len(watches), timeout=5.0)
            with suppress(Exception):
                disconnect(self._ray)
        for node in nodes:
            node.gone = True
        self._coming.clear()
        if self.local is not None:
            self.local.stop()


def _name_of(entry: Mapping[str, Any]) -> str:
    """Return a node's name for users: its label `name`, its name in Ray, or its host name."""
    labels = entry.get("Labels") or {}
    address = entry["NodeManagerAddress"]
    ray_name = entry.get("NodeName") or address
    return str(
        labels.get("name") or (ray_name if ray_name != address else entry["NodeManagerHostname"])
    )


def _free(entry: Mapping[str, Any], snapshot: NodeSnapshot) -> tuple[int, int] | None:
    """Return the free cores and GPUs of a node; None if it has cores but none is free."""
    total = entry["Resources"]
    free = snapshot.free.get(entry["NodeID"], total)
    cores, gpus = int(free.get("CPU", 0)), int(free.get("GPU", 0))
    return (cores, gpus) if cores or not total.get("CPU") else None
