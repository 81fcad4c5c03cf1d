"""Waiting: no ring is lost, no wait spins, and a death on either side stalls nobody."""

import multiprocessing
import time

import numpy as np
import psutil
import pytest

from remuda.system.memory.atomic import load, store
from remuda.system.memory.shared import SharedArrays
from remuda.system.memory.waiting import Wakeup

SPAWN = multiprocessing.get_context("spawn")


def test_a_ring_before_the_wait_is_not_lost():
    wakeup, rung = Wakeup(), []

    def predicate():
        # The ring comes after the check, as if from another process just before the sleep.
        if not rung:
            rung.append(True)
            wakeup.ring()
            return False
        return True

    start = time.monotonic()
    assert wakeup.wait(predicate, 60.0)
    assert time.monotonic() - start < 30.0


def test_a_wait_ends_at_its_limit_and_does_not_spin():
    wakeup, checks = Wakeup(), []
    for _ in range(100):
        wakeup.ring()
    used = psutil.Process().cpu_times().user
    assert not wakeup.wait(lambda: bool(checks.append(1)), 0.5)
    assert len(checks) <= 3
    assert psutil.Process().cpu_times().user - used < 0.25


def test_ringing_without_a_waiter_never_blocks():
    wakeup = Wakeup()
    for _ in range(100_000):
        wakeup.ring()
    assert wakeup.wait(lambda: True, 1.0)


def _linger(random):
    """Spin for a random while, so that ringing, checking and falling asleep meet in every order."""
    end = time.perf_counter() + random.uniform(0.0, 60e-6)
    while time.perf_counter() < end:
        pass


def _answer(words, mine, yours, count):
    random = np.random.default_rng(1)
    for i in range(1, count + 1):
        assert mine.wait(lambda i=i: load(words, 0) >= i, 60.0)
        _linger(random)
        store(words, 1, i)
        yours.ring()


@pytest.mark.process
@pytest.mark.parametrize(
    "count",
    [3_000, pytest.param(100_000, marks=[pytest.mark.long, pytest.mark.timeout(1200)])],
)
def test_hand_overs_are_never_lost(count):
    """Each round is two hand-overs, there and back."""
    random = np.random.default_rng(0)
    shared, there, back = SharedArrays({"words": ((2,), np.int64)}), Wakeup(), Wakeup()
    words = shared["words"]
    child = SPAWN.Process(target=_answer_shared, args=(shared, there, back, count))
    child.start()
    for i in range(1, count + 1):
        store(words, 0, i)
        _linger(random)
        there.ring()
        assert back.wait(lambda i=i: load(words, 1) >= i, 60.0), f"hand-over {i} was lost"
    child.join(60)
    assert child.exitcode == 0


def _answer_shared(shared, mine, yours, count):
    _answer(shared["words"], mine, yours, count)


def _die_waiting(wakeup):
    wakeup.wait(lambda: False, 600.0)


@pytest.mark.process
def test_a_waiter_that_is_killed_leaves_the_wakeup_in_order():
    wakeup = Wakeup()
    child = SPAWN.Process(target=_die_waiting, args=(wakeup,))
    child.start()
    time.sleep(0.2)
    child.kill()
    child.join(60)
    wakeup.ring()
    assert wakeup.wait(lambda: True, 1.0)
    assert not wakeup.wait(lambda: False, 0.05)
