"""Whole runs in which policies evolve: what is in force, what is kept, and what is told."""

import itertools
import json

import numpy as np
import pytest

import remuda
from refusals import refuses
from remuda.config import load_config, overlay
from remuda.errors import ConfigError
from remuda.population.ledger.lineage import ancestors, read_lineage
from remuda.system.checkpoint.store import Checkpoints
from remuda.training.run import train
from remuda.ui.plots.charts import MAX_MEMBERS, payoffs_picture
from remuda.ui.reports.report import write_report
from remuda.ui.reports.summary import read_run
from remuda.ui.terminal.live import PlainView

TREE = {
    "game": "treasure_hunt",
    "schedule": "sequential",
    "env": {"num_envs": 4, "options": {"num_agents": 3, "max_turns": 30}},
    "policy": {
        "algorithm": "ppo",
        "learning_rate": 3e-3,
        "network": {"hidden": (16,)},
        "ppo": {"rollout_length": 20},
    },
    "population": {
        "evolution": {
            "every": 6,
            "games": 2,
            "confidence": 0.0,
            "numbers": {
                "learning_rate": {"low": 1e-5, "high": 1e-2, "log": True},
                "ppo.entropy_cost": {"low": 0.0, "high": 0.1},
            },
        },
    },
    "learners": {"processes": 1},
    "run": {"turns": 4000, "evaluate_episodes": 4, "log_every": 0.05},
    "checkpoint": {"every": 3600, "evaluate_episodes": 0},
}


def configured(directory, **tree):
    return load_config(overlay(overlay(TREE, tree), {"run": {"directory": directory}}))


@pytest.fixture(scope="module")
def evolved(tmp_path_factory):
    directory = tmp_path_factory.mktemp("evolved") / "run"
    train(configured(directory), PlainView())
    return directory


def last_part(directory, part):
    kept = Checkpoints(directory / "checkpoints")
    return kept.read(kept.numbers()[-1], part)


@pytest.mark.slow
def test_what_the_ledger_says_is_in_force(evolved):
    births = read_lineage(evolved / "ledger.bin")
    assert len(births) > 5
    newest = {born.policy: born for born in births}
    table = last_part(evolved, "coordinator")["population"]
    names = list(table["hyperparameter_names"])
    metrics = remuda.load(evolved).metrics()
    for slot, policy in enumerate(table["policies"]):
        if policy not in newest:
            continue
        for name in ("learning_rate", "ppo.entropy_cost"):
            said = newest[policy].hyperparameters[name]
            assert table["hyperparameters"][slot, names.index(name)] == said
            told = metrics[f"{policy}/{name.rpartition('.')[2]}"]
            told = told[np.isfinite(told)]
            assert told[-1] == pytest.approx(said)


def test_numbers_stay_within_bounds_and_parents_are_known(evolved):
    births = read_lineage(evolved / "ledger.bin")
    living = {"agent_0", "agent_1", "agent_2"}
    first, births = births[:3], births[3:]
    assert {born.policy for born in first} == living
    assert all(born.parent is None and born.generation == 0 for born in first)
    for born in births:
        assert born.parent in living - {born.policy}
        assert 1e-5 <= born.hyperparameters["learning_rate"] <= 1e-2
        assert 0.0 <= born.hyperparameters["ppo.entropy_cost"] <= 0.1
        assert born.fitness <= born.parent_fitness
    matches = [born.matches for born in births]
    assert matches == sorted(matches)
    for policy in living:
        own = [born.generation for born in births if born.policy == policy]
        assert own == list(range(1, len(own) + 1))
        line = list(ancestors([*first, *births], policy))
        assert line[-1].generation == 0
        assert [born.matches for born in line] == sorted(
            (born.matches for born in line), reverse=True
        )
        for child, parent in itertools.pairwise(line):
            assert (child.parent, child.parent_generation) == (parent.policy, parent.generation)


