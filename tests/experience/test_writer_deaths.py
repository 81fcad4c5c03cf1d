"""A writer that dies at any line, and so does its successor: what the ring counts is what is so."""

import sys

import numpy as np
import pytest

from remuda.config import ExperienceConfig
from remuda.experience import writer as module
from remuda.experience.experience import Experience
from remuda.experience.ring import HEAD, StreamShape
from remuda.experience.writer import ExperienceWriter
from remuda.memory.waiting import Wakeup

STREAMS = 3
KERNELS = (
    "_begin_segment",
    "_close_segment",
    "decide_one",
    "_decide",
    "outcome_one",
    "_outcome",
    "count",
    "repair",
    "close_orphans_of",
)


class DiedError(BaseException):
    """The process is gone: nothing of it may clear anything away."""


@pytest.fixture
def experience(monkeypatch):
    """A small ring, written by kernels that can die at a line."""
    for name in KERNELS:
        monkeypatch.setattr(module, name, getattr(module, name).py_func)
    config = ExperienceConfig(segment_length=4, capacity=24)
    shape = StreamShape((1,), np.float32, 1)
    return Experience(shape, config, [STREAMS], Wakeup(), [Wakeup()])


@pytest.fixture
def committed(experience, monkeypatch):
    """Counts the steps that are committed, where each is."""
    steps, found, store = experience.rings[0].shared["committed"], [0], module.store

    def counting(words, index, value):
        if np.shares_memory(words, steps):
            found[0] += max(int(value) - int(steps[index]), 0)
        store(words, index, value)

    monkeypatch.setattr(module, "store", counting)
    return found


class Dies:
    """Ends what runs inside it at so many lines of the writer's from now."""

    def __init__(self, left):
        self.left = left

    def trace(self, frame, event, argument):
        if frame.f_code.co_filename != module.__file__:
            return None
        if event == "line":
            self.left -= 1
            if self.left < 0:
                raise DiedError
        return self.trace

    def __enter__(self):
        sys.settrace(self.trace)

    def __exit__(self, kind, error, trace):
        sys.settrace(None)
        return kind is DiedError


def play(writer, turns, random):
    """Episodes of one to ten steps: some end in their first segment, some go on in others."""
    everyone = np.ones(STREAMS, np.bool_)
    for _ in range(turns):
        seen = random.random((STREAMS, 1)).astype(np.float32)
        writer.decide(seen, np.zeros((STREAMS, 1), np.int64), 0, everyone)
        over = random.random(STREAMS) < 0.2
        writer.outcome(np.zeros(STREAMS, np.float32), over, ~everyone, seen, everyone)


def check(experience, committed):
    ring = experience.rings[0]
    held = int(ring.shared["committed"].sum())
    assert (ring.shared["sequence"] % 2 == 0).all()
    assert experience.written == committed[0]
    assert experience.written - experience.overwritten == held


@pytest.mark.parametrize("stride", [41, pytest.param(1, marks=pytest.mark.slow)])
def test_what_the_ring_counts_is_what_was_committed_wherever_two_writers_died(
    stride, experience, committed
):
    random = np.random.default_rng(0)
    writer = ExperienceWriter(experience)
    play(writer, 60, random)
    check(experience, committed)
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
            check(experience, committed)
            play(writer, 3, random)
            check(experience, committed)
        except AssertionError as error:
            raise AssertionError(f"death at line {death} of {most}: {error}") from error
    ring = experience.rings[0]
    assert ring.counters[HEAD] > 10 * ring.num_segments
