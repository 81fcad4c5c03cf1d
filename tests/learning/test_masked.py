"""Q-learners learn games that tell what is allowed."""

import pytest

from remuda.config import load_config, overlay
from remuda.training.run import train
from remuda.ui.terminal.live import PlainView

pytestmark = pytest.mark.learning

SMALL = {
    "schedule": "sequential",
    "env": {"num_envs": 8, "scripted": {"agent_1": "random"}},
    "policy": {
        "network": {"hidden": [32, 32]},
        "iqn": {"quantiles": 8, "target_every": 50},
        "n_frames": 1,
        "n_steps": 1,
        "discount": 0.99,
        "reward_scale": 1.0,
        "learning_rate": 1e-3,
        "batch_size": 32,
        "dqn": {"target_every": 50},
        "experience": {"learning_starts": 500, "capacity": 20_000, "replay_ratio": 4.0},
        "exploration": {"decay_steps": 8000, "end": 0.05},
    },
    "checkpoint": {"every": 3600, "evaluate_episodes": 0},
}


def against_random(directory, **tree):
    """What an agent earns a game in greedy play against one that acts at random."""
    run = {"directory": directory, "evaluate_episodes": 2000, "log_every": 3600}
    result = train(load_config(overlay(SMALL, tree | {"run": run | tree["run"]})), PlainView())
    return result.evaluation.mean(0)


@pytest.mark.slow_cases("dqn")
@pytest.mark.parametrize("algorithm", ["dqn", pytest.param("iqn", marks=pytest.mark.slow)])
def test_kuhn_poker(algorithm, tmp_path):
    """The best answer to one that plays at random earns 1/2 a game; at random itself, 1/8."""
    mean = against_random(
        tmp_path / "run",
        game="kuhn_poker",
        policy={"algorithm": algorithm},
        run={"turns": 20_000},
    )
    assert mean > 0.35


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["dqn", "iqn"])
def test_connect_four_on_a_small_grid(algorithm, tmp_path):
    mean = against_random(
        tmp_path / "run",
        game="connect_four",
        env={"options": {"height": 4, "width": 4, "connect": 3}},
        policy={"algorithm": algorithm},
        run={"turns": 40_000},
    )
    assert mean > 0.8
