"""Nodes that are lost, as the head and the other nodes see it, without any of them."""

from types import SimpleNamespace

import numpy as np
import pytest

from refusals import refuses
from remuda.cluster import node as node_module
from remuda.cluster.agent import NodeStatus
from remuda.cluster.channel import Count
from remuda.cluster.member import JoiningNodes, Member
from remuda.cluster.migration import MoveCounts
from remuda.cluster.node import Node
from remuda.cluster.nodes import HEAD, Need, NodeInfo, Placement, without
from remuda.cluster.runtime import ClusterRuntime
from remuda.errors import RemudaError, RoleDiedError
from remuda.types import RoleStatus


class Nodes:
    """Nodes of which some are lost."""

    def __init__(self):
        self.gone, self.given_up = [], []

    def lost(self):
        found, self.gone = self.gone, []
        return found

    def joined(self):
        return []

    def give_up(self, number):
        self.given_up.append(number)

    def call(self, number, method, *_):
        return SimpleNamespace(done=lambda: False)


def head_of(homes, members, learners=(0,)):
    """The head of a cluster of which some nodes are members; what it moves is noted."""
    runtime = object.__new__(ClusterRuntime)
    runtime.nodes, runtime.unread, runtime.silence = Nodes(), [], 1e9
    runtime.members = {n: Member(n, f"n{n}") for n in members}
    runtime.infos = {n: NodeInfo(n, f"n{n}", "", 4, 0) for n in (HEAD, *members)}
    runtime.joining, runtime.stopped = JoiningNodes(runtime.nodes, None), False
    runtime.lost, runtime.pending = {}, []
    runtime.moved, runtime.placement = MoveCounts(), Placement(tuple(homes), tuple(learners))
    roles = [SimpleNamespace(name=f"role-{i}") for i in range(len(homes) + len(learners))]
    config = SimpleNamespace(exact=False, schedule="async")
    runtime.node = SimpleNamespace(assembly=SimpleNamespace(roles=lambda: roles, config=config))
    runtime.reach = SimpleNamespace(news=lambda *_: [])
    runtime.local = SimpleNamespace(run_for=lambda _: None, is_played=True)
    runtime.local.here = runtime.placement.roles_of(HEAD)
    runtime.logs = SimpleNamespace(named=lambda name, words: words, hear=lambda: None)
    runtime.fetch_logs = lambda numbers: None
    runtime.migration = SimpleNamespace(
        without=lambda *args: without(*args, [Need()] * len(learners))
    )
    runtime.moves = []

    def move(after, gone):
        runtime.moves.append((after, set(gone)))
        runtime.placement = after

    runtime.move = move
    return runtime


def test_two_nodes_that_are_lost_together_are_given_no_role_of_each_other():
    runtime = head_of((HEAD, 1, 2), (1, 2, 3))
    runtime.nodes.gone = [1, 2]
    runtime.look(0.0)
    ((after, gone),) = runtime.moves
    assert gone == {1, 2}
    assert set(after.homes) <= {HEAD, 3}
    assert after.epoch == 2, "agents wait for each epoch"
    assert [news.split(";")[0] for news in runtime.unread] == [
        "the node n1 is gone",
        "the node n2 is gone",
    ]


def test_a_node_whose_bridge_begins_is_given_no_role_of_one_that_is_lost():
    runtime = head_of((HEAD, 1), (1, 2))
    runtime.joining.starting.add(2)
    runtime.nodes.gone = [1]
    runtime.look(0.0)
    assert set(runtime.placement.homes) == {HEAD}
    runtime.members[2].status = NodeStatus(is_ready=True)
    runtime.relieve = lambda number: runtime.moves.append(number)
    runtime.look(0.0)
    assert runtime.moves[-1] == 2


def test_no_node_is_relieved_while_another_is_lost_and_its_turn_comes_again():
    runtime = head_of((HEAD, 1), (1, 2))
    runtime.joining.starting.add(2)
    runtime.members[2].status = NodeStatus(is_ready=True)
    runtime.relieve = lambda number: runtime.moves.append(number)
    runtime.members[1].is_lost = True
    runtime.add_joined()
    assert runtime.moves == []
    runtime.look(0.0)
    assert [move if isinstance(move, int) else "moved" for move in runtime.moves] == ["moved", 2]


@pytest.mark.parametrize("homes", [(HEAD,), (HEAD, 1)])
def test_what_goes_wrong_on_a_node_without_a_role_ends_no_run(homes):
    runtime = head_of(homes, (1,))
    runtime.members[1].unread = [NodeStatus(fatal=RoleDiedError("the process bridge has spent it"))]
    if len(homes) == 2:
        with refuses(RoleDiedError):
            runtime.look(0.0)
        return
    runtime.look(0.0)
    assert runtime.members == {}
    assert runtime.nodes.given_up == [1]
    assert runtime.unread == ["the node n1 cannot be used: the process bridge has spent it"]


