"""An actor that dies at any line while a policy leaves its place and another is born there."""

import sys

import numpy as np
import pytest

from population import test_deaths as deaths
from remuda.hyperparameters import HYPERPARAMETERS
from remuda.population.director import Birth, Vacate
from remuda.population.league import League
from remuda.population.learner_births import LearnerBirths
from remuda.population.ledger import BIRTH
from remuda.population.matchmakers import Fixed, Random
from remuda.population.records import PolicyRef
from remuda.population.table import Table
from remuda.population.table_layout import MATCHES, NO_POLICY, POLICY

A, B = PolicyRef("a"), PolicyRef("b")


class Replacing:
    """A director that has `a` replaced by a copy of `b`, once, however often it begins anew."""

    def __init__(self, active):
        self.active = active

    def step(self, population, ledger, versions):
        if not self.active:
            return []
        if "a" in population.empty:
            return [Birth("a", B, {HYPERPARAMETERS[0]: 0.25})]
        if A in population and population[A].parent is None:
            return [Vacate("a")]
        return []

    def state(self):
        return {}

    def restore(self, state):
        pass


class World(deaths.World):
    """Two or three policies for two seats."""

    def __init__(self, names, make):
        specified = {name: {HYPERPARAMETERS[0]: 0.5} for name in names}
        sizes = dict.fromkeys(names, deaths.SIZE)
        self.table = Table(sizes, 2, 1, specified, (), stand_ins=True)
        self.births, self.versions = LearnerBirths(self.table, names), dict.fromkeys(names, 1)
        self.random, self.make = np.random.default_rng(0), make
        self.over = np.ones(deaths.COPIES, np.bool_)

    def begin(self, director):
        self.league = League(self.table, self.make(), director, self.random, deaths.COPIES)
        self.league.deal(self.over)


KINDS = {
    "with a stand-in": (("a", "b"), lambda: Fixed(["a", "b"])),
    "without": (("a", "b", "c"), lambda: Random(2)),
}


def play(kind, death):
    world = World(*KINDS[kind])
    world.begin(Replacing(False))
    for _ in range(3):
        world.turn()
    world.begin(Replacing(True))
    deaths.die_at(death)
    try:
        for _ in range(6):
            world.turn()
        died = False
    except deaths.DiedError:
        died = True
    finally:
        sys.settrace(None)
    if died:
        world.begin(Replacing(True))
    return world, died


@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_one_is_born_in_its_place_wherever_an_actor_died(kind, stride):
    for death in range(0, 100_000, stride):
        world, died = play(kind, death)
        deaths.check(world)
        for _ in range(8):
            world.turn()
        deaths.check(world)
        population, table = world.league.population, world.table
        assert {str(m.ref) for m in population.members} == set(KINDS[kind][0]), death
        assert population[A].parent == PolicyRef("b", 1)
        assert population[A].hyperparameters[HYPERPARAMETERS[0]] == 0.25
        assert population[A].games > 0
        spare = table.places.stand_in_of("a")
        assert table.occupants.identity[spare, POLICY] == NO_POLICY
        assert table.births.ordered(0) == table.births.confirmed(0) >= 1
        born = table.records.since(0)[0]["kind"] == BIRTH
        assert born.sum() <= 1 + died  # a record may be written, and its order not counted
        games = table.word(MATCHES)
        world.turn()
        assert table.word(MATCHES) == games + deaths.COPIES
        if not died:
            break
    assert death > 100
