"""Policies learn in the games of other libraries: masks, pictures, continuous actions, Sorrel."""

import pytest

from remuda.config import load_config, overlay
from remuda.training.run import train
from remuda.ui.terminal.live import PlainView

pytestmark = pytest.mark.learning


def trained(directory, **tree):
    base = {
        "run": {"directory": directory, "evaluate_episodes": 200, "log_every": 3600},
        "policy": {"algorithm": "ppo"},
        "checkpoint": {"every": 3600, "evaluate_episodes": 0},
    }
    return train(load_config(overlay(base, tree)), PlainView())


@pytest.mark.slow
def test_convolutions_learn_from_a_picture_of_gymnasium(tmp_path):
    result = trained(
        tmp_path / "run",
        game="foreign_games:spots",
        schedule="sequential",
        env={"num_envs": 16},
        policy={
            "network": {"convolutions": ((8, 4, 2),), "hidden": (32,), "activation": "relu"},
            "experience": {"segment_length": 8},
            "ppo": {"rollout_length": 32},
        },
        run={"turns": 25_000},
    )
    assert result.evaluation.mean(0) > 7.6  # of 8; at random 4


@pytest.mark.long  # tests/envs/adapters/test_sorrel.py has its mechanics
def test_a_sorrel_society_learns(tmp_path):
    result = trained(
        tmp_path / "run",
        game="foreign_games:society",
        schedule="sequential",
        env={"num_envs": 16},
        policy={
            "learning_rate": 3e-3,
            "experience": {"segment_length": 20},
            "ppo": {"rollout_length": 20},
        },
        run={"turns": 30_000},
    )
    # Three who walk at random collide, and earn -3 together; all the same way round, 5.
    assert sum(result.evaluation.mean(agent) for agent in range(3)) > 0


@pytest.mark.long
@pytest.mark.parametrize(("seat", "other"), [(0, "player_2"), (1, "player_1")])
def test_tic_tac_toe_is_learned_against_who_plays_at_random(seat, other, tmp_path):
    result = trained(
        tmp_path / "run",
        game="pettingzoo:classic/tictactoe-v3",
        env={"num_envs": 64, "scripted": {other: "random"}},
        policy={
            "discount": 1.0,
            "experience": {"segment_length": 5},
            "ppo": {"rollout_length": 32},
        },
        run={"turns": 200_000},
    )
    returns = result.evaluation.returns
    # At random the first wins or draws 0.71 of the games, the second 0.42.
    assert (returns[:, seat] >= 0).mean() > (0.8, 0.65)[seat]
    other_policy = result.record.policies[other]
    assert other_policy.updates == 0
    assert other_policy.steps == 0


@pytest.mark.long
def test_pendulum_is_swung_up(tmp_path):
    result = trained(
        tmp_path / "run",
        game="gymnasium:Pendulum-v1",
        env={"num_envs": 16},
        policy={
            "discount": 0.95,
            "reward_scale": 0.1,
            "ppo": {"rollout_length": 64, "epochs": 10, "entropy_cost": 0.0},
        },
        run={"turns": 250_000},
    )
    assert result.evaluation.mean(0) > -400  # hanging down it is -1200
