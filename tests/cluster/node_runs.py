"""Runs over nodes that are plain processes, put together by hand: roles live where a test says."""

from cluster.process_nodes import ProcessNodes
from remuda.assembly.assembly import Assembly
from remuda.cluster.cluster import Cluster
from remuda.cluster.nodes import Placement
from remuda.config import load_config
from remuda.runtime.layout import Layout
from remuda.system.checkpoint.names import COORDINATOR
from remuda.system.checkpoint.store import Checkpoints, Manifest
from remuda.training.prepare import prepare


class NodeRun:
    """A run of Treasure Hunt; `stop` it."""

    def __init__(self, path, settings, copies, groups, placement, nodes):
        self.config = load_config(
            {"game": "treasure_hunt", "run": {"turns": 10**7}, "cluster": {"local": 2}} | settings
        )
        prepared = prepare(self.config)
        count = len(prepared.specs)
        (path / "logs").mkdir()
        self.assembly = Assembly(
            prepared.spec,
            Layout(copies, groups, ("cpu",) * count),
            specs=prepared.specs,
            sparse=True,
        )
        self.nodes, self.checkpoints = nodes, Checkpoints(path / "checkpoints")
        cluster = Cluster(self.config, nodes)
        cluster.place = lambda _: Placement(*placement)
        self.runtime = cluster.runtime(
            self.assembly,
            (),
            path / "logs",
            self.checkpoints,
            None,
        )

    def save(self):
        """A checkpoint, as the coordinator writes one; the parts that are missing."""
        number = self.checkpoints.begin()
        missing = {*self.assembly.parts} - self.runtime.save(number)
        if not missing:
            self.checkpoints.write(number, COORDINATOR, self.assembly.state())
            exact = self.config.exact
            self.checkpoints.commit(Manifest(number, 1, 1.0, exact, {}, {}))
        self.runtime.settle(number)
        return missing

    def stop(self):
        try:
            self.runtime.stop()
        finally:
            self.nodes.stop()


__all__ = ["NodeRun", "ProcessNodes"]
