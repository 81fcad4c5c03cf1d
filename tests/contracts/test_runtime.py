"""The contract of a `Runtime`."""

import time

import pytest

from refusals import refuses
from remuda.errors import RemudaError
from remuda.system.checkpoint.store import Manifest

pytestmark = pytest.mark.process


def never():
    return False


def play(runtime, seconds=60.0):
    """Let it work until everything is played."""
    limit = time.monotonic() + seconds
    while not runtime.run_for(0.1):
        assert time.monotonic() < limit, "it is not through"


@pytest.mark.slow_cases("processes")
def test_every_role_is_brought_up_before_any_works_and_let_go_after_all(make_runtime):
    runtime, _, (actor, learner) = make_runtime(turns=20)
    runtime.start(never)
    play(runtime)
    told = actor.told
    assert {*told[:2]} == {"actor built", "learner built"}
    assert told.index("actor began") < told.index("learner began")
    assert actor.words["counts"][0] == 20
    states = runtime.status()
    assert states
    assert all(each.state in ("running", "done") and each.restarts == 0 for each in states)
    runtime.stop()
    assert {*actor.told[-2:]} == {"actor finished", "learner finished"}
    assert len(told := learner.told) == len({*told}), "something happened twice"
    assert runtime.news() == []


def start_and_play(runtime):
    runtime.start(never)
    play(runtime)


def save(runtime, checkpoints, turns):
    """Take a checkpoint as the coordinator does; returns its number."""
    number = checkpoints.begin()
    parts = runtime.save(number)
    checkpoints.commit(Manifest(number, turns, 1.0, False, {}, dict.fromkeys(parts, "")))
    runtime.settle(number)
    return number, parts


@pytest.mark.slow_cases("processes")
def test_a_checkpoint_holds_a_part_of_each_role_and_a_run_goes_on_from_it(make_runtime):
    runtime, checkpoints, (actor, learner) = make_runtime(turns=10)
    runtime.start(never)
    play(runtime)
    number, parts = save(runtime, checkpoints, 10)
    assert parts == {"actor", "learner"}
    assert checkpoints.read(number, "actor") == {"count": 10}
    runtime.stop()
    runtime, _, (actor, learner) = make_runtime(turns=15, resumed=True)
    runtime.start(never)
    play(runtime)
    runtime.stop()
    assert actor.told.count("actor restored 10") == 1
    assert any(line.startswith("learner restored") for line in learner.told)
    assert actor.words["counts"][0] == 15


@pytest.mark.slow_cases("processes")
def test_it_returns_in_time_where_nothing_ends(make_runtime):
    runtime, _, _ = make_runtime(turns=10**9)
    runtime.start(never)
    assert runtime.run_for(0.05) is False
    runtime.stop()


@pytest.mark.parametrize("where", ["build", "work"])
def test_what_a_role_raises_ends_the_run_or_is_raised(make_runtime, where):
    runtime, _, (actor, _) = make_runtime(turns=10, broken=where)
    with refuses((RemudaError, LookupError)):
        start_and_play(runtime)
    runtime.stop()
    assert "actor began" not in actor.told
