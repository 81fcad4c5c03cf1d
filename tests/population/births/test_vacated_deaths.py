"""An actor that dies at any line while a policy leaves its slot and another is born there."""

import numpy as np
import pytest

from line_deaths import AtLine, DiedError
from population.dealing import test_deaths as deaths
from remuda.config.hyperparameters import HYPERPARAMETERS
from remuda.population.births.inheritance import LearnerBirths
from remuda.population.dealing.lead import League
from remuda.population.directors.director import Birth, Vacate
from remuda.population.ledger.ledger import BIRTH, LedgerFile
from remuda.population.ledger.lineage import read_lineage
from remuda.population.ledger.records import PolicyRef
from remuda.population.matchmaking.by_turn import Fixed, Random
from remuda.population.members.births import BirthOrders
from remuda.population.members.table import Table
from remuda.population.members.table_parts import MATCHES, NO_POLICY, POLICY, RecordBuffer
from remuda.system.checkpoint.state import pack

A, B = PolicyRef("a"), PolicyRef("b")


class Replacing:
    """A director that has `a` replaced by a copy of `b`, once, however often it begins anew."""

    def __init__(self, active):
        self.active = active

    def step(self, population, ledger, versions):
        if not self.active:
            return []
        if "a" in population.empty:
            return [Birth("a", B, {HYPERPARAMETERS[0]: 0.25}, inherits_training=True)]
        if A in population and population[A].parent is None:
            return [Vacate("a")]
        return []

    def state(self):
        return {}

    def restore(self, state):
        pass


class World(deaths.World):
    """Two or three policies for two seats, with members written by hand or not."""

    def __init__(self, names, make, scripted=()):
        specified = {name: {HYPERPARAMETERS[0]: 0.5} for name in names}
        sizes = dict.fromkeys(names, deaths.SIZE)
        self.table = Table(
            sizes,
            2,
            1,
            specified,
            (),
            scripted=scripted,
            stand_ins=True,
            training=dict.fromkeys(names, deaths.LAYOUT),
        )
        self.births, self.versions = LearnerBirths(self.table, names), dict.fromkeys(names, 1)
        self.random, self.make = np.random.default_rng(0), make
        self.over = np.ones(deaths.COPIES, np.bool_)

    def begin(self, director):
        self.league = League(self.table, self.make(), director, self.random, deaths.COPIES)
        self.league.deal(self.over)


KINDS = {
    "with a stand-in": (("a", "b"), lambda: Fixed(["a", "b"])),
    "without": (("a", "b", "c"), lambda: Random(2)),
    "beside a scripted member": (("a", "b"), lambda: Random(2), ("bot",)),
}


def play(kind, death):
    world = World(*KINDS[kind])
    world.begin(Replacing(False))
    for _ in range(3):
        world.turn()
    world.begin(Replacing(True))
    with AtLine(death, deaths.WATCHED) as crash:
        for _ in range(6):
            world.turn()
    if crash.reached:
        world.begin(Replacing(True))
    return world, crash.reached


def born_of(world, path):
    """Those born in the slot of `a`, as the ledger tells."""
    table = world.table
    file = LedgerFile(path, table.names, 2, table.hyperparameters.names)
    file.append(table.records.since(0)[0])
    return [born for born in read_lineage(path) if born.policy == "a" and born.generation]


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize(("part", "step"), [(BirthOrders, "count"), (RecordBuffer, "add")])
def test_the_ledger_tells_of_a_birth_once_wherever_its_actor_died(
    part, step, is_done, monkeypatch, tmp_path
):
    """Red before: an order was counted before it was noted, and an actor died in between."""
    world = World(*KINDS["without"])
    world.begin(Replacing(True))
    while "a" not in world.league.lifecycle.empty_slots():
        world.turn()
    done, times = getattr(part, step), []

    def dies(*given):
        times.append(given)
        if is_done or len(times) == (part is RecordBuffer):  # first it notes the matches
            done(*given)
        if len(times) == 1 + (part is RecordBuffer):
            raise DiedError

    monkeypatch.setattr(part, step, dies)
    with pytest.raises(DiedError):
        world.turn()
    monkeypatch.undo()
    world.begin(Replacing(True))
    for _ in range(8):
        world.turn()
    (born,) = born_of(world, tmp_path / "ledger.bin")
    assert born.generation == world.table.births.ordered(0) == 1
    assert born.hyperparameters == world.league.population[A].hyperparameters


@pytest.mark.slow_cases("beside a scripted member-5", "with a stand-in-5", "without-5")
@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_one_is_born_in_its_slot_wherever_an_actor_died(kind, stride, tmp_path):
    for death in range(0, 100_000, stride):
        world, died = play(kind, death)
        deaths.check(world)
        for _ in range(8):
            world.turn()
        deaths.check(world)
        population, table = world.league.population, world.table
        names, _, *scripted = KINDS[kind]
        assert {str(m.ref) for m in population.members} == {*names, *sum(scripted, ())}, death
        assert population[A].parent == PolicyRef("b", 1)
        assert population[A].hyperparameters[HYPERPARAMETERS[0]] == 0.25
        assert population[A].games > 0
        spare = table.slots.stand_in_of("a")
        assert table.occupants.identity[spare, POLICY] == NO_POLICY
        assert table.births.ordered(0) == table.births.confirmed(0) >= 1
        records = table.records.since(0)[0]
        born = records[records["kind"] == BIRTH]
        # A record may be written, and its order not counted: both say the same generation then.
        assert 1 <= len(born) <= 1 + died
        assert (born["returns"][:, 0] == table.births.ordered(0)).all()
        (newest,) = born_of(world, tmp_path / f"{death}.bin")
        assert (newest.generation, newest.parent) == (table.births.ordered(0), "b")
        assert newest.hyperparameters == population[A].hyperparameters
        assert newest.optimizer_steps == 101
        taken_over = table.births.newborn_training("a")
        assert pack(taken_over.state()) == pack(deaths.training_of("b", 1).state())
        games = table.word(MATCHES)
        world.turn()
        assert table.word(MATCHES) == games + deaths.COPIES
        if not died:
            break
    assert death > 100
