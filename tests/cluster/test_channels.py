"""Two nodes tell each other all that roles need: by real actors and learners, led by hand."""

import numpy as np
import pytest

from cluster.two_nodes import ACTOR_HERE, LEARNER_HERE, TwoNodes
from remuda.cluster import channel
from remuda.errors import RemudaError
from remuda.system.scoreboard import Learn

WAIT = {"experience": {"on_full": "wait", "wait_limit": 3600.0}}


def world_of(placement, algorithm, **policy):
    world = TwoNodes(placement, (2,), policy={"algorithm": algorithm} | policy)
    world.link()
    return world


def learned(world):
    """By policy, what its learner counted."""
    home = world.assemblies[world.placement.learners[0]]
    return {name: home.scoreboard.learn(name).copy() for name in world.names}


def check_counts(world):
    """On the learner's node, no step is trained twice and none is nowhere."""
    actors, learners = (world.assemblies[h] for h in world.placement.homes)
    for name in world.names:
        there, here = learners.experience[name], actors.experience[name]
        assert there.written <= here.written
        assert there.untaken + (there.passed or 0) <= there.written
        assert here.passed <= there.passed


@pytest.mark.slow_cases("actor")
@pytest.mark.parametrize("placement", [ACTOR_HERE, LEARNER_HERE], ids=["actor", "learner"])
def test_an_actor_waits_for_a_learner_elsewhere_and_no_step_is_trained_twice(placement):
    world = world_of(placement, "ppo", **WAIT)
    actor, learner = world.role(0), world.role(1)
    random, versions = np.random.default_rng(0), dict.fromkeys(world.names, 0)
    actors, learners = (world.assemblies[home] for home in placement.homes)
    waited = 0
    for _ in range(2000):
        what = random.integers(0, 4)
        if what == 0:
            waited += not all(actor.work() for _ in range(random.integers(1, 30)))
        elif what == 1:
            learner.work()
        elif what == 2:
            world.pump(int(random.integers(0, 2)))
        elif random.random() < 0.05:
            world.link()
        check_counts(world)
        for name, snapshot in actors.snapshots().items():
            assert snapshot.version >= versions[name], "a version went backwards"
            versions[name] = snapshot.version
        for name in world.names:  # `wait`: nothing that was not taken is written over
            here = actors.experience[name]
            assert here.written - here.passed <= 16 * 2 + 8 * 2 * 2
    assert waited > 10
    assert min(versions.values()) > 3
    world.pump_all()
    for name, row in learned(world).items():
        there, here = learners.experience[name], actors.experience[name]
        assert there.written == here.written
        assert there.passed == here.passed == row[Learn.TRAINED]
        assert row[Learn.LOST] == 0
        assert actors.snapshots()[name].weights.tolist() == (
            learners.snapshots()[name].weights.tolist()
        )


def test_a_learner_that_draws_waits_for_steps_elsewhere_and_keeps_its_ratio():
    world = world_of(ACTOR_HERE, "dqn", **WAIT)
    actor, learner = world.role(0), world.role(1)
    random = np.random.default_rng(1)
    waited = 0
    for _ in range(1500):
        what = random.integers(0, 3)
        if what == 0:
            waited += not all(actor.work() for _ in range(random.integers(1, 40)))
        elif what == 1:
            learner.work()
        else:
            world.pump(int(random.integers(0, 2)))
    assert waited > 5
    assert min(row[Learn.UPDATES] for row in learned(world).values()) > 10
    world.pump_all()
    for name in world.names:
        ends = [assembly.experience[name] for assembly in world.assemblies]
        assert ends[0].written == ends[1].written
        for word in range(len(ends[0].counters[0])):
            same = ends[0].counters[0][word] == ends[1].counters[0][word]
            assert same or word % 8 == 0, word


@pytest.mark.slow_cases("actor")
@pytest.mark.parametrize("placement", [ACTOR_HERE, LEARNER_HERE], ids=["actor", "learner"])
def test_what_one_side_counts_the_head_counts(placement):
    world = world_of(placement, "ppo", **WAIT)
    actor, learner = world.role(0), world.role(1)
    for _ in range(60):
        for _ in range(8):
            actor.work()
        world.pump_all()
        while learner.work():
            pass
        world.pump_all()
    head = world.assemblies[0]
    home = dict.fromkeys(world.names, world.assemblies[placement.learners[0]])
    assert np.array_equal(
        head.scoreboard.play(0), world.assemblies[placement.actors[0]].scoreboard.play(0)
    )
    for name in world.names:
        assert np.array_equal(head.scoreboard.learn(name), home[name].scoreboard.learn(name))
        assert head.snapshots()[name].version == home[name].snapshots()[name].version > 1


def test_a_node_out_of_reach_makes_no_actor_wait_and_is_waited_for_again():
    world = world_of(ACTOR_HERE, "ppo", **WAIT)
    actor, learner = world.role(0), world.role(1)
    while actor.work():
        pass
    world.channels[0].lose()
    assert all(actor.work() for _ in range(300)), "it waits for a node that is out of reach"
    world.link()
    for _ in range(40):
        world.pump_all()
        while learner.work():
            pass
    world.pump_all()
    assert not all(actor.work() for _ in range(300)), "it overwrites what the learner would take"
    for name, row in learned(world).items():
        there = world.assemblies[1].experience[name]
        assert row[Learn.TRAINED] + row[Learn.LOST] + there.untaken <= there.written
        assert row[Learn.LOST] > 0


def test_the_other_end_is_told_nothing_before_it_says_what_it_holds():
    world = TwoNodes(ACTOR_HERE, (2,), policy={"algorithm": "ppo"})
    world.link()
    fresh = channel.Channel(world.stores[0], world.placement, 0, 1)
    actor = world.role(0)
    for _ in range(20):
        actor.work()
    assert fresh.news(1.0) is None


def test_a_frame_of_any_words_is_refused_and_writes_nothing_where_it_may_not():
    """Such a frame passes the checks of a link only if the other end is not what it should be."""
    world = world_of(ACTOR_HERE, "ppo")
    actor, random, refused = world.role(0), np.random.default_rng(0), 0
    for _ in range(400):
        for _ in range(random.integers(1, 12)):
            actor.work()
        frame = world.frame(0)
        words = frame.view(np.int64)
        at = random.integers(0, min(len(words), 300))
        words[at] = random.choice(
            [-1, -(2**63), 2**62, int(words[at]) + 1, random.integers(0, 300)]
        )
        try:
            world.channels[1].take(frame)
        except RemudaError:
            refused += 1
        world.link()
        for name in world.names:
            ring = world.assemblies[1].experience[name].rings[0]
            assert (ring.shared["committed"] <= ring.segment_length).all()
    assert refused > 20
