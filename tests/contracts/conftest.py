"""What implements each seam: another implementation is another parameter here, and no new test."""

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import pytest

from contracts.bridged import Bridge, BridgedWeights, no_weights
from contracts.roles import CountingRole
from remuda.config import ExperienceConfig, PublishConfig, SupervisionConfig
from remuda.experience.backpressure import ActorBackpressure, Backpressure
from remuda.experience.experience import Experience
from remuda.experience.ring import StreamShape
from remuda.experience.ring_block import Block
from remuda.experience.rollout_queue import RolloutQueue
from remuda.experience.segments import AFTER, Rollout
from remuda.experience.store import ExperienceStore
from remuda.publish.snapshot import PublishedWeights
from remuda.runtime.child import RoleSetup
from remuda.runtime.host import run_async, run_lockstep_actor, run_lockstep_learner
from remuda.runtime.inline import InlineRuntime
from remuda.runtime.processes import ProcessRuntime
from remuda.system.checkpoint.store import Checkpoints
from remuda.system.memory.waiting import Wakeup
from ring_writers import ExperienceWriter

LENGTH, CAPACITY = 4, 32


@pytest.fixture(params=["snapshot", "double_buffer", "through a bridge"])
def make_weights(request):
    """Makes a `WeightStore`, given sizes and checksums by policy, and what is known of training."""

    def make(layouts, training=None):
        bridged = request.param == "through a bridge"
        mode = PublishConfig() if bridged else PublishConfig(mode=request.param)
        found = {name: (*layout, mode) for name, layout in layouts.items()}
        if bridged:
            return BridgedWeights(found, training)
        return PublishedWeights(found, training=training)

    return make


@dataclass
class Steps:
    """An `ExperienceStore`, with its two ends as far as the contract needs them."""

    store: ExperienceStore
    learner: Wakeup
    actor: Wakeup
    source: Experience | None = None
    """The actor's own, where it is on another node."""

    def __post_init__(self):
        self._writer = self._rooms = None
        self._source = self.store if self.source is None else self.source

    @cached_property
    def bridge(self):
        """Between the two nodes: nothing crosses before it is asked for."""
        return Bridge([{"a": self.store}, {"a": self._source}], [no_weights(), no_weights()])

    def cross(self):
        if self.source is not None:
            self.bridge.pump()

    def write(self, numbers, ends=False):
        """Let one stream do these numbers, one in a turn; `ends`: its episode is over then."""
        if self._writer is None:
            self._writer = ExperienceWriter(self._source, 0)
        one, none = np.ones(1, np.bool_), np.zeros(1, np.bool_)
        for number in numbers:
            observation = np.full((1, 1), number, np.float32)
            self._writer.decide(observation, np.full((1, 1), number), 0, one)
            over = np.full(1, ends and number == numbers[-1])
            self._writer.outcome(np.zeros(1, np.float32), over, none, observation, one)
        self.cross()

    @property
    def may_write(self):
        """Whether the actor may write another turn."""
        if self._rooms is None:
            self._rooms = ActorBackpressure([Backpressure(self._source, 0)])
        self.cross()
        return self._rooms.has_room()

    def take(self):
        """Take a rollout, if there is one; returns what was done in it."""
        queue = RolloutQueue(self.store)
        if not queue.ready():
            return []
        out = Rollout.empty(self.store, 1)
        queue.take(out, 0, 0)
        used = slice(0, int(out.num_rows[0]))
        return out.actions[0, used, 0][out.streams[0, used] != AFTER].tolist()


@pytest.fixture(
    params=["rings_of_its_own", "in_a_block", "in_blocks_of_two_actors", "through a bridge"]
)
def make_experience(request):
    """Makes the experience of a policy of one stream, for `rollout` steps at once or 0."""

    def make(rollout=0, on_full="overwrite"):
        config = ExperienceConfig(
            capacity=CAPACITY,
            segment_length=LENGTH,
            learning_starts=1,
            on_full=on_full,
            replay_ratio=1.0,
        )
        shape = StreamShape((1,), np.float32, 1)
        learner, actor = Wakeup(), Wakeup()
        make_one = partial(Experience, shape, config, (1,), learner, (actor,), rollout)
        if request.param == "in_blocks_of_two_actors":  # the other writes nothing
            block = Block(shape, 2, LENGTH, (CAPACITY // LENGTH + 2, 2))
            both = (actor, Wakeup())
            one = Experience(shape, config, (1, 1), learner, both, rollout, block, 1)
            return Steps(one, learner, actor)
        if request.param == "in_a_block":
            block = Block(shape, 2, LENGTH, CAPACITY // LENGTH + 2)
            return Steps(make_one(block, 1), learner, actor)
        if request.param == "through a bridge":
            return Steps(make_one(keeps=True), learner, actor, make_one(keeps=True))
        return Steps(make_one(keeps=True), learner, actor)

    return make


@pytest.fixture(params=["inline", "processes", pytest.param("lockstep", marks=pytest.mark.slow)])
def make_runtime(request, tmp_path):
    """Makes a `Runtime` of an actor that plays `turns` turns and a learner that follows it."""
    made = []

    def make(turns, resumed=False, broken=""):
        checkpoints = Checkpoints(tmp_path / "checkpoints")
        roles = CountingRole.pair(turns, tmp_path, broken)
        if request.param == "inline":
            runtime = InlineRuntime(roles[0], roles[1:], checkpoints, resumed=resumed)
        else:
            loops = (run_async, run_async)
            if request.param == "lockstep":
                loops = (run_lockstep_actor, run_lockstep_learner)
            setups = [RoleSetup(role, role.wakeup, p) for role, p in zip(roles, loops, strict=True)]
            runtime = ProcessRuntime(
                setups,
                checkpoints,
                tmp_path,
                SupervisionConfig(restarts=0),
                nice=[0] * len(setups),
                start_limit=120.0,
                stop_limit=30.0,
                write_limit=60.0,
                resumed=resumed,
            )
        made.append(runtime)
        return runtime, checkpoints, roles

    yield make
    for runtime in made:
        runtime.stop()
