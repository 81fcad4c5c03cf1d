"""Several actors write what one policy lives through; its learner takes from all of them."""

import os
import time

import numpy as np
import pytest

from refusals import refuses
from remuda.config import ExperienceConfig
from remuda.errors import CheckpointError
from remuda.experience import ring as ring_module
from remuda.experience.experience import Experience, ring_segments
from remuda.experience.replay import TransitionReplay
from remuda.experience.ring import WANTED, WRITTEN, StreamShape
from remuda.experience.rollout_queue import RolloutQueue
from remuda.experience.segments import AFTER, Rollout
from remuda.system.checkpoint.state import pack, unpack
from remuda.system.memory.atomic import exchange, fetch_add, load, store
from remuda.system.memory.shared import SharedArrays
from remuda.system.memory.waiting import Wakeup
from ring_writers import ExperienceWriter
from spawned import child_of
from support import sample


def make(streams=(1, 1), rollout=0, length=4, capacity=64, on_full="overwrite", lead=None):
    config = ExperienceConfig(
        capacity=capacity,
        segment_length=length,
        learning_starts=1,
        on_full=on_full,
        replay_ratio=1.0,
    )
    actors = [Wakeup() for _ in streams]
    shape = StreamShape((1,), np.float32, 1)
    return Experience(shape, config, streams, Wakeup(), actors, rollout, lead=lead)


def step(writer, number, over=False):
    """Every stream of an actor sees and does `number`, plus a million for each stream."""
    streams = writer.ring.num_streams
    every, ends = np.ones(streams, bool), np.full(streams, over)
    done = number + 1_000_000 * np.arange(streams)
    seen = done.astype(np.float32)[:, None]
    writer.decide(seen, done[:, None], 0, every)
    writer.outcome(np.zeros(streams, np.float32), ends, ~every, seen, every)


def taken(rollouts):
    out = Rollout.empty(rollouts.experience, 1)
    rollouts.take(out, 0, 0)
    used = slice(0, int(out.num_rows[0]))
    steps = out.streams[0, used] != AFTER
    segments = out.starts[0, : int(out.num_segments[0])]
    assert (steps[segments] & ~steps[segments - 1]).all()  # a segment begins after another's end
    return out.actions[0, used, 0][steps].tolist(), out.streams[0, used][steps].tolist()


def test_every_step_of_every_actor_is_sampled_equally_often():
    experience = make()
    for actor, count in ((0, 12), (1, 28)):
        writer = ExperienceWriter(experience, actor)
        for i in range(count):
            step(writer, 100 * actor + i, over=i % 4 == 3)
    assert experience.written == 40
    assert experience.fill == 40 / 64
    replay = TransitionReplay([experience], 1, 0.9, np.random.default_rng(0))
    counts = np.zeros(200)
    for _ in range(1000):
        batch = sample(replay, 40)
        assert (batch.s_tm1[:, 0] == batch.a_tm1).all()
        counts += np.bincount(batch.a_tm1, minlength=200)
    played = [*range(12), *range(100, 128)]
    assert np.flatnonzero(counts).tolist() == played
    assert abs(counts[played] / 1000 - 1).max() < 0.15


def test_a_rollout_is_filled_by_all_actors_and_each_step_is_handed_over_once():
    experience = make((2, 1), rollout=24, on_full="wait")
    writers = [ExperienceWriter(experience, actor) for actor in range(2)]
    rollouts = RolloutQueue(experience)
    found, played = [], [0, 0]
    for _ in range(200):
        for actor, writer in enumerate(writers):
            if writer.room.has_room():
                step(writer, 1000 * actor + played[actor], over=played[actor] % 4 == 3)
                played[actor] += 1
        if rollouts.ready():
            steps, streams = taken(rollouts)
            assert len(steps) >= 24
            owner = {0: 0, 1: 1_000_000, 2: 1000}
            assert all(owner[s] <= a < owner[s] + 1000 for a, s in zip(steps, streams, strict=True))
            found += steps
    assert len(found) == len(set(found)) > 500
    assert rollouts.lost == 0
    assert min(played) > 150


def test_actors_share_the_room_there_is_and_fill_up_what_a_dead_one_leaves():
    experience = make((1, 1), rollout=16, on_full="wait")
    alive, dead = (ExperienceWriter(experience, actor) for actor in range(2))
    rollouts = RolloutQueue(experience)
    for i in range(4):
        step(dead, i, over=i == 3)
    number = 0
    for _ in range(5):
        while alive.room.has_room():
            step(alive, 100 + number, over=number % 4 == 3)
            number += 1
        assert not dead.room.has_room()
        assert rollouts.ready()
        assert len(taken(rollouts)[0]) == 16
    assert number == 5 * 16 - 4


