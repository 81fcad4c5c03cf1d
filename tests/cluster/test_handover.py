"""Roles that move from node to node: what they go on from, and that nothing is counted twice."""

import pytest

from cluster.two_nodes import ACTOR_HERE, LEARNER_HERE, TwoNodes
from remuda.cluster.handover import rings_of, take_over
from remuda.cluster.migration import Migration, Move
from remuda.cluster.nodes import Placement
from remuda.experience.ring import CLOSED, TAKEN, TAKEN_STEPS, WRITTEN
from remuda.system.checkpoint.store import Checkpoints
from remuda.system.scoreboard import Learn


class NoNodes:
    """Nodes that nobody asks."""

    def call(self, number, method, *args):
        raise AssertionError(f"node {number} was asked for {method}")


class Asked:
    """The other node, which answers at once."""

    def __init__(self, world):
        self.world = world

    def call(self, number, method, actors, names, epoch):
        assert (method, epoch) == ("rings_of", self.world.placement.epoch + 1)
        return rings_of(self.world.assemblies[number], actors, names)


def world_of(placement, algorithm="ppo"):
    world = TwoNodes(placement, (2,), policy={"algorithm": algorithm})
    world.link()
    return world


def play(world, actor, turns):
    for _ in range(turns):
        actor.work()


def learn(learner):
    for _ in range(1000):
        if not learner.work():
            return
    raise AssertionError("it is never through")


def move(world, after, gone, tmp_path, meanwhile=lambda: None):
    """Move roles as the head does; returns the workers of all roles, new where they moved."""
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    nodes = NoNodes() if gone else Asked(world)
    movers = Migration(world.nodes[0], nodes, checkpoints)
    step = Move(world.placement, after)
    rings, calls = movers.ask_for_rings(step, () if gone is None else {gone})
    for told in calls.values():
        rings |= told
    homes = (0,) if gone else (0, 1)
    handovers = movers.handovers(step, rings, homes)
    meanwhile()
    for home in homes:
        take_over(world.assemblies[home], handovers[home], checkpoints)
    world.placement = after


def test_an_actor_that_moves_to_its_learner_gives_it_no_step_twice(tmp_path):
    """The learner there takes steps while the actor's ring is asked for and written down."""
    world = world_of(LEARNER_HERE)
    actor, learner = world.role(0), world.role(1)
    for _ in range(6):
        play(world, actor, 30)
        world.pump_all()
        learn(learner)
    play(world, actor, 30)
    world.pump_all()
    head = world.assemblies[0]
    before = {n: head.experience[n].rings[0].counters.copy() for n in world.names}
    waits = [head.experience[name].untaken for name in world.names]
    assert min(waits) >= 16

    move(world, Placement((0,), (0,), 2), 1, tmp_path, meanwhile=lambda: learn(learner))
    for name in world.names:
        words = head.experience[name].rings[0].counters
        assert words[TAKEN] > before[name][TAKEN], "steps that were taken are there again"
        assert words[TAKEN_STEPS] > before[name][TAKEN_STEPS]
        assert words[CLOSED] >= before[name][CLOSED]
    trained = {n: head.scoreboard.learn(n)[Learn.TRAINED] for n in world.names}
    actor = world.role(0)
    for _ in range(6):
        play(world, actor, 30)
        learn(learner)
    play(world, actor, 200)  # it closes what was open at its first turn
    learn(learner)
    for name in world.names:
        check = head.scoreboard.learn(name)
        assert check[Learn.TRAINED] > trained[name]
        assert head.experience[name].written >= check[Learn.TRAINED] + check[Learn.LOST]
        check_counts(head, name)


def check_counts(assembly, name):
    experience, row = assembly.experience[name], assembly.scoreboard.learn(name)
    (ring,) = experience.rings
    told = row[Learn.TRAINED] + experience.untaken + ring.open_steps + row[Learn.LOST]
    assert experience.written == told, f"{experience.written - told} steps are nowhere"


def test_an_actor_that_is_relieved_brings_along_what_did_not_cross_yet(tmp_path):
    """From the head to the node of its learner, which has a part of its ring."""
    world = world_of(ACTOR_HERE)
    actor, learner = world.role(0), world.role(1)
    for _ in range(4):
        play(world, actor, 30)
        world.pump_all()
        learn(learner)
    play(world, actor, 25)  # this did not cross
    there = world.assemblies[1]
    behind = [there.experience[name].written for name in world.names]
    taken = [there.experience[n].rings[0].counters[TAKEN] for n in world.names]
    move(world, Placement((1,), (1,), 2), None, tmp_path, meanwhile=lambda: learn(learner))
    for i, name in enumerate(world.names):
        here = world.assemblies[0].experience[name]
        assert there.experience[name].written == here.written > behind[i]
        assert there.experience[name].rings[0].counters[TAKEN] >= taken[i], "taken again"
    actor = world.role(0)
    for _ in range(6):
        play(world, actor, 30)
        learn(learner)
    for name in world.names:
        check_counts(there, name)
        assert there.scoreboard.learn(name)[Learn.LOST] == 0


