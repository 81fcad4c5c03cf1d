"""Births and retirements while a run goes on, in one process, by the real actor and learners."""

import math

import numpy as np
import pytest

from population.birth_worlds import FIRST, TREE, World
from refusals import refuses
from remuda.config import load_config, overlay
from remuda.errors import ConfigError, RemudaError
from remuda.policies.spec import first_weights
from remuda.population.directors.director import Birth, Freeze, Retire
from remuda.population.ledger.ledger import BIRTH, RETIRE
from remuda.population.ledger.records import PolicyRef
from remuda.population.roster import Roster
from remuda.population.setup import check_population
from remuda.system.rng import torch_rng
from remuda.system.scoreboard import Learn
from support import Script, Tape


class Fussy:
    def __init__(self, something):
        pass


def test_empty_slots_play_nothing_and_are_told():
    world = World()
    world.matches(20)
    assert world.names() == FIRST
    assert world.table.occupants.living == ("policy_0", "policy_1", "policy_2")
    assert set(world.assembly.playing()) == FIRST
    assert Script.seen[-1][0] == ("born_0", "born_1")
    assert world.assembly.experience["born_0"].written == 0


def test_a_copy_is_born_with_its_parents_weights_and_hyperparameters():
    world = World()
    world.matches(200)
    world.play(1, learn=False)  # the actor takes the weights that were published last
    parent = PolicyRef("policy_1")
    live = world.actor.seats.look("policy_1")
    weights, version = live.weights.copy(), live.version
    world.command(Birth("born_0", parent, {"learning_rate": 0.25}), Freeze("policy_1"), learn=False)
    world.matches(10, learn=False)
    assert "born_0" not in world.names() | world.seated()  # its learner has not begun
    assert 3 in world.table.births.expected
    assert np.array_equal(world.table.births.newborn_weights("born_0"), weights)
    learner, k = world.learner("born_0")
    before = learner.algorithm.updates[k]
    world.learners[0].work()
    assert np.array_equal(learner.algorithm.weights(k), weights)
    assert learner.algorithm.updates[k] == before
    ppo = learner.trainers[k].config.ppo
    assert learner.trainers[k].config.learning_rate == 0.25
    assert ppo.entropy_cost == 0.5  # its parent's
    world.matches(30)
    newborn = world.league.population[PolicyRef("born_0")]
    assert newborn.parent == PolicyRef("policy_1", version)
    assert newborn.hyperparameters["learning_rate"] == 0.25
    assert newborn.hyperparameters["ppo.entropy_cost"] == 0.5
    assert "born_0" in world.seated()
    (record,) = world.records(BIRTH)
    assert world.table.policies[record["policy"][0]] == "born_0"
    assert (record["oldest"][0], record["newest"][0]) == (1, version)
    world.matches(400)
    row = world.assembly.scoreboard.learn("born_0")
    assert row[Learn.UPDATES] > 5
    of_entropy = (
        row[Learn.POLICY_LOSS_SUM]
        + ppo.value_cost * row[Learn.VALUE_LOSS_SUM]
        - row[Learn.LOSS_SUM]
    )
    assert of_entropy == pytest.approx(0.5 * row[Learn.ENTROPY_SUM], rel=1e-3)
    assert newborn.games > 50
    # Of a frozen copy too, whatever its policy has become.
    copy = next(m for m in world.league.population.members if not m.learns)
    world.command(Birth("born_1", copy.ref))
    assert np.array_equal(
        world.table.births.newborn_weights("born_1"), world.table.snapshot(copy.slot).weights
    )


def test_settings_of_an_own_algorithm_are_born_with():
    own = "policies.own_algorithms:Vanilla"
    world = World(policy={"algorithm": own, "settings": {"push": 0.5}})
    world.command(Birth("born_0", PolicyRef("policy_0"), {"settings.push": 2.0}))
    world.matches(20)
    (newborn,) = (m for m in world.league.population.learning if m.ref.policy == "born_0")
    assert newborn.hyperparameters["settings.push"] == 2.0
    for policy, push in (("born_0", 2.0), ("policy_0", 0.5)):
        learner, k = world.learner(policy)
        assert float(learner.algorithm.settings_of("push", [k])) == push
    with refuses(RemudaError):
        world.command(Birth("born_1", None, {"settings.pull": 2.0}))