def test_lineage_is_a_table(evolved):
    frame = remuda.load(evolved).lineage()
    births = read_lineage(evolved / "ledger.bin")
    assert frame.num_rows == len(births)
    assert frame["policy"].tolist() == [born.policy for born in births]
    assert frame["learning_rate"].tolist() == [b.hyperparameters["learning_rate"] for b in births]
    assert np.isfinite(frame["fitness"][3:]).all()
    assert frame["optimizer_steps"].tolist() == [born.optimizer_steps for born in births]
    assert (frame["optimizer_steps"][3:] > 0).all()
    assert frame["learning_rate"][0] == 3e-3


@pytest.mark.slow
def test_first_numbers_are_drawn_for_each_policy_and_come_back_when_it_is_resumed(tmp_path):
    directory = tmp_path / "run"
    tree = {"population": {"evolution": {"draw_first": True, "every": 10**6}}}
    train(configured(directory, **tree, run={"turns": 100}), PlainView())
    first = read_lineage(directory / "ledger.bin")
    rates = [born.hyperparameters["learning_rate"] for born in first]
    assert len(set(rates)) == 3
    assert all(1e-5 <= rate <= 1e-2 for rate in rates)
    train(configured(directory, **tree, run={"turns": 300}), PlainView(), resume=True)
    assert read_lineage(directory / "ledger.bin") == first
    metrics = remuda.load(directory).metrics()
    for born in first:
        told = metrics[f"{born.policy}/learning_rate"]
        assert told[-1] == pytest.approx(born.hyperparameters["learning_rate"])
    other = configured(tmp_path / "other", **tree, run={"turns": 100}, seed=1)
    train(other, PlainView())
    again = read_lineage(tmp_path / "other" / "ledger.bin")
    assert {born.hyperparameters["learning_rate"] for born in again}.isdisjoint(rates)


def test_a_report_of_evolved_policies_is_written(evolved):
    page = write_report(evolved).read_text()
    assert 'data-from="report_lineage.png"' in page
    assert (evolved / "report_lineage.png").stat().st_size > 10_000
    births = sum(born.generation > 0 for born in read_lineage(evolved / "ledger.bin"))
    assert f"{births} births in " in page
    summary = json.loads((evolved / "summary.json").read_text())
    assert set(summary["evaluation"]["agents"]) == {"agent_0", "agent_1", "agent_2"}


def test_the_heat_map_of_training_leaves_out_who_had_the_slots_before(evolved):
    """Red before: what all policies of a slot had earned stood there as the newest one's."""
    shown = payoffs_picture(read_run(evolved)).figure.axes[0].images[0].get_array()
    expected = remuda.load(evolved).payoffs(most=MAX_MEMBERS)
    assert np.array_equal(shown.filled(np.nan), expected.matrix, equal_nan=True)


@pytest.mark.slow
def test_a_run_that_ends_while_one_is_away_is_judged_with_its_copy(tmp_path):
    """Red before: greedy play failed, since no policy could take the seat."""
    directory = tmp_path / "run"
    for turns in range(150, 700, 13):
        train(configured(directory, run={"turns": turns}), PlainView(), resume=turns > 150)
        table = last_part(directory, "coordinator")["population"]
        away = (table["identity"][:3, 0] < 0) | (table["leaving"][:3] > 0)
        if away.any():
            break
    else:
        pytest.fail("none was ever away")
    summary = json.loads((directory / "summary.json").read_text())
    assert set(summary["evaluation"]["agents"]) == {"agent_0", "agent_1", "agent_2"}
    shown = [policy.name for policy in read_run(directory).policies]
    assert shown == ["agent_0", "agent_1", "agent_2"]
    run = remuda.load(directory)
    assert set(run) == {"agent_0", "agent_1", "agent_2"}
    newest = Checkpoints(directory / "checkpoints").numbers()[-1]
    assert len(run.evaluate(episodes=2, checkpoint=newest).agents) == 3


