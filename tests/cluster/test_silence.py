"""A node is given up for its own silence, not for that of the head."""

import time

from remuda.cluster.agent import NodeStatus
from remuda.cluster.runtime import ClusterRuntime, Member


class Answer:
    def __init__(self, is_done):
        self._is_done = is_done

    def done(self):
        return self._is_done

    def result(self, timeout=None):
        return NodeStatus(is_ready=True)


class Nodes:
    def __init__(self):
        self.given_up, self.called = [], []

    def give_up(self, number):
        self.given_up.append(number)

    def call(self, number, method):
        self.called.append((number, method))
        return Answer(False)


def ask(is_done):
    """Ask a node whose answer is looked at only after more than `cluster.silence` seconds."""
    runtime = object.__new__(ClusterRuntime)
    runtime.nodes, runtime.unread, runtime.silence = Nodes(), [], 1.0
    runtime.members, runtime.lost, runtime.stopped = {}, {}, False
    member = Member(1, "one", _request=Answer(is_done), _requested_at=time.monotonic() - 60)
    runtime.ask(member)
    return runtime.nodes, member


def test_an_answer_that_is_here_is_taken_however_late_the_head_looks():
    nodes, member = ask(True)
    assert nodes.given_up == []
    assert member.status.is_ready
    assert nodes.called == [(1, "poll")]


def test_one_that_does_not_answer_is_given_up():
    nodes, _ = ask(False)
    assert nodes.given_up == [1]
