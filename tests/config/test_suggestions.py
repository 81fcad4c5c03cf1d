"""A key that does not exist is answered with one that does, and with how it is written."""

import numpy as np
import pytest

from refusals import refuses
from remuda.analysis.frame import Frame
from remuda.config import Config, fields_of, load_config
from remuda.config.faults import common_names
from remuda.errors import ConfigError
from remuda.ui.cli.arguments import parse_flags


def told(tree):
    with pytest.raises(ConfigError) as error:
        load_config(tree)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("tree", "nested"),
    [
        ({"policy": {"ppo.clip": 0.1}}, "policy: {ppo: {clip: 0.1}}"),
        ({"policy.learning_rate": 1e-3}, "policy: {learning_rate: 0.001}"),
        ({"policies": {"a": {"ppo.clip": 0.1}}}, "policies: {a: {ppo: {clip: 0.1}}}"),
        ({"env.options.gravity": 2}, "env: {options: {gravity: 2}}"),
        ({"policies.a.n_steps": 2}, "policies: {a: {n_steps: 2}}"),
        ({"policy.network": {"hidden": [8]}}, "policy: {network: {'hidden': [8]}}"),
    ],
)
def test_a_key_with_dots_is_told_how_it_is_nested(tree, nested):
    assert told(tree).endswith(f": write it nested, as in {nested}")


def test_a_key_with_dots_that_does_not_exist_is_told_which_does():
    assert "did you mean policy.ppo.clip?" in told({"policy": {"ppo.clp": 0.1}})


@pytest.mark.parametrize(
    ("flag", "key"),
    [
        ("policy.lr", "policy.learning_rate"),
        ("lr", "policy.learning_rate"),
        ("policy.gamma", "policy.discount"),
        ("batch", "policy.batch_size"),
        ("env.n_envs", "env.num_envs"),
        ("n_envs", "env.num_envs"),
        ("policy.buffer-size", "policy.experience.capacity"),
        ("total_timesteps", "run.turns"),
        ("policy.ppo.ent_coef", "policy.ppo.entropy_cost"),
        ("policy.network.hidden_sizes", "policy.network.hidden"),
        ("polcy.learning_rate", "policy.learning_rate"),
        ("policy.train_interval", "policy.experience.replay_ratio"),
        ("train_interval", "policy.experience.replay_ratio"),
        ("learners.update_interval", "policy.publish.every"),
        ("publish_mode", "policy.publish.mode"),
        ("learners.device_per_agent", "policy.device"),
        ("actor_timeout", "supervision.actor_silence"),
        ("population.size", "population.policies"),
        ("env.num_games", "env.num_envs"),
    ],
)
def test_what_others_call_it_is_known(flag, key):
    with pytest.raises(ConfigError) as error:
        parse_flags([f"--{flag}", "1"], Config, "game")
    assert str(error.value).endswith(f"did you mean --{key}?")


def test_of_one_policy_too():
    assert told({"policies": {"a": {"lr": 1}}}).endswith("did you mean policies.a.learning_rate?")
    assert told({"policy": {"lr": 1}}).endswith("did you mean policy.learning_rate?")


def test_every_common_name_leads_to_a_key_and_is_none():
    keys = fields_of(Config)
    leaves = {key.rpartition(".")[2] for key in keys}
    for name, key in common_names().items():
        assert keys.get(key, ...) is None, name  # a leaf
        assert name not in (leaves if "." not in name else keys)


def test_a_section_is_not_suggested_for_what_is_in_it():
    with pytest.raises(ConfigError) as error:
        parse_flags(["--policy.q", "1"], Config, "game")
    assert "did you mean --policy?" not in str(error.value)


COLUMNS = ("turns", "seconds", "agent_0/mean_return", "agent_0/loss", "run/turns_per_second")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("retrun", "agent_0/mean_return"),
        ("return", "agent_0/mean_return"),
        ("mean_return", "agent_0/mean_return"),
        ("agent_0/mean_retrun", "agent_0/mean_return"),
        ("Loss", "agent_0/loss"),
        ("turn", "turns"),
        ("agent_0/turns_per_second", "run/turns_per_second"),
    ],
)
def test_the_nearest_columns_are_told(name, nearest):
    frame = Frame({column: np.zeros(1) for column in COLUMNS}, 1, "metrics")
    with pytest.raises(KeyError) as error:
        frame[name]
    assert f"similar ones are ['{nearest}'" in str(error.value)


def test_all_columns_are_told_where_none_is_near():
    frame = Frame({column: np.zeros(1) for column in COLUMNS}, 1, "metrics")
    with refuses(KeyError):
        frame["xyz"]
    with refuses(KeyError):
        Frame({}, 0, "metrics")["loss"]
