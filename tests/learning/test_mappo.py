"""A centralised critic tells skill from luck; a critic of one observation cannot."""

import pytest

import remuda
from remuda.ui.terminal.live import PlainView

pytestmark = pytest.mark.learning


def matches(directory, algorithm, seed):
    """Matches of a greedy episode after training; 2 at best, about 0.5 by chance."""
    result = remuda.train(
        "lucky_pair:LuckyPair",
        env={"num_envs": 64, "options": {"luck": 100.0}},
        policy={
            "algorithm": algorithm,
            "network": {"hidden": [32, 32]},
            "ppo": {"rollout_length": 16},
        },
        schedule="sequential",
        seed=seed,
        run={
            "turns": 60_000,
            "directory": directory / f"{algorithm} {seed}",
            "evaluate_episodes": 128,
            "log_every": 3600,
        },
        checkpoint={"evaluate_episodes": 0},
        view=PlainView(),
    )
    return result.evaluation.episode_metrics["matches"].mean()


@pytest.mark.slow_cases("ppo-False")
@pytest.mark.parametrize(("algorithm", "solves"), [("mappo", True), ("ppo", False)])
def test_only_a_joint_view_finds_the_best(algorithm, solves, tmp_path):
    assert (matches(tmp_path, algorithm, 0) > 1.9) == solves


@pytest.mark.slow
@pytest.mark.long
def test_of_twenty_seeds_nearly_all_find_it_with_a_joint_view_and_few_without(tmp_path):
    found = {
        algorithm: sum(matches(tmp_path, algorithm, seed) > 1.9 for seed in range(20))
        for algorithm in ("mappo", "ppo")
    }
    assert found["mappo"] >= 19, found
    assert found["ppo"] < 10, found
