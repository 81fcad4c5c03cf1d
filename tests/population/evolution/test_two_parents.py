"""Policies that are born of two parents: which, and what is told of them."""

from dataclasses import asdict

import numpy as np
import pytest

from evolution_stages import FOUR, MATCHMAKERS, NUMBERS, RATE, Stage
from remuda.config import EvolutionConfig, load_config
from remuda.config.unused_settings import unused_settings
from remuda.population.evolution.director import Evolution, Plan
from remuda.population.evolution.explore import Explorer
from remuda.population.evolution.setup import numbers_of, selection
from remuda.population.ledger.ledger import BORN_WITH, SECOND_PARENT, Ledger, value_of
from remuda.population.ledger.records import GAMES, REWARD, SQUARES, Member, PolicyRef, Population


@pytest.mark.parametrize("matchmaker", MATCHMAKERS)
def test_numbers_and_layers_come_from_two_parents(matchmaker):
    config = {"factors": (1.0,), "resample": 0.0, "crossover_numbers": 1.0, "crossover_layers": 0.5}
    stage = Stage(FOUR, matchmaker, [0.0, 2.0, 4.0, 6.0], **config)
    while not stage.born():
        stage.turn()
    assert stage.born()[0] == ("a", "d")
    assert stage.crossed[0] == ("a", 0.5, 1)
    # Of the two others `c` is better, and all that evolves is of the second parent.
    assert stage.rates()[0] == pytest.approx(3e-3)
    records = stage.table.records.since(0)[0]
    told = records[(records["kind"] == BORN_WITH) & (records["version"][:, 0] == SECOND_PARENT)]
    assert [stage.names[int(value_of(record["digest"]))] for record in told[:1]] == ["c"]


def test_a_second_parent_outlives_the_actor_that_chose_it():
    config = {"factors": (1.0,), "resample": 0.0, "crossover_numbers": 1.0}
    stage = Stage(FOUR, "random", [0.0, 2.0, 4.0, 6.0], **config)
    while not stage.evolution.state()["planned"]:
        stage.turn()
    plan = stage.evolution.state()["planned"]["a"]
    assert (plan["parent"], plan["second"]) == ("d", "c")
    again = stage.director()
    again.restore(stage.evolution.state())
    assert again.state() == stage.evolution.state()


@pytest.mark.parametrize(
    "config",
    [
        {"crossover_numbers": 0.5, "numbers": {}},
        {"crossover_numbers": 0.5, "explore": "resample"},
        {"crossover_numbers": 0.5, "explore": "pb2"},
    ],
)
def test_no_second_parent_is_told_of_which_nothing_is_taken(config):
    stage = Stage(FOUR, "random", [0.0, 2.0, 4.0, 6.0], **config)
    while not stage.born():
        stage.turn()
    records = stage.table.records.since(0)[0]
    told = (records["kind"] == BORN_WITH) & (records["version"][:, 0] == SECOND_PARENT)
    assert not told.any()


def test_numbers_of_two_parents_have_no_effect_where_none_evolves():
    numbers = {"learning_rate": {"low": 1e-5, "high": 1e-2}}
    evolution = {"every": 64, "crossover_numbers": 0.5}
    for more, count in (({}, 1), ({"numbers": numbers}, 0)):
        found = unused_settings(load_config({"population": {"evolution": evolution | more}}))
        assert len([line for line in found if "crossover_numbers" in line]) == count


def test_a_second_parent_is_none_of_those_that_leave():
    names = tuple("abcdefgh")
    strengths = [0.0] * 4 + [6.0] * 4
    config = {"share": 0.5, "crossover_numbers": 0.5, "confidence": 0.0}
    stage = Stage(names, "random", strengths, **config)
    seen = 0
    while seen < 8:
        stage.turn(learns=False)
        planned = stage.evolution.state()["planned"]
        seen = len(planned) + len(stage.born())
        for plan in planned.values():
            assert plan["second"] is None or plan["second"] not in planned
        if stage.births.pending() is not None:
            break


@pytest.mark.parametrize("gone", ["d", "c"])
def test_who_was_born_meanwhile_in_the_slot_of_a_parent_is_not_taken_for_it(gone):
    """`d` was to be the parent of who is born for `a`, and `c` the second one."""
    config = EvolutionConfig(every=10, games=10, numbers=NUMBERS, crossover_layers=0.5)
    fitness = (1.0, 6.0)
    select, explorer = selection(config), Explorer(config, numbers_of(config))
    evolution = Evolution(
        config,
        dict.fromkeys(FOUR, 0),
        select,
        lambda: explorer,
        lambda *_: np.random.default_rng(0),
    )
    members = [Member(PolicyRef(name), hyperparameters={RATE: 1e-3}) for name in "bcd"]
    for member, mean in zip(members, (5.0, 3.0, 4.0), strict=True):
        member.numbers[[GAMES, REWARD, SQUARES]] = 20, 20 * mean, 21 * mean**2
    evolution.restore(
        {
            "last": 0,
            "before": {},
            "planned": {"a": asdict(Plan("d", fitness, "c", 0, 0))},
            "explorers": [explorer.state()],
        }
    )
    next(member for member in members if member.ref.policy == gone).born = 7
    population = Population(members)
    population.matches, population.empty = 8, ("a",)
    (birth,) = evolution.step(population, Ledger(population), {})
    if gone == "d":
        assert (birth.parent, birth.second, birth.fitness) == (PolicyRef("b"), None, None)
    else:
        found = (birth.parent, birth.second, birth.fitness)
        assert found == (PolicyRef("d"), None, fitness)
