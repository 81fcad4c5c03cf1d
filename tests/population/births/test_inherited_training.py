"""Newborn policies that are trained on as their parents are, by the real actor and learners."""

import numpy as np
import pytest
import torch

from line_deaths import AtLine
from population.birth_worlds import World
from refusals import refuses
from remuda.errors import RemudaError
from remuda.learner import group, learner, replay, rollouts
from remuda.learner.role import LearnerRole
from remuda.policies.algorithms import algorithm, rollout_algorithm, transition_algorithm
from remuda.population.births import inheritance
from remuda.population.directors.director import Birth, Freeze, Retire
from remuda.population.ledger.ledger import LedgerFile
from remuda.population.ledger.lineage import read_lineage
from remuda.population.ledger.records import PolicyRef
from remuda.population.members import births
from remuda.publish import snapshot, training_state
from remuda.system.checkpoint.state import pack, unpack

PARENT = PolicyRef("policy_1")
EVOLUTION = {"population": {"evolution": {"every": 10**9}}}
Q_LEARNERS = {
    "policy": {
        "algorithm": "dqn",
        "n_frames": 1,
        "batch_size": 16,
        "network": {"hidden": (8,)},
        "dqn": {"target_every": 7},
        "experience": {"learning_starts": 64, "capacity": 500, "segment_length": 5},
        "exploration": {"start": 1.0, "end": 0.1, "decay_steps": 1000},
    },
    "policies": {"policy_1": {"ppo": {}}},
}
ANNEALED = {"policy": {"ppo": {"anneal_steps": 10_000, "normalise_rewards": True}}}
KINDS = {"ppo": ANNEALED, "dqn": Q_LEARNERS}


OF_VALUES = {key: value for key, value in Q_LEARNERS["policy"].items() if key != "dqn"}
GATED = {"hidden": (8,), "recurrent": 4}
OTHERS = {
    "own algorithm": {"algorithm": "policies.own_algorithms:Soft"},
    "iqn": {"algorithm": "iqn", "iqn": {"quantiles": 4}},
    "dqn with a state": {"network": GATED},
    "ppo with a state": {"network": GATED},
}
for _name, _policy in OTHERS.items():
    if _name.startswith("ppo"):
        OTHERS[_name] = {"policy": _policy}
    else:
        OTHERS[_name] = Q_LEARNERS | {"policy": OF_VALUES | _policy}


def made(kind):
    """A world in which policies have learned for a while."""
    world = World(**EVOLUTION, **(KINDS | OTHERS)[kind])
    world.matches(200)
    return world


def published(world, policy):
    return world.assembly.published.reader().newest(policy, training=True)


def lineage(world, path):
    table = world.table
    file = LedgerFile(path, table.names, 2, table.hyperparameters.names)
    file.append(table.records.since(0)[0])
    return {born.policy: born for born in read_lineage(path)}


def learned(world, policy):
    """All that a policy has learned, without the count of updates, which belongs to the slot."""
    found, k = world.learner(policy)
    state = found.algorithm.learned(k)
    state.pop("updates")
    if "returns" in state:
        state["returns"] = state["returns"]["moments"]
    return state


@pytest.mark.parametrize("kind", KINDS)
def test_a_newborn_goes_on_from_all_that_its_parent_published(kind, tmp_path):
    world = made(kind)
    world.command(Birth("born_0", PARENT, {"learning_rate": 0.25}, inherits_training=True), learn=0)
    parent = published(world, "policy_1")
    steps = parent.training.numbers["steps"]
    assert steps > 0
    world.play(1, learn=False)
    world.learners[0].work()
    state = learned(world, "born_0")
    assert np.array_equal(state["online"], parent.weights)
    for name in ("mean", "square"):
        assert np.array_equal(state["optimizer"][name], parent.training.vectors[name])
    assert state["optimizer"]["steps"] == steps
    found, k = world.learner("born_0")
    assert found.trainers[k].config.learning_rate == 0.25
    if kind == "ppo":
        assert state["trained"] == parent.training.numbers["trained"] > 0
        assert state["returns"][2] == parent.training.numbers["return_count"] > 0
    else:
        assert np.array_equal(state["target"], parent.training.vectors["target"])
        assert not np.array_equal(state["target"], parent.weights)
        # It explores as much as its parent did.
        assert found.epsilon(k) == pytest.approx(parent.epsilon)
        assert 0.1 < parent.epsilon < 0.9
    born = lineage(world, tmp_path / "ledger.bin")["born_0"]
    assert born.optimizer_steps == steps
    assert born.parent_version == parent.version
    world.matches(60)
    assert learned(world, "born_0")["optimizer"]["steps"] > steps
    assert PolicyRef("born_0") in world.league.population


@pytest.mark.slow_cases("dqn with a state", "ppo with a state")
@pytest.mark.parametrize("kind", OTHERS)
def test_every_algorithm_hands_on_how_it_is_trained(kind):
    world = made(kind)
    world.command(Birth("born_0", PARENT, inherits_training=True), learn=False)
    parent = published(world, "policy_1")
    world.learners[0].work()
    state = learned(world, "born_0")
    assert np.array_equal(state["online"], parent.weights)
    assert state["optimizer"]["steps"] == parent.training.numbers["steps"] > 0
    for name, vector in parent.training.vectors.items():
        held = state["target"] if name == "target" else state["optimizer"][name]
        assert np.array_equal(held, vector)
    world.matches(60)
    assert PolicyRef("born_0") in world.league.population


