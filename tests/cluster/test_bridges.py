"""Bridges of two nodes in one process: links that come, break, and are refused."""

import socket
import time

import numpy as np
import pytest

from cluster.two_nodes import LEARNER_HERE, TwoNodes
from contracts.bridged import BridgedWeights
from refusals import refuses
from remuda.cluster.bridge import BridgeRole, listen
from remuda.cluster.channel import Count
from remuda.cluster.link import HELLO, Frame, Identity, Kind, Link
from remuda.cluster.nodes import Placement
from remuda.config import PublishConfig
from remuda.errors import RemudaError
from remuda.system.memory.waiting import Wakeup

SECRET = bytes(range(32))


class Bridged(TwoNodes):
    """Two nodes whose bridges find each other over the loopback; rounds are by hand."""

    def __init__(self):
        super().__init__(LEARNER_HERE, (2,), policy={"algorithm": "ppo"})
        self.listeners = [listen("127.0.0.1", range(0)) for _ in self.nodes]
        self.addresses = {i: each.getsockname() for i, each in enumerate(self.listeners)}
        self.bridges = [None, None]
        for number in (0, 1):
            self.nodes[number].plan.write(self.placement, self.addresses)
            self.begin(number)

    def begin(self, number, secret=SECRET):
        """A bridge starts: the first of a node, or the successor of one that died."""
        node, old = self.nodes[number], self.bridges[number]
        if old is not None:  # the kernel closes what a process had
            for peer in old.peers.values():
                if peer.link is not None:
                    peer.link.close()
        self.bridges[number] = BridgeRole(
            self.stores[number],
            node.plan,
            number,
            secret,
            self.listeners[number],
            Wakeup(),
            node.traffic,
            silence=60.0,
        ).build()

    def is_open(self):
        return all(p.channel for bridge in self.bridges for p in bridge.peers.values())

    def rounds(self, until, limit=20.0):
        end = time.monotonic() + limit
        while not until():
            for bridge in self.bridges:
                bridge.work()
            assert time.monotonic() < end, "it never comes to it"

    def same(self):
        """Whether all is on both nodes that one of them had."""
        for name in self.names:
            here, there = (assembly.experience[name] for assembly in self.assemblies)
            if here.written != there.written or here.passed != there.passed:
                return False
        versions = [assembly.published.board["versions"] for assembly in self.assemblies]
        return np.array_equal(*versions)

    def close(self):
        for bridge in self.bridges:
            for peer in bridge.peers.values():
                if peer.link is not None:
                    peer.link.close()
            for stranger in bridge.strangers:
                stranger.close()
        for listener in self.listeners:
            listener.close()


@pytest.fixture
def world():
    made = Bridged()
    yield made
    made.close()


def play(world, actor, learner, rounds=4):
    for _ in range(rounds):
        for _ in range(8):
            actor.work()
        world.rounds(world.same)
        while learner.work():
            pass
        world.rounds(world.same)


@pytest.mark.slow
def test_what_is_written_on_one_node_comes_to_be_on_the_other(world):
    world.rounds(world.is_open)
    play(world, world.role(0), world.role(1))
    for number in (0, 1):
        counts = world.nodes[number].traffic.counts[1 - number]
        assert counts[Count.IS_OPEN] == 1
        assert counts[Count.IN_STEP] == world.placement.epoch
        assert counts[Count.SENT_BYTES] > 0
    steps = sum(world.assemblies[1].experience[name].written for name in world.names)
    assert world.nodes[1].traffic.counts[0, Count.STEPS_OUT] == steps
    assert world.nodes[0].traffic.counts[1, Count.STEPS_IN] == steps


