"""A node's agent: what is asked of it at once may come in any order."""

import threading
import time
from types import SimpleNamespace

import pytest

from refusals import refuses
from remuda.cluster.agent import Keeper, NodeAgent
from remuda.cluster.nodes import Placement
from remuda.errors import RemudaError


class Begun(NodeAgent):
    """An agent that notes what its keeper does, and hosts nothing."""

    def __init__(self):
        self.did = []
        self._epoch, self._wanted, self._epochs = 0, 0, threading.Condition()
        self.runtime = self._checkpoints = None
        self.node = SimpleNamespace(replace=self.note)
        self.keeper = Keeper(watch=lambda: threading.Event().wait(0.01))

    def note(self, placement, *_):
        assert self.runtime is not None
        self.did.append(placement.epoch)

    def _start(self, placement, _):
        self.runtime = SimpleNamespace(go=lambda: self.did.append("go"))
        self.did.append(placement.epoch)


@pytest.mark.parametrize("order", ["sgab", "gsba", "basg", "absg", "gbas"])
def test_placements_take_their_turn_in_whatever_order_they_come(order):
    agent, first = Begun(), Placement((0,), (0,))
    calls = {
        "s": lambda: agent.start(first, {}),
        "g": agent.go,
        "a": lambda: agent.replace(first.moved({0: 1}), {}, None),
        "b": lambda: agent.replace(first.moved({0: 1}).moved({0: 2}), {}, None),
    }
    threads = [threading.Thread(target=calls[each], daemon=True) for each in order]
    for thread in threads:
        thread.start()
        thread.join(0.05)
    for thread in threads:
        thread.join(5.0)
        assert not thread.is_alive()
    assert [each for each in agent.did if each != "go"] == [1, 2, 3]
    assert agent.did.index("go") > 0


def test_a_placement_that_could_not_be_taken_holds_up_no_other():
    agent, first = Begun(), Placement((0,), (0,))
    agent.start(first, {})

    def fail(*_):
        raise RemudaError("a full disk")

    agent.node.replace = fail
    with refuses(RemudaError):
        agent.replace(first.moved({0: 1}), {}, None)
    agent.node.replace = agent.note
    agent.replace(first.moved({0: 1}).moved({0: 2}), {}, None)
    assert agent.did == [1, 3]


def release_actor(agent, epoch):
    agent.runtime.here = [0, 1]
    agent.runtime.move = lambda here: agent.did.append("let go") if here == [1] else None
    agent.release_actor(0, epoch)


def ask_for_rings(agent, epoch):
    agent.node.assembly = None
    assert agent.rings_of([0], [], epoch) == {}


@pytest.mark.parametrize("first_word", [release_actor, ask_for_rings, lambda *_: None])
def test_a_placement_that_waits_for_others_learns_of_the_next_one(first_word):
    """A node that is lost meanwhile will never be in step; its roles are placed anew.

    Whatever the head asks for first, to place them, is not to wait for links to that node.
    """
    agent, first = Begun(), Placement((0,), (0,))
    agent.start(first, {})
    waits = threading.Event()

    def wait(placement, addresses, handover, is_overtaken):
        waits.set()
        end = time.monotonic() + 60
        while not is_overtaken():
            assert time.monotonic() < end, "it is never told"
            time.sleep(0.001)
        agent.did.append(placement.epoch)
        agent.node.replace = agent.note

    agent.node.replace = wait
    second = first.moved({0: 1})
    thread = threading.Thread(target=agent.replace, args=(second, {}, None), daemon=True)
    thread.start()
    assert waits.wait(60)
    first_word(agent, second.epoch + 1)
    agent.replace(second.moved({0: 2}), {}, None)
    thread.join(60)
    assert [each for each in agent.did if each != "let go"] == [1, 2, 3]
