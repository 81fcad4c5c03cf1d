"""Whole runs on GPUs: trained, saved, gone on with and evaluated there as on the processor."""

import numpy as np
import pytest

import remuda
from devices.alike import PASSES, assert_alike
from devices.gpus import REAL, ROUNDING, gpus
from remuda.config import overlay
from remuda.policies.algorithms.kernels.ppo import Fused
from remuda.runs.run_directory import RunDirectory
from remuda.runs.saved_weights import load_run
from remuda.ui.terminal.live import PlainView

SMALL = {
    "schedule": "sequential",
    "run": {"turns": 60, "evaluate_episodes": 0, "log_every": 0.05},
    "checkpoint": {"evaluate_episodes": 0},
    "env": {"num_envs": 2},
}
PPO = {
    "algorithm": "ppo",
    "network": {"hidden": (8,)},
    "ppo": {"rollout_length": 20, "minibatches": 2, "epochs": 2},
}
STEPS = {
    "network": {"hidden": (8,)},
    "batch_size": 16,
    "experience": {"learning_starts": 16, "replay_ratio": 2.0, "segment_length": 8},
}
POPULATION = {"policies": 8, "matchmaker": "random"}
RUNS = {
    "ppo": {"policy": PPO},
    "hybrid": {"policy": PPO | {"learning_mode": "hybrid"}},
    "off policy": {"policy": PPO | {"learning_mode": "off_policy"}},
    "recurrent": {"policy": overlay(PPO, {"network": {"recurrent": 6}})},
    "dqn, prioritised": {
        "policy": overlay(STEPS, {"algorithm": "dqn", "experience": {"prioritised": 0.7}})
    },
    "iqn, noisy": {"policy": overlay(STEPS, {"algorithm": "iqn", "network": {"noisy": True}})},
    "recurrent dqn": {"policy": overlay(STEPS, {"algorithm": "dqn", "network": {"recurrent": 6}})},
    "population of 8": {"policy": PPO, "population": POPULATION},
    "population of 8, recurrent": {
        "policy": overlay(PPO, {"network": {"recurrent": 6}}),
        "population": POPULATION,
    },
}
GPUS = {
    "learners": {"devices": ["cuda:0", "cuda:1"][: REAL or 2]},
    "actor": {"device": "cuda:0"},
}
HERE = {"learners": {"devices": ["cpu"]}}


def trained(directory, tree):
    """Train, and go on: the weights after both."""
    found = []
    run = {"directory": directory}
    result = remuda.train("support:Tape", config=overlay(SMALL, tree), run=run, view=PlainView())
    assert result.finished
    found.append(weights_of(directory))
    remuda.train(resume=directory, run={"turns": 100}, view=PlainView())
    found.append(weights_of(directory))
    return found


def weights_of(directory):
    _, snapshots = load_run(RunDirectory.open(directory))
    return {name: snapshot.weights for name, snapshot in snapshots.items()}


@pytest.mark.slow
@pytest.mark.parametrize("kind", RUNS)
def test_a_run_on_two_gpus_is_that_on_the_processor(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(Fused, "suits", lambda *_: False)
    expected = trained(tmp_path / "here", overlay(RUNS[kind], HERE))
    with gpus(2) as counted:
        found = trained(tmp_path / "there", overlay(RUNS[kind], GPUS))
        assert not PASSES & set(counted.on_cpu), counted.on_cpu
        assert counted.on_gpu["_fused_adam_"]
        earned = remuda.load(tmp_path / "there").evaluate(4)
    assert_alike(found, expected, max(1e-4, ROUNDING))
    assert {*found[0]} == {*found[1]}
    assert any(np.abs(found[0][name] - found[1][name]).max() > 0.0 for name in found[0])
    np.testing.assert_array_equal(
        earned.returns, remuda.load(tmp_path / "here").evaluate(4).returns
    )
