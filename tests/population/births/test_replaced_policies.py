"""Policies that retire and are replaced, and what is left of them."""

import json
import os

import numpy as np
import pytest

from assembled import spec_of
from population.birth_worlds import FIRST, TREE, World
from refusals import refuses
from remuda.assembly.assembly import Assembly
from remuda.config import BirthsConfig, load_config, overlay
from remuda.coordinator.best_checkpoint import CheckpointPlay
from remuda.coordinator.checkpointing import Checkpointer
from remuda.errors import CheckpointError, ConfigError
from remuda.policies.compatibility import check_births
from remuda.population.directors.director import Birth, Replacement, Retire
from remuda.population.ledger.records import Member, PolicyRef, Population
from remuda.population.members.table_parts import MATCHES
from remuda.population.specs import policy_specs
from remuda.runs.run_directory import RunDirectory
from remuda.runs.saved_weights import load_run
from remuda.system.checkpoint.names import COORDINATOR
from remuda.system.checkpoint.store import Manifest
from remuda.training.run import train
from remuda.ui.cli.main import run as cli
from remuda.ui.terminal.live import PlainView
from support import Script, Tape


def test_policies_may_retire_where_none_can_be_born(tmp_path):
    config = load_config(
        overlay(
            TREE,
            {
                "population": {"births": {"slots": 0}, "snapshots": {"every": None}},
                "run": {"turns": 400, "evaluate_episodes": 4, "directory": tmp_path / "run"},
                "checkpoint": {"evaluate_episodes": 2},
            },
        )
        | {"policies": {}}
    )
    Script.commands = [Retire(PolicyRef("policy_1"))]
    result = train(config, PlainView())
    assert set(result.evaluation.policies) == {"policy_0", "policy_2"}
    assert set(load_run(RunDirectory.open(tmp_path / "run"))[1]) == {"policy_0", "policy_2"}


def test_of_a_run_that_ends_while_a_policy_leaves_the_final_weights_are_loaded(
    tmp_path, monkeypatch
):
    """One that has retired and plays its last match has no weights of the end."""
    tables, make, take = [], Assembly.__init__, Checkpointer.take

    def made(self, *words, **options):
        make(self, *words, **options)
        tables.append(self.table)

    def taken(self, *words):
        tables[-1].occupants.leave(0)
        return take(self, *words)

    monkeypatch.setattr(Assembly, "__init__", made)
    monkeypatch.setattr(Checkpointer, "take", taken)
    tree = {
        "run": {"turns": 100, "evaluate_episodes": 0, "directory": tmp_path / "run"},
        "checkpoint": {"evaluate_episodes": 0},
    }
    Script.commands = []
    train(load_config(overlay(TREE, tree)), PlainView())
    run = RunDirectory.open(tmp_path / "run")
    for name in ("policy_1", "policy_2"):  # other weights than those of the checkpoint
        tensors, told = run.load_weights(name)
        run.save_weights(name, {key: np.full_like(t, 0.5) for key, t in tensors.items()}, told)
    found = load_run(run)[1]
    assert set(found) == {"policy_1", "policy_2"}
    assert all((snapshot.weights == 0.5).all() for snapshot in found.values())


def take_checkpoint(run, world):
    """The coordinator's part of one is all that judging reads; returns the number."""
    number = run.checkpoints.begin()
    run.checkpoints.write(number, COORDINATOR, world.assembly.state())
    turns = world.table.word(MATCHES)
    run.checkpoints.commit(Manifest(number, turns, 1.0, exact=True, config={}, files={}))
    return number


def test_the_best_so_far_plays_with_the_policies_that_it_had(tmp_path, monkeypatch):
    """It played with those of today's names: so did `born_0`, before a learner had trained it."""
    world, run = World(), RunDirectory(tmp_path / "run")
    lived = {}
    for command in (None, Birth("born_0", PolicyRef("policy_0")), Retire(PolicyRef("policy_1"))):
        if command is not None:
            world.command(command)
        world.matches(20)
        lived[take_checkpoint(run, world)] = world.names()
    assert lived == {1: FIRST, 2: {*FIRST, "born_0"}, 3: {*FIRST, "born_0"} - {"policy_1"}}
    found = []
    monkeypatch.setattr(
        "remuda.coordinator.best_checkpoint.margin",
        lambda _, one, other, *__: found.append(set(other)) or 0.0,
    )
    judge = CheckpointPlay(spec_of(world.config), run)
    for today in lived.values():
        for number in lived:
            judge.challenge(dict.fromkeys(today), number)
    assert found == 3 * list(lived.values())


