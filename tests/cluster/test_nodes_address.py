"""Nodes of a Ray cluster that is there already: it is joined, sent the code, and left as it was."""

import os
import signal
import sys
import time

import pytest

from cluster_nodes import TOY, driven, is_there, until
from refusals import refuses
from remuda.cluster import ray_nodes
from remuda.cluster.ray_connect import import_ray
from remuda.cluster.ray_local import LocalNodes, members
from remuda.cluster.ray_nodes import RayNodes
from remuda.config import load_config
from remuda.errors import NodeLostError, RemudaError

LIMIT = 60.0


@pytest.fixture(scope="module")
def cluster():
    """A cluster that somebody else started."""
    import_ray(local=True)
    found = LocalNodes(2, cores=1, memory=10**9)
    try:
        found.wait(2, LIMIT)
        yield found
    finally:
        found.stop()


def begun(cluster, tree=None, **settings):
    settings = {"address": cluster.address, **settings}
    return RayNodes(load_config({**(tree or {}), "cluster": settings}))


@pytest.mark.slow
def test_own_code_is_sent_and_the_cluster_stays(cluster, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "sent_game_x.py").write_text("from sent_helpers_x.part import Game\n")
    (tmp_path / "sent_helpers_x").mkdir()
    (tmp_path / "sent_helpers_x" / "__init__.py").write_text("")
    (tmp_path / "sent_helpers_x" / "part.py").write_text("class Game: pass\n")
    __import__("sent_game_x")
    nodes = begun(cluster, {"game": "sent_game_x:Game"}, nodes=2)
    try:
        assert [info.number for info in nodes.gather()] == [0, 1]
        for number in (0, 1):
            nodes.start(number, TOY, ("x",))
            file = nodes.call(number, "imported", "sent_game_x").result(LIMIT)
            assert not file.startswith(str(tmp_path))
            assert nodes.call(number, "imported_by_child", "sent_game_x").result(LIMIT) == file
        agents = [nodes.call(number, "who").result(LIMIT)[1] for number in (0, 1)]
    finally:
        nodes.stop()
        for name in ("sent_game_x", "sent_helpers_x", "sent_helpers_x.part"):
            sys.modules.pop(name, None)
    until(lambda: not any(map(is_there, agents)), 5.0)
    assert all(members(session) for session in cluster.sessions.values())


@pytest.mark.slow
def test_agents_end_with_a_driver_that_is_killed(cluster):
    driver, told = driven({"address": cluster.address})
    assert is_there(told["agent"])
    assert is_there(told["child"])
    driver.kill()
    driver.wait()
    until(lambda: not (is_there(told["agent"]) or is_there(told["child"])), 5.0)


@pytest.mark.slow
def test_fewer_nodes_than_are_asked_for(cluster):
    nodes = begun(cluster, nodes=3, start_limit=1)
    with refuses(RemudaError):
        nodes.gather()


@pytest.mark.slow
@pytest.mark.parametrize(
    "tree",
    [
        {"actor": {"nodes": ["local-0", "big"]}},
        {"policy": {"node": "big"}},
        {"policies": {"a": {"node": "big=1"}}},
    ],
)
def test_a_label_that_no_node_has(cluster, tree):
    with refuses(RemudaError):
        begun(cluster, tree).gather()


@pytest.mark.slow
@pytest.mark.parametrize("what", ["Python", "Remuda", "torch"])
def test_a_node_of_another_version(cluster, what, monkeypatch):
    own = ray_nodes.versions() | {what: "9.9"}
    monkeypatch.setattr(ray_nodes, "versions", lambda: own)
    with refuses(RemudaError):
        begun(cluster).gather()


@pytest.mark.slow
def test_a_node_whose_remuda_has_another_source(cluster, monkeypatch):
    monkeypatch.setattr(ray_nodes, "digests", lambda names: dict.fromkeys(names, "0"))
    with refuses(RemudaError):
        begun(cluster).gather()


@pytest.mark.slow
def test_two_runs_never_share_a_node(cluster):
    driver, told = driven({"address": cluster.address})
    nodes = begun(cluster, start_limit=1)
    with refuses(RemudaError):
        nodes.gather()
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    nodes = begun(cluster)
    try:
        nodes.gather()
        nodes.start(1, TOY, ("1",))
        assert nodes.call(1, "who").result(LIMIT)[1] != told["agent"]
    finally:
        nodes.stop()


@pytest.mark.slow
def test_ray_that_was_joined_already_is_told(cluster):
    import ray

    ray.init(address=cluster.address, _node_ip_address="127.0.0.1", log_to_driver=False)
    try:
        with refuses(RemudaError, "ray.shutdown"):
            begun(cluster).gather()
    finally:
        ray.shutdown()


@pytest.mark.slow
def test_a_node_that_is_stopped_as_it_is_asked_is_told(cluster):
    nodes = begun(cluster, start_limit=3)
    stopped = members(cluster.sessions[1])
    for each in stopped:
        os.kill(each, signal.SIGSTOP)
    began = time.monotonic()
    try:
        with refuses((RemudaError, NodeLostError)):
            nodes.gather()
        assert time.monotonic() - began < 20
    finally:
        for each in stopped:
            os.kill(each, signal.SIGCONT)
