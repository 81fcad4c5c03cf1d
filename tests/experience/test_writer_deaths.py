"""A writer that dies at any line, and so does its successor: what the ring counts is what is so."""

from functools import partial

import numpy as np
import pytest

from line_deaths import AtLine
from remuda.config import ExperienceConfig
from remuda.experience import write_kernels
from remuda.experience.experience import Experience
from remuda.experience.ring import CLOSED_STEPS, HEAD, StreamShape
from remuda.experience.ring_block import NOWHERE
from remuda.experience.rollout_queue import RolloutQueue
from remuda.experience.segments import AFTER, Rollout
from remuda.system.memory.waiting import Wakeup
from ring_writers import ExperienceWriter

STREAMS = 3
KERNELS = [
    name
    for name, found in vars(write_kernels).items()
    if hasattr(found, "py_func") and found.py_func.__module__ == write_kernels.__name__
]


@pytest.fixture
def experience(monkeypatch):
    """A small ring, written by kernels that can die at a line."""
    for name in KERNELS:
        monkeypatch.setattr(write_kernels, name, getattr(write_kernels, name).py_func)
    config = ExperienceConfig(segment_length=4, capacity=24)
    shape = StreamShape((1,), np.float32, 1)
    return Experience(shape, config, [STREAMS], Wakeup(), [Wakeup()])


@pytest.fixture
def committed(experience, monkeypatch):
    """Counts the steps that are committed, where each is."""
    steps, found, store = experience.rings[0].shared["committed"], [0], write_kernels.store

    def counting(words, index, value):
        if np.shares_memory(words, steps):
            found[0] += max(int(value) - int(steps[index]), 0)
        store(words, index, value)

    monkeypatch.setattr(write_kernels, "store", counting)
    return found


Dies = partial(AtLine, modules=(write_kernels,))


def play(writer, turns, random):
    """Episodes of one to ten steps: some end in their first segment, some go on in others.

    The first stream acts rarely, so its segments are closed before they are full.
    """
    everyone = np.ones(STREAMS, np.bool_)
    for _ in range(turns):
        seen = random.random((STREAMS, 1)).astype(np.float32)
        acts = everyone & (random.random(STREAMS) < [0.15, 1.0, 1.0])
        writer.decide(seen, np.zeros((STREAMS, 1), np.int64), 0, acts)
        over = random.random(STREAMS) < 0.2
        writer.outcome(np.zeros(STREAMS, np.float32), over, ~everyone, seen, acts)


def open_slots(writer):
    """The segments that are being written, or wait for their stream's next episode."""
    found = writer.state_of(0)
    slots = np.concatenate((found["slots"], found["paused"]))
    return slots[slots != NOWHERE]


def check(experience, committed, writer):
    ring = experience.rings[0]
    held = int(ring.shared["committed"].sum())
    assert (ring.shared["sequence"] % 2 == 0).all()
    assert experience.written == committed[0]
    assert experience.written - experience.overwritten == held
    slots = open_slots(writer)
    assert len(np.unique(slots)) == len(slots)
    being_written = int(ring.shared["committed"][slots].sum())
    assert ring.open_steps == being_written
    assert ring.counters[CLOSED_STEPS] + being_written == experience.written


@pytest.mark.parametrize("stride", [41, pytest.param(1, marks=pytest.mark.slow)])
def test_what_the_ring_counts_is_what_was_committed_wherever_two_writers_died(
    stride, experience, committed
):
    random = np.random.default_rng(0)
    writer = ExperienceWriter(experience)
    play(writer, 60, random)
    check(experience, committed, writer)
    assert experience.overwritten > 0
    life = Dies(2**60)
    with life:
        play(writer, 8, random)
    most = 2**60 - life.left
    for death in range(0, most, stride):
        with Dies(death):
            play(writer, 12, random)
        with Dies(death * 7 % 900):  # its successor, most often while it repairs
            successor = ExperienceWriter(experience)
            successor.close_orphans()
        writer = ExperienceWriter(experience)
        writer.close_orphans()
        try:
            check(experience, committed, writer)
            play(writer, 3, random)
            check(experience, committed, writer)
        except AssertionError as error:
            raise AssertionError(f"death at line {death} of {most}: {error}") from error
    ring = experience.rings[0]
    assert ring.counters[HEAD] > 10 * ring.num_segments


