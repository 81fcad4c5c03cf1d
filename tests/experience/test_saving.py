"""Experience that is saved while actors write it: a resumed run goes on with what was caught."""

import sys
import time

import numpy as np
import pytest

from remuda.config import ExperienceConfig
from remuda.experience import ring as ring_module
from remuda.experience.experience import Experience
from remuda.experience.ring import HEAD, WRITTEN, StreamShape
from remuda.experience.rollout_queue import RolloutQueue
from remuda.experience.segments import AFTER, Rollout
from remuda.system.checkpoint.state import pack, unpack
from remuda.system.memory.waiting import Wakeup
from ring_writers import ExperienceWriter
from spawned import child_of

SEGMENT, ROLLOUT = 4, 24
CAUGHT = 5
"""Checkpoints in the middle of which a writer must have begun another segment, at least."""


def make(streams=(2,), on_full="wait", keeps=True, size=2):
    config = ExperienceConfig(segment_length=SEGMENT, on_full=on_full, capacity=40)
    return Experience(
        StreamShape((size,), np.float64, 1),
        config,
        streams,
        Wakeup(),
        [Wakeup() for _ in streams],
        ROLLOUT,
        keeps=keeps,
    )


class Player:
    """Writes episodes of all lengths: in its turn i stream s sees, does and is given 1000 i + s."""

    def __init__(self, experience, actor=0, seed=0):
        self.writer = ExperienceWriter(experience, actor)
        self.random = np.random.default_rng(seed)
        self.turns = 0

    def turn(self):
        ring, streams = self.writer.ring, self.writer.ring.num_streams
        done = 1000 * self.turns + np.arange(streams)
        seen = np.repeat(done[:, None].astype(np.float64), ring.shape.size, 1)
        every, ends = np.ones(streams, bool), self.random.random(streams) < 0.15
        self.writer.decide(seen, done[:, None], self.turns, every)
        self.writer.outcome(done.astype(np.float32), ends, ~every, seen + 0.5, every)
        self.turns += 1


def consume(rollouts, out):
    """Take a rollout, and see that it is whole; returns its steps."""
    steps = rollouts.take(out, 0, 0)
    rows, segments = int(out.num_rows[0]), int(out.num_segments[0])
    is_step = out.streams[0, :rows] != AFTER
    assert is_step.sum() == steps
    starts = [*out.starts[0, :segments].tolist(), rows]
    assert (np.diff(starts) >= 2).all(), "a segment without a step"
    done = out.actions[0, :rows, 0]
    assert (out.observations[0, :rows, 0][is_step] == done[is_step]).all()
    assert (out.rewards[0, :rows][is_step] == done[is_step].astype(np.float32)).all()
    return steps


def goes_on(state, written, **like):
    """Resume with what was saved, and play: actors write where there is room, the learner takes."""
    successor = make(**like)
    successor.restore(state, written)
    players = [Player(successor, actor) for actor in range(len(successor.rings))]
    for player in players:
        player.writer.close_orphans()
    held = sum(int(ring.shared["committed"].sum()) for ring in successor.rings)
    assert successor.untaken <= written
    rollouts, out = RolloutQueue(successor), Rollout.empty(successor, 1)
    taken, idle = 0, 0
    for player in players:
        player.turns = 1_000_000  # these steps are told from the old ones
    while taken < 3:
        moved = False
        for player in players:
            if player.writer.room is None or player.writer.room.has_room():
                player.turn()
                moved = True
        if rollouts.ready():
            moved = True
            # What is left of the saved run may be of segments that were lost; then it takes none.
            taken += consume(rollouts, out) > 0
        idle = 0 if moved else idle + 1
        assert idle < 3, f"nobody can go on, with {successor.untaken} untaken steps of {held}"
        assert player.turns < 1_001_000, "the learner never takes"


@pytest.mark.slow_cases("overwrite-idle", "wait-taking")
@pytest.mark.parametrize(
    ("on_full", "takes"),
    [
        pytest.param("wait", True, id="wait-taking"),
        pytest.param("overwrite", False, id="overwrite-idle"),
        pytest.param("wait", False, id="wait-idle", marks=pytest.mark.slow),
        pytest.param("overwrite", True, id="overwrite-taking", marks=pytest.mark.slow),
    ],
)
def test_a_checkpoint_at_any_instant_of_a_writer_resumes_and_plays(on_full, takes):
    """The actor writes some turns between any two lines of the copy, again and again."""
    like = {"on_full": on_full}
    experience = make(**like)
    player, random = Player(experience), np.random.default_rng(1)
    rollouts, out = RolloutQueue(experience), Rollout.empty(experience, 1)
    pace = 0

    def trace(frame, event, argument):
        if frame.f_code.co_filename != ring_module.__file__:
            return None
        if event == "line" and random.random() < 0.5:
            sys.settrace(None)
            for _ in range(int(random.integers(0, pace))):
                player.turn()
            if takes and random.random() < 0.2 and rollouts.ready():
                consume(rollouts, out)
            sys.settrace(trace)
        return trace

    for number in range(500):
        # Some are taken while next to nothing is written, some while all is written over.
        pace = (1, 2, 4, 30)[number % 4]
        while rollouts.ready():
            consume(rollouts, out)
        for _ in range(int(random.integers(0, 30))):
            player.turn()
        sys.settrace(trace)
        try:
            state = experience.state()
        finally:
            sys.settrace(None)
        goes_on(state if number % 50 else unpack(pack(state)), experience.written, **like)


def _write_for_ever(experience, actor):
    player = Player(experience, actor)
    while True:
        player.turn()


@pytest.mark.slow_cases("15-streams1")
@pytest.mark.parametrize("streams", [pytest.param((1,), marks=pytest.mark.slow), (2, 1)])
@pytest.mark.parametrize("count", [15, pytest.param(1000, marks=pytest.mark.slow)])
def test_checkpoints_taken_beside_actors_at_full_speed_resume_and_play(streams, count):
    like = {"streams": streams, "keeps": False}
    experience = make(**like)
    children = [child_of(_write_for_ever, experience, actor) for actor in range(len(streams))]
    for child in children:
        child.start()
    try:
        limit = time.monotonic() + 240.0
        while (experience.counters[:, WRITTEN] <= 100).any():  # nobody rings for that
            assert time.monotonic() < limit, "an actor does not begin"
            time.sleep(0.01)
        rollouts, out = RolloutQueue(experience), Rollout.empty(experience, 1)
        done = caught = 0
        limit = time.monotonic() + 240.0
        # However the processes are scheduled, some are taken while segments are written over.
        while done < count or caught < CAUGHT:
            assert time.monotonic() < limit or done < count, "no writer was ever caught at work"
            if rollouts.ready():
                consume(rollouts, out)
            before = experience.counters[:, HEAD].copy()
            state = experience.state()
            caught += int((experience.counters[:, HEAD] != before).any())
            goes_on(state, experience.written, **like)
            done += 1
        assert all(child.is_alive() for child in children)
        assert experience.overwritten > 0
    finally:
        for child in children:
            child.kill()
            child.join(60)
