"""PPO reaches a target within the bounds of a `Box`, wherever the bounds lie."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

import remuda
from remuda.ui.terminal.live import PlainView

pytestmark = pytest.mark.learning


class Aim(gymnasium.Env):
    """The reward falls with the square of the distance to a quarter of the range."""

    observation_space = Box(0, 1, (1,), np.float32)

    def __init__(self, low, high):
        self.action_space = Box(low, high, (1,), np.float32)
        self.low, self.half, self.turn = low, (high - low) / 2, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.turn = 0
        return np.ones(1, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.turn += 1
        away = (action[0] - self.low) / self.half - 0.5
        return np.ones(1, np.float32), float(1 - away**2), self.turn == 8, False, {}


def trained(directory, make, turns, **options):
    return remuda.train(
        make,
        env={"num_envs": 16, "options": options},
        policy={"algorithm": "ppo", "learning_rate": 3e-3, "reward_scale": 1.0},
        schedule="sequential",
        run={"turns": turns, "directory": directory, "evaluate_episodes": 0, "log_every": 3600},
        checkpoint={"evaluate_episodes": 0},
        view=PlainView(),
    )


@pytest.mark.slow
def test_a_target_is_reached_far_from_zero(tmp_path):
    run = trained(tmp_path / "run", Aim, 60_000, low=100.0, high=200.0)
    (action,) = remuda.load(run)["agent_0"].act(np.ones(1, np.float32))
    assert action == pytest.approx(125, abs=15)


@pytest.mark.slow
def test_training_is_the_same_within_any_bounds(tmp_path):
    """The bounds are sums of powers of two, so that no reward is rounded differently."""
    weights, actions = [], []
    for i, (low, high) in enumerate([(-1.0, 1.0), (0.0, 1.0), (64.0, 192.0), (-1024.0, 1024.0)]):
        run = trained(tmp_path / str(i), Aim, 300, low=low, high=high)
        policy = remuda.load(run)["agent_0"]
        weights.append(policy.weights())
        actions.append((policy.act(np.ones(1, np.float32))[0] - low) / (high - low))
    for other in weights[1:]:
        for name, values in other.items():
            np.testing.assert_array_equal(values, weights[0][name])
    np.testing.assert_allclose(actions, actions[0], rtol=1e-5)


class Open(Aim):
    """Two numbers, of which one has no bound."""

    def __init__(self):
        super().__init__(-1.0, 1.0)
        self.action_space = Box(
            np.array([-1, -np.inf], np.float32), np.array([1, np.inf], np.float32)
        )


def test_numbers_without_bounds_are_told(tmp_path, capsys):
    run = trained(tmp_path / "run", Open, 50)
    (note,) = [note for note in run.notes if "agent_0: 1 of 2 continuous actions" in note]
    assert note in capsys.readouterr().out
