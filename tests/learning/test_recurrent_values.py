"""Only Q-learners with a recurrent network recall what they saw at the beginning."""

import pytest

from remuda.config import load_config
from remuda.training.run import train
from remuda.ui.terminal.live import PlainView

pytestmark = pytest.mark.learning

RECURRENT, OWN = {"recurrent": 16}, {"module": "policies.own_networks:Gated"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "network", "least", "most"),
    [
        ("dqn", RECURRENT, 0.95, 1.0),
        ("iqn", RECURRENT, 0.95, 1.0),
        ("dqn", OWN, 0.95, 1.0),
        ("dqn", {}, 0.3, 0.7),
    ],
    ids=["dqn", "iqn", "own module", "without a memory"],
)
def test_a_cue_of_the_first_turn_is_acted_on_in_the_last(algorithm, network, least, most, tmp_path):
    policy = {
        "algorithm": algorithm,
        "n_frames": 1,
        "reward_scale": 1.0,
        "learning_rate": 3e-3,
        "batch_size": 128,
        "dqn": {"target_every": 20},
        "iqn": {"target_every": 20, "quantiles": 4, "cosines": 8},
        "network": {"hidden": [32]} | network,
        "exploration": {"decay_steps": 2000},
        "publish": {"every": 1},
        "experience": {
            "learning_starts": 256,
            "capacity": 4000,
            "replay_ratio": 4.0,
            "segment_length": 4,
        },
    }
    tree = {
        "game": "support:Recall",
        "schedule": "sequential",
        "env": {"num_envs": 4},
        "policy": policy,
        "run": {"turns": 6000, "directory": tmp_path / "run", "evaluate_episodes": 100},
        "checkpoint": {"every": 3600, "evaluate_episodes": 0},
    }
    result = train(load_config(tree), PlainView())
    assert least <= result.evaluation.mean(0) <= most
