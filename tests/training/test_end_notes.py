"""Messages that matter after a run are among its notes."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import remuda


class Endless(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length: int = 0, reward: float = 1.0, render_mode: str | None = None):
        self.length, self.reward, self.render_mode = length, reward, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.turn = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.turn += 1
        observation = np.zeros(2, np.float32)
        return observation, self.reward, self.turn == self.length, False, {}


def notes_of(directory, turns=1_000, policy=(), **options):
    result = remuda.train(
        Endless,
        schedule="sequential",
        policy={"algorithm": "ppo", **dict(policy)},
        env={"num_envs": 1, "options": options},
        run={"turns": turns, "directory": directory, "evaluate_episodes": 0},
        view="quiet",
    )
    assert result.notes == tuple(remuda.load(directory).summary()["notes"])
    return result.notes


def test_episodes_that_never_end_are_reported(tmp_path):
    assert "no episode ended in 1,000 turns" in "".join(notes_of(tmp_path / "endless"))
    assert notes_of(tmp_path / "few_turns", turns=500) == ()
    assert notes_of(tmp_path / "ends", length=900) == ()


def test_settings_without_effect_are_reported(tmp_path):
    (note,) = notes_of(tmp_path / "run", turns=200, policy={"n_steps": 5}, length=10)
    assert "policy.n_steps" in note


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_updates_that_did_not_count_are_reported(tmp_path):
    notes = notes_of(tmp_path / "run", turns=200, policy={"max_nonfinite": 99}, reward=1e38)
    assert "not finite, and did not count" in "".join(notes)
