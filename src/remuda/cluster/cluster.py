"""`Cluster` gathers the nodes of a run, starts their agents, and creates the run's runtime."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from remuda.assembly.assembly import Assembly
from remuda.cluster.agent import NodeRecipe
from remuda.cluster.bridge import listen
from remuda.cluster.handover import CheckpointFiles
from remuda.cluster.migration import needs_of
from remuda.cluster.node import Node
from remuda.cluster.nodes import HEAD, Call, NodeInfo, Nodes, Placement, place
from remuda.cluster.runtime import ClusterRuntime
from remuda.config import Config
from remuda.errors import ConfigError, RemudaError
from remuda.population.members.imported import Imported
from remuda.system.checkpoint.store import Checkpoints, Manifest

SPARE = 1024  # maximum number of nodes that may join later


class Cluster:
    """The nodes of a run."""

    def __init__(self, config: Config, nodes: Nodes) -> None:
        self._config, self._nodes = config, nodes
        self.infos: Sequence[NodeInfo] = nodes.gather()
        self._secret = secrets.token_bytes(32)

    @property
    def cores(self) -> int:
        return sum(info.cores for info in self.infos)

    def describe(self) -> str:
        nodes = []
        for info in self.infos:
            gpus = f", {_counted(info.gpus, 'GPU')}" if info.gpus else ""
            nodes.append(f"{info.name} ({_counted(info.cores, 'core')}{gpus})")
        return f"{len(nodes)} nodes: {', '.join(nodes)}"

    def place(self, assembly: Assembly) -> Placement:
        layout, lead = assembly.layout, assembly.table is not None
        try:
            return place(self.infos, len(layout.copies), needs_of(layout, assembly.specs), lead)
        except LookupError as error:
            names = ", ".join(info.name for info in self.infos)
            raise ConfigError(f"no node {error.args[0]}; there are {names}") from None

    def runtime(
        self,
        assembly: Assembly,
        imported: tuple[Imported, ...],
        logs: Path,
        checkpoints: Checkpoints,
        found: Manifest | None,
        changed: Mapping[str, Any] | None = None,
        initial: Mapping[str, bytes] | None = None,
    ) -> ClusterRuntime:
        config = self._config
        ports = _ports(config.cluster.ports)
        head, max_nodes = self.infos[0], len(self.infos) + SPARE
        listener = listen(head.address, ports)
        node = Node(assembly, HEAD, max_nodes, self._secret, listener)
        saved = CheckpointFiles.read(checkpoints, found.number) if found is not None else None
        recipe = NodeRecipe(
            assembly.spec,
            assembly.specs,
            assembly.layout,
            imported,
            HEAD,
            max_nodes,
            self._secret,
            initial or {},
            str(checkpoints.path.absolute()) if config.cluster.shared_directory else "",
            head.address,
            ports,
        )

        def prepare(info: NodeInfo, saved: CheckpointFiles | None = None) -> Call:
            own = replace(recipe, number=info.number, address=info.address)
            self._nodes.start(info.number, "remuda.cluster.agent:NodeAgent", (own.packed(),))
            return self._nodes.call(info.number, "prepare", saved, changed)

        pending = [(info, prepare(info, saved)) for info in self.infos[1:]]
        addresses = {HEAD: listener.getsockname()}
        for info, call in pending:
            try:
                port = call.result(config.cluster.start_limit)
            except TimeoutError:
                raise RemudaError(
                    f"node {info.name} was not prepared within {config.cluster.start_limit:g} s "
                    "(cluster.start_limit): check whether it is overloaded, or raise the limit"
                ) from None
            addresses[info.number] = (info.address, port)
        return ClusterRuntime(
            node,
            self._nodes,
            self.place(assembly),
            addresses,
            self.infos,
            prepare,
            logs,
            checkpoints,
        )


@contextlib.contextmanager
def gathered(config: Config, say: Callable[[str], None]) -> Iterator[Cluster]:
    """Gather the nodes of a run, and release them at the end."""
    from remuda.cluster.ray_nodes import RayNodes

    nodes = RayNodes(config)
    try:
        cluster = Cluster(config, nodes)
        say(cluster.describe())
        yield cluster
    finally:
        nodes.stop()


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _ports(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last) + 1) if text else range(0)
