"""An actor that dies at any line of what it does to the population, and its successor."""

import numpy as np
import pytest

from line_deaths import AtLine
from remuda.config.hyperparameters import HYPERPARAMETERS
from remuda.population.births import lifecycle
from remuda.population.births.inheritance import LearnerBirths
from remuda.population.dealing import lead
from remuda.population.dealing.lead import League
from remuda.population.directors.director import Birth, Freeze, Retire
from remuda.population.ledger import ledger
from remuda.population.ledger.records import PolicyRef
from remuda.population.matchmaking.by_turn import Random
from remuda.population.members import births, frozen_weights, table, table_parts
from remuda.population.members.table import Table
from remuda.population.members.table_parts import MATCHES
from remuda.publish import training_state
from remuda.publish.snapshot import Snapshot
from remuda.publish.training_state import TrainingLayout, TrainingState
from remuda.system.checkpoint.state import pack

NAMES, EMPTY, SIZE, COPIES = ("a", "b", "c", "d"), ("d",), 6, 5
WATCHED = (
    births,
    frozen_weights,
    lead,
    ledger,
    lifecycle,
    table,
    table_parts,
    training_state,
)
LAYOUT = TrainingLayout(("mean", "square", "target"), ("steps", "explored"))


def weights_of(policy, version):
    return np.full(SIZE, 100.0 * NAMES.index(policy) + version, np.float32)


def training_of(policy, version):
    weights = weights_of(policy, version)
    vectors = {name: weights + i for i, name in enumerate(LAYOUT.vectors, 1)}
    return TrainingState(vectors, dict.fromkeys(LAYOUT.numbers, float(weights[0])))


class Insistent:
    """A director that commands what it wants until it is so, as one that counts would."""

    def __init__(self, wanted, is_so):
        self.wanted, self.is_so = wanted, is_so

    def step(self, population, ledger, versions):
        if self.wanted is None or self.is_so(population):
            return []
        if isinstance(self.wanted, Birth) and self.wanted.policy not in population.empty:
            return []  # it is expected
        return [self.wanted]

    def state(self):
        return {}

    def restore(self, state):
        pass


class World:
    """The league of one actor after another, and the learners' end of births."""

    def __init__(self):
        specified = {name: {HYPERPARAMETERS[0]: 0.5} for name in NAMES}
        training = dict.fromkeys(NAMES, LAYOUT)
        self.table = Table(dict.fromkeys(NAMES, SIZE), 2, 2, specified, EMPTY, training=training)
        self.births = LearnerBirths(self.table, NAMES)
        self.versions = dict.fromkeys(NAMES, 1)
        self.random = np.random.default_rng(0)
        self.over = np.ones(COPIES, np.bool_)

    def begin(self, director):
        """An actor starts."""
        self.league = League(self.table, Random(2), director, self.random, COPIES)
        self.league.deal(self.over)

    def turn(self):
        """Every copy plays a match to its end; learners do what they were told."""
        acted = np.ones((COPIES, 2), np.int64)
        returns = self.random.normal(size=(COPIES, 2))
        self.league.close(self.over, returns, acted, acted, ~self.over)
        self.league.step(dict(self.versions), self)
        self.league.deal(self.over)
        policy = self.births.pending()
        if policy is not None:
            self.versions[policy] += 1
            self.births.confirm(policy, self.versions[policy])

    def look(self, policy):
        version = self.versions[policy]
        return Snapshot(weights_of(policy, version), version, version, 0.0)

    def published(self, policy):
        found = self.look(policy)
        found.training = training_of(policy, found.version)
        return found

    def draw(self, policy, generation):
        return weights_of(policy, generation)

    def convert(self, policy, other, weights, generation):
        return None

    def fits(self, policy, other):
        return True

    def clear(self, policy):
        pass

    def wake(self, policy):
        pass


def has(*names):
    return lambda population: {str(m.ref) for m in population.members} == set(names)


SCENES = {
    "birth": (
        Birth("d", PolicyRef("b"), {HYPERPARAMETERS[0]: 0.25}, inherits_training=True),
        has("a", "b", "c", "d"),
    ),
    "retirement": (Retire(PolicyRef("c")), has("a", "b")),
    "freezing": (Freeze("b"), has("a", "b", "c", "b@1")),
}


def play(scene, death):
    """Play until what is wanted is so, with a death; returns the world and whether it happened."""
    world = World()
    world.begin(Insistent(None, None))
    for _ in range(3):
        world.turn()
    world.begin(Insistent(*SCENES[scene]))
    with AtLine(death, WATCHED) as crash:
        for _ in range(3):
            world.turn()
    if crash.reached:
        world.begin(Insistent(*SCENES[scene]))
    return world, crash.reached


def check(world):
    """What must hold whenever an actor begins or goes on."""
    members, table = world.league.population.members, world.table
    assert {m.ref: m.slot for m in members} == {m.ref: m.slot for m in table.population().members}
    assert set(world.league.seated.ravel()) <= {m.slot for m in members}
    met, won, *_ = table.pairs
    live = sorted(slot for slot in slots_of(members) if slot < len(table.policies))
    met_live, won_live = met[live][:, live], won[live][:, live]
    assert np.array_equal(met_live, met_live.T)
    assert np.allclose(won_live + won_live.T, met_live)
    assert not table.occupants.there[table.occupants.leaving].any()
    for member in members:
        if not (member.learns or member.ref.is_scripted):  # these have no weights
            kept = table.snapshot(member.slot)
            assert np.array_equal(kept.weights, weights_of(*member.ref))
    kept = slots_of(members) | set(table.occupants.leaving)
    assert met[:, [slot for slot in range(met.shape[1]) if slot not in kept]].sum() == 0
    assert met[[slot for slot in range(len(met)) if slot not in kept]].sum() == 0


def slots_of(members):
    return {m.slot for m in members}


@pytest.mark.slow_cases("birth-3", "freezing-3", "retirement-3")
@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("scene", SCENES)
def test_its_successor_brings_it_to_an_end_wherever_it_died(scene, stride):
    _, is_so = SCENES[scene]
    for death in range(0, 100_000, stride):
        world, died = play(scene, death)
        check(world)
        for _ in range(6):
            world.turn()
        check(world)
        population = world.league.population
        assert is_so(population), f"death at line {death}: {population.members}"
        games = world.table.word(MATCHES)
        world.turn()
        assert world.table.word(MATCHES) == games + COPIES
        if scene == "birth":
            newborn = population[PolicyRef("d")]
            assert newborn.parent == PolicyRef("b", 1)
            assert newborn.hyperparameters[HYPERPARAMETERS[0]] == 0.25
            assert newborn.games > 0
            assert np.array_equal(world.table.births.newborn_weights("d"), weights_of("b", 1))
            taken_over = world.table.births.newborn_training("d")
            assert pack(taken_over.state()) == pack(training_of("b", 1).state())
            assert world.table.births.ordered(3) == world.table.births.confirmed(3) >= 1
        if not died:
            break
    assert death > 50
