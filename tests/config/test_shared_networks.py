"""One network for policy and value, or one for each: said in words or left open, it is the same."""

import pytest

from refusals import refuses
from remuda.config import load_config, overlay
from remuda.config.resume_rules import changes
from remuda.errors import RemudaError
from remuda.policies.compatibility import network_layout
from remuda.training.prepare import prepare
from remuda.ui.cli.resuming import find_unfinished
from remuda.ui.reports.comparison import compare
from ui.made_runs import a_run, an_unfinished_run

PPO = {"algorithm": "ppo"}
SAME = [
    (PPO, False),
    (PPO | {"network": {"recurrent": 8}}, True),
    ({"algorithm": "iqn"}, True),
    ({"algorithm": "iqn"}, False),
    ({"algorithm": "dqn"}, True),
    ({"algorithm": "policies.own_algorithms:Together"}, True),
    ({"algorithm": "policies.own_algorithms:Apart"}, False),
]
"""A policy that does not say whether, and what it says where it says what is so anyway."""
NAMES = [f"{policy['algorithm'].rpartition(':')[2]}-{shared}" for policy, shared in SAME]
said = pytest.mark.parametrize(("policy", "shared"), SAME, ids=NAMES)


def saying(policy, shared):
    return overlay(policy, {"network": {"shared": shared}})


@said
def test_runs_that_say_it_and_runs_that_do_not_are_one_group(tmp_path, policy, shared):
    """Red before: no run of earlier versions, which said it, was grouped with one of this."""
    a_run(tmp_path / "a", 0, policy=policy)
    a_run(tmp_path / "b", 1, policy=saying(policy, shared))
    (group,) = compare([tmp_path / "a", tmp_path / "b"]).groups
    assert group.seeds == (0, 1)


def test_runs_with_other_networks_are_set_apart_by_what_they_have(tmp_path):
    for i, shared in enumerate((None, True)):
        a_run(tmp_path / str(i), policy=saying(PPO, shared))
    groups = compare([tmp_path / "0", tmp_path / "1"]).groups
    assert [group.name for group in groups] == ["shared False", "shared True"]


@said
def test_a_run_that_is_resumed_may_say_it(policy, shared):
    """Red before: it was refused, as made with another configuration."""
    for own in ({}, {"policies": {"agent_0": {"learning_rate": 1e-3}}}):
        silent = load_config({"policy": policy} | own)
        told = load_config({"policy": saying(policy, shared)} | own)
        assert changes(silent, told) == changes(told, silent) == []
    by_name = load_config({"policy": policy, "policies": {"agent_0": saying({}, shared)}})
    assert changes(load_config({"policy": policy}), by_name) == []


def test_another_network_is_refused_by_what_it_is():
    (found,) = changes(load_config({"policy": PPO}), load_config({"policy": saying(PPO, True)}))
    assert str(found) == "policy.network.shared was False and is True"
    assert not found.allowed
    own = load_config({"policy": PPO, "policies": {"a": saying({}, True)}})
    (found,) = changes(load_config({"policy": PPO}), own)
    assert str(found) == "policies.a.network.shared was False and is True"


@said
def test_the_same_command_is_known_by_what_it_comes_to(tmp_path, policy, shared):
    """Red before: a run that an earlier version had begun was not offered to be gone on with."""
    own = {"policies": {"agent_0": saying({}, shared), "agent_1": {}}}
    for i, tree in enumerate(({"policy": saying(policy, shared)}, {"policy": policy} | own)):
        directory = an_unfinished_run(tmp_path / str(i) / "one", tree)
        found = find_unfinished(load_config({"policy": policy}), directory.parent)
        other = find_unfinished(load_config({"policy": policy | OTHER}), directory.parent)
        assert (found, other) == (directory, None)


OTHER = {"discount": 0.5}
POPULATION = {"policies": ["a", "b", "c"], "matchmaker": "random"}
BIRTHS = {"births": {"every": 1000, "slots": 1}}
EVOLUTION = {"evolution": {"every": 1000, "networks": "alike"}}


@said
@pytest.mark.parametrize("kind", [BIRTHS, EVOLUTION], ids=["births", "evolution"])
def test_members_of_a_population_that_say_it_are_of_one_kind_with_those_that_do_not(
    policy, shared, kind
):
    """Red before: births were refused, and in evolution such a one was of a kind of its own."""
    tree = {
        "game": "treasure_hunt",
        "policy": policy,
        "policies": {"b": saying({}, shared)},
        "population": POPULATION | kind,
    }
    prepared = prepare(load_config(tree))
    layouts = {network_layout(spec) for spec in prepared.specs}
    assert len(layouts) == len({spec.specification[:-1] for spec in prepared.specs}) == 1


def test_members_with_other_networks_are_still_refused():
    tree = {
        "game": "treasure_hunt",
        "policy": PPO,
        "policies": {"b": saying({}, True)},
        "population": POPULATION | BIRTHS,
    }
    with refuses(RemudaError):
        prepare(load_config(tree))


def test_what_is_resolved_says_what_differs_alone():
    config = load_config(
        {
            "policy": PPO,
            "policies": {"a": saying({}, True), "b": saying({}, False), "c": {"algorithm": "iqn"}},
        }
    )
    tree = config.resolved()
    assert tree["policy"]["network"]["shared"] is False
    assert tree["policies"]["a"]["network"] == {"shared": True}
    assert "b" not in tree["policies"]
    assert tree["policies"]["c"]["network"]["shared"] is None
