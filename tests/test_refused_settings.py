"""Settings with which a run would hang, crash or fail later are refused before it begins."""

import pytest

from remuda.config import Config, load_config
from remuda.config.sections import Section
from remuda.errors import ConfigError
from remuda.prepare import prepare

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
        ("population.evolution.fitness", [], "name one at least"),
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
        ("population.births.places", 10_000),
        ("population.league.main", 10_000),
        ("population.league.main_exploiters", 10_000),
        ("population.league.league_exploiters", 10_000),
    ],
)
def test_there_are_no_more_policies_than_can_be_named(key, most):
    load_config(nested(key, most))
    for value in (most + 1, 10**9, 2**63):
        said = refused(nested(key, value))
        assert said.startswith(f"{key} is {value}: at most {most:,} are possible, ")
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
        f"policy.n_steps is {2**63}: at most 2,147,483,647 are possible, as what is of that size "
        "is counted by 32 bits"
    )
    said = refused({"policies": {"a": {"ppo": {"max_staleness": 2**63}}}})
    assert said.startswith(f"policies.a.ppo.max_staleness is {2**63}: at most 1,000,000,000,")


@pytest.mark.parametrize(
    ("number", "said"),
    [
        ({"discount": {"low": 0.9, "high": 0.5}}, "discount: the bounds are 0.9 to 0.5, the wrong"),
        ({"discount": {"low": 0.9, "high": INF}}, "discount: the bounds are 0.9 to inf; both"),
        ({"discount": {"low": 0.9, "high": 5}}, "discount: a bound is not allowed: discount is 5"),
        ({"disco": {"low": 0.9, "high": 5}}, "disco cannot evolve; of a policy of iqn these can:"),
    ],
)
def test_bounds_of_numbers_that_evolve_are_told_with_their_key(number, said):
    evolution = {"every": 10, "numbers": number}
    population = {"policies": 4, "matchmaker": "random", "evolution": evolution}
    config = load_config({"game": "rock_paper_scissors", "population": population})
    with pytest.raises(ConfigError) as error:
        prepare(config)
    assert str(error.value).startswith(f"population.evolution.numbers.{said}")
