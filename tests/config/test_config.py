"""Configuration: unknown keys and impossible values are refused in one line that helps."""

import pytest

from refusals import refuses
from remuda.config import (
    Config,
    PolicyConfig,
    Section,
    describe_fields,
    load_config,
    read_config,
    write_config,
)
from remuda.errors import ConfigError


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"sed": 1}, "sed is no key of the configuration; did you mean seed?"),
        ({"policy": {"lerning_rate": 1}}, "did you mean policy.learning_rate?"),
        ({"policy": {"zzz": 1}}, "policy.zzz is no key of the configuration; there are policy."),
        ({"policy": {"learning_rate": -1}}, "policy.learning_rate is -1: input should be greater"),
        (
            {"schedule": "fast"},
            "schedule is 'fast': input should be 'async', 'sequential' or 'lockstep'",
        ),
        ({"learners": {"processes": 0}}, "learners.processes is 0: input should be greater"),
        ({"env": {"num_envs": "many"}}, "env.num_envs is 'many': input should be a valid integer"),
        ({"run": {"turns": None}}, "the run would never end"),
        ({"policies": {"a": {"batch_siz": 1}}}, "did you mean policies.a.batch_size?"),
        ({"policies": {"a": {"batch_size": 0}}}, "policies.a.batch_size is 0: input should be"),
        (
            {"policy": {"experience": {"learning_starts": 10}}},
            "policy.experience.learning_starts is 10, less than one batch of 64; raise it",
        ),
        (
            {"policy": {"experience": {"capacity": 1000}}},
            "policy.experience.learning_starts is 2000, more than the 1000 steps of",
        ),
        (
            {"policy": {"experience": {"on_full": "wait", "replay_ratio": None}}},
            "policy.experience.on_full is 'wait', which needs",
        ),
        (
            {"policy": {"experience": {"on_full": "wait", "replay_ratio": 1e-6}}},
            "would wait for each other",
        ),
    ],
)
def test_faults_are_told_in_one_line(tree, said):
    with pytest.raises(ConfigError) as error:
        load_config(tree)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_lead_is_at_least_the_steps_of_a_batch():
    def lead(**experience):
        config = load_config({"policy": {"algorithm": "sac", "experience": experience}})
        return config.policy.lead(recurrent=False)

    assert lead() == 1000
    assert lead(replay_ratio=0.1) == 2560
    assert lead(max_lead=5) == 5
    assert lead(capacity=1200, max_lead=5000) == lead(capacity=1200, max_lead=None) == 1200


def test_a_policy_differs_only_where_it_says_so():
    tree = {
        "policy": {"batch_size": 32, "publish": {"every": 3}},
        "policies": {"agent_1": {"publish": {"mode": "snapshot"}, "learning_rate": 0.5}},
    }
    config = load_config(tree)
    assert config.policy_of("agent_0") == config.policy
    own = config.policy_of("agent_1")
    assert (own.batch_size, own.publish.every, own.publish.mode) == (32, 3, "snapshot")
    assert own.learning_rate == 0.5


@pytest.mark.parametrize("algorithm", ["iqn", "dqn"])
@pytest.mark.parametrize("schedule", ["sequential", "lockstep"])
@pytest.mark.parametrize("whose", ["policy", "policies.a"])
def test_training_without_pause_is_refused_where_the_order_is_fixed(algorithm, schedule, whose):
    never = {"algorithm": algorithm, "experience": {"replay_ratio": None}}
    tree = {"policy": never} if whose == "policy" else {"policies": {"a": never}}
    with pytest.raises(ConfigError) as error:
        load_config({"schedule": schedule} | tree)
    assert f"{whose}.experience.replay_ratio is None" in str(error.value)
    assert schedule in str(error.value)
    assert "\n" not in str(error.value)
    load_config(tree)  # async: learners that take all the time there is


def test_training_without_pause_means_nothing_to_ppo():
    tree = {"algorithm": "ppo", "experience": {"replay_ratio": None}}
    load_config({"schedule": "sequential", "policy": tree})


@pytest.mark.parametrize(
    ("rollout", "segment", "expected"),
    [
        (128, 32, 32),
        (100, 33, 25),  # 25 x 4; three segments of 34 would make a rollout of 102 steps
        (100, 34, 25),
        (99, 34, 33),
        (96, 50, 48),
        (128, 200, 128),
        (1, 32, 1),
        (101, 40, 34),  # 101 is prime, so a rollout has 102 steps
    ],
)
def test_segments_make_up_a_rollout_exactly_where_they_can(rollout, segment, expected):
    experience = {"segment_length": segment}
    policy = PolicyConfig(ppo={"rollout_length": rollout}, experience=experience, algorithm="ppo")
    assert policy.stored.segment_length == expected


def test_what_is_written_is_read(tmp_path):
    config = load_config({"seed": 7, "policies": {"a": {"n_steps": 2}}, "env": {"num_envs": 3}})
    path = tmp_path / "config.yaml"
    write_config(config, path)
    assert load_config(read_config(path)) == config


def test_a_saved_file_that_is_cut_off_anywhere_is_told_as_damaged(tmp_path):
    """What was left of it could be YAML, and the run went on with the defaults of the rest."""
    path = tmp_path / "config.yaml"
    write_config(load_config({"run": {"turns": 400}}), path)
    text = path.read_text()
    whole = text.rstrip("\n")
    for length in range(len("# Saved by Remuda"), len(whole)):
        path.write_text(whole[:length])
        with refuses(ConfigError, "config.yaml"):
            read_config(path)
    path.write_text(whole)
    assert read_config(path)["run"]["turns"] == 400
    for before in ("\ufeff", "\n", "---\n", "# mine\n"):
        path.write_text(before + text[: text.index("policies:")])
        with refuses(ConfigError):
            read_config(path)
        path.write_text(f"{before}{whole}  \nseeds: 3\n")  # by hand
        assert read_config(path)["seeds"] == 3
    part = text[: text.index("policies:")].split("\n", 1)[1]
    path.write_text(part)
    assert read_config(path)["game"]


@pytest.mark.parametrize("text", ["a: [", "- 1\n- 2"])
def test_a_file_that_is_no_tree_is_refused(tmp_path, text):
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with refuses(ConfigError, "broken.yaml"):
        read_config(path)


def test_every_field_has_help():
    def check(model):
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name} has no docstring"
            if isinstance(field.annotation, type) and issubclass(field.annotation, PolicyConfig):
                check(field.annotation)

    describe_fields(Config)
    check(Config)


def test_help_of_sections_without_readable_source_is_left_out():
    class Margin(Section):
        size: int = 1
        """At the
margin."""

    space = {"Section": Section, "__name__": "nowhere"}
    exec("class Made(Section):\n    size: int = 1\n    'A size.'", space)
    for model in (Margin, space["Made"]):
        describe_fields(model)
        assert model.model_fields["size"].description is None
