"""A bridge that dies at any line while it follows a ring, and readers at any line of either."""

from functools import partial

import numpy as np
import pytest

from cluster.ring_pairs import Kind, Pair, Player, take_all
from line_deaths import AtLine, crash_at_each_line
from remuda.cluster import ring_kernels
from remuda.errors import RemudaError
from remuda.experience import rollout_queue, segments
from remuda.experience.ring import CLOSED
from remuda.experience.rollout_queue import RolloutQueue

FEW = Kind(streams=3, capacity=12, rollout=4)
"""A ring so small that its queue is written over between two frames."""
LINES = [pytest.param(37, id="few"), pytest.param(1, marks=pytest.mark.slow, id="all")]


def uncompiled(monkeypatch, module):
    for name, found in list(vars(module).items()):
        if hasattr(found, "py_func") and found.py_func.__module__ == module.__name__:
            monkeypatch.setattr(module, name, found.py_func)


class World:
    """A ring with some steps, taken or not; more are on their way, in frames of some sizes."""

    def __init__(self, seed, turns, room):
        self.pair, self.room = Pair(FEW), room
        self.player = Player(self.pair.here, FEW, seed, ends=0.5)
        self.rollouts, self.taken = RolloutQueue(self.pair.there), []
        self.player.play(9)
        self.pair.pump_all()
        if seed % 2 == 0:
            self.take()
        self.player.play(turns)

    def take(self, most=10_000):
        self.taken += take_all(self.rollouts, most)

    def finish(self):
        """All of it crosses, and is taken; then what ends the episodes."""
        for again in range(3):
            try:
                self.pair.pump_all(self.room)
            except RemudaError:
                self.pair.link()
            self.take()
            self.player.begin() if again else self.player.play(2)
        self.pair.pump_all()
        self.pair.check_same()
        self.take()
        assert len(self.taken) == len(set(self.taken)), "a step was handed out twice"
        for stream in range(FEW.streams):
            own = [step for step in self.taken if step % FEW.streams == stream]
            assert (np.diff(own) > 0).all(), "out of order"
        assert self.pair.there.passed == self.pair.here.written
        assert len(self.taken) + self.rollouts.lost == self.pair.here.written


CASES = [(0, 4, 1 << 20), (1, 40, 1 << 20), (2, 12, 60)]
"""Some turns; so many that the queue is written over before the learner took what was in it; and
frames that are cut."""


@pytest.mark.slow_cases("few-1-40-1048576", "few-2-12-60")
@pytest.mark.parametrize(("seed", "turns", "room"), CASES)
@pytest.mark.parametrize("stride", LINES)
def test_a_bridge_dies_at_a_line_and_its_successor_goes_on(monkeypatch, seed, turns, room, stride):
    uncompiled(monkeypatch, ring_kernels)
    for crash in crash_at_each_line((ring_kernels,), stride):
        world = World(seed, turns, room)
        with crash:
            world.pair.pump_all(room)
        world.pair.check_there()
        world.take()
        world.pair.link()
        world.pair.check_there()
        world.take()
        world.finish()
    assert crash.line > 300


@pytest.mark.slow_cases(
    "few-1-40-1048576-often", "few-1-40-1048576-once", "few-2-12-60-often", "few-2-12-60-once"
)
@pytest.mark.parametrize("again", [False, True], ids=["once", "often"])
@pytest.mark.parametrize(("seed", "turns", "room"), CASES)
@pytest.mark.parametrize("stride", LINES)
def test_a_learner_takes_at_any_line_of_the_bridge(monkeypatch, seed, turns, room, stride, again):
    uncompiled(monkeypatch, ring_kernels)
    line, reached = 0, True
    while reached:
        world = World(seed, turns, room)

        def look(world=world):
            if again:
                world.take(1)
            else:
                world.pair.check_there()
                world.take()

        with AtLine(line, (ring_kernels,), look, again) as life:
            world.pair.pump_all(room)
        reached = life.reached
        world.finish()
        line += 5 * stride if again else stride
    assert line > 300


@pytest.mark.parametrize(("seed", "turns", "room"), CASES)
@pytest.mark.parametrize("stride", LINES)
def test_a_frame_comes_at_any_line_of_the_learner(monkeypatch, seed, turns, room, stride):
    uncompiled(monkeypatch, rollout_queue)
    monkeypatch.setattr(rollout_queue, "copy_segment", segments.copy_segment.py_func)
    line, reached = 0, True
    while reached:
        world = World(seed, 5, room)
        world.pair.pump_all()
        world.player.play(turns)
        pump = partial(world.pair.pump_all, room)
        with AtLine(line, (rollout_queue,), pump) as life:
            world.take()
        reached = life.reached
        world.finish()
        line += stride
    assert line > 60


@pytest.mark.parametrize("stride", LINES)
def test_an_actor_plays_on_at_any_line_of_what_is_collected(monkeypatch, stride):
    uncompiled(monkeypatch, ring_kernels)
    line, reached = 0, True
    while reached:
        world = World(3, 6, 1 << 20)
        turns = line % 23
        with AtLine(line, (ring_kernels,), partial(world.player.play, turns)) as life:
            news = world.pair.collect(1 << 20)
        reached = life.reached
        world.pair.following.write(news)
        world.pair.check_there()
        world.take()
        world.finish()
        line += stride
    assert line > 300


def test_the_queue_was_written_over_in_between():
    """What the cases above stand for is so."""
    world = World(*CASES[1])
    here, there = world.pair.rings
    assert here.counters[CLOSED] - there.counters[CLOSED] > len(here.shared["queue"])
