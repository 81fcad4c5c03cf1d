"""PPO learns what its network can: control, memory, pictures."""

import pytest

from remuda.config import load_config, overlay
from remuda.training.run import train
from remuda.ui.terminal.live import PlainView

pytestmark = pytest.mark.learning


def final_return(directory, **tree):
    base = {
        "schedule": "sequential",
        "run": {"directory": directory, "evaluate_episodes": 100, "log_every": 3600},
        "checkpoint": {"every": 3600, "evaluate_episodes": 0},
    }
    result = train(load_config(overlay(base, tree)), PlainView())
    assert result.evaluation is not None
    return result.evaluation.mean(0)


SMALL = {
    "algorithm": "ppo",
    "reward_scale": 1.0,
    "experience": {"segment_length": 4},
    "ppo": {"rollout_length": 32},
}


@pytest.mark.slow
@pytest.mark.parametrize(("recurrent", "least", "most"), [(16, 0.98, 1.0), (0, 0.3, 0.7)])
def test_only_a_policy_with_a_memory_recalls(recurrent, least, most, tmp_path):
    policy = overlay(SMALL, {"network": {"hidden": (16,), "recurrent": recurrent}})
    found = final_return(
        tmp_path / "run",
        game="support:Recall",
        env={"num_envs": 16},
        policy=policy,
        run={"turns": 40_000},
    )
    assert least <= found <= most


@pytest.mark.slow  # tests/learning/test_adapters.py has convolutions that learn
def test_convolutions_see_where_the_spot_lies(tmp_path):
    network = {"hidden": (16,), "convolutions": ((8, 3, 1),), "activation": "relu"}
    found = final_return(
        tmp_path / "run",
        game="support:Recall",
        env={"num_envs": 16, "options": {"picture": True}},
        policy=overlay(SMALL, {"network": network}),
        run={"turns": 60_000},
    )
    assert found > 0.98


@pytest.mark.long
@pytest.mark.parametrize("schedule", ["sequential", "async"])
@pytest.mark.parametrize("seed", [0, 1])
def test_cartpole(seed, schedule, tmp_path):
    found = final_return(
        tmp_path / "run",
        game="gymnasium:CartPole-v1",
        schedule=schedule,
        seed=seed,
        env={"num_envs": 8},
        policy={
            "algorithm": "ppo",
            "ppo": {"epochs": 10, "minibatches": 8, "entropy_cost": 0.0, "anneal_steps": 150_000},
        },
        run={"turns": 150_000},
    )
    assert found >= 475
