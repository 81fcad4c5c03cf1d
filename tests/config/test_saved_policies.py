"""A policy is the same however often its run's configuration is saved and read, of any version."""

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as some

from remuda.config import (
    PolicyConfig,
    config_text,
    load_config,
    overlay,
    read_config,
    write_config,
)
from remuda.errors import ConfigError
from remuda.policies.algorithms.dqn import DQN
from remuda.runs.run_directory import RunDirectory

RECURRENT = {"network": {"recurrent": 16}}
PPO_NETWORK = {"hidden": [64, 64], "activation": "tanh"}


class Large(DQN):
    """Has presets of what recurrent networks and modules have otherwise."""

    preset = {"batch_size": 128, "experience": {"segment_length": 48}}  # noqa: RUF012


OWN = ("Vanilla", "Soft", "Finer", "Remembers")
ALGORITHMS = (
    *("iqn", "dqn", "ppo", f"{__name__}:Large"),
    *(f"policies.own_algorithms:{name}" for name in OWN),
)
NETWORKS = some.fixed_dictionaries(
    {},
    optional={
        "recurrent": some.sampled_from([0, 16]),
        "hidden": some.sampled_from([[64, 64], [256], [64], []]),
        "activation": some.sampled_from(["tanh", "relu"]),
        "dueling": some.booleans(),
        "module": some.sampled_from(["", "policies.own_networks:small"]),
    },
)
EXPERIENCE = some.fixed_dictionaries(
    {},
    optional={
        "on_full": some.sampled_from(["wait", "overwrite"]),
        "segment_length": some.sampled_from([32, 48, 100]),
    },
)
POLICIES = some.fixed_dictionaries(
    {},
    optional={
        "algorithm": some.sampled_from(ALGORITHMS),
        "learning_rate": some.sampled_from([2.5e-4, 3e-4, 5e-4, 1e-3, 3e-3]),
        "n_frames": some.sampled_from([1, 2, 5]),
        "n_steps": some.sampled_from([1, 3]),
        "batch_size": some.sampled_from([64, 128, 256]),
        "discount": some.sampled_from([0.9, 0.95, 0.99]),
        "network": NETWORKS,
        "experience": EXPERIENCE,
        "iqn": some.fixed_dictionaries({"quantiles": some.sampled_from([7, 8, 9])}),
        "ppo": some.fixed_dictionaries({"epochs": some.sampled_from([2, 3, 4])}),
    },
)


def found_in(config):
    """What a policy with differences of its own is trained with, and one without."""
    return config.policy_of("a"), config.policy_of("z")


def loaded(policy, own):
    """The configuration of a tree that is none of a fault."""
    try:
        return load_config({"policy": policy, "policies": {"a": own}})
    except ConfigError:
        assume(False)


def as_saved(config):
    return config.model_dump(mode="json")


def without(tree, key):
    """A tree as a version saved it that did not have a key of policies yet."""
    return {**tree, "policy": {name: v for name, v in tree["policy"].items() if name != key}}


@pytest.mark.slow
@settings(max_examples=250, deadline=None)
@given(policy=POLICIES, own=POLICIES)
@example(policy={"algorithm": "ppo", "learning_rate": 1e-3}, own={"algorithm": "dqn"})
@example(policy={"algorithm": "ppo", "network": PPO_NETWORK}, own={"algorithm": "dqn"})
@example(policy={"batch_size": 64}, own=RECURRENT)
@example(policy={"algorithm": "dqn", "batch_size": 256} | RECURRENT, own={"algorithm": "iqn"})
@example(policy=RECURRENT, own={"algorithm": f"{__name__}:Large"})
def test_policies_are_the_same_however_often_they_are_saved_and_read(policy, own):
    config = loaded(policy, own)
    wanted = found_in(config)
    assert found_in(load_config(config.model_dump())) == wanted
    once = load_config(as_saved(config))
    assert found_in(once) == wanted
    assert found_in(load_config(as_saved(once))) == wanted
    older = load_config(without(as_saved(config), "max_nonfinite"))
    assert found_in(older) == wanted
    assert found_in(load_config(as_saved(older))) == wanted


@settings(max_examples=100, deadline=None)
@given(policy=POLICIES, own=POLICIES)
@example(policy={"algorithm": "ppo", "learning_rate": 1e-3}, own={"algorithm": "dqn"})
def test_what_a_resumed_run_changes_of_all_changes_nothing_else(policy, own):
    config = loaded(policy, own)
    changed = load_config(overlay(as_saved(config), {"policy": {"reward_scale": 0.3}}))
    wanted = [found.model_copy(update={"reward_scale": 0.3}) for found in found_in(config)]
    assert list(found_in(changed)) == wanted


@settings(max_examples=100, deadline=None)
@given(policy=POLICIES, own=POLICIES)
def test_a_policy_has_what_is_said_of_all_and_of_it_over_its_own_defaults(policy, own):
    config = loaded(policy, own)
    said = overlay(policy, own)
    assume(not said.get("network", {}).get("module"))  # its layers go with where it is named
    assert config.policy_of("a") == PolicyConfig.model_validate(said)


@settings(max_examples=100, deadline=None)
@given(policy=POLICIES, own=POLICIES)
@example(
    policy={"algorithm": f"{__name__}:Large", "experience": {"segment_length": 48}} | RECURRENT,
    own={"algorithm": "ppo"},
)
def test_policies_beside_a_section_are_the_same_once_they_are_saved_and_read(policy, own):
    try:
        section = PolicyConfig.model_validate(policy)
    except ValueError:
        assume(False)
    config = loaded(section, own)
    assert found_in(load_config(as_saved(config))) == found_in(config)


CASES = {
    "a preset of another algorithm": (
        {"algorithm": "ppo", "learning_rate": 1e-3},
        {"algorithm": "dqn"},
    ),
    "a network of another algorithm": (
        {"algorithm": "ppo", "network": PPO_NETWORK},
        {"algorithm": "dqn"},
    ),
    "a batch of another network": ({"batch_size": 64}, RECURRENT),
}


@pytest.mark.parametrize(("policy", "own"), CASES.values(), ids=CASES)
def test_a_default_that_was_said_of_all_is_read_back_from_the_directory_of_a_run(
    policy, own, tmp_path
):
    config = load_config({"policy": policy, "policies": {"a": own}})
    wanted = config.policy_of("a")
    assert wanted == PolicyConfig.model_validate(overlay(policy, own))
    write_config(config, tmp_path / "config.yaml")
    read = RunDirectory(tmp_path).read_config()
    assert read.policy_of("a") == wanted
    (tmp_path / "again.yaml").write_text(config_text(read))
    assert load_config(read_config(tmp_path / "again.yaml")).policy_of("a") == wanted


def test_what_was_said_of_all_can_still_be_changed_of_all_once_it_was_saved():
    """Where it is no default, `policy` keeps it, and policies need not."""
    tree = {"policy": {"learning_rate": 2e-4, "batch_size": 96}, "policies": {"a": RECURRENT}}
    saved = as_saved(load_config(tree))
    found = load_config(overlay(saved, {"policy": {"learning_rate": 1e-4, "batch_size": 80}}))
    assert (found.policy_of("a").learning_rate, found.policy_of("a").batch_size) == (1e-4, 80)
