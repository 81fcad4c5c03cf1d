"""The trial before a run: it measures what it claims to; what goes wrong in it costs nothing."""

import gc
import time

import pytest

from assembled import spec_of
from remuda.assembly import calibration
from remuda.assembly.calibration import choose_layout, measure
from remuda.config import load_config, overlay
from remuda.runtime.layout import Costs, make_layout
from support import Tape

SMALL = {
    "game": "support:Tape",
    "env": {"num_envs": 4},
    "policy": {
        "algorithm": "ppo",
        "network": {"hidden": (8,)},
        "experience": {"segment_length": 4},
    },
}
AGENTS = Tape().agents


class SlowTape(Tape):
    """Takes 5 ms for a turn of a copy."""

    def end_turn(self):
        time.sleep(0.005 * self.num_envs)
        return super().end_turn()


class BrokenTape(Tape):
    """Fails as soon as it is played."""

    def begin_turn(self):
        raise RuntimeError("an error in the user's game")


@pytest.fixture
def four_cores(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)


@pytest.mark.slow_cases("policy0")
@pytest.mark.parametrize(
    "policy",
    [{}, pytest.param({"algorithm": "iqn", "iqn": {"quantiles": 4}}, marks=pytest.mark.slow)],
)
def test_playing_and_training_are_measured_each_by_itself(policy):
    sleepy = {"game": "assembly.test_calibration:SlowTape", "policy": policy}
    slow = measure(spec_of(load_config(overlay(SMALL, sleepy)), AGENTS), 0.2)
    assert slow.play >= 0.0025  # two agents share the 5 ms of a copy
    fast = measure(spec_of(load_config(overlay(SMALL, {"policy": policy})), AGENTS), 1.0)
    assert fast.play > 0.0
    assert fast.learn > 0.0


@pytest.mark.parametrize(
    ("with_half", "actors"),
    [
        (10.0, 4),  # each copy costs the same by itself: four actors are four times as fast
        (20.0, 1),  # half as many copies take as long: apart they would gain nothing
    ],
)
def test_a_slow_game_is_given_more_actors_if_that_helps(with_half, actors, four_cores, monkeypatch):
    def measured(spec, seconds, num_threads=1):
        return Costs(play=10.0 if spec.config.env.num_envs == 4 else with_half, learn=0.1)

    monkeypatch.setattr(calibration, "measure", measured)
    layout = choose_layout(spec_of(load_config(SMALL), AGENTS))
    assert len(layout.copies) == actors
    assert len(layout.groups) == 1
    assert "a step: play " in layout.describe("async", ["a", "b"])


@pytest.mark.slow
def test_training_is_seen_where_a_whole_rollout_takes_longer_than_a_trial(four_cores):
    """Red before: it counted for nothing, and large networks got an actor for each core."""
    config = load_config(overlay(SMALL, {"game": "assembly.test_calibration:SlowTape"}))
    reason = choose_layout(spec_of(config, AGENTS)).reason
    assert "training" in reason
    assert "training 0 us" not in reason


def test_what_was_hardly_seen_decides_on_no_threads(four_cores, monkeypatch):
    asked = []

    def measured(spec, seconds, num_threads, turns=None):
        asked.append((num_threads, turns))
        return Costs(play=2e-3, learn=1e-3 if turns or num_threads > 1 else 0.0)

    monkeypatch.setattr(calibration, "measure_costs", measured)
    choose_layout(spec_of(load_config(SMALL), AGENTS))
    assert asked == [(1, None), (1, 62), (1, None)]  # and then with half of the copies
    asked.clear()
    slower = load_config(overlay(SMALL, {"policy": {"ppo": {"minibatches": 8}}}))
    choose_layout(spec_of(slower, AGENTS))
    assert asked == [(1, None), (1, None)]  # too few steps to tell anything by
    asked.clear()
    choose_layout(spec_of(load_config(overlay(SMALL, {"policy": {"algorithm": "dqn"}})), AGENTS))
    assert asked == [(1, None), (1, None)]


def test_a_cluster_has_a_trial_too(caplog):
    """Red before: it failed, and that was told in the log alone."""
    tree = {"cluster": {"local": 2}, "run": {"calibrate": 0.05}}
    layout = choose_layout(spec_of(load_config(overlay(SMALL, tree)), AGENTS), cores=4)
    assert layout.reason
    assert not caplog.records


def test_there_is_no_trial_where_there_is_nothing_to_choose(four_cores, monkeypatch):
    monkeypatch.setattr(calibration, "measure", lambda *args: pytest.fail("there was a trial"))
    for tree in (
        {"schedule": "sequential"},
        {"run": {"calibrate": 0}},
        {"actor": {"processes": 2}, "learners": {"processes": 1}},
    ):
        config = load_config(overlay(SMALL, tree))
        assert choose_layout(spec_of(config, AGENTS)) == make_layout(config, len(AGENTS))


@pytest.mark.parametrize(("speed_up", "threads"), [(1.1, 1), (3.0, 3)])
def test_cores_that_are_left_over_become_threads_where_these_help(
    speed_up, threads, monkeypatch, four_cores
):
    def measured(spec, seconds, num_threads=1):
        return Costs(play=1.0, learn=0.9 / (speed_up if num_threads > 1 else 1.0))

    monkeypatch.setattr(calibration, "measure", measured)
    config = load_config(overlay(SMALL, {"env": {"num_envs": 1}, "actor": {"processes": 1}}))
    layout = choose_layout(spec_of(config, AGENTS))
    assert (len(layout.copies), len(layout.groups)) == (1, 1)
    assert layout.threads == threads
    assert ("3 threads each" in layout.describe("async", ["a", "b"])) == (threads == 3)


def test_a_trial_that_fails_costs_nothing(four_cores):
    config = load_config(overlay(SMALL, {"game": "assembly.test_calibration:BrokenTape"}))
    assert choose_layout(spec_of(config, AGENTS)) == make_layout(config, len(AGENTS))


@pytest.mark.parametrize("fails", [False, True])
def test_what_was_there_before_is_not_searched_for_garbage(fails, monkeypatch, nothing_is_frozen):
    """Each trial was collected among all objects of all libraries, up to five times at a start."""
    game = "assembly.test_calibration:BrokenTape" if fails else "support:Tape"
    config = load_config(overlay(SMALL, {"game": game, "run": {"calibrate": 0.02}}))
    seen, collect, before = [], gc.collect, len(gc.get_objects())

    def watched(*args):
        seen.append(len(gc.get_objects()))  # without those that are left alone
        return collect(*args)

    monkeypatch.setattr(gc, "collect", watched)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1}, raising=False)
    layout = choose_layout(spec_of(config, AGENTS))
    assert bool(layout.reason) == (not fails)
    assert seen
    assert max(seen) < before / 2
    assert gc.get_freeze_count() == 0


def test_a_run_that_is_hardly_longer_than_a_trial_has_none(monkeypatch):
    tried = []
    monkeypatch.setattr(calibration, "measure", lambda *_: tried.append(1) or Costs(1e-3, 1e-3))
    for turns, expected in ((5000, []), (5001, [1, 1]), (None, [1, 1])):  # of two agents
        tried.clear()
        config = load_config(overlay(SMALL, {"run": {"turns": turns, "seconds": 60.0}}))
        assert bool(choose_layout(spec_of(config, AGENTS)).reason) == bool(expected)
        assert tried == expected