@pytest.mark.parametrize(
    ("population", "said"),
    [
        (
            {"evolution": {"every": 9, "numbers": {"learning_rate": {"low": 1.0, "high": 0.5}}}},
            "learning_rate.low is 1",
        ),
        (
            {"evolution": {"every": 9, "numbers": {"learning_rate": {"low": 1.0}}}},
            "population.evolution.numbers.learning_rate.high is missing",
        ),
        (
            {"evolution": {"every": 9, "numbers": {"height": {"low": 1.0, "high": 2.0}}}},
            "height cannot evolve; policies of ppo can evolve learning_rate",
        ),
        (
            {"evolution": {"every": 9, "games": 9}},
            "set it to 10 or more, or set population.evolution.confidence 0",
        ),
        (
            {"evolution": {"every": 9, "fitness": "height"}},
            "height is not an objective; allowed are return, rating, win_rate, team_return, and",
        ),
        (
            {"evolution": {"every": 9, "fitness": "game/height"}},
            "fitness is game/height, but the episode metrics of treasure_hunt are",
        ),
        (
            {"evolution": {"every": 9, "fitness": ["return", "rating"]}},
            "set population.evolution.select non_dominated, or list one",
        ),
        (
            {
                "evolution": {
                    "every": 9,
                    "fitness": ["rating", "rating"],
                    "select": "non_dominated",
                }
            },
            "lists rating, rating; list each of them once",
        ),
        (
            {"evolution": {"every": 9, "fitness": "team_return"}},
            "a team's policies play in every match, so their team return is equal",
        ),
        (
            {
                "evolution": {
                    "every": 9,
                    "fitness": ["return", "team_return"],
                    "select": "non_dominated",
                },
                "matchmaker": "fixed",
                "policies": 2,
            },
            "use another population.matchmaker, such as random",
        ),
        (
            {"evolution": {"every": 9, "fitness": []}},
            "population.evolution.fitness",
        ),
        ({"evolution": {"every": 9}, "policies": 1}, "so no policy can replace another"),
        (
            {"evolution": {"every": 9, "networks": "any"}, "policies": 1},
            "no two policies have the same network (but for widths and numbers of layers)",
        ),
        (
            {"evolution": {"every": 9}, "policies": 3, "matchmaker": "round_robin"},
            "makes no match without policy_0",
        ),
        (
            {"evolution": {"every": 9}, "births": {"slots": 1}},
            "population.births.slots is for matchmakers that deal seats to any policy, but fixed",
        ),
        (
            {
                "evolution": {"every": 9},
                "births": {"slots": 1, "every": 4},
                "matchmaker": "random",
                "policies": 4,
            },
            "both replace policies",
        ),
    ],
)
def test_what_cannot_evolve_is_refused_in_one_line(population, said, tmp_path):
    tree = overlay(TREE, {"population": {"evolution": {"numbers": {}}}})
    tree = {**tree, "population": population}
    with pytest.raises(ConfigError) as refused:
        train(load_config(overlay(tree, {"run": {"directory": tmp_path / "run"}})), PlainView())
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.slow_cases("own1-any-None", "own2-alike-None")
@pytest.mark.parametrize(
    ("own", "networks", "said"),
    [
        ({"activation": "relu"}, "any", "no other policy's weights fit agent_2"),
        ({"hidden": (24, 16)}, "any", None),
        ({"activation": "relu"}, "alike", None),  # it is no parent of any, and was not asked to be
    ],
)
def test_a_policy_whom_no_weights_fit_is_told_of(own, networks, said, tmp_path):
    evolution = {"networks": networks, "numbers": {}}
    tree = overlay(TREE, {"population": {"evolution": evolution}, "run": {"turns": 4}})
    tree["policies"] = {"agent_2": {"network": own}}
    tree["run"] = tree["run"] | {"directory": tmp_path / "run", "evaluate_episodes": 0}
    if said is None:
        train(load_config(tree), PlainView())
        return
    with refuses(ConfigError) as refused:
        train(load_config(tree), PlainView())
    assert "\n" not in str(refused.value)


def test_what_the_game_tells_is_equal_for_all_who_play_in_every_match(tmp_path):
    tree = {
        "game": "bucket_brigade",
        "policy": {"algorithm": "ppo"},
        "population": {"evolution": {"every": 9, "fitness": "game/nights:min"}},
        "run": {"directory": tmp_path / "run"},
    }
    with refuses(ConfigError):
        train(load_config(tree), PlainView())
