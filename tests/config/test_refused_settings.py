"""Settings with which a run would hang, crash or fail later are refused before it begins."""

import pytest

from refusals import refuses
from remuda.config import Config, load_config, read_config
from remuda.config.sections import Section
from remuda.config.unused_settings import unused_settings
from remuda.errors import ConfigError
from remuda.training.prepare import minibatch_warnings, prepare

INF = float("inf")


def nested(key, value):
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def refused(tree):
    with pytest.raises(ConfigError) as error:
        load_config(tree)
    said = str(error.value)
    assert "\n" not in said
    return said


@pytest.mark.parametrize("schedule", ["async", "sequential", "lockstep"])
def test_a_replay_ratio_that_is_not_finite_is_refused(schedule):
    tree = {"schedule": schedule, "policy": {"experience": {"replay_ratio": INF}}}
    said = refused(tree)
    assert said.startswith("policy.experience.replay_ratio is inf: ")
    assert ("None trains without pause" in said) == (schedule == "async") or "0.64" in said


@pytest.mark.parametrize("schedule", ["sequential", "lockstep"])
@pytest.mark.parametrize("ratio", [1e300, 64 * 1000.1])
def test_training_that_would_hardly_pause_is_refused_where_the_game_waits_for_it(schedule, ratio):
    tree = {"schedule": schedule, "policy": {"experience": {"replay_ratio": ratio}}}
    said = refused(tree)
    assert said.startswith(f"policy.experience.replay_ratio is {ratio:g}: ")
    assert "at most 64000" in said
    assert schedule in said
    load_config({"schedule": schedule, "policy": {"experience": {"replay_ratio": 64 * 1000.0}}})
    load_config({"policy": {"experience": {"replay_ratio": ratio}}})  # async does not wait
    own = {"schedule": schedule, "policies": {"a": {"experience": {"replay_ratio": ratio}}}}
    assert refused(own).startswith("policies.a.experience.replay_ratio is")
    ppo = {"algorithm": "ppo", "experience": {"replay_ratio": ratio}}
    load_config({"schedule": schedule, "policy": ppo})  # it goes by rollouts


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("population.evolution.factors", [], "at least 1 item"),
        ("population.evolution.factors", [INF], "finite number"),
        ("population.evolution.mutation", INF, "finite number"),
        ("population.evolution.fitness", [], "list at least one"),
    ],
)
def test_values_of_evolution_are_looked_at_before_the_first_birth(key, value, said):
    told = refused(nested(key, value))
    assert told.startswith(f"{key} is ")
    assert said in told


@pytest.mark.parametrize(
    ("key", "most"),
    [
        ("population.policies", 10_000),
        ("population.births.slots", 10_000),
        ("population.league.main", 10_000),
        ("population.league.main_exploiters", 10_000),
        ("population.league.league_exploiters", 10_000),
    ],
)
def test_there_are_no_more_policies_than_can_be_named(key, most):
    load_config(nested(key, most))
    for value in (most + 1, 10**9, 2**63):
        said = refused(nested(key, value))
        assert said.startswith(f"{key} is {value}: at most {most:,} is allowed, ")
        assert "a learner" in said


def whole_numbers(section, prefix=""):
    """The keys whose defaults are whole numbers, or None."""
    for name in type(section).model_fields:
        found = getattr(section, name)
        if isinstance(found, Section):
            yield from whole_numbers(found, f"{prefix}{name}.")
        elif found is None or type(found) is int:
            yield f"{prefix}{name}"


@pytest.mark.parametrize("number", [2**63, 10**30])
def test_no_whole_number_is_too_large_for_64_bits(number):
    taken = []
    for key in whole_numbers(Config()):
        try:
            load_config(nested(key, number))
        except ConfigError as error:
            assert key in str(error) or key == "policy.batch_size"  # noqa: PT017
        else:
            taken.append(key)
    floats = [key for key in taken if key != "seed"]
    for key in floats:  # they take numbers that are not whole
        load_config(nested(key, number + 0.5))
        load_config(nested(key, 0.5))


def test_a_number_that_is_too_large_is_told_with_what_is_possible():
    assert refused({"policy": {"n_steps": 2**63}}) == (
        f"policy.n_steps is {2**63}: at most 2,147,483,647 is allowed, since sizes have 32 bits"
    )
    said = refused({"policies": {"a": {"ppo": {"max_staleness": 2**63}}}})
    assert said.startswith(f"policies.a.ppo.max_staleness is {2**63}: at most 1,000,000,000,")