def test_what_was_open_is_closed_once_wherever_successors_died_over_it(experience, committed):
    """One may have given a segment its number and died before it counted it."""
    random = np.random.default_rng(1)
    writer, deaths = ExperienceWriter(experience), 0
    while True:
        play(writer, 5, random)
        for _ in range(2):
            successor = ExperienceWriter(experience)
            life = Dies(deaths)
            with life:
                successor.close_orphans()
            deaths += 1
        writer = ExperienceWriter(experience)
        writer.close_orphans()
        check(experience, committed, writer)
        if life.left >= 0 and deaths > 100:  # it came to its end
            return


def uneven_segments(experience, rollouts):
    """Play and take while a stream acts rarely, and writers die and leave segments open.

    Each step's action is a number of its own. Returns the numbers of the steps that were taken.
    """
    random, taken = np.random.default_rng(3), []
    writer, everyone = ExperienceWriter(experience), np.ones(STREAMS, np.bool_)
    for i in range(400):
        steps = STREAMS * i + np.arange(STREAMS)[:, None]
        seen = steps.astype(np.float32)
        acts = everyone & (random.random(STREAMS) < [0.05, 1.0, 1.0])
        writer.decide(seen, steps, 0, acts)
        over = random.random(STREAMS) < 0.4
        writer.outcome(np.zeros(STREAMS, np.float32), over, ~everyone, seen, acts)
        taken += take_all(rollouts)
        if random.random() < 0.1:
            writer = ExperienceWriter(experience)
            writer.close_orphans()
        check_queue(experience.rings[0])
    assert len(open_slots(writer))
    return taken


def check_queue(ring):
    """Segments are reused in the order in which they were closed, so none outlives its entry."""
    shared = ring.shared
    closed = np.flatnonzero(shared["closed_as"])
    at = (shared["closed_as"][closed] - 1) % ring.num_segments
    assert np.array_equal(shared["queue"][at], closed)
    assert np.array_equal(shared["queue_sequence"][at], shared["sequence"][closed])


def take_all(rollouts):
    """The actions of all steps that there are to take."""
    out, taken = Rollout.empty(rollouts.experience, 1), []
    while rollouts.experience.untaken > 0:
        rollouts.take(out, 0, 0)
        rows = slice(0, int(out.num_rows[0]))
        taken += out.actions[0, rows, 0][out.streams[0, rows] != AFTER].tolist()
    return taken


def with_rollouts():
    config = ExperienceConfig(segment_length=4, capacity=24, on_full="overwrite")
    shape = StreamShape((1,), np.float32, 1)
    return Experience(shape, config, [STREAMS], Wakeup(), [Wakeup()], rollout=4)


@pytest.mark.parametrize("resumed", [False, True], ids=["died", "resumed"])
def test_a_segment_is_closed_and_taken_once_whoever_died(resumed):
    """After the actor's death one was closed again, and handed out a second time."""
    experience = with_rollouts()
    taken = uneven_segments(experience, RolloutQueue(experience))
    if resumed:
        state, written = experience.state(), experience.written
        experience = with_rollouts()
        experience.restore(state, written)
    ring, passed = experience.rings[0], experience.passed
    open_steps, closed_steps = ring.open_steps, int(ring.counters[CLOSED_STEPS])
    ExperienceWriter(experience).close_orphans()
    taken += take_all(RolloutQueue(experience))
    assert len(taken) == len(set(taken)), "a step was handed out twice"
    assert closed_steps + open_steps == passed + open_steps == experience.written
    assert ring.counters[CLOSED_STEPS] == experience.written
    assert ring.open_steps == 0
