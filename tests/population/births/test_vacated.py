"""A policy leaves its slot, and another is born there, while matches go on without a gap."""

import numpy as np
import pytest

from population.birth_worlds import World
from refusals import refuses
from remuda.errors import RemudaError
from remuda.population.directors.director import Birth, Freeze, Vacate
from remuda.population.evolution.weights import WeightLayout
from remuda.population.ledger.ledger import BIRTH
from remuda.population.ledger.records import PolicyRef
from remuda.population.members.table_parts import NO_POLICY, POLICY
from remuda.system.scoreboard import Learn

ON = {"births": {"slots": 0}, "evolution": {"every": 10**9}, "snapshots": {"every": None}}
BIRTHS = {"births": {"slots": 1, "every": None}}
TEAMS = {"red": {"policies": ["a"], "agents": ["agent_0"]}, "blue": {"policies": ["b"]}}
TEAMS["blue"]["agents"] = ["agent_1"]
SHARES = {"self_play": 0.4, "prioritized": 0.4, "verification": 0.2}
KINDS = {
    "fixed": {"matchmaker": "fixed", "policies": None},
    "fixed, shared": {"matchmaker": "fixed", "policies": 2},
    "fixed, with a past": {
        "matchmaker": "fixed",
        "policies": None,
        "snapshots": {"every": 5, "keep": 1},
    },
    "teams": {"matchmaker": "teams", "policies": None, "teams": TEAMS},
    "random": {"matchmaker": "random", "policies": 2},
    "prioritized": {"matchmaker": "prioritized", "policies": 2},
    "fitness": {"matchmaker": "fitness", "policies": 2},
    "self-play": {"matchmaker": "self_play", "policies": 2},
    "round robin": {"matchmaker": "round_robin", "policies": 3},
    "mixed": {"matchmaker": "mixed", "policies": 2, "shares": SHARES},
    "mixed, with seats": {
        "matchmaker": "mixed",
        "policies": 2,
        "shares": SHARES,
        "seats": {"policy_0": ["agent_0"], "policy_1": ["agent_1"]},
    },
}


def world_of(kind, **tree):
    return World(game="support:Tape", population=ON | KINDS[kind], **tree)


def live_seats(world):
    """By copy, how many seats a policy has that learns."""
    return (world.league.seated < len(world.table.policies)).sum(1)


@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [
        pytest.param(kind, algorithm, marks=pytest.mark.slow if (place + other) % 2 else ())
        for place, kind in enumerate(KINDS)
        for other, algorithm in enumerate(("ppo", "dqn"))
    ],
)
def test_a_policy_is_born_in_a_slot_that_was_left(kind, algorithm):
    names = sorted(world_of(kind).names())
    name, others = names[0], names[1:]
    own = {other: {"learning_rate": 0.125} for other in others}
    policy = {"algorithm": algorithm}
    if algorithm == "dqn":
        policy |= {"experience": {"learning_starts": 50}, "batch_size": 8}
    world = world_of(kind, policy=policy, policies=own)
    world.matches(60)
    old, slot = PolicyRef(name), world.table.policies.index(name)
    world.command(Vacate(name), learn=False)
    assert old not in world.league.population
    spare = world.table.slots.stand_in_of(name)
    stands_in = spare in [m.slot for m in world.league.population.past_of(name)]
    assert stands_in == (kind not in ("round robin", "self-play", "mixed"))
    while slot not in world.table.births.expected:  # evolution lets one be born there
        world.play(1, learn=False)
        assert (live_seats(world) > 0).all()
    assert name not in world.seated()
    occupants = world.table.occupants
    parent = occupants.decode(slot, occupants.identity[slot].tolist())[1].policy
    assert parent in others
    begun = world.table.births.newborn_weights(name)
    assert np.array_equal(begun, world.actor.seats.look(parent).weights)
    world.matches(6, learn=False)
    assert (spare in world.league.seated) == stands_in  # it takes the seats of new matches
    while old not in world.league.population:
        world.play(1)
    assert world.league.population[old].parent.policy == parent
    assert world.league.population[old].games == 0
    assert spare not in [m.slot for m in world.league.population.past_of(name)]
    world.matches(60)
    assert name in world.seated()
    assert world.table.occupants.identity[spare, POLICY] == NO_POLICY
    row = world.assembly.scoreboard.learn(name)
    assert row[Learn.LEARNING_RATE] == pytest.approx(0.125)
    before = row[Learn.UPDATES]
    world.matches(200)
    assert row[Learn.UPDATES] > before
    # Once more: what stood in before is gone, and its slot is free.
    world.command(Vacate(name))
    assert old not in world.league.population


