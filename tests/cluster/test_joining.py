"""Nodes that come while a run goes on, as the head takes them."""

from dataclasses import replace

from remuda.cluster.member import JoiningNodes, Member
from remuda.cluster.nodes import NodeInfo
from remuda.errors import RemudaError


class Answer:
    """What a node answers once it does."""

    def __init__(self):
        self.found = None

    def done(self):
        return self.found is not None

    def result(self, timeout):
        if isinstance(self.found, RemudaError):
            raise self.found
        return self.found


class Coming:
    """Nodes that come."""

    def __init__(self):
        self.new, self.given_up = [], []

    def give_up(self, number):
        self.given_up.append(number)

    def joined(self):
        found, self.new = self.new, []
        return found


def arrivals_of(*numbers):
    nodes, calls = Coming(), {}
    nodes.new = [NodeInfo(n, f"node-{n}", "127.0.0.1", 1, 0) for n in numbers]
    found = JoiningNodes(nodes, lambda info: calls.setdefault(info.number, Answer()))
    return found, calls


def test_a_node_has_roles_only_once_its_bridge_has_begun():
    """An actor stands still from where it is let go of until it plays there."""
    arrivals, calls = arrivals_of(1, 2)
    assert arrivals.prepared() == []
    calls[2].found = 4711
    ((info, port),) = arrivals.prepared()
    assert (info.number, port) == (2, 4711)
    arrivals.starting.add(2)
    members = {2: Member(2, "two")}
    assert arrivals.ready(members) == []
    members[2].status = replace(members[2].status, is_ready=True)
    assert arrivals.ready(members) == [2]
    assert arrivals.ready(members) == []


def test_one_that_cannot_prepare_itself_is_told_and_one_that_is_gone_is_forgotten():
    arrivals, calls = arrivals_of(1, 2, 3)
    arrivals.prepared()
    calls[1].found, calls[2].found, calls[3].found = RemudaError("no memory"), 1, 2
    arrivals.lose(2)
    assert [info.number for info, _ in arrivals.prepared()] == [3]
    assert arrivals.nodes.given_up == [1]
    assert arrivals.news == ["the node node-1 joined, but cannot be used: no memory"]
    arrivals.starting.add(3)
    assert arrivals.ready({}) == []
    late = {3: Member(3, "three")}
    late[3].status = replace(late[3].status, is_ready=True)
    assert arrivals.ready(late) == [], "another node may have its number one day"
