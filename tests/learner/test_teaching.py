"""Newborn policies that are taught what their parents do, before they play."""

import numpy as np
import pytest
import torch

from population import test_inherited_training as inherited
from population.birth_worlds import World
from remuda.checkpoint.state import pack, unpack
from remuda.errors import RemudaError
from remuda.evolution.teach import lesson_of, taught_loss, taught_outputs
from remuda.experience.block import Block
from remuda.learner import teaching
from remuda.learner.teaching import Teaching
from remuda.policies.sharing import stream_shape
from remuda.population.director import Birth, Retire
from remuda.population.learner_births import Newborn
from remuda.population.lessons import Lesson, Lessons, states_of
from remuda.population.records import PolicyRef
from remuda.scoreboard import Learn

ONE, TWO, STEPS = PolicyRef("policy_1"), PolicyRef("policy_0"), 60
BIRTH = Birth("born_0", ONE, {}, second=TWO, inherits_training=True, distillation=STEPS)
EVOLUTION = {
    "population": {
        "evolution": {"every": 10**9, "networks": "any", "distil": STEPS, "distil_states": 100}
    }
}
KINDS = inherited.KINDS


def made(kind, **more):
    world = World(**{**EVOLUTION, **KINDS[kind], **more})
    world.matches(200)
    return world


def spec_of(world, policy):
    return next(spec for spec in world.specs if spec.name == policy)


def distance(world, weights, lessons):
    """How far what these weights do is from what the parents do, over all of their states."""
    spec = spec_of(world, "born_0")
    outputs, loss = taught_outputs(spec.network()), taught_loss(spec, lessons.of_parents)
    with torch.no_grad():
        found = [
            loss(
                outputs(torch.from_numpy(weights), torch.from_numpy(each.states)),
                torch.from_numpy(each.targets),
            ).mean()
            for each in lessons.of_parents
        ]
    return float(sum(found)) / len(found)


def until_begun(world):
    """Let its learner teach the newborn to the end, while nobody plays; returns its pieces."""
    births, pieces = world.table.births, 0
    while births.ordered(3) != births.confirmed(3):
        assert world.learners[0].work()
        pieces += world.learners[0]._taught is not None
    return pieces


@pytest.mark.parametrize("kind", KINDS)
def test_a_newborn_does_what_both_of_its_parents_do_each_in_its_own_states(kind):
    world = made(kind)
    world.command(BIRTH, learn=False)
    births = world.table.births
    lessons, begun = births.newborn_lessons("born_0"), births.newborn_weights("born_0")
    assert lessons.steps == STEPS
    assert len(lessons.of_parents) == 2
    reader = world.assembly.published.reader()
    for parent, lesson in zip((ONE, TWO), lessons.of_parents, strict=True):
        assert 10 < len(lesson.states) <= 100
        weights = reader.newest(parent.policy).weights
        again = lesson_of(spec_of(world, parent.policy), weights, lesson.states)
        np.testing.assert_array_equal(again.targets, lesson.targets)
        ring = world.assembly.experience[parent.policy].rings[0]
        lived = ring.shared["observations"].reshape(-1, 5)
        assert all((lived == state).all(1).any() for state in lesson.states)
    before = distance(world, begun, lessons)
    until_begun(world)
    found, k = world.learner("born_0")
    assert distance(world, found.algorithm.weights(k), lessons) < 0.7 * before
    assert found.algorithm.optimizer.state(k)["steps"] == 0
    assert np.array_equal(inherited.published(world, "born_0").weights, found.algorithm.weights(k))
    if kind == "dqn":
        assert np.array_equal(found.algorithm.learned(k)["target"], found.algorithm.weights(k))
    world.matches(60)
    assert world.league.population[PolicyRef("born_0")].games > 0


def test_others_are_trained_meanwhile_and_no_piece_takes_long(monkeypatch):
    """Red where a newborn is taught in one go: the others of its process stand still."""
    monkeypatch.setattr(teaching, "PIECE_SECONDS", 0.0)  # a step at a time
    world = made("dqn")
    world.command(BIRTH, learn=False)
    updates = world.assembly.scoreboard.learn("policy_2")
    before, during, pieces = updates[Learn.UPDATES], 0, 0
    while world.table.births.ordered(3) != world.table.births.confirmed(3):
        world.play(1, learn=False)  # the game goes on
        for _ in range(4):
            world.learners[0].work()
            if world.learners[0]._taught is not None:
                pieces, during = pieces + 1, updates[Learn.UPDATES] - before
    assert pieces >= STEPS
    assert during > 0
    assert PolicyRef("born_0") not in world.league.population


