"""Agents learn Treasure Hunt: long, run by `make test-all`."""

import pytest

from remuda.config import load_config
from remuda.training.run import train
from remuda.ui.terminal.live import PlainView

pytestmark = pytest.mark.learning

RANDOM_PLAY = 10.7


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["snapshot", "double_buffer"])
@pytest.mark.parametrize("algorithm", ["iqn", "dqn"])
def test_two_agents_learn_in_processes_of_their_own(tmp_path, algorithm, mode):
    # The run is measured in turns and made to wait for its learners, so that a slow machine takes
    # longer and learns as much.
    tree = {
        "policy": {
            "algorithm": algorithm,
            "publish": {"mode": mode},
            "network": {"hidden": (128, 128)},
            "n_frames": 1,
            "exploration": {"decay_steps": 40_000},
            "experience": {"on_full": "wait", "capacity": 50_000, "wait_limit": 60.0},
        },
        "run": {"turns": 150_000, "directory": tmp_path / "run", "evaluate_episodes": 200},
    }
    result = train(load_config(tree), PlainView())
    assert result.evaluation is not None
    for agent in range(2):
        assert result.evaluation.mean(agent) > 8 * RANDOM_PLAY
