"""Seams whose two ends are on two nodes: what crosses is pumped by hand, when it is asked for."""

from functools import cached_property

import numpy as np

from remuda.cluster.channel import Channel
from remuda.cluster.link import Frame
from remuda.cluster.nodes import Placement
from remuda.cluster.stores import Stores, make_stamps
from remuda.config import ExperienceConfig, PolicyConfig, PublishConfig
from remuda.config.hyperparameters import LiveHyperparameters
from remuda.envs.description import EnvSpec
from remuda.envs.live_options import LiveEnvOptions
from remuda.experience.experience import Experience
from remuda.experience.ring import StreamShape
from remuda.publish.snapshot import PublishedWeights
from remuda.runtime.control import Control
from remuda.system.memory.waiting import Wakeup
from remuda.system.scoreboard import Scoreboard

ACTOR, LEARNER = 1, 0
"""The nodes of the two ends."""


class Bridge:
    """Both channels between two nodes, each with the experience and the weights that it has."""

    def __init__(self, experience, published):
        self._made = [self._store(*own) for own in zip(experience, published, strict=True)]
        self.env_options = [made.env_options for made in self._made]
        actors = len(self._made[0].actors)
        placement = Placement((ACTOR,) * actors, (LEARNER,))
        self._channels = [Channel(made, placement, i, 1 - i) for i, made in enumerate(self._made)]
        for me in (0, 1):
            self._cross(me, self._channels[me].holds())
        self._now = 0.0

    def _store(self, experience, published):
        names = tuple(published.policies)
        one = next(iter(experience.values()))
        learner, wakeups = one.learner, tuple(Wakeup() for _ in one.rings)
        return Stores(
            names,
            (tuple(range(len(names))),),
            experience,
            published,
            Scoreboard(names, len(wakeups)),
            LiveHyperparameters({name: PolicyConfig() for name in names}),
            LiveEnvOptions(EnvSpec("", {}, (), (), changeable_options=("length",))),
            Control((*wakeups, learner, Wakeup()), bridges=1),
            make_stamps(2),
            wakeups,
            (learner,),
            False,
        )

    def pump(self):
        for _ in range(100):
            self._now += 1.0
            found = [channel.news(self._now) for channel in self._channels]
            for me, frame in enumerate(found):
                if frame is not None:
                    self._cross(me, frame)
            if not any(found):
                return
        raise AssertionError("it is never through")

    def _cross(self, me, frame: Frame):
        came = np.frombuffer(b"".join(bytes(b) for b in frame.buffers), np.uint8).copy()
        for role in self._channels[1 - me].take(came):
            self._made[1 - me].wakeups[role].ring()


def _unused():
    """The experience of a policy of which only the weights are looked at."""
    config = ExperienceConfig(capacity=32, segment_length=4)
    shape = StreamShape((1,), np.float32, 1)
    return Experience(shape, config, (1,), Wakeup(), (Wakeup(),))


class BridgedPublisher:
    """A learner's end; what it publishes crosses."""

    def __init__(self, ends, weights):
        self._ends, self._weights = ends, weights

    @property
    def version(self):
        return self._ends[0].version

    @property
    def training(self):
        return self._ends[0].training

    def publish(self, *args, **options):
        found = self._ends[0].publish(*args, **options)
        self._weights.bridge.pump()
        return found

    def restore(self, state):
        for end in self._ends:  # each node restores what was saved, before there is a link
            end.restore(state)


class BridgedWeights:
    """A `WeightStore` whose policies learn on one node, and whose readers are on another."""

    def __init__(self, layouts, training):
        self._home, self._away = (PublishedWeights(layouts, training=training) for _ in range(2))

    @cached_property
    def bridge(self):
        none = [{name: _unused() for name in self._home.policies} for _ in range(2)]
        return Bridge(none, [self._home, self._away])

    def publisher(self, policy, checksum):
        ends = [store.publisher(policy, checksum) for store in (self._home, self._away)]
        return BridgedPublisher(ends, self)

    def reader(self):
        return self._away.reader()

    def active(self, policy):
        return self._away.active(policy)


def no_weights():
    """Of a policy of which only the experience is looked at."""
    return PublishedWeights({"a": (1, 1, PublishConfig())})