def test_a_policy_is_born_from_its_specification():
    world = World()
    world.matches(50)
    world.command(Birth("born_1"), learn=False)
    spec = next(spec for spec in world.specs if spec.name == "born_1")
    drawn = first_weights(spec, torch_rng(world.config.seed, "weights", "born_1", 1))
    assert np.array_equal(world.table.births.newborn_weights("born_1"), drawn)
    world.matches(60)
    newborn = world.league.population[PolicyRef("born_1")]
    assert newborn.parent is None
    assert newborn.hyperparameters["learning_rate"] == 0.125
    assert newborn.born > 0


def test_who_retires_plays_no_more_and_makes_room_for_another():
    world = World()
    world.matches(300)
    experience = world.assembly.experience["policy_2"]
    world.command(Birth("born_0", PolicyRef("policy_0")))
    world.matches(30)
    world.command(Retire(PolicyRef("policy_2")))
    assert "policy_2" not in world.names()
    world.matches(30)
    assert "policy_2" not in world.seated()
    assert world.table.occupants.living == ("policy_0", "policy_1", "born_0")
    assert "policy_2" in Script.seen[-1][0]
    assert {world.table.policies[p] for p in world.records(RETIRE)["policy"][:, 0]} == {"policy_2"}
    written = experience.written
    world.matches(100)
    assert experience.written == written
    # Another in its slot: nothing of the one before is left.
    learner, k = world.learner("policy_2")
    world.command(Birth("policy_2"), learn=False)
    assert experience.written == experience.overwritten == experience.lost
    assert (experience.rings[0].shared["committed"] == 0).all()
    assert learner.algorithm.optimizer.state(k)["steps"] > 0
    world.learners[0].work()
    assert learner.algorithm.optimizer.state(k)["steps"] == 0
    trained = world.assembly.scoreboard.learn("policy_2")[Learn.TRAINED]
    assert not learner.rollouts[k].ready()
    world.matches(300)
    newborn = world.league.population[PolicyRef("policy_2")]
    assert newborn.parent is None
    assert newborn.games < 300
    row = world.assembly.scoreboard.learn("policy_2")
    assert row[Learn.TRAINED] > trained
    assert row[Learn.LOST] == written - trained  # what the one before left
    assert row[Learn.TRAINED] - trained <= experience.written - written


def test_a_policy_without_which_there_is_no_match_does_not_retire():
    world = World()
    world.matches(20)
    world.command(Retire(PolicyRef("policy_2")), Retire(PolicyRef("policy_1")))
    assert world.names() == {"policy_0", "policy_1"}
    world.matches(20)
    assert len(world.records(RETIRE)) == 1


@pytest.mark.slow_cases("command4")
@pytest.mark.parametrize(
    "command",
    [
        Birth("policy_0"),
        Birth("unknown"),
        Birth("born_0", PolicyRef("policy_0", 77)),
        Birth("born_0", None, {"hidden": 3.0}),
        Birth("born_0", None, {"share_rewards": 1.5}),
        Birth("born_0", None, {"share_rewards": -0.1}),
        Birth("born_0", None, {"share_rewards": math.nan}),
        Birth("born_0", None, {"learning_rate": 0.0}),
        Birth("born_0", PolicyRef("policy_0"), {"ppo.clip": -1.0}),
        Birth("born_0", None, {"discount": "high"}),
    ],
)
def test_what_cannot_be_born_is_told(command):
    world = World()
    with refuses(RemudaError):
        world.command(command)


FREE = "population.births.every replaces policies that may take every seat"