@pytest.mark.slow_cases("called")
@pytest.mark.parametrize("number", [0, 1], ids=["called", "caller"])
def test_the_successor_of_a_bridge_goes_on_and_tells_nothing_twice(world, number):
    actor, learner = world.role(0), world.role(1)
    world.rounds(world.is_open)
    for _ in range(4):
        play(world, actor, learner, 2)
        world.begin(number)
        for _ in range(8):
            actor.work()
        world.rounds(world.is_open)
    play(world, actor, learner)
    names = world.names
    sent = sum(world.assemblies[1].experience[name].written for name in names)
    rings = [a.experience[names[0]].rings[0].shared for a in world.assemblies]
    assert np.array_equal(rings[0]["committed"], rings[1]["committed"])
    assert world.nodes[1].traffic.counts[0, Count.STEPS_OUT] == sent


def test_roles_that_are_placed_anew_while_frames_are_under_way(world):
    actor, learner = world.role(0), world.role(1)
    for epoch in range(2, 8):
        for _ in range(8):
            actor.work()
        for bridge in world.bridges[: 1 + epoch % 2]:  # one of them sees it before the other
            bridge.work()
        later = Placement(world.placement.actors, world.placement.learners, epoch)
        for node in world.nodes[:: 1 if epoch % 3 else -1]:
            node.plan.write(later, world.addresses)
            for bridge in world.bridges:
                bridge.work()
        world.rounds(world.same)
        while learner.work():
            pass
    world.rounds(lambda: world.is_open() and world.same())
    assert world.nodes[0].traffic.counts[1, Count.IN_STEP] in (6, 7)
    world.rounds(lambda: world.nodes[0].traffic.counts[1, Count.IN_STEP] == 7)


def test_a_node_that_was_given_up_is_of_an_older_epoch_and_turned_away(world):
    world.rounds(world.is_open)
    later = Placement(world.placement.actors, world.placement.learners, 2)
    world.nodes[0].plan.write(later, world.addresses)  # the other was not told
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        for bridge in world.bridges:
            bridge.work()
    assert not any(peer.channel for peer in world.bridges[0].peers.values())
    assert world.nodes[0].traffic.counts[1, Count.IN_STEP] != 2


def test_a_stranger_is_told_nothing_and_hinders_nobody(world):
    strangers = [socket.create_connection(world.addresses[0]) for _ in range(5)]
    strangers[0].sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(HELLO.size))
    strangers[1].sendall(Identity(bytes(32), 1, 1).hello(b"calls", bytes(32), 0))
    strangers[2].sendall(Identity(SECRET, 1, 1).hello(b"calls", bytes(32), 0)[:40])
    strangers[3].sendall(Identity(SECRET, 1, 9).hello(b"calls", bytes(32), 0))  # no such node
    world.rounds(world.is_open)
    play(world, world.role(0), world.role(1), 2)
    for stranger in strangers:
        stranger.setblocking(False)
        try:
            found = stranger.recv(1 << 16)
        except (BlockingIOError, ConnectionError):
            found = b""
        assert len(found) in (0, HELLO.size)
        assert SECRET not in found
        stranger.close()


def test_what_does_not_fit_costs_a_link_and_not_the_bridge(world):
    """It comes right behind the hello, before the bridge knows whose it is."""
    connection = socket.create_connection(world.addresses[0])
    link = Link(connection, Identity(SECRET, 1, 1), 0)
    frame = Frame()
    frame.add(Kind.RING, 10**6, np.zeros(3, np.int64))
    link.flush()
    connection.sendall(b"".join(bytes(b) for b in frame.finished()))
    time.sleep(0.05)
    world.rounds(world.is_open)
    play(world, world.role(0), world.role(1), 2)
    link.close()


def test_no_free_port_is_told_in_one_line():
    taken = listen("127.0.0.1", range(0))
    port = taken.getsockname()[1]
    with refuses(RemudaError, "cluster.ports"):
        listen("127.0.0.1", range(port, port + 1))
    taken.close()


def test_changed_environment_options_reach_other_nodes():
    bridge = BridgedWeights({"a": (1, 1, PublishConfig())}, {}).bridge
    here, there = bridge.env_options
    here.change("length", 5, 0, 0)
    here.change("length", 7, 300, 0)
    bridge.pump()
    assert there.read(0) == (4, [(0, "length", 5), (300, "length", 7)])