@pytest.mark.parametrize("crossed", [True, False])
def test_a_learner_that_moves_goes_on_with_versions_and_counts(crossed, tmp_path):
    """Its node is gone; the actor lives on the head, and has what it wrote last."""
    world = world_of(ACTOR_HERE)
    actor, learner = world.role(0), world.role(1)
    for _ in range(6):
        play(world, actor, 30)
        world.pump_all()
        learn(learner)
    if crossed:
        world.pump_all()
    head = world.assemblies[0]
    known = {name: head.snapshots()[name].version for name in world.names}
    updates = {name: head.scoreboard.learn(name)[Learn.UPDATES] for name in world.names}
    assert min(known.values()) > 1
    move(world, Placement((0,), (0,), 2), 1, tmp_path)
    for name in world.names:
        assert head.snapshots()[name].version == known[name]
    learner = world.role(1)
    for _ in range(4):
        play(world, actor, 30)
        learn(learner)
    for name in world.names:
        assert head.snapshots()[name].version > known[name]
        assert head.scoreboard.learn(name)[Learn.UPDATES] > updates[name]
        if crossed:
            check_counts(head, name)


def busy_world():
    """A node without the head has played and learned, and has just begun more steps."""
    world = world_of(Placement((1,), (1,)))
    actor, learner = world.role(0), world.role(1)
    for _ in range(6):
        play(world, actor, 30)
        world.pump_all()
        learn(learner)
    play(world, actor, 7)
    world.pump_all()
    return world


def test_both_move_at_once_and_what_waited_between_them_is_lost(tmp_path):
    world = busy_world()
    head = world.assemblies[0]
    known = {name: head.experience[name].written for name in world.names}
    assert min(known.values()) > 100
    there = [world.assemblies[1].experience[name].rings[0].open_steps for name in world.names]
    assert min(there) > 0, "nothing was being written"
    move(world, Placement((0,), (0,), 2), 1, tmp_path)
    for name in world.names:
        ring = head.experience[name].rings[0]
        assert ring.counters[WRITTEN] == known[name]
        assert (ring.shared["committed"] == 0).all()
        assert (ring.shared["sequence"] % 2 == 0).all()
    actor, learner = world.role(0), world.role(1)
    for _ in range(6):
        play(world, actor, 30)
        learn(learner)
    for name in world.names:
        check_counts(head, name)
        assert head.scoreboard.learn(name)[Learn.LOST] > 0
        versions = head.experience[name].rings[0].shared["versions"]
        assert versions.max() <= head.snapshots()[name].version


def test_a_learner_moves_and_then_its_actor_whose_ring_never_came(tmp_path):
    """Two nodes are lost one after another: the head has the ring's words, and nothing of it."""
    world = busy_world()
    head = world.assemblies[0]
    closed = [head.experience[name].rings[0].counters[CLOSED] for name in world.names]
    assert min(closed) > 0
    move(world, Placement((1,), (0,), 2), 1, tmp_path)
    learner = world.role(1)
    learn(learner)
    move(world, Placement((0,), (0,), 3), 1, tmp_path)
    actor = world.role(0)
    for _ in range(6):
        play(world, actor, 30)
        learn(learner)
    for name in world.names:
        assert head.scoreboard.learn(name)[Learn.UPDATES] > 0
        check_counts(head, name)


def test_a_ring_that_never_came_is_no_source_for_its_actor(tmp_path):
    """Its learner had just moved there, and no link was there yet: the head knows more of it."""
    world = busy_world()
    head = world.assemblies[0]
    written = [head.experience[name].written for name in world.names]
    assert min(written) > 100
    fresh = world.assemble()  # of the node to which the learner had moved
    assert rings_of(fresh, [0], world.names) == {}
    there = rings_of(world.assemblies[1], [0], world.names)
    assert there.keys() == {(name, 0) for name in world.names}


def test_moves_name_who_moves():
    move = Move(Placement((0, 1), (1, 2)), Placement((0, 2), (1, 0), 2))
    assert move.actors == [1]