@pytest.mark.parametrize("exact", [False, True])
def test_a_node_without_a_role_that_is_lost_costs_nothing(exact):
    """No node has a link with it, so that no placement changes, and no exact schedule ends."""
    runtime = head_of((HEAD, 1), (1, 2))
    runtime.node.assembly.config.exact = exact
    runtime.nodes.gone = [2]
    runtime.look(0.0)
    assert (runtime.moves, runtime.unread) == ([], ["the node n2 is gone"])
    assert runtime.members.keys() == {1}
    runtime.nodes.gone = [1]
    if exact:
        with refuses(RoleDiedError):
            runtime.look(0.0)
    else:
        runtime.look(0.0)
        assert len(runtime.moves) == 1


def test_no_run_is_over_because_an_actor_has_just_moved_to_a_node_that_had_none():
    """All actors of a node that has none have played."""
    runtime = head_of((1,), (1, 2), learners=(HEAD,))
    for member in runtime.members.values():
        member.status = NodeStatus(is_played=member.number == 2, epoch=1)
    runtime.nodes.gone = [1]
    assert not runtime.run_for(0.0)
    assert runtime.placement.homes == (2, HEAD)
    assert not runtime.run_for(0.0), "what it told is of the placement before"
    runtime.members[2].status = NodeStatus(is_played=True, epoch=2)
    assert runtime.run_for(0.0)


def test_no_run_is_over_before_what_was_overtaken_on_the_head_has_begun():
    runtime = head_of((HEAD,), (1,))
    runtime.local.here = [1]
    assert not runtime.run_for(0.0)
    runtime.local.here = [0, 1]
    assert runtime.run_for(0.0), "a node without a role has nothing to play"
    runtime.placement = Placement((HEAD,), (1,))
    runtime.local.here = [0]
    runtime.members[1].status = NodeStatus(is_played=True, epoch=1)
    runtime.look, runtime.lost = lambda _: None, {1: "is gone"}
    assert not runtime.run_for(0.0)


def test_the_heads_own_process_of_ray_is_no_node_that_is_gone():
    """No move would follow, by which what was overtaken begins."""
    runtime = head_of((HEAD, 1), (1,))
    runtime.nodes.gone = [HEAD]
    assert not runtime.is_another_lost()
    runtime.members[1].is_lost = True
    assert runtime.is_another_lost()


@pytest.mark.parametrize("homes", [(HEAD,), (HEAD, 1)])
def test_a_node_without_a_role_that_cannot_take_a_placement_ends_no_run(homes):
    runtime = head_of(homes, (1,))
    error = RemudaError("a full disk")

    def fail(_):
        raise error

    runtime.pending = [(1, SimpleNamespace(done=lambda: True, result=fail))]
    if len(homes) == 2:
        with refuses(RoleDiedError):
            runtime.look(0.0)
        return
    runtime.look(0.0)
    runtime.look(0.0)
    assert runtime.nodes.given_up == [1]
    assert runtime.members == {}


def test_restarts_elsewhere_are_counted_with_those_of_a_node():
    moved = MoveCounts()
    moved.note("actor", "a node is gone")
    moved.note("actor", "another is gone")
    roles = [RoleStatus(n, 1, "running", 0.0, 1) for n in ("actor", "learner")]
    first, second = map(moved.counted, roles)
    assert (first.restarts, first.problem) == (3, "another is gone")
    assert (second.restarts, second.problem) == (1, "")


class Runtime:
    """The processes of a node."""

    def __init__(self, here):
        self.here, self.waits = here, 0

    def run_for(self, seconds):
        self.waits += 1

    def move(self, here):
        self.here = here


def test_a_role_that_comes_begins_in_no_placement_that_is_overtaken(monkeypatch):
    """It would begin without what nodes told of it whose links are not there yet."""
    monkeypatch.setattr(node_module, "take_over", lambda *_: None)
    node = object.__new__(Node)
    node.number, node.assembly = 1, None
    node.plan = SimpleNamespace(pause=lambda: None, write=lambda *_: None, is_seen=True)
    node.traffic = SimpleNamespace(counts=np.zeros((3, len(Count)), np.int64))
    node.process_runtime = runtime = Runtime([0])  # 1 leaves, 2 comes
    node.checkpoints = None
    placement = Placement((1, 2), (1,), epoch=2)
    node.replace(placement, {}, None, lambda: runtime.waits == 3)
    assert runtime.here == [0]
    node.traffic.counts[:, Count.IN_STEP] = 3
    node.replace(Placement((1, 2), (1,), epoch=3), {}, None, lambda: True)
    assert runtime.here == [0, 2]
