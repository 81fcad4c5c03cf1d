"""What only a real GPU can show: processes that share one, die on one, and what they repeat."""

import os
import signal

import numpy as np
import pytest

import remuda
from assembled import spec_of
from devices.gpus import REAL
from devices.test_runs_there import RUNS, SMALL, trained, weights_of
from faults.runs import ALGORITHMS, make_runtime, run_until, small_config, wait_until_gone
from remuda.assembly.calibration import choose_layout
from remuda.config import load_config, overlay
from remuda.system.scoreboard import Learn, Play
from remuda.ui.terminal.live import PlainView
from support import Tape

pytestmark = pytest.mark.skipif(not REAL, reason="there is no GPU")
MODES = "snapshot", "double_buffer"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_learner_that_is_killed_on_a_gpu_is_replaced(algorithm, mode, tmp_path):
    config = small_config(policy=overlay(ALGORITHMS[algorithm], {"publish": {"mode": mode}}))
    ring, runtime = make_runtime(config, tmp_path)
    assert set(ring.layout.devices) == {"cuda:0"}
    runtime.start(lambda: False)
    try:
        play = ring.scoreboard.play()
        learn = [ring.scoreboard.learn(f"agent_{i}") for i in range(2)]
        run_until(runtime, lambda: all(row[Learn.UPDATES] > 20 for row in learn))
        pid = runtime.pids["learner-agent_0"]
        updates, turns = [row[Learn.UPDATES] for row in learn], play[Play.TURNS]
        os.kill(pid, signal.SIGKILL)
        run_until(runtime, lambda: runtime.pids.get("learner-agent_0") not in (None, pid))
        run_until(runtime, lambda: learn[0][Learn.UPDATES] > updates[0] + 20)
        run_until(runtime, lambda: learn[1][Learn.UPDATES] > updates[1] + 20)
        assert play[Play.TURNS] > turns
        weights = [snapshot.weights for snapshot in ring.snapshots().values()]
        assert len(weights) == 2
        assert all(np.isfinite(each).all() for each in weights)
    finally:
        runtime.stop()
    wait_until_gone([pid], 60.0)


@pytest.mark.parametrize("schedule", ["async", "lockstep"])
@pytest.mark.parametrize("kind", RUNS)
def test_a_run_is_trained_there_and_goes_on_here(kind, schedule, tmp_path):
    run = {"directory": tmp_path / "run"}
    tree = overlay(overlay(SMALL, RUNS[kind]), {"schedule": schedule})
    there = overlay(tree, {"run": {"turns": 2_000}})
    result = remuda.train("support:Tape", config=there, run=run, view=PlainView())
    assert result.finished
    before = weights_of(tmp_path / "run")
    here = {"learners": {"devices": ["cpu"]}, "run": {"turns": 4_000}}
    assert remuda.train(resume=tmp_path / "run", **here, view=PlainView()).finished
    after = weights_of(tmp_path / "run")
    assert all(np.isfinite(each).all() for each in after.values())
    assert any(np.abs(after[name] - before[name]).max() > 0 for name in before if name in after)


def test_a_slow_game_gets_several_actors_beside_a_gpu():
    tree = {"game": "assembly.test_calibration:SlowTape", "env": {"num_envs": 4}}
    config = load_config(tree | {"policy": RUNS["ppo"]["policy"], "run": {"turns": 10**6}})
    layout = choose_layout(spec_of(config, Tape().agents))
    assert len(layout.copies) > 1, layout
    assert (set(layout.devices), len(layout.groups)) == ({"cuda:0"}, 1)
    assert layout.reason


@pytest.mark.parametrize("kind", RUNS)
def test_a_sequential_run_repeats_itself_there(kind, tmp_path):
    tree = overlay(RUNS[kind], {"learners": {"devices": ["cuda:0"]}})
    one, other = (trained(tmp_path / name, tree) for name in ("one", "other"))
    for first, second in zip(one, other, strict=True):
        for name, weights in first.items():
            np.testing.assert_array_equal(weights, second[name])
