"""SAC learns what it should, with continuous and with discrete actions."""

import numpy as np
import pytest
from gymnasium.spaces import Discrete

import remuda
from learning.test_action_bounds import Aim
from remuda.ui.terminal.live import PlainView


class Choose(Aim):
    """`Aim` with five actions that divide the range evenly."""

    def __init__(self, low=-1.0, high=1.0):
        super().__init__(low, high)
        self.action_space = Discrete(5)

    def step(self, action):
        self.turn += 1
        away = action / 2 - 0.5
        return np.ones(1, np.float32), float(1 - away**2), self.turn == 8, False, {}


def trained(directory, make, turns, temperature=1.0, **options):
    return remuda.train(
        make,
        env={"num_envs": 4, "options": options},
        policy={
            "algorithm": "sac",
            "learning_rate": 3e-3,
            "network": {"hidden": [32, 32]},
            "batch_size": 64,
            "sac": {"temperature": temperature},
            "experience": {"replay_ratio": 64, "learning_starts": 200, "capacity": 20_000},
        },
        schedule="sequential",
        run={"turns": turns, "directory": directory, "evaluate_episodes": 0, "log_every": 3600},
        checkpoint={"evaluate_episodes": 0},
        view=PlainView(),
    )


pytestmark = pytest.mark.learning
BOUNDS = [(-1, 1), (0, 1), (-0.01, 0.01), (100, 200), (-1000, 1000)]


@pytest.mark.slow_cases("bounds0", "bounds1", "bounds2", "bounds4")
@pytest.mark.parametrize("bounds", BOUNDS, ids=[f"bounds{i}" for i in range(5)])
def test_a_target_is_reached_within_any_bounds(bounds, tmp_path):
    low, high = map(float, bounds)
    run = trained(tmp_path / "run", Aim, 400, low=low, high=high)
    (action,) = remuda.load(run)["agent_0"].act(np.ones(1, np.float32))
    assert (action - low) / (high - low) == pytest.approx(0.25, abs=0.08)


def test_the_best_of_several_actions_is_found(tmp_path):
    run = trained(tmp_path / "run", Choose, 600, temperature=0.2)
    assert remuda.load(run)["agent_0"].act(np.ones(1, np.float32)) == 1
