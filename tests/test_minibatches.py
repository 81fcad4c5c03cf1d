"""How many parts an epoch of PPO has where nobody says it, and what says nothing by saying it."""

import pytest

from remuda.changes import changes
from remuda.config import config_text, load_config
from remuda.config.algorithms import PPOConfig
from remuda.ui.comparison import compare
from remuda.ui.resuming import find_unfinished
from ui.made_runs import a_run

FOUR = {"ppo": {"minibatches": 4}}
OTHERS = [{"algorithm": name} for name in ("iqn", "dqn", "policies.own_algorithms:Soft")]
others = pytest.mark.parametrize("policy", OTHERS, ids=["iqn", "dqn", "own"])
"""Policies that do not learn from rollouts."""


@pytest.mark.parametrize(
    ("steps", "parts"),
    [(0, 4), (1, 4), (5_000, 4), (5_001, 8), (24_576, 32), (40_001, 32), (10**9, 32)],
)
def test_larger_updates_have_more_of_them_up_to_a_bound(steps, parts):
    assert PPOConfig().parts(steps) == parts
    assert PPOConfig(minibatches=3).parts(steps) == 3


@others
def test_what_earlier_versions_saved_of_it_sets_no_other_algorithm_apart(tmp_path, policy):
    """Red before: no IQN or DQN run of before was like one of now."""
    before, now = (load_config({"policy": policy | own}) for own in (FOUR, {}))
    assert changes(before, now) == changes(now, before) == []
    a_run(tmp_path / "a", 0, policy=policy | FOUR)
    a_run(tmp_path / "b", 1, policy=policy)
    (group,) = compare([tmp_path / "a", tmp_path / "b"]).groups
    assert group.seeds == (0, 1)
    directory = tmp_path / "one"
    (directory / "checkpoints" / "000001").mkdir(parents=True)
    (directory / "config.yaml").write_text(config_text(before))
    assert find_unfinished(now, tmp_path) == directory


def test_of_ppo_it_is_another_setting_that_a_resumed_run_may_have():
    before, now = (load_config({"policy": {"algorithm": "ppo"} | own}) for own in (FOUR, {}))
    (found,) = changes(before, now)
    assert str(found) == "policy.ppo.minibatches was 4 and is None"
    assert found.allowed