@pytest.mark.parametrize(("capacity", "lead"), [(20, None), (64, 20)])
def test_actors_together_stay_within_their_lead(capacity, lead):
    experience = make((1, 1), capacity=capacity, on_full="wait", lead=lead)
    writers = [ExperienceWriter(experience, actor) for actor in range(2)]
    for i in range(10):
        for writer in writers:
            assert writer.room.has_room()
            step(writer, i, over=True)
    assert all(writer.room.has_room() for writer in writers)
    step(writers[0], 10, over=True)
    assert not any(writer.room.has_room() for writer in writers)
    experience.consume(1)
    for writer in writers:
        assert writer.room.wakeup.wait(writer.room.has_room, 10.0)
    step(writers[1], 10, over=True)
    assert not writers[0].room.has_room()
    writers[0].room.leave_behind()
    assert writers[0].room.has_room()
    assert not writers[1].room.has_room()


def test_what_several_actors_wrote_is_saved_and_goes_back_to_as_many():
    experience = make((1, 1))
    for actor in range(2):
        step(ExperienceWriter(experience, actor), actor, over=True)
    state = unpack(pack(experience.state()))
    successor = make((1, 1))
    successor.restore(state, 2)
    assert (successor.written, successor.lost) == (2, 0)
    replay = TransitionReplay([successor], 1, 0.9, np.random.default_rng(0))
    assert set(sample(replay, 64).a_tm1.tolist()) == {0, 1}
    with refuses(CheckpointError, "--actor.processes"):
        make((2,)).restore(state, 2)
    unsaved = make((1,))
    unsaved.restore(None, 2)
    assert (unsaved.written, unsaved.lost) == (2, 2)


def test_a_wish_is_stated_anew_where_a_writer_was_past_its_share_before_it_saw_it(monkeypatch):
    """Between the learner's count and its wish, one writer commits more than its share."""
    experience = make((1, 1))
    first, second = (ExperienceWriter(experience, actor) for actor in range(2))
    done = []

    def commit_first(counters, word, value):
        if not done:
            done.append(True)
            for i in range(6):
                step(first, i, over=True)
        store(counters, word, value)

    monkeypatch.setattr(ring_module, "store", commit_first)
    enough = ring_module.has_steps.py_func(experience.counters, WRITTEN, 10)
    assert not enough
    for i in range(4):
        step(second, i, over=True)
        if load(experience.counters[1], WANTED) == 0:  # the learner was rung, and looks again
            enough = experience.has(10)
    assert enough


def _write_what_is_left(experience, actor, left):
    """Write single steps, each that one of the actors may still write."""
    writer = ExperienceWriter(experience, actor)
    random = np.random.default_rng(actor)
    number = 0
    parent = os.getppid()
    while os.getppid() == parent:
        if load(left["steps"], 0) > 0 and fetch_add(left["steps"], 0, -1) > 0:
            step(writer, number, over=True)
            number += 1
        elif random.random() < 0.1:
            time.sleep(0.0)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_wake_up_is_lost_whoever_writes_the_last_step():
    """Thousands of sleeps, each until a number of steps that two actors share out as it comes."""
    experience, left = make((1, 1)), SharedArrays({"steps": ((1,), np.int64)})
    children = [child_of(_write_what_is_left, experience, actor, left) for actor in range(2)]
    for child in children:
        child.start()
    try:
        random = np.random.default_rng(0)
        wanted = 0
        for i in range(5_000):
            more = int(random.integers(1, 12))
            wanted += more
            exchange(left["steps"], 0, 0)
            began = time.monotonic()
            store(left["steps"], 0, more)
            assert experience.learner.wait(lambda n=wanted: experience.has(n), 60.0)
            # Before the first, the children have to start.
            assert i == 0 or time.monotonic() - began < 30.0, f"wake-up {i} was lost"
        assert all(load(ring.counters, 0) > 1000 for ring in experience.rings)
    finally:
        for child in children:
            child.kill()
            child.join(60)


@pytest.mark.parametrize("actors", [2, 8, 32])
def test_rings_do_not_grow_with_the_square_of_the_actors(actors):
    """Each ring held three whole rollouts of all actors."""
    config = ExperienceConfig(segment_length=32)
    (alone,) = ring_segments(config, [64 * actors], 128 * 64 * actors, keeps=False)
    together = sum(ring_segments(config, [64] * actors, 128 * 64 * actors, keeps=False))
    assert alone <= together <= 1.1 * alone
