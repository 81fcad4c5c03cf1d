"""In lockstep: who sees that a learner is through sees its weights, whenever the bridge looks."""

import pytest

from cluster.two_nodes import LEARNER_HERE, TwoNodes


@pytest.mark.parametrize("when", ["before", "after"])
def test_weights_come_no_later_than_that_all_is_trained(when):
    world = TwoNodes(LEARNER_HERE, (2,), schedule="lockstep")
    world.link()
    world.pump_all()
    head, name = world.assemblies[0], world.names[0]
    channel, control = world.channels[0], world.stores[0].control
    read = channel.fast_out.read

    def train():
        publisher = head.published.publisher(name, head.published.checksums[name])
        publisher.publish(head.snapshots()[name].weights, 1, 0.0)
        control.words["trained"][1] = 1

    def read_meanwhile():
        if when == "before":
            train()
        read()
        if when == "after":
            train()

    channel.fast_out.read = read_meanwhile
    frame = world.frame(0)
    channel.fast_out.read = read
    if frame is not None:
        world.channels[1].take(frame)
    there = world.assemblies[1].snapshots()[name].version
    assert there == 2 or world.stores[1].control.trained(1) == 0
    world.pump_all()
    assert world.assemblies[1].snapshots()[name].version == 2
    assert world.stores[1].control.trained(1) == 1
