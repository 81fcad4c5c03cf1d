"""How many parts an epoch of PPO has where nobody says it, and what says nothing by saying it."""

import pytest

from remuda.config import load_config, overlay
from remuda.config.policy_sections import PPOConfig
from remuda.config.resume_rules import changes
from remuda.ui.cli.resuming import find_unfinished
from remuda.ui.reports.comparison import compare
from ui.made_runs import a_run, an_unfinished_run

FOUR = {"ppo": {"minibatches": 4}}
OTHERS = [{"algorithm": name} for name in ("iqn", "dqn", "policies.own_algorithms:Soft")]
others = pytest.mark.parametrize("policy", OTHERS, ids=["iqn", "dqn", "own"])
"""Policies that do not learn from rollouts."""


@pytest.mark.parametrize(
    ("steps", "parts"),
    [(0, 4), (1, 4), (5_200, 4), (5_201, 8), (24_576, 32), (41_601, 32), (10**9, 32)],
)
def test_larger_updates_have_more_of_them_up_to_a_bound(steps, parts):
    assert PPOConfig().parts(steps) == parts
    assert PPOConfig(minibatches=3).parts(steps) == 3


def one_group(tmp_path, first, second):
    """Whether runs of two configurations are seeds of one, and an unfinished one is found again."""
    for seed, tree in enumerate((first, second)):
        a_run(tmp_path / str(seed), seed, **tree)
    directory = an_unfinished_run(tmp_path / "unfinished" / "one", first)
    is_found = find_unfinished(load_config(second), directory.parent) == directory
    groups = compare([tmp_path / "0", tmp_path / "1"]).groups
    assert is_found == (len(groups) == 1)
    return is_found


MIXED = [(one, other) for one in ("iqn", "dqn", "ppo") for other in ("iqn", "dqn", "ppo")]
MIXED = [pair for pair in MIXED if pair[0] != pair[1]]


@pytest.mark.parametrize(("algorithm", "other"), MIXED)
def test_a_run_of_unlike_algorithms_is_known_again_by_its_command(tmp_path, algorithm, other):
    """Red before: what its file holds so that it is read back alike made it another."""
    tree = {"policy": {"algorithm": algorithm}, "policies": {"agent_0": {"algorithm": other}}}
    assert one_group(tmp_path, tree, tree)
    rate = overlay(tree, {"policies": {"agent_0": {"learning_rate": 0.25}}})
    assert not one_group(tmp_path / "other", tree, rate)


def test_another_algorithm_of_one_policy_has_no_minibatches_to_differ_by():
    policies = {"agent_0": {"algorithm": "iqn"}}
    tree = {"policy": {"algorithm": "ppo"}, "policies": policies, "env": {"num_envs": 64}}
    before, now = (load_config(overlay(tree, {"policy": own})).resolved() for own in (FOUR, {}))
    assert before["policies"] == now["policies"]
    assert before["policy"] != now["policy"]


@others
def test_what_a_policy_of_ppo_takes_over_from_another_algorithm_sets_runs_apart(tmp_path, policy):
    """Red before: whatever the number, such runs were seeds of one configuration."""
    own = {"policies": {"agent_0": {"algorithm": "ppo"}}, "env": {"num_envs": 64}}
    before, now = ({"policy": policy | said} | own for said in (FOUR, {}))
    assert one_group(tmp_path / "same", before, before)
    (found,) = changes(load_config(before), load_config(now))
    assert str(found) == "policies.agent_0.ppo.minibatches was 4 and is None"
    assert not one_group(tmp_path, before, now)


@others
def test_what_no_policy_reads_sets_no_runs_apart(tmp_path, policy):
    before, now = ({"policy": policy | said} for said in (FOUR, {}))
    assert changes(load_config(before), load_config(now)) == []
    assert one_group(tmp_path, before, now)


def test_settings_outside_policies_without_effect_set_no_runs_apart():
    plain, fitness = load_config({}), {"matchmaker": "fitness", "policies": 2}
    assert changes(plain, load_config({"population": {"window": 2}})) == []
    before, now = ({"population": fitness | own} for own in ({}, {"window": 2}))
    (found,) = changes(load_config(before), load_config(now))
    assert str(found) == "population.window was 4 and is 2"
