"""Two nodes of a run in one process: their shared memory, roles and channels, led by hand."""

import numpy as np

from remuda.assembly.assembly import Assembly
from remuda.cluster.bridge import listen
from remuda.cluster.channel import Channel
from remuda.cluster.node import Node
from remuda.cluster.nodes import Placement
from remuda.config import load_config, overlay
from remuda.runtime.control import Control
from remuda.runtime.layout import Layout
from remuda.system.memory.waiting import Wakeup
from remuda.training.prepare import prepare

SMALL = {
    "game": "treasure_hunt",
    "seed": 5,
    "env": {"num_envs": 2},
    "policy": {
        "network": {"hidden": (8,)},
        "batch_size": 8,
        "ppo": {"rollout_length": 16},
        "experience": {"learning_starts": 40, "capacity": 200, "segment_length": 8},
    },
    "run": {"turns": 10**6},
}
DEALT = {
    "game": "connect_four",
    "population": {
        "policies": 3,
        "matchmaker": "round_robin",
        "snapshots": {"every": 5, "keep": 2},
    },
}


def crossed(frame):
    """What comes of a frame at the other end."""
    return np.frombuffer(b"".join(bytes(b) for b in frame.buffers), np.uint8).copy()


class TwoNodes:
    """A head and another node; who lives where, `placement` says."""

    def __init__(self, placement, copies, groups=None, nodes=2, **tree):
        self.config = load_config(overlay(SMALL, tree))
        self.prepared = prepare(self.config)
        self.placement = placement
        count = len(self.prepared.specs)
        groups = groups or (tuple(range(count)),)
        self.layout = Layout(tuple(copies), groups, ("cpu",) * count)
        self.nodes = [
            Node(self.assemble(), number, nodes, bytes(32), listen("127.0.0.1", range(0)))
            for number in range(nodes)
        ]
        for node in self.nodes:
            node.listener.close()  # nobody calls
        self.assemblies = [node.assembly for node in self.nodes]
        self.stores = [node.stores(self.control(node.assembly)) for node in self.nodes]
        self.now = 0.0

    def assemble(self):
        found = self.prepared
        return Assembly(found.spec, self.layout, specs=found.specs)

    @staticmethod
    def control(assembly):
        return Control((*assembly.wakeups, Wakeup()), bridges=1)

    @property
    def names(self):
        return [spec.name for spec in self.prepared.specs]

    def role(self, number):
        """The worker of a role, on its node."""
        home = self.placement.homes[number]
        return self.assemblies[home].roles()[number].build()

    def link(self):
        """Make both channels anew, and let each tell what it holds."""
        self.channels = [
            Channel(stores, self.placement, me, 1 - me) for me, stores in enumerate(self.stores[:2])
        ]
        for me, channel in enumerate(self.channels):
            self.channels[1 - me].take(crossed(channel.holds()))

    def frame(self, me):
        """What a node has to tell; None: nothing."""
        self.now += 0.2
        found = self.channels[me].news(self.now)
        return None if found is None else crossed(found)

    def pump(self, me):
        """Let one frame cross; whether there was one. Who is rung there is rung."""
        frame = self.frame(me)
        if frame is None:
            return False
        for role in self.channels[1 - me].take(frame):
            self.stores[1 - me].wakeups[role].ring()
        return True

    def pump_all(self):
        for _ in range(1000):
            if not (self.pump(0) | self.pump(1)):
                return
        raise AssertionError("it is never through")


ACTOR_HERE, LEARNER_HERE = Placement((0,), (1,)), Placement((1,), (0,))