@pytest.mark.parametrize("stride", [31, pytest.param(7, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_learner_that_dies_at_any_line_of_it_teaches_the_same_again(kind, stride, monkeypatch):
    monkeypatch.setattr(inherited, "WATCHED", inherited.WATCHED | {teaching.__file__})
    monkeypatch.setattr(teaching, "PIECE_SECONDS", 0.0)
    policy = {**KINDS[kind].get("policy", {}), "publish": {"every": 1}}
    world = made(kind, policy=policy)
    deaths, line = 0, 0
    for number in range(10_000):
        if number:
            world.command(Retire(PolicyRef("born_0")))
            while "born_0" not in world.league.population.empty:
                world.matches(10)
        steps = 3
        birth = Birth("born_0", ONE, {}, second=TWO, inherits_training=True, distillation=steps)
        world.command(birth, learn=False)
        newborn = world.learners[0]._births.newborn("born_0")
        (role,) = world.assembly.roles()[1:]
        alone = role._teaching("born_0", newborn, world.table.births.ordered(3))
        while not alone.done:
            alone.piece()
        wanted = alone.taught(newborn)
        left, died = line, False
        while world.table.births.ordered(3) != world.table.births.confirmed(3):
            if not died and inherited.work_and_die(world.learners[0], left):
                died = True
                world.learners[:] = [inherited.successor(world)]
                continue
            left = max(left - 40, 0)  # further on, in another piece
            if died:
                world.learners[0].work()
        line += stride
        deaths += died
        state = inherited.learned(world, "born_0")
        assert np.array_equal(state["online"], wanted.weights)
        assert state["optimizer"]["steps"] == 0
        assert np.array_equal(inherited.published(world, "born_0").weights, wanted.weights)
        world.matches(10)
        if not died or number > 60:
            break
    assert deaths > 10


def test_one_parent_teaches_where_networks_differ_and_not_where_they_are_equal():
    own = {"policies": {"born_0": {"network": {"hidden": (4,)}}}}
    world = World(**EVOLUTION, **own)
    world.matches(150)
    for place, policy in ((3, "born_0"), (4, "born_1")):
        world.command(Birth(policy, ONE, distillation=STEPS), learn=False)
        lessons = world.table.births.newborn_lessons(policy)
        assert (lessons is not None) == (policy == "born_0")
        assert world.table.births.ordered(place) == 1
    lessons = world.table.births.newborn_lessons("born_0")
    assert len(lessons.of_parents) == 1
    before = distance(world, world.table.births.newborn_weights("born_0"), lessons)
    until_begun(world)
    found, k = world.learner("born_0")
    assert distance(world, found.algorithm.weights(k), lessons) < before


def test_who_cannot_be_taught_begins_untaught(caplog):
    world = made("ppo")
    spec = spec_of(world, "born_0")
    size = len(inherited.published(world, "policy_1").weights)
    states = np.zeros((4, 5), np.float32)
    lesson = Lesson(states, np.full((4, 5), 1e30, np.float32))
    newborn = Newborn(np.full(size, 0.25, np.float32), {}, None, Lessons(3, (lesson,)))
    begun = Teaching(spec, newborn, np.random.default_rng(0))
    while not begun.done:
        begun.piece()
    found = begun.taught(newborn)
    assert found.lessons is None
    assert np.isfinite(found.weights).all()
    if not np.array_equal(found.weights, newborn.weights):
        pytest.fail("it was taught by what is not finite")
    assert "begins untaught" in caplog.text


def test_where_there_is_no_room_for_lessons_none_is_taught():
    world = World()
    world.matches(30)
    with pytest.raises(RemudaError, match=r"set population\.evolution\.distil, or leave it out"):
        world.command(Birth("born_0", ONE, second=TWO, distillation=5))


def test_a_place_is_not_kept_empty_for_hours_of_teaching():
    world = made("ppo")
    with pytest.raises(RemudaError, match=r"1000000 steps of distillation, .* may be 100000"):
        world.command(Birth("born_0", ONE, second=TWO, distillation=10**6))


def test_lessons_come_back_with_a_checkpoint():
    world = made("ppo")
    world.command(BIRTH, learn=False)
    state = unpack(pack(world.assembly.state()))["population"]
    other = World(**EVOLUTION, **KINDS["ppo"])
    other.table.restore(state)
    wanted = world.table.births.newborn_lessons("born_0")
    found = other.table.births.newborn_lessons("born_0")
    assert found.steps == wanted.steps
    for one, two in zip(found.of_parents, wanted.of_parents, strict=True):
        np.testing.assert_array_equal(one.states, two.states)
        np.testing.assert_array_equal(one.targets, two.targets)
    assert other.table.births.newborn_lessons("born_1") is None


def test_states_are_drawn_from_committed_steps_of_whole_segments_with_equal_chances():
    shape = stream_shape(spec_of(World(), "policy_0"))
    block = Block(shape, 1, 4, 3)
    ring = block.row(0)
    ring["observations"][...] = np.arange(3 * 5).reshape(3, 5, 1)
    ring["committed"][...], ring["sequence"][...] = (2, 4, 3), (2, 2, 3)  # the last is torn
    drawn = states_of([ring], 100, 1, np.random.default_rng(0))
    assert sorted(drawn[:, 0].tolist()) == [0, 1, 5, 6, 7, 8]  # each once
    assert drawn.shape == (6, 5)
    two = states_of([ring, ring], 5, 2, np.random.default_rng(0))
    assert two.shape == (5, 10)
    assert (two[:, 5] == two[:, 0] + 1).all()
    counts = np.zeros(9)
    for seed in range(600):
        (state,) = states_of([ring], 1, 1, np.random.default_rng(seed))
        counts[int(state[0])] += 1
    assert (np.abs(counts[[0, 1, 5, 6, 7, 8]] - 100) < 5 * np.sqrt(100 * 5 / 6)).all()
    ring["committed"][...] = 0
    assert states_of([ring], 5, 2, np.random.default_rng(0)).shape == (0, 10)
    assert len(states_of([], 5, 1, np.random.default_rng(0))) == 0
