"""Where nothing waits for a learner, it takes the newest whole rollout."""

import numpy as np
import pytest

from played_rooms import make
from remuda.experience.rollout_queue import RolloutQueue
from remuda.experience.segments import AFTER, Rollout
from ring_writers import ExperienceWriter


def write(experience, turns, actor=0, start=0, length=4):
    writer = ExperienceWriter(experience, actor)
    one, none = np.ones(1, bool), np.zeros(1, bool)
    for i in range(start, start + turns):
        seen = np.full((1, 1), i, np.float32)
        writer.decide(seen, np.array([[i]]), i, one)
        over = np.array([i % length == length - 1])
        writer.outcome(np.zeros(1, np.float32), over, none, seen, one)
        yield i


def taken(rollouts):
    out = Rollout.empty(rollouts.experience, 1)
    rollouts.take(out, 0, 0)
    rows = int(out.num_rows[0])
    return out.actions[0, :rows, 0][out.streams[0, :rows] != AFTER].tolist()


def test_with_overwrite_the_newest_whole_rollout_is_taken_and_what_was_passed_over_counted():
    experience = make(on_full="overwrite")
    rollouts = RolloutQueue(experience, newest=True)
    writer = write(experience, 10_000)
    for _ in range(12):
        next(writer)
    assert taken(rollouts) == list(range(8))  # the next is not whole yet: nothing is passed over
    for _ in range(20):
        next(writer)
    assert taken(rollouts) == list(range(24, 32))
    assert rollouts.lost == 16
    assert not rollouts.ready()
    for _ in range(800):
        next(writer)
    assert taken(rollouts) == list(range(824, 832))
    assert rollouts.lost == 832 - 3 * 8


def test_with_overwrite_the_newest_are_taken_of_every_actor():
    experience = make(on_full="overwrite", actors=2, rollout=16)
    rollouts = RolloutQueue(experience, newest=True)
    writers = [write(experience, 1000, actor, 10_000 * actor) for actor in range(2)]
    for _ in range(200):
        for writer in writers:
            next(writer)
    assert sorted(taken(rollouts)) == [*range(192, 200), *range(10_192, 10_200)]
    assert rollouts.lost == 400 - 16


def test_where_the_order_is_fixed_rollouts_are_taken_in_it():
    experience = make(on_full="overwrite")
    rollouts = RolloutQueue(experience)
    for _ in write(experience, 24):
        pass
    assert [taken(rollouts) for _ in range(3)] == [[*range(i, i + 8)] for i in (0, 8, 16)]


@pytest.mark.parametrize("length", [1, 2, 3])
def test_with_overwrite_short_episodes_make_whole_rollouts_and_lose_nothing(length):
    experience = make(rollout=200, on_full="overwrite", segment_length=50)
    rollouts, steps = RolloutQueue(experience, newest=True), 0
    assert not rollouts.ready()
    for _ in write(experience, 5000, length=length):
        if experience.learner.wait(lambda: False, 0.0) or rollouts.ready():
            found = len(taken(rollouts))
            assert found == 200
            steps += found
    # The last segment closes with the last turn only if it ends an episode.
    assert (rollouts.lost, steps) == (0, 5000 if 5000 % length == 0 else 4800)
