"""A bridge that dies at any line while it writes weights, words and the table of a population."""

import numpy as np
import pytest

from cluster.two_nodes import ACTOR_HERE, DEALT, TwoNodes
from line_deaths import AtLine, die
from refusals import refuses
from remuda.cluster import channel, tables, weights, words
from remuda.cluster.nodes import Placement
from remuda.config import overlay
from remuda.errors import RemudaError
from remuda.population.members.table_parts import REVISION
from remuda.publish import snapshot
from remuda.system.memory.atomic import load, store

WATCHED = (channel, tables, weights, words, snapshot)
LINES = [pytest.param(7, id="few"), pytest.param(1, marks=pytest.mark.slow, id="all")]


class At(AtLine):
    """Looks at every line of what writes here, and dies at one of them."""

    def __init__(self, line, look):
        super().__init__(0, WATCHED, self.look_or_die, again=True)
        self.alive, self.look = line, look

    def look_or_die(self):
        self.look()
        self.alive -= 1
        if self.alive < 0:
            die()


def publish(world, name, version):
    store_ = world.assemblies[1].published
    size = store_.slots[name]["weights"].shape[1]
    publisher = store_.publisher(name, store_.checksums[name])
    while publisher.version < version:
        publisher.publish(np.full(size, publisher.version + 1, np.float32), version, 0.5)


def newest(world, name, node):
    return world.assemblies[node].published.reader().newest(name)


@pytest.mark.parametrize("stride", LINES)
def test_weights_are_whole_and_go_forward_wherever_a_bridge_dies(stride):
    world = TwoNodes(ACTOR_HERE, (2,), policy={"algorithm": "ppo"})
    world.link()
    world.pump_all()
    name = world.names[0]
    seen, line, version = [1], 0, 1
    reader = world.assemblies[0].published.reader()

    def look():
        found = world.assemblies[0].published.reader().newest(name)
        if found.version > 1:
            assert (found.weights == found.version).all(), "torn"
        assert found.version >= seen[-1], "a version went backwards"
        seen.append(found.version)
        for told in reader.newer().values():
            assert told.version == 1 or (told.weights == told.weights[0]).all()

    left = -1
    while left < 0:
        version += 2
        publish(world, name, version)
        frame = world.frame(1)
        with At(line, look) as life:
            world.channels[0].take(frame)
        left = life.alive
        world.link()
        look()
        world.pump_all()
        assert newest(world, name, 0).version == version
        look()
        line += stride
    assert line > 30


def change(table, number, at):
    """As a lead does it: who is there, and all that is kept of them, is `number` afterwards."""
    arrays = table.arrays
    store(arrays["words"], REVISION, load(arrays["words"], REVISION) + 1)
    store(arrays["sequence"], at, int(arrays["sequence"][at]) + 1)
    arrays["identity"][:] = arrays["leaving"][:] = number
    for row in table.frozen_weights.rows(at):
        row[...] = number
    store(arrays["sequence"], at, int(arrays["sequence"][at]) + 1)
    store(arrays["words"], REVISION, load(arrays["words"], REVISION) + 1)


@pytest.mark.parametrize("stride", LINES)
def test_a_table_is_read_whole_wherever_a_bridge_dies(stride):
    tree = overlay(DEALT, {"policy": {"algorithm": "ppo"}, "actor": {"processes": 2}})
    world = TwoNodes(Placement((0, 1), (0,)), (1, 1), **tree)
    world.link()
    world.pump_all()
    head, there = (assembly.table for assembly in world.assemblies)
    slot = len(there.policies)  # the first frozen copy's
    assert there.frozen_weights.rows(slot)
    by_revision, by_sequence = {}, {}

    def look():
        arrays = there.arrays
        revision = load(arrays["words"], REVISION)
        if revision in by_revision:
            found = by_revision[revision]
            assert (arrays["identity"] == found).all(), "who is there is of two revisions"
            assert (arrays["leaving"] == found).all()
        found = by_sequence.get(load(arrays["sequence"], slot))
        if found is not None:
            assert all((row == found).all() for row in there.frozen_weights.rows(slot)), "torn"

    line, left, number = 0, -1, 0
    while left < 0:
        number += 1
        change(head, number, slot)
        by_revision[load(head.arrays["words"], REVISION)] = number
        by_sequence[load(head.arrays["sequence"], slot)] = number
        frame = world.frame(0)
        with At(line, look) as life:
            world.channels[1].take(frame)
        left = life.alive
        look()
        world.link()
        look()
        world.pump_all()
        assert (there.arrays["identity"] == number).all()
        assert load(there.arrays["words"], REVISION) == load(head.arrays["words"], REVISION)
        look()
        line += stride
    assert line > 40


def test_a_table_that_is_just_being_changed_is_not_told():
    tree = overlay(DEALT, {"policy": {"algorithm": "ppo"}, "actor": {"processes": 2}})
    world = TwoNodes(Placement((0, 1), (0,)), (1, 1), **tree)
    world.link()
    world.pump_all()
    head, there = (assembly.table for assembly in world.assemblies)
    words_ = head.arrays["words"]
    store(words_, REVISION, load(words_, REVISION) + 1)
    head.arrays["identity"][:] = 77
    world.pump(0)
    assert not (there.arrays["identity"] == 77).all()
    store(words_, REVISION, load(words_, REVISION) + 1)
    world.pump_all()
    assert (there.arrays["identity"] == 77).all()


def test_weights_that_do_not_fit_are_refused():
    world = TwoNodes(ACTOR_HERE, (2,), policy={"algorithm": "ppo"})
    world.link()
    world.pump_all()
    numbers = np.array([9, 1, 0, 3, 0])
    with refuses(RemudaError):
        world.channels[0].weights_in.publish(0, numbers, np.zeros(3, np.float32))
    assert newest(world, world.names[0], 0).version == 1