@pytest.mark.parametrize(
    ("number", "said"),
    [
        ({"discount": {"low": 0.9, "high": 0.5}}, "discount.low is 0.9; it must be less than high"),
        ({"discount": {"low": 0.9, "high": 0.9}}, "discount.low is 0.9; it must be less than high"),
        ({"discount": {"low": 0.9, "high": INF}}, "discount.high is inf: input should be a finite"),
        ({"discount": {"low": 0.0, "high": 1.0, "log": True}}, "discount.low is 0, but a logarith"),
        ({"discount": {"low": 0.9, "high": 5}}, "discount: a bound is not allowed: discount is 5"),
        ({"disco": {"low": 0.9, "high": 5}}, "disco cannot evolve; policies of iqn can evolve "),
    ],
)
def test_bounds_of_numbers_that_evolve_are_told_with_their_key(number, said):
    evolution = {"every": 10, "numbers": number}
    population = {"policies": 4, "matchmaker": "random", "evolution": evolution}
    with pytest.raises(ConfigError) as error:
        prepare(load_config({"game": "rock_paper_scissors", "population": population}))
    assert str(error.value).startswith(f"population.evolution.numbers.{said}")


def read(tmp_path, text):
    path = tmp_path / "some.yaml"
    path.write_text(text)
    return read_config(path)


@pytest.mark.slow_cases("text12-nested too deeply")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seed: 1\nrun: {turns: 5}\nseed: 2\n", "line 3: the key seed is in line 1 already"),
        ("policy:\n  n_steps: 1\n  n_steps: 1\n", "line 3: the key n_steps is in line 2"),
        ("policy: {n_steps: 1}\npolicy: {discount: 0.5}\n", "line 2: the key policy is in"),
        ("{1: a, 1: b}", "line 1: the key 1 is in line 1 already"),
        ("{010: a, 10: b}", "line 1: the key 10 is in line 1 already"),
        ("{-010: a, -10: b}", "line 1: the key -10 is in line 1 already"),
        ("a: &a [*a]", "line 1: an alias is inside its own anchor"),
        ("seed: !!bool perhaps", "line 1: a value is not what its tag"),
        ("seed: !!int", "line 1: a value is not what its tag"),
        ("seed: !!float ''", "line 1: a value is not what its tag"),
        ("seed: !!timestamp 5", "line 1: a value is not what its tag"),
        ("a: &a {b: [1, {c: *a}]}", "line 1: an alias is inside its own anchor"),
        ("[" * 3000, "nested too deeply"),
        ("{a: " * 2000, "nested too deeply"),
        ("run: {turns: 1}\nseed: " + "9" * 5000, "line 2: seed is a number of 5,000 digits"),
    ],
)
def test_a_file_that_says_what_cannot_be_meant_is_refused_with_the_line(tmp_path, text, said):
    with pytest.raises(ConfigError) as error:
        read(tmp_path, text)
    assert said in str(error.value)
    assert "some.yaml" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_key_over_one_that_is_merged_stands_once(tmp_path):
    text = "policies:\n  a: &a {n_steps: 1, discount: 0.5}\n  b: {<<: *a, n_steps: 2}\n  c: *a\n"
    found = read(tmp_path, text)["policies"]
    assert found["b"] == {"n_steps": 2, "discount": 0.5}
    assert found["c"] == found["a"] == {"n_steps": 1, "discount": 0.5}


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"policies": {"agent_0": 5}}, "policies.agent_0 is 5: "),
        ({"policies": {"agent_0": None}}, "policies.agent_0 is None: "),
        ({"env": {"scripted": {"agent_0": None}}}, "env.scripted.agent_0 is None: "),
        ({"env": {"episode_metrics": {"speed": 3}}}, "env.episode_metrics.speed is 3: "),
        ({1: 2}, "the configuration has the key 1, which is not text"),
        ({"policies": {"a": {1: 2}}}, "policies.a has the key 1, which is not text"),
        ({"policies": {1: {}}}, "policies has the key 1, which is not text"),
        ({"env": {"scripted": {1: "random"}}}, "env.scripted has the key 1, which is not text"),
        ({"seed": -(10**5000)}, "seed is a number of thousands of digits: "),
        ({"policy": {"learning_rate": INF}}, "policy.learning_rate is inf: input should be a fini"),
        ({"policy": {"adam_epsilon": INF}}, "policy.adam_epsilon is inf: "),
        ({"policies": {"a": {"reward_scale": INF}}}, "policies.a.reward_scale is inf: "),
        ({"learners": {"threads": 2**31 - 1}}, "learners.threads is 2147483647: at most 1,024 is"),
        ({"run": {"turns": True}}, "run.turns is True: give numbers, not"),
        ({"env": {"num_envs": True}}, "env.num_envs is True: give numbers, not"),
        ({"population": {"policies": True}}, "population.policies is True: give numbers, not"),
        ({"policy": {"discount": False}}, "policy.discount is False: give numbers, not"),
        (
            {"policy": {"network": {"hidden": [True]}}},
            "policy.network.hidden is [True]: give numbers",
        ),
        ({"policies": {"a": {"iqn": {"quantiles": True}}}}, "policies.a.iqn.quantiles is True: "),
        ({"actor": {"processes": True}}, "actor.processes is True: give numbers, not"),
    ],
)
def test_it_is_told_whose_value_is_wrong(tree, said):
    assert said in refused(tree)


