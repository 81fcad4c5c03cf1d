"""What cannot be a cluster is refused in one line, before anything is started."""

import socket
import sys
import time
from types import SimpleNamespace

import pytest

import remuda
from refusals import refuses
from remuda.cluster import ray_connect
from remuda.cluster.nodes import NodeInfo
from remuda.cluster.ray_code import difference, digests, named_modules, own_code, versions
from remuda.cluster.ray_nodes import RayNodes
from remuda.config import load_config
from remuda.config.resume_rules import changes
from remuda.config.unused_settings import unused_settings
from remuda.errors import ConfigError, RemudaError
from remuda.ui.terminal.live import PlainView


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        (
            {"schedule": "sequential", "cluster": {"local": 2}},
            "schedule is 'sequential', which is one process on one machine, and cluster.local asks",
        ),
        (
            {"schedule": "sequential", "cluster": {"address": "auto"}},
            "cluster.address asks for several nodes; use async or lockstep",
        ),
        (
            {"cluster": {"address": "auto", "local": 2}},
            "cluster.address is 'auto' and local is 2",
        ),
        ({"cluster": {"local": -1}}, "cluster.local is -1"),
        ({"cluster": {"nodes": -1}}, "cluster.nodes is -1"),
        ({"cluster": {"address": "here"}}, "cluster.address.'here' is no address; give auto, or"),
        ({"cluster": {"address": "a:b"}}, "'a:b' is no address"),
        ({"cluster": {"address": "a:99999"}}, "'a:99999' is no address"),
        ({"cluster": {"address": "ray://a:10001"}}, "is for Ray's client"),
        ({"cluster": {"ports": "20000"}}, "'20000' is no range of ports; give the first and the"),
        ({"cluster": {"ports": "20099-20000"}}, "no range of ports from 1024 to 65535"),
        ({"cluster": {"ports": "80-90"}}, "no range of ports from 1024 to 65535"),
        ({"cluster": {"ports": "60000-70000"}}, "no range of ports from 1024 to 65535"),
        ({"cluster": {"silence": 0}}, "cluster.silence is 0"),
        ({"cluster": {"start_limit": 0}}, "cluster.start_limit is 0"),
    ],
)
def test_settings_that_make_no_cluster(tree, said):
    with pytest.raises(ConfigError) as caught:
        load_config(tree)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_settings_that_make_one():
    config = load_config({"cluster": {"address": "10.0.0.1:6379", "ports": "20000-20001"}})
    assert config.cluster.used
    assert load_config({"cluster": {"local": 1}, "schedule": "lockstep"}).cluster.used
    assert not load_config({}).cluster.used


@pytest.mark.parametrize(
    ("tree", "keys"),
    [
        ({"cluster": {"ports": "20000-20099"}}, ["cluster.ports"]),
        ({"cluster": {"local": 2, "nodes": 2}}, ["cluster.nodes"]),
        ({"cluster": {"local": 2, "shared_directory": True}}, ["cluster.shared_directory"]),
        ({"actor": {"nodes": ["big"]}}, ["actor.nodes"]),
        ({"policy": {"node": "big"}}, ["policy.node"]),
        ({"policies": {"agent_0": {"node": "big"}}}, ["policies.agent_0.node"]),
        ({"cluster": {"local": 2}, "policies": {"agent_0": {"node": "big"}}}, []),
        ({"cluster": {"address": "auto", "nodes": 3, "silence": 3}}, []),
        ({"cluster": {"local": 2, "weights_every": 3}, "actor": {"nodes": ["big"]}}, []),
    ],
)
def test_settings_without_a_cluster_are_told(tree, keys):
    told = unused_settings(load_config(tree))
    assert [words.split()[0] for words in told] == keys
    assert unused_settings(load_config(tree), (), resumed=True) == []


def test_a_node_that_was_written_is_told_on_resume_too():
    (words,) = unused_settings(load_config({}), ("policy.node",), resumed=True)
    assert words == "policy.node has no effect without cluster.address or cluster.local"


def test_a_resumed_run_may_have_another_cluster():
    tree = {"cluster": {"local": 2}, "policy": {"node": "a"}, "actor": {"nodes": ["b"]}}
    found = changes(load_config({}), load_config(tree))
    assert [each.key for each in found] == ["policy.node", "actor.nodes", "cluster.local"]
    assert all(each.allowed for each in found)


def test_ray_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with refuses(RemudaError):
        RayNodes(load_config({"cluster": {"local": 2}}))


