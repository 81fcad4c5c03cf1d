"""What differs for one policy is the same in every session, also once it was saved and read."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from refusals import refuses
from remuda.config import (
    PolicyConfig,
    config_text,
    load_config,
    overlay,
    read_config,
)
from remuda.config.unused_settings import unused_settings
from remuda.errors import ConfigError
from remuda.population.specs import policy_specs
from remuda.types import AgentSpec

RECURRENT = {"network": {"recurrent": 8}}
CASES = {
    "recurrent": ({"algorithm": "dqn"}, RECURRENT),
    "recurrent of another algorithm": ({"algorithm": "ppo"}, {"algorithm": "dqn"} | RECURRENT),
    "recurrent, and the batch is said of all": ({"batch_size": 96}, RECURRENT),
    "recurrent, and the batch is its own": ({}, RECURRENT | {"batch_size": 96}),
    "another algorithm": ({"algorithm": "ppo"}, {"algorithm": "iqn"}),
    "ppo among others": ({"algorithm": "dqn"}, {"algorithm": "ppo"}),
    "nothing": ({"algorithm": "dqn"}, {}),
    "ppo, and recurrent": ({"algorithm": "ppo"}, RECURRENT),
    "ppo, and not recurrent": ({"algorithm": "ppo"} | RECURRENT, {"network": {"recurrent": 0}}),
    "ppo, and it is said": ({"algorithm": "ppo", "network": {"shared": True}}, {"n_frames": 2}),
}


@pytest.mark.parametrize(("policy", "own"), CASES.values(), ids=CASES)
def test_a_policy_is_the_same_once_it_is_read_back(policy, own, tmp_path):
    config = load_config({"policy": policy, "policies": {"a": own}})
    again = load_config(config.model_dump(mode="json"))
    assert again.policy_of("a") == config.policy_of("a")
    assert load_config(config.model_dump()).policy_of("a") == config.policy_of("a")
    assert again == load_config(again.model_dump(mode="json"))
    path = tmp_path / "config.yaml"
    path.write_text(config_text(config))
    assert load_config(read_config(path)) == again


def test_a_resumed_run_that_changes_something_keeps_the_defaults_of_a_recurrent_policy():
    config = load_config({"policy": {"algorithm": "dqn"}, "policies": {"a": RECURRENT}})
    changed = {"policy": {"learning_rate": 1e-4}}
    found = load_config(overlay(config.model_dump(mode="json"), changed)).policy_of("a")
    assert (found.batch_size, found.experience.segment_length) == (256, 32)
    assert found.learning_rate == 1e-4


def test_sections_say_what_was_said_in_them():
    policy = PolicyConfig(algorithm="dqn", batch_size=96)
    found = load_config({"policy": policy, "policies": {"a": RECURRENT}}).policy_of("a")
    assert (found.batch_size, found.experience.segment_length) == (96, 32)


@pytest.mark.parametrize("algorithm", ["dqn", "iqn"])
def test_a_policy_beside_those_of_ppo_has_none_of_its_defaults(algorithm):
    """PPO explores by its own entropy: with its epsilon of 1 the other would play at random."""
    own = {"a": {"algorithm": algorithm}}
    config = load_config({"policy": {"algorithm": "ppo"}, "policies": own})
    assert config.policy_of("a") == PolicyConfig(algorithm=algorithm)
    assert unused_settings(config) == []


def test_what_is_said_of_all_holds_beside_ppo_too():
    said = {"algorithm": "ppo", "n_frames": 2, "exploration": {"end": 0.5}}
    config = load_config({"policy": said, "policies": {"a": {"algorithm": "dqn"}}})
    found = config.policy_of("a")
    assert (found.n_frames, found.exploration.start, found.exploration.end) == (2, 1.0, 0.5)


def test_a_module_of_ones_own_beside_ppo_has_no_settings_without_effect():
    own = {"a": {"algorithm": "dqn", "network": {"module": "support:Nothing"}}}
    config = load_config({"policy": {"algorithm": "ppo"}, "policies": own})
    assert unused_settings(config) == []
    assert config.policy_of("a").network.hidden == ()


@pytest.mark.parametrize("algorithm", [None, 3, ["ppo"], {"name": "ppo"}])
def test_an_algorithm_of_one_policy_that_is_no_text_is_told(algorithm):
    with refuses(ConfigError, "policies.a.algorithm") as error:
        load_config({"policies": {"a": {"algorithm": algorithm}}})
    assert "ppo" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("own", [3, None, {"network": None}, {"network": {"recurrent": "many"}}])
def test_differences_that_are_no_such_thing_are_told(own):
    with refuses(ConfigError):
        load_config({"policies": {"a": own}})


@pytest.mark.parametrize("policy", [3, None, {"algorithm": None}, {"algorithm": "x:y"}])
def test_a_policy_that_is_no_such_thing_is_told_beside_differences(policy):
    with refuses(ConfigError):
        load_config({"policy": policy, "policies": {"a": RECURRENT}})


OWN = tuple(f"policies.own_algorithms:{name}" for name in ("Vanilla", "Soft", "Finer"))
ALGORITHMS = ("iqn", "dqn", "ppo", *OWN)
SAID = {
    "n_frames": 3,
    "discount": 0.9,
    "learning_rate": 2e-4,
    "max_grad_norm": 3.0,
    "network": {"hidden": (48,), "activation": "relu"},
    "experience": {"segment_length": 16},
    "publish": {"every": 7},
}
PAIRS = [(one, other) for one in ALGORITHMS for other in ALGORITHMS]


@pytest.mark.parametrize(("common", "own"), PAIRS)
def test_what_is_said_of_all_wins_over_the_preset_of_an_own_algorithm(common, own, tmp_path):
    """The order: the presets of its algorithm, what `policy` says, what `policies.a` says."""
    said = {"algorithm": common} | SAID
    config = load_config({"policy": said, "policies": {"a": {"algorithm": own}}})
    found = config.policy_of("a")
    assert found == PolicyConfig.model_validate(SAID | {"algorithm": own})
    path = tmp_path / "config.yaml"
    path.write_text(config_text(config))
    assert load_config(read_config(path)).policy_of("a") == found
    last = {"algorithm": own, "discount": 0.5, "publish": {"every": 2}}
    found = load_config({"policy": said, "policies": {"a": last}}).policy_of("a")
    assert found == PolicyConfig.model_validate(overlay(SAID, last))


@pytest.mark.parametrize(("common", "own"), PAIRS)
def test_of_what_nothing_says_a_policy_has_the_presets_of_its_own_algorithm(common, own):
    config = load_config({"policy": {"algorithm": common}, "policies": {"a": {"algorithm": own}}})
    assert config.policy_of("a") == PolicyConfig(algorithm=own)
    section = PolicyConfig(algorithm=common)
    config = load_config({"policy": section, "policies": {"a": {"algorithm": own}}})
    assert config.policy_of("a") == PolicyConfig(algorithm=own)


@pytest.mark.parametrize(("common", "own"), PAIRS)
def test_even_a_default_that_is_said_wins_over_a_preset(common, own):
    usual = PolicyConfig(algorithm=common)
    said = {"algorithm": common, "learning_rate": usual.learning_rate, "n_frames": usual.n_frames}
    found = load_config({"policy": said, "policies": {"a": {"algorithm": own}}}).policy_of("a")
    assert (found.learning_rate, found.n_frames) == (usual.learning_rate, usual.n_frames)


@pytest.mark.parametrize(("common", "own"), PAIRS)
def test_a_policy_that_is_added_to_a_whole_file_has_its_presets(common, own):
    """A saved configuration has a value for every key: what is as by default was not said."""
    saved = load_config({"policy": {"algorithm": common, "discount": 0.9}}).model_dump(mode="json")
    found = load_config(overlay(saved, {"policies": {"a": {"algorithm": own}}})).policy_of("a")
    assert found == PolicyConfig(algorithm=own, discount=0.9)


TWO = {
    "ppo": ({"algorithm": "ppo"}, False),
    "an algorithm of one's own that takes rollouts": ({"algorithm": OWN[0]}, False),
    "recurrent": ({"algorithm": "ppo"} | RECURRENT, True),
    "convolutions": ({"algorithm": "ppo", "network": {"convolutions": [[8, 3, 1]]}}, True),
    "a module": ({"algorithm": "ppo", "network": {"module": "policies.own_networks:small"}}, True),
    "it is said": ({"algorithm": "ppo", "network": {"shared": True}}, True),
    "its opposite is said": (
        {"algorithm": "ppo", "network": {"shared": False, "convolutions": [[8, 3, 1]]}},
        False,
    ),
}


@pytest.mark.parametrize(("policy", "shared"), TWO.values(), ids=TWO)
@pytest.mark.parametrize("common", [{}, {"algorithm": "ppo"}, {"algorithm": "ppo"} | RECURRENT])
def test_where_policy_and_value_share_a_network_by_default(common, policy, shared):
    assert PolicyConfig.model_validate(policy).network.serves_both is shared
    assert load_config({"policy": policy}).policy_of("a").network.serves_both is shared
    own = overlay({"network": {"recurrent": 0}}, policy) if common.get("network") else policy
    found = load_config({"policy": common, "policies": {"a": own}})
    assert found.policy_of("a").network.serves_both is shared
    again = load_config(found.model_dump(mode="json"))
    assert again.policy_of("a") == found.policy_of("a")
    assert not [said for said in unused_settings(found) if "shared" in said]


def test_a_network_that_is_changed_over_a_whole_file_is_shared_as_its_kind_is():
    saved = load_config({"policy": {"algorithm": "ppo"}}).model_dump(mode="json")
    for network in (RECURRENT["network"], {"convolutions": [[8, 3, 1]]}):
        changed = load_config(overlay(saved, {"policy": {"network": network}}))
        assert changed.policy.network.serves_both
        back = {"recurrent": 0, "convolutions": []}
        again = overlay(changed.model_dump(mode="json"), {"policy": {"network": back}})
        assert not load_config(again).policy.network.serves_both


def test_a_preset_of_ones_own_that_makes_a_network_recurrent_brings_its_batches():
    found = PolicyConfig(algorithm="policies.own_algorithms:Remembers")
    assert (found.batch_size, found.experience.segment_length) == (256, 32)


NETWORKS = "policies.own_networks"
DRAWS = ("dqn", "iqn", "policies.own_algorithms:Plain")
SEES = AgentSpec("a", Box(-1.0, 1.0, (5,), np.float32), Discrete(3))


def sizes_of(tree, name="a"):
    """What a policy is trained with, once its network is known, before and after it was saved."""
    config = load_config(tree)
    agents = [SEES, replace(SEES, name="b")]
    found = [
        {spec.name: spec for spec in policy_specs(one, agents)}[name].config
        for one in (config, load_config(config.model_dump(mode="json")))
    ]
    assert found[0] == found[1]
    return found[0].batch_size, found[0].experience.segment_length


@pytest.mark.parametrize("algorithm", DRAWS)
@pytest.mark.parametrize(
    ("module", "sizes"), [("Gated", (256, 32)), ("Remembers", (256, 32)), ("small", (64, 100))]
)
def test_a_module_of_ones_own_has_the_batches_of_a_built_in_network(algorithm, module, sizes):
    of = {"network": {"module": f"{NETWORKS}:{module}"}, "n_frames": 1}
    policy = {"algorithm": algorithm} | of
    assert sizes_of({"policy": policy}) == sizes
    assert sizes_of({"policy": policy | {"batch_size": 96}}) == (96, sizes[1])
    assert sizes_of({"policy": policy | {"batch_size": 64}}) == (64, sizes[1])
    said = policy | {"experience": {"segment_length": 100}}
    assert sizes_of({"policy": said}) == (sizes[0], 100)
    for common in ("ppo", "dqn", "iqn"):
        assert sizes_of({"policy": {"algorithm": common}, "policies": {"a": policy}}) == sizes
        told = {"algorithm": common, "batch_size": 96}
        assert sizes_of({"policy": told, "policies": {"a": policy}}) == (96, sizes[1])
    beside = {"b": {"algorithm": "ppo"}}
    assert sizes_of({"policy": policy, "policies": beside}) == sizes
    assert sizes_of({"policy": policy, "policies": beside}, "b") == (64, 32)  # as PPO has it


def test_a_recurrent_module_of_ppo_has_what_ppo_has():
    policy = {"algorithm": "ppo", "network": {"module": f"{NETWORKS}:Gated"}, "n_frames": 1}
    assert sizes_of({"policy": policy}) == (64, 32)


def test_what_does_not_fit_a_recurrent_module_is_told_once_it_is_known():
    policy = {"algorithm": "dqn", "network": {"module": f"{NETWORKS}:Gated"}, "n_frames": 1}
    with refuses(ConfigError):
        sizes_of({"policy": policy | {"experience": {"burn_in": 40}}})
    with refuses(ConfigError):
        sizes_of({"policy": policy | {"experience": {"learning_starts": 100}}})


@pytest.mark.parametrize("algorithm", ["dqn", "ppo"])
@pytest.mark.parametrize("key", ["batch_size", "experience"])
def test_only_a_module_may_leave_its_batches_open(algorithm, key):
    value = None if key == "batch_size" else {"segment_length": None}
    with refuses(ConfigError, "network.module"):
        load_config({"policy": {"algorithm": algorithm, key: value}})
