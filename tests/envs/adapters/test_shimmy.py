"""Environments that Shimmy makes of other libraries', where it is installed."""

import numpy as np
import pytest

import remuda

pytest.importorskip("shimmy")

SHORT = {
    "schedule": "sequential",
    "env": {"num_envs": 2},
    "policy": {"algorithm": "ppo", "ppo": {"rollout_length": 16}},
    "run": {"turns": 200, "evaluate_episodes": 4, "live": False},
    "checkpoint": {"evaluate_episodes": 0},
}


def tic_tac_toe():
    """An AEC environment of PettingZoo's kind, with masks in `info`."""
    from shimmy import OpenSpielCompatibilityV0

    return OpenSpielCompatibilityV0(game_name="tic_tac_toe")


def test_openspiel_through_shimmy(tmp_path):
    pytest.importorskip("pyspiel")
    run = {**SHORT["run"], "directory": str(tmp_path / "run")}
    result = remuda.train(tic_tac_toe, **{**SHORT, "run": run})
    assert result.evaluation is not None
    assert np.isin(result.evaluation.returns, (-1.0, 0.0, 1.0)).all()
    assert (result.evaluation.returns.sum(1) == 0.0).all()


def test_dm_control_through_shimmy(tmp_path):
    pytest.importorskip("dm_control")
    run = {**SHORT["run"], "turns": 100, "evaluate_episodes": 0, "directory": str(tmp_path / "run")}
    result = remuda.train(
        "gymnasium:shimmy:dm_control/cartpole-balance-v0", **{**SHORT, "run": run}
    )
    assert all(policy.updates > 0 for policy in result.record.policies.values())