def test_an_empty_tuple_is_not_told_in_words_of_the_program():
    said = refused(nested("population.evolution.factors", []))
    assert said.startswith("population.evolution.factors is []: ")
    assert "validation" not in said


def test_true_and_false_are_values_where_they_are_meant():
    load_config({"env": {"check": False}, "checkpoint": {"replay": True}, "run": {"live": False}})
    load_config({"env": {"options": {"num_agents": 2, "torus": True}}})


@pytest.mark.parametrize("who", ["agent_x", "agent_1x"])
def test_a_seat_that_is_none_does_not_count_as_taken(who):
    config = load_config({"env": {"scripted": {"agent_0": "random", who: "random"}}})
    with refuses(ConfigError) as error:
        prepare(config)
    assert "all seats" not in str(error.value)


@pytest.mark.parametrize("ratio", [2000, 10**9])
def test_a_replay_ratio_is_looked_at_once_the_network_says_how_large_batches_are(ratio):
    network = {"module": "policies.own_networks:Remembers"}
    policy = {"network": network, "experience": {"replay_ratio": ratio}}
    config = load_config({"schedule": "sequential", "policy": policy})
    if ratio == 2000:
        assert prepare(config).specs[0].config.batch_size == 256
        return
    with refuses(ConfigError, "policy.experience.replay_ratio"):
        prepare(config)


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"ppo": {"minibatches": 128}}, []),
        ({"ppo": {"rollout_length": 2}, "experience": {"segment_length": 2}}, []),  # none is said
        (
            {"ppo": {"minibatches": 129}},
            [
                "policy.ppo.minibatches is 129, but an update has at most 128 steps, and each "
                "minibatch needs at least one; lower it, or raise policy.ppo.rollout_length or "
                "env.num_envs"
            ],
        ),
        # Segments of 32 steps are drawn whole, so there may be one more step than was asked for.
        ({"learning_mode": "off_policy", "ppo": {"minibatches": 160}}, []),
        (
            {"learning_mode": "off_policy", "ppo": {"minibatches": 161}},
            ["policy.ppo.minibatches is 161, but an update has at most 160 steps, and each "],
        ),
        ({"learning_mode": "hybrid", "on_policy_share": 0.5, "ppo": {"minibatches": 288}}, []),
        (
            {"learning_mode": "hybrid", "on_policy_share": 0.5, "ppo": {"minibatches": 289}},
            ["policy.ppo.minibatches is 289, but an update has at most 288 steps, and each "],
        ),
        ({"network": {"recurrent": 8}, "ppo": {"minibatches": 4}}, []),
        (
            {"network": {"recurrent": 8}, "ppo": {"minibatches": 5}},
            ["policy.ppo.minibatches is 5, but an update has at most 4 sequences of 32 steps, unl"],
        ),
    ],
)
def test_more_parts_of_an_epoch_than_an_update_has_are_told(tree, said):
    config = load_config({"policy": {"algorithm": "ppo", **tree}})
    found = prepare(config)
    lines = minibatch_warnings(config, found.specs, len(found.spec.agents))
    assert len(lines) == len(said)
    assert all(one.startswith(start) for one, start in zip(lines, said, strict=True))


def test_devices_that_no_policy_is_dealt_are_told():
    own = {name: {"device": "cpu"} for name in ("agent_0", "agent_1")}
    config = load_config({"learners": {"devices": ["cpu"]}, "policies": own})
    lines = unused_settings(config, (), False, ["agent_0", "agent_1"])
    assert lines == ["learners.devices has no effect: every policy has its own device"]
    assert not unused_settings(config, (), False, ["agent_0", "agent_1", "agent_2"])