@pytest.mark.parametrize(
    "how",
    [
        {"mutation": 0.1},
        {"second": PolicyRef("policy_0"), "crossover": 0.5},
        {"inherits_training": False},
    ],
)
def test_moments_begin_anew_where_weights_are_not_the_parents(how, tmp_path):
    world = made("ppo")
    world.command(Birth("born_0", PARENT, **{"inherits_training": True} | how), learn=False)
    world.learners[0].work()
    state = learned(world, "born_0")
    assert state["optimizer"]["steps"] == 0
    assert not state["optimizer"]["mean"].any()
    assert (state["trained"] > 0) == how.get("inherits_training", True)  # schedules go on
    assert lineage(world, tmp_path / "ledger.bin")["born_0"].optimizer_steps == 0


def test_a_frozen_parent_has_nothing_but_weights(tmp_path):
    world = made("ppo")
    world.command(Freeze("policy_1"))
    world.matches(10)
    copy = next(m for m in world.league.population.members if not m.learns)
    world.command(Birth("born_0", copy.ref, inherits_training=True), learn=False)
    world.learners[0].work()
    state = learned(world, "born_0")
    assert np.array_equal(state["online"], world.table.snapshot(copy.slot).weights)
    assert state["optimizer"]["steps"] == state["trained"] == 0


def test_where_training_is_not_published_none_is_inherited():
    world = World()
    world.matches(50)
    with refuses(RemudaError, "population.evolution.inherit"):
        world.command(Birth("born_0", PARENT, inherits_training=True))


def successor(world):
    """Another learner process, as supervision starts one after the death of the first."""
    (role,) = [role for role in world.assembly.roles() if isinstance(role, LearnerRole)]
    return role.build()


@pytest.mark.parametrize("kind", KINDS)
def test_a_successor_without_a_checkpoint_goes_on_from_the_last_publication(kind):
    """Red before: its optimizer began anew, and so did its schedules."""
    world = made(kind)
    world.command(Birth("born_0", PARENT, inherits_training=True))
    world.matches(100)
    names = ("policy_1", "born_0")
    for name in names:  # what was trained since the last publication is lost with the learner
        found, k = world.learner(name)
        found.publish_policy(k) if kind == "dqn" else found.trainers[k].publish(1.0)
    before = {name: pack(learned(world, name)) for name in names}
    epsilons = {n: f.epsilon(k) for n in names for f, k in [world.learner(n)] if kind == "dqn"}
    world.learners[:] = [successor(world)]
    for name in names:
        assert pack(learned(world, name)) == before[name]
    for name, epsilon in epsilons.items():
        found, k = world.learner(name)
        assert found.epsilon(k) == epsilon


WATCHED = (
    algorithm,
    births,
    group,
    learner,
    inheritance,
    replay,
    rollout_algorithm,
    rollouts,
    snapshot,
    training_state,
    transition_algorithm,
)


def work_and_die(learners, line):
    """Let a learner carry out a birth, unless it dies at this line of it; whether it died."""
    with AtLine(line, WATCHED) as crash:
        learners.work()
    torch.set_grad_enabled(True)  # it may have died as it left `torch.no_grad`
    return crash.reached


@pytest.mark.slow_cases("dqn-snapshot-5", "ppo-double_buffer-5", "ppo-snapshot-5")
@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", ["snapshot", "double_buffer"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_learner_that_dies_at_any_line_of_a_birth_loses_none_of_it(kind, mode, stride):
    """Its successor begins with what was ordered; and so does whoever is killed in its stead."""
    tree = KINDS[kind]
    policy = {**tree.get("policy", {}), "publish": {"mode": mode, "every": 1}}
    world = World(**EVOLUTION, **{**tree, "policy": policy})
    world.matches(120)
    deaths, line = 0, 0
    for number in range(10_000):
        if number:
            world.command(Retire(PolicyRef("born_0")))
            while "born_0" not in world.league.population.empty:
                world.matches(10)
        world.command(Birth("born_0", PARENT, inherits_training=True), learn=False)
        ordered = world.table.births
        weights, training = ordered.newborn_weights("born_0"), ordered.newborn_training("born_0")
        while world.learners[0].births.pending() is None:
            world.play(1, learn=False)
        died = work_and_die(world.learners[0], line)
        line += stride
        deaths += died
        if died:
            world.learners[:] = [successor(world)]
        while world.learners[0].births.pending() is not None:
            world.learners[0].work()
        state = learned(world, "born_0")
        assert np.array_equal(state["online"], weights)
        for name in ("mean", "square"):
            assert np.array_equal(state["optimizer"][name], training.vectors[name])
        assert state["optimizer"]["steps"] == training.numbers["steps"] > 0
        if kind == "ppo":
            assert state["trained"] == training.numbers["trained"]
        else:
            found, k = world.learner("born_0")
            assert np.array_equal(state["target"], training.vectors["target"])
            assert found.explored(k) == training.numbers["explored"]
        found = published(world, "born_0")
        assert np.array_equal(found.weights, weights)
        assert np.array_equal(found.training.vectors["mean"], training.vectors["mean"])
        assert ordered.ordered(3) == ordered.confirmed(3)
        world.matches(10)
        if not died:
            break
    assert deaths > 100 / stride


@pytest.mark.parametrize("kind", KINDS)
def test_a_birth_that_was_ordered_comes_back_with_a_checkpoint(kind):
    world = made(kind)
    world.command(Birth("born_0", PARENT, inherits_training=True), learn=False)
    ordered = world.table.births.newborn_training("born_0").state()
    state = unpack(pack(world.assembly.state()))
    other = World(**EVOLUTION, **KINDS[kind])
    other.table.restore(state["population"])
    assert pack(other.table.births.newborn_training("born_0").state()) == pack(ordered)
    assert other.table.births.newborn_training("born_1") is None
    kept = state["published"]["policy_1"]["training"]["vectors"]["mean"]
    assert np.array_equal(kept, published(world, "policy_1").training.vectors["mean"])
