"""A sequential run with a seed repeats itself, bit for bit."""

import numpy as np
import pytest

from remuda.config import load_config
from remuda.runs.metrics import read_metrics
from remuda.runs.run_directory import RunDirectory
from remuda.runs.saved_weights import load_run
from remuda.training.run import train
from remuda.ui.terminal.live import PlainView

pytestmark = pytest.mark.learning


def weights_of(directory, seed, algorithm, noisy=False):
    tree = {
        "game": "treasure_hunt",
        "schedule": "sequential",
        "seed": seed,
        "env": {"num_envs": 2},
        "policy": {
            "algorithm": algorithm,
            "n_frames": 2,
            "network": {"hidden": (16, 16), "noisy": noisy},
            "batch_size": 16,
            "experience": {"learning_starts": 100},
        },
        "run": {"turns": 800, "directory": directory, "evaluate_episodes": 0},
    }
    train(load_config(tree), PlainView())
    run = RunDirectory.open(directory)
    records = list(read_metrics(run.metrics))
    last = {name: (p.updates, p.steps, p.version) for name, p in records[-1].policies.items()}
    return {name: s.weights for name, s in load_run(run)[1].items()}, last


@pytest.mark.slow_cases("dqn-False", "iqn-True")
@pytest.mark.parametrize(
    ("algorithm", "noisy"),
    [
        ("dqn", False),
        ("iqn", True),
        pytest.param("iqn", False, marks=pytest.mark.slow),
    ],
)
def test_the_same_seed_gives_the_same_weights(tmp_path, algorithm, noisy):
    first, counts = weights_of(tmp_path / "a", 5, algorithm, noisy)
    second, again = weights_of(tmp_path / "b", 5, algorithm, noisy)
    other, _ = weights_of(tmp_path / "c", 6, algorithm, noisy)
    assert counts == again
    assert counts["agent_0"][0] > 10
    for name in ("agent_0", "agent_1"):
        assert np.array_equal(first[name], second[name])
        assert not np.array_equal(first[name], other[name])
    assert not np.array_equal(first["agent_0"], first["agent_1"])
