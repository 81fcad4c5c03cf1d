"""Silence: what counts as it, and what does not."""

import os
import signal
import subprocess
import sys
import time

import pytest

from remuda.runtime import child as silence
from remuda.runtime.child import MOST, Activity, AwakeClock, Silence
from remuda.system.processes.activity import started


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 100.0

    monkeypatch.setattr(silence.time, "monotonic", lambda: Clock.now)
    return Clock


def test_time_in_which_the_watcher_was_away_does_not_count(clock):
    awake = AwakeClock()
    clock.now += 0.25
    assert awake.passed() == 0.25
    clock.now += 3600.0  # the laptop slept
    assert awake.passed() == MOST
    clock.now += 0.25
    assert awake.passed() == 0.25


def hear(activity, seconds, tick=0.25, workers=None):
    """Listen for so long to one that gives no sign; `activity` tells what it does at a time.

    `workers`, by process id, tell the same of those that it waits for.
    """
    heard, now = Silence(), [0.0]
    who = {1: activity} | (workers or {})
    asked = [(pid, 7) for pid in workers or ()]
    original = silence.Activity.of
    silence.Activity.of = staticmethod(lambda pid, started=0: who[pid](now[0]))
    try:
        heard.hear(1.0, 0.0, 1, asked)
        while now[0] < seconds:
            now[0] += tick
            heard.hear(1.0, tick, 1, asked)
    finally:
        silence.Activity.of = original
    return heard.seconds


def asleep(now):
    return Activity(3.0, runnable=False)


def starved(now):
    return Activity(3.0, runnable=True)


def computing(now):
    return Activity(now, runnable=True)


def gone(now):
    return None


def by_turns(number, of=3):
    """One of several that share a processor: each has it for a second, then the next."""

    def activity(now):
        rounds, rest = divmod(now, of)
        return Activity(rounds + min(max(rest - number, 0.0), 1.0), runnable=True)

    return activity


def test_one_that_sleeps_is_silent_all_the_time():
    assert hear(lambda now: Activity(3.0, runnable=False), 30.0) == pytest.approx(30.0)


def test_one_in_an_endless_loop_is_silent_for_the_time_that_it_computes():
    assert hear(lambda now: Activity(now, runnable=True), 30.0) == pytest.approx(30.0, abs=0.5)
    half = hear(lambda now: Activity(now / 2, runnable=True), 30.0)
    assert half == pytest.approx(15.0, abs=2.0)


def test_one_that_gets_no_processor_is_not_silent():
    assert hear(lambda now: Activity(3.0, runnable=True), 3600.0) <= 2 * silence.LOOK


@pytest.mark.parametrize(
    ("workers", "silent"),
    [
        ([starved], 2 * silence.LOOK),
        ([starved, starved], 2 * silence.LOOK),
        ([computing], 30.0),
        ([by_turns(0), by_turns(1), by_turns(2)], 11.0),  # each had ten seconds, and none thirty
        ([lambda now: Activity(now / 2, runnable=True)], 16.0),
        ([asleep], 30.0),
        ([starved, asleep], 30.0),
        ([gone, starved], 30.0),
        ([], 30.0),
    ],
)
def test_one_that_sleeps_until_its_workers_answer_is_silent_as_they_are(workers, silent):
    """A stopped worker is found beside one that gets no processor."""
    found = hear(asleep, 30.0, workers=dict(enumerate(workers, 2)))
    assert found == pytest.approx(silent, abs=1.0 if silent < 30.0 else 0.5)


def test_a_worker_that_has_answered_is_waited_for_no_more(monkeypatch):
    """What it took is not added to what the others take after it."""
    monkeypatch.setattr(silence.Activity, "of", staticmethod(lambda pid, started=0: asleep(0.0)))
    heard = Silence()
    heard.hear(1.0, 0.0, 1)
    heard.hear(1.0, 1.0, 1)
    for _ in range(10):
        heard.hear(1.0, 1.0, 1, [(2, 7)])
    assert heard.seconds == 11.0
    assert heard.hear(1.0, 1.0, 1, [(3, 7)]) == 2.0


def test_one_that_computes_is_silent_by_itself_whatever_its_workers_do():
    assert hear(computing, 30.0, workers={2: starved}) == pytest.approx(30.0, abs=0.5)
    assert hear(starved, 30.0, workers={2: asleep}) <= 2 * silence.LOOK
    assert hear(gone, 30.0, workers={2: starved}) == pytest.approx(30.0)


def test_a_sign_of_life_ends_the_silence():
    heard = Silence()
    heard.hear(1.0, 0.0, None)
    for _ in range(8):
        heard.hear(1.0, 0.25, None)
    assert heard.seconds == 2.0
    assert heard.hear(2.0, 0.25, None) == 0.0


@pytest.mark.process
def test_another_process_with_the_id_of_a_worker_is_not_taken_for_it():
    pid = os.getpid()
    began = started(pid)
    assert began > 0
    assert Activity.of(pid, began) is not None
    assert Activity.of(pid, began + 1) is None
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert started(process.pid) == 0


@pytest.mark.process
@pytest.mark.parametrize(
    ("code", "runnable"), [("while True: pass", True), ("import time; time.sleep(600)", False)]
)
def test_what_a_process_does_is_seen(code, runnable):
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            limit = time.monotonic() + 60
            while True:
                time.sleep(0.05)
                first = Activity.of(process.pid)
                has_computed = first is not None and first.cpu > 0
                if first is not None and first.runnable == runnable <= has_computed:
                    break
                assert time.monotonic() < limit
            os.kill(process.pid, signal.SIGSTOP)
            while Activity.of(process.pid).runnable:
                time.sleep(0.01)
                assert time.monotonic() < limit
        finally:
            process.kill()
    assert Activity.of(process.pid) is None
