"""Newborn policies whose parents have another network, by the real actor and learners."""

import numpy as np
import torch

from evolving import outputs_of
from population.birth_worlds import World
from refusals import refuses
from remuda.errors import RemudaError
from remuda.policies.spec import first_weights
from remuda.population.directors.director import Birth
from remuda.population.evolution.weights import WeightLayout
from remuda.population.ledger.records import PolicyRef
from remuda.system.rng import torch_rng

PARENT = PolicyRef("policy_1")
NETWORKS = {
    "policies": {
        "policy_2": {"network": {"hidden": (6, 5)}},
        "born_0": {"network": {"hidden": (12,)}},
        "born_1": {"network": {"hidden": (4,)}},
    },
    "population": {"evolution": {"every": 10**9, "networks": "any"}},
    "policy": {"ppo": {"anneal_steps": 10_000}},
}


def played(**tree):
    world = World(**{**NETWORKS, **tree})
    world.matches(150)
    return world


def spec_of(world, policy):
    return next(spec for spec in world.specs if spec.name == policy)


def outputs(world, policy, weights):
    states = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        return outputs_of(spec_of(world, policy).network())(torch.from_numpy(weights), states)


def test_a_wider_newborn_plays_as_its_parent_does_and_learns_on():
    world = played()
    command = Birth("born_0", PARENT, {"learning_rate": 0.25}, inherits_training=True)
    world.command(command, learn=False)
    parent = world.assembly.published.reader().newest("policy_1", training=True)
    begun = world.table.births.newborn_weights("born_0")
    torch.testing.assert_close(
        outputs(world, "born_0", begun), outputs(world, "policy_1", parent.weights)
    )
    found, k = world.learner("born_0")
    for learners in world.learners:
        learners.work()
    assert np.array_equal(found.algorithm.weights(k), begun)
    # Its parent's moments fit no other network, and its schedules do.
    assert found.algorithm.optimizer.state(k)["steps"] == 0
    assert found.algorithm.learned(k)["trained"] == parent.training.numbers["trained"] > 0
    world.matches(150)
    newborn = world.league.population[PolicyRef("born_0")]
    assert newborn.parent == PolicyRef("policy_1", parent.version)
    assert newborn.games > 0
    assert found.algorithm.optimizer.state(k)["steps"] > 0
    assert not np.array_equal(found.algorithm.weights(k), begun)
    # And it may be a parent itself, of one in a slot like its parent's.
    world.command(Birth("born_1", PolicyRef("born_0")), learn=False)
    theirs = world.assembly.published.reader().newest("born_0").weights
    mine = WeightLayout.of(spec_of(world, "born_1").network())
    first = mine.tensors(world.table.births.newborn_weights("born_1"))["policy_hidden0.weight"]
    other = WeightLayout.of(spec_of(world, "born_0").network()).tensors(theirs)[
        "policy_hidden0.weight"
    ]
    np.testing.assert_array_equal(first, other[:, :4])


def test_what_is_not_its_parents_is_drawn_as_its_slot_has_it():
    world = played()
    for policy in ("born_0", "born_1"):
        world.command(Birth(policy, PolicyRef("policy_2")), learn=False)
        spec = spec_of(world, policy)
        drawn = first_weights(spec, torch_rng(world.config.seed, "weights", policy, 1))
        layout = WeightLayout.of(spec.network())
        begun = layout.tensors(world.table.births.newborn_weights(policy))
        fresh = layout.tensors(drawn)
        # Of two hidden layers the newborn has the first; what reads it read the second before.
        np.testing.assert_array_equal(begun["policy.weight"], fresh["policy.weight"])
        np.testing.assert_array_equal(
            begun["policy_hidden0.weight"][:, 6:], fresh["policy_hidden0.weight"][:, 6:]
        )
        assert not np.isclose(
            begun["policy_hidden0.weight"][:, :4], fresh["policy_hidden0.weight"][:, :4]
        ).any()


def test_layers_of_a_second_parent_of_another_network_are_crossed():
    world = played()
    birth = Birth("born_0", PARENT, second=PolicyRef("policy_0"), crossover=1.0)
    world.command(birth, learn=False)
    second = world.actor.seats.look("policy_0").weights
    torch.testing.assert_close(
        outputs(world, "born_0", world.table.births.newborn_weights("born_0")),
        outputs(world, "policy_0", second),
    )


def test_a_network_of_another_kind_is_no_parents():
    policies = {"born_0": {"network": {"hidden": (12,), "activation": "relu"}}}
    world = World(**{**NETWORKS, "policies": policies})
    world.matches(30)
    with refuses(RemudaError):
        world.command(Birth("born_0", PARENT))