@pytest.mark.slow_cases("is of format 0")
@pytest.mark.parametrize("harm", ["is damaged", "is of format 0"])
def test_final_weights_need_no_checkpoint(harm, tmp_path):
    """Who lived at the end was read from the newest checkpoint, and so was its damage."""
    tree = {
        "run": {"turns": 600, "evaluate_episodes": 0, "directory": tmp_path / "run"},
        "checkpoint": {"evaluate_episodes": 0},
    }
    Script.commands = [Birth("born_0", PolicyRef("policy_0")), Retire(PolicyRef("policy_1"))]
    train(load_config(overlay(TREE, tree)), PlainView())
    run = RunDirectory.open(tmp_path / "run")
    before = load_run(run)[1]
    path = run.checkpoints.path / f"{run.checkpoints.numbers()[-1]:06d}" / "manifest.json"
    path.write_text("" if harm == "is damaged" else json.dumps({"format": 0}))
    found = load_run(run)[1]
    assert set(found) == set(before) == {"policy_0", "policy_2", "born_0"}
    assert all(np.array_equal(found[name].weights, before[name].weights) for name in found)
    # A file of a policy that retired before, which was not removed, is older and says nothing.
    stale = run.weights / "policy_1.safetensors"
    tensors, facts = run.load_weights("policy_0")
    run.save_weights("policy_1", tensors, facts | {"policies": "policy_0\npolicy_1\npolicy_2"})
    os.utime(stale, (0, 0))
    assert set(load_run(run)[1]) == set(before)
    run.keep_weights(before)
    assert not stale.exists()
    assert all(run.has_weights(name) for name in before)
    (run.weights / "born_0.safetensors").unlink()  # the end was cut while weights were saved
    with refuses(CheckpointError):
        load_run(run)


@pytest.mark.slow
def test_a_tournament_of_a_run_with_births(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tree = {
        "run": {"turns": 600, "evaluate_episodes": 0, "directory": tmp_path / "run"},
        "checkpoint": {"evaluate_episodes": 0},
    }
    Script.commands = [Birth("born_0", PolicyRef("policy_0")), Retire(PolicyRef("policy_1"))]
    train(load_config(overlay(TREE, tree)), PlainView())
    assert cli(["tournament", str(tmp_path / "run"), "--episodes", "4"]) == 0


def test_policies_that_cannot_be_copies_of_each_other_are_refused():
    tree = {"population": {"births": {"every": 10}}, "policies": {"policy_1": {"n_frames": 2}}}
    config = load_config(overlay(TREE, tree))
    with refuses(ConfigError):
        check_births(config, policy_specs(config, Tape().agents))


def judged(*ratings, empty=("born_0",), games=10):
    """A population of these ratings."""
    population = Population([Member(PolicyRef(f"p{i}")) for i in range(len(ratings))])
    for member, rating in zip(population.members, ratings, strict=True):
        member.rate(rating, 1.0)
        member.numbers[0] = games
    population.empty = empty
    return population


def test_the_best_has_a_child_and_the_weakest_makes_room_once_it_plays():
    director = Replacement(BirthsConfig(slots=1, every=100, games=10))
    population = judged(20.0, 30.0, 25.0)
    population.matches = 99
    assert director.step(population, None, {}) == []
    population.matches = 100
    assert director.step(population, None, {}) == [Birth("born_0", PolicyRef("p1"))]
    population.matches, population.empty, population.expected = 300, (), ("born_0",)
    assert director.step(population, None, {}) == []  # the child does not play yet
    population.empty, population.expected = ("born_0",), ()
    successor = Replacement(BirthsConfig(slots=1, every=100, games=10))
    successor.restore(director.state())
    # An actor that died before it ordered the child leaves its slot empty.
    forgetful = Replacement(BirthsConfig(slots=1, every=100, games=10))
    forgetful.restore(director.state())
    assert forgetful.step(population, None, {}) == []
    population.matches = 400
    assert forgetful.step(population, None, {}) == [Birth("born_0", PolicyRef("p1"))]
    population.empty = ()
    population.add(Member(PolicyRef("born_0")))
    assert successor.step(population, None, {}) == [Retire(PolicyRef("p0"))]


def test_only_who_may_take_every_seat_is_replaced():
    director = Replacement(BirthsConfig(slots=1, every=100, games=10))
    population = judged(20.0, 30.0, 25.0, 28.0)
    for name, seat in (("p0", 0), ("p1", 1)):
        population[PolicyRef(name)].seats = frozenset({seat})
    population.matches = 100
    assert director.step(population, None, {}) == [Birth("born_0", PolicyRef("p3"))]
    population.add(Member(PolicyRef("born_0")))
    population.empty = ()
    assert director.step(population, None, {}) == [Retire(PolicyRef("p2"))]


def test_no_policy_is_replaced_before_it_has_played_nor_among_equals():
    director = Replacement(BirthsConfig(slots=1, every=100, games=11))
    population = judged(20.0, 30.0)
    population.matches = 100
    assert director.step(population, None, {}) == []
    director = Replacement(BirthsConfig(slots=1, every=100, games=10))
    population = judged(25.0, 25.0)
    population.matches = 100
    assert director.step(population, None, {}) == []


def test_where_every_slot_is_taken_the_weakest_makes_room_first():
    director = Replacement(BirthsConfig(slots=1, every=100, games=10))
    population = judged(20.0, 30.0, 25.0, empty=())
    population.matches = 100
    assert director.step(population, None, {}) == [Retire(PolicyRef("p0"))]
    # It plays its match to the end before its slot is empty; no other goes meanwhile.
    population.retire(PolicyRef("p0"))
    for matches in (101, 200, 300):
        population.matches, population.leaving = matches, ("p0",)
        assert director.step(population, None, {}) == []
    population.empty, population.leaving, population.matches = ("p0",), (), 400
    assert director.step(population, None, {}) == [Birth("p0", PolicyRef("p1"))]