def test_ray_that_is_not_installed_leaves_no_run_behind(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    directory = tmp_path / "run"
    settings = {"cluster": {"local": 2}, "run": {"directory": directory, "turns": 10}}
    with refuses(RemudaError):
        remuda.train("support:Tape", config=settings, view=PlainView())
    assert not directory.exists()


def test_ray_that_is_too_old(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(__version__="2.8.1"))
    with refuses(RemudaError):
        RayNodes(load_config({"cluster": {"address": "auto"}}))


@pytest.mark.parametrize("text", ["3.0.0.dev0", "2.40.0", "2.60.0rc1", "master"])
def test_ray_that_is_new_enough(text):
    assert ray_connect.version_of(text) >= ray_connect.OLDEST


def refusal(address):
    began = time.monotonic()
    with pytest.raises(RemudaError) as caught:
        RayNodes(load_config({"cluster": {"address": address}}))
    assert time.monotonic() - began < 10
    return str(caught.value)


def test_an_address_where_nothing_listens():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))  # and does not listen
        port = other.getsockname()[1]
        said = refusal(f"127.0.0.1:{port}")
    assert f"no Ray cluster answers at 127.0.0.1:{port}" in said
    assert "ray start --head" in said


@pytest.mark.parametrize("words", [b"", b"SSH-2.0-OpenSSH_9.6\r\n"])
def test_an_address_where_something_else_listens(words, monkeypatch):
    monkeypatch.setattr(ray_connect, "REACH_LIMIT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(5)
        import threading

        held = []

        def answer():
            held.append(server.accept()[0])
            held[0].sendall(words)

        thread = threading.Thread(target=answer)
        thread.start()
        said = refusal(f"127.0.0.1:{server.getsockname()[1]}")
        thread.join()
        held[0].close()
    assert "no Ray cluster answers at" in said


def test_auto_where_no_cluster_runs(monkeypatch):
    from ray._private import services

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(services, "find_gcs_addresses", set)
    monkeypatch.setattr(services, "find_bootstrap_address", lambda directory: None)
    assert "no Ray cluster runs on this machine" in refusal("auto")


def test_labels_and_names_mean_nodes():
    node = NodeInfo(1, "fast", "10.0.0.2", 8, 1, {"zone": "a", "gpu": ""})
    means = ("fast", "zone", "gpu", "zone=a")
    assert all(node.has_label(label) for label in means)
    assert not any(node.has_label(label) for label in ("slow", "zone=b", "zone=", "fast=a", ""))


def test_another_version_or_source_on_a_node_is_told():
    here = {"versions": versions(), "digests": digests(["remuda", "json"])}
    assert difference(here, here, "b") is None
    for what in here["versions"]:
        there = {**here, "versions": {**here["versions"], what: "9.9"}}
        said = difference(here, there, "b")
        assert said.startswith(f"node b has {what} 9.9, and this machine has")
    there = {**here, "digests": {**here["digests"], "json": "0"}}
    assert difference(here, there, "b").startswith("the source of json on node b differs")
    there = {**here, "digests": {**here["digests"], "json": ""}}
    assert difference(here, there, "b").startswith("node b has no module json")


def test_a_digest_is_of_the_source_alone(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "some_package_x"
    package.mkdir()
    (package / "__init__.py").write_text("a = 1")
    (package / "b.py").write_text("b = 1")
    before = digests(["some_package_x"])
    (package / "data.txt").write_text("0")
    assert digests(["some_package_x"]) == before
    (package / "b.py").write_text("b = 2")
    after = digests(["some_package_x"])
    assert after != before
    (package / "b.py").rename(package / "c.py")
    assert digests(["some_package_x"]) not in (before, after)
    assert digests(["some_package_y"]) == {"some_package_y": ""}


def test_what_was_loaded_from_the_folder_of_an_own_module_is_sent(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_game_x.py").write_text("import own_helpers_x")
    package = tmp_path / "own_helpers_x"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (tmp_path / "own_other_x.py").write_text("")
    tree = {"game": "own_game_x:Game", "policy": {"algorithm": "json:loads", "device": "cuda:0"}}
    names = named_modules(tree | {"x": ["pickled:Game-12345678", "runs/x:agent", "remuda.x:y"]})
    assert names == ["own_game_x", "json"]
    assert own_code(names, with_pickles=False) == [str(tmp_path / "own_game_x.py")]
    __import__("own_game_x")
    monkeypatch.delitem(sys.modules, "own_game_x")
    sent = own_code(names, with_pickles=False)
    assert sent == [str(tmp_path / "own_game_x.py"), str(package)]
    monkeypatch.setattr("remuda.cluster.ray_code.LARGEST", 3)
    with refuses(RemudaError):
        own_code(names, with_pickles=False)
    monkeypatch.delitem(sys.modules, "own_helpers_x")