def test_no_match_is_without_a_policy_that_learns():
    world = world_of("fixed")
    world.matches(20)
    world.command(Vacate("agent_0"))
    world.command(Vacate("agent_1"))  # the only one left
    assert world.names() == {"agent_1"}


def test_a_copy_that_stands_in_is_no_other_copys_slot():
    """The slot of a stand-in is kept for it, however many copies are frozen."""
    world = World(
        game="support:Tape",
        population=ON | KINDS["random"] | {"snapshots": {"every": 10**6, "keep": 2}},
    )
    for _ in range(6):
        world.matches(20)
        world.command(Freeze("policy_0"))
    slot = world.table.slots.stand_in_of("policy_0")
    assert world.table.occupants.identity[slot, POLICY] == NO_POLICY


def test_an_actor_that_dies_leaves_a_slot_that_is_born_in():
    world = world_of("fixed")
    world.matches(40)
    world.command(Vacate("agent_0"))
    world.actor = world.assembly.roles()[0].build()  # its successor, with matches of its own
    world.league = world.actor.seats.league
    assert world.league.population.past_of("agent_0")
    while "agent_0" not in world.names():
        world.play(1)
    assert not world.league.population.past_of("agent_0")
    assert len(world.records(BIRTH)) == 1


def test_who_is_away_is_saved_and_judged_all_the_same():
    """Red before: greedy play failed, since nobody was there for its seat."""
    world = world_of("fixed")
    world.matches(40)
    world.command(Vacate("agent_0"), learn=False)
    assert "agent_0" not in world.names()
    assert set(world.assembly.playing()) == {"agent_0", "agent_1"}
    random = world_of("round robin")
    random.matches(40)
    random.command(Vacate("policy_0"), learn=False)
    assert set(random.assembly.playing()) == {"policy_1", "policy_2"}  # all seats are taken


@pytest.mark.parametrize("crossover", [0.0, 0.5, 1.0])
def test_each_layer_of_a_newborn_is_one_of_its_two_parents(crossover):
    world = World(game="support:Tape", population=KINDS["random"] | {"policies": 4} | BIRTHS)
    world.matches(20)
    one, other = (PolicyRef(name) for name in sorted(world.names())[:2])
    world.command(Birth("born_0", one, second=other, crossover=crossover), learn=False)
    begun = world.table.births.newborn_weights("born_0")
    parents = [world.actor.seats.look(ref.policy).weights for ref in (one, other)]
    assert not np.isclose(*parents).all()
    policy_group = world.actor.seats.policy_groups[0]
    layout = WeightLayout.of(policy_group.stack.network)
    taken = []
    for names in layout.layers.values():
        parts = [layout.slices[name] for name in names]
        found = [all(np.array_equal(begun[p], each[p]) for p in parts) for each in parents]
        assert any(found)
        taken.append(found[1])
    assert (True in taken, False in taken) == (crossover > 0.0, crossover < 1.0)


@pytest.mark.parametrize(
    "birth",
    [
        Birth("born_0", None, second=PolicyRef("policy_0")),
        Birth("born_0", PolicyRef("policy_0"), second=PolicyRef("policy_0", 99)),
    ],
)
def test_a_second_parent_that_cannot_be_is_refused(birth):
    world = World(game="support:Tape", population=KINDS["random"] | BIRTHS)
    world.matches(20)
    with refuses(RemudaError):
        world.command(birth)
