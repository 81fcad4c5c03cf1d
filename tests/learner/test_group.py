"""A group serves its learners by priority, and keeps their updates inside their time."""

import itertools

import numpy as np
import pytest

from remuda.learner.group import LearnerGroup
from remuda.learner.learner import runs
from remuda.learner.replay import BatchBudget
from remuda.system.memory.waiting import Wakeup


class Counting:
    """A learner that counts its updates, and is ready when it is told to be."""

    def __init__(self, name, priority=1.0):
        self.policies, self.priority = (name,), priority
        self.updates, self.is_ready, self.unfinished = 0, True, False

    def ready(self):
        return self.is_ready

    def all_ready(self):
        return self.is_ready

    def update(self):
        self.updates += 1


def test_updates_go_by_priority_where_time_is_scarce():
    learners = [Counting("a"), Counting("b", 3.0), Counting("c", 0.5)]
    group = LearnerGroup(learners, Wakeup())
    for _ in range(900):
        assert group.work()
    assert [learner.updates for learner in learners] == [200, 600, 100]


def test_an_update_in_pieces_counts_as_one():
    class Pieces(Counting):
        def update(self):
            super().update()
            self.unfinished = self.updates % 3 != 0

    learners = [Counting("a"), Pieces("b")]
    group = LearnerGroup(learners, Wakeup())
    for _ in range(400):
        assert group.work()
    assert [learner.updates for learner in learners] == [100, 300]


def test_nobody_cuts_in_on_an_update_in_pieces():
    learners = [Counting("a"), Counting("b", 9.0)]
    group = LearnerGroup(learners, Wakeup())
    learners[1].is_ready = False
    assert group.work()
    assert group.work()
    learners[0].unfinished = learners[1].is_ready = True
    assert group.work()
    assert [learner.updates for learner in learners] == [3, 0]
    learners[0].unfinished = False
    assert group.work()
    assert [learner.updates for learner in learners] == [3, 1]


def test_who_had_nothing_to_do_is_not_owed_for_it():
    learners = [Counting("a"), Counting("b")]
    group = LearnerGroup(learners, Wakeup())
    learners[1].is_ready = False
    for _ in range(100):
        assert group.work()
    learners[1].is_ready = True
    for _ in range(100):
        group.work()
    assert 145 <= learners[0].updates <= 150
    for learner in learners:
        learner.is_ready = False
    assert not group.work()


def test_who_is_ready_is_served_whatever_the_priority_of_others():
    learners = [Counting("a", 1000.0), Counting("b", 0.001)]
    group = LearnerGroup(learners, Wakeup())
    learners[0].is_ready = False
    assert group.work()
    assert group.work()
    assert learners[1].updates == 2


@pytest.mark.parametrize("width", [1, 2, 9])
def test_neighbours_that_are_ready_are_trained_together(width):
    for ready in itertools.product([False, True], repeat=5):
        found = list(runs(np.array(ready), width))
        assert [k for first, end in found for k in range(first, end)] == list(np.flatnonzero(ready))
        assert all(end - first <= width for first, end in found)
    assert list(runs(np.array([True, True, False, True]), 9)) == [(0, 2), (3, 4)]


def test_a_batch_is_as_large_as_its_time_allows():
    budget = BatchBudget(64, seconds=0.010)
    for _ in range(50):
        budget.spent(budget.size * 0.0005)  # 20 samples would take 10 ms
    assert budget.size == 16
    for _ in range(50):
        budget.spent(budget.size * 0.00001)
    assert budget.size == 64
    for _ in range(50):
        budget.spent(1.0)
    assert budget.size == 8  # some there must be
    free = BatchBudget(64, seconds=None)
    free.spent(100.0)
    assert free.size == 64