@pytest.mark.parametrize(
    "population",
    [
        {"matchmaker": "fixed"},
        {"births": {"slots": 0, "every": 5}},
        {"director": "population.births.test_births:Missing"},
        {"births": {"every": 5}, "seats": {"policy_0": ["agent_0"], "policy_1": ["agent_1"]}},
        {"births": {"every": 5}, "seats": {"born_1": ["agent_0"]}},
        {"director": "nothing"},
        {"director": "population.births.test_births:Fussy"},
        {"director": "builtins:object"},
        {"policies": ("born_0", "b")},
    ],
)
def test_faults_of_the_configuration_are_told(population):
    config = load_config(overlay(TREE, {"population": population}) | {"policies": {}})
    agents = Tape().agents
    with refuses(ConfigError):
        check_population(config, Roster.of(config, agents))


def test_q_learners_are_born_too():
    policy = {
        "algorithm": "dqn",
        "n_frames": 1,
        "batch_size": 16,
        "network": {"hidden": (8,)},
        "experience": {"learning_starts": 64, "capacity": 500, "segment_length": 5},
        "exploration": {"start": 1.0, "end": 0.1, "decay_steps": 200},
    }
    tree = {"policy": policy, "policies": {"policy_1": {"discount": 0.5}}}
    tree["policies"]["policy_1"]["ppo"] = {}
    world = World(**tree)
    world.matches(200)
    world.command(Birth("born_0"))
    learner, k = world.learner("born_0")
    assert learner.epsilon(k) == 1.0
    world.matches(100)
    world.command(Retire(PolicyRef("born_0")))
    world.matches(20)
    assert learner.epsilon(k) < 1.0
    row = world.assembly.scoreboard.learn("born_0")
    updates = row[Learn.UPDATES]
    row[Learn.SAMPLES] = 0.0  # the one before was owed all of its training
    world.command(Birth("born_0", PolicyRef("policy_1")))
    world.play(1)
    assert learner.epsilon(k) > 0.9  # it explores anew
    lost = world.assembly.experience["born_0"].lost
    assert lost > 0
    assert learner.state("born_0")["begun"] == lost
    assert row[Learn.SAMPLES] >= lost * learner.trainers[k].config.experience.replay_ratio
    assert learner.replays[k].discount == 0.5
    assert learner.steps_needed(k) >= lost + 64
    world.matches(150)
    assert row[Learn.UPDATES] > updates


def test_a_checkpoint_of_another_policy_in_its_slot_is_left_aside():
    world = World()
    world.matches(200)
    group = world.learners[0]
    before = group.state("policy_2")
    world.command(Birth("born_0", PolicyRef("policy_0")))
    world.matches(30)
    world.command(Retire(PolicyRef("policy_2")))
    world.matches(30)
    world.command(Birth("policy_2", PolicyRef("policy_1")))
    world.matches(60)
    learner, k = world.learner("policy_2")
    weights = learner.algorithm.weights(k).copy()
    group.restore("policy_2", before)
    assert np.array_equal(learner.algorithm.weights(k), weights)
    group.restore("policy_1", group.state("policy_1"))  # its own is taken
    # Nor does its experience come back, where it was saved before and the table after.
    saved = world.table.state()["orders"][2, 0]
    assert before["generation"] != saved == group.state("policy_2")["generation"]


def test_no_policy_waits_for_an_empty_slot():
    """A stack trains as soon as those who are there have their rollouts, all together."""
    world = World(schedule="async")  # else each policy is trained by itself, and waits for none
    learner, _ = world.learner("policy_0")
    assert "born_0" in learner.policies  # one stack
    there = [r for n, r in zip(learner.policies, learner.rollouts, strict=True) if n in FIRST]
    while not all(rollouts.ready() for rollouts in there):
        assert not learner.ready()
        world.play(1, learn=False)
    assert not any(rollouts.experience.is_urgent for rollouts in there)
    assert learner.ready()
    assert learner.all_ready()
    world.learners[0].work()
    updates = [world.assembly.scoreboard.learn(name)[Learn.UPDATES] for name in sorted(FIRST)]
    assert updates == [1, 1, 1]
