"""Real Ray, two nodes on this machine: agents answer, die as they should, and leave nothing."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cluster_nodes import TOY, driven, is_there, until
from refusals import refuses
from remuda.cluster.ray_local import kill_session, members
from remuda.cluster.ray_nodes import RayNodes
from remuda.config import load_config
from remuda.errors import CannotStartError, ConfigError, NodeLostError, RemudaError

LIMIT = 60.0


def begun(**cluster):
    return RayNodes(load_config({"cluster": {"local": 2, **cluster}}))


@pytest.fixture
def nodes():
    made = begun()
    try:
        yield made
    finally:
        made.stop()


@pytest.mark.slow
def test_agents_answer_fail_in_their_own_words_and_leave_nothing():
    before = signal.getsignal(signal.SIGTERM)
    nodes = begun()
    infos = nodes.gather()
    directory = nodes.local.directory
    assert directory.is_dir()
    assert [(info.number, info.name, info.address) for info in infos] == [
        (0, "local-0", "127.0.0.1"),
        (1, "local-1", "127.0.0.1"),
    ]
    assert all(info.cores >= 1 and info.gpus == 0 for info in infos)
    assert signal.getsignal(signal.SIGTERM) is before
    for info in infos:
        nodes.start(info.number, TOY, (f"toy {info.number}",))
    found = [nodes.call(number, "who").result(LIMIT) for number in (0, 1)]
    assert [name for name, _, _ in found] == ["toy 0", "toy 1"]
    processes = [process for _, process, _ in found]
    assert len({os.getpid(), *processes}) == 3
    assert [session for _, _, session in found] == list(nodes.local.sessions.values())

    threads = nodes.call(1, "variable", "OMP_NUM_THREADS").result(LIMIT)
    assert threads == os.environ.get("OMP_NUM_THREADS")
    # What an agent writes goes with Ray's own files, even if it is killed.
    assert nodes.call(1, "variable", "TMPDIR").result(LIMIT) == str(directory)

    waiting = nodes.call(1, "wait", LIMIT)
    assert nodes.call(1, "echo", {"a": (1, b"x" * 300_000)}).result(LIMIT)["a"][0] == 1
    assert not waiting.done()
    with refuses(TimeoutError):
        waiting.result(0.05)
    nodes.call(1, "open")
    assert waiting.result(LIMIT) is True
    assert waiting.done()

    with refuses(ConfigError, "policy.x"):
        nodes.call(1, "fail", "config").result(LIMIT)
    with pytest.raises(CannotStartError) as caught:
        nodes.call(1, "fail", "start").result(LIMIT)
    assert str(caught.value).count("--run.fallback true") == 1
    assert caught.value.what == "no memory for actor 1"
    with pytest.raises(RemudaError) as own:  # Ray's folders are in the message
        nodes.call(1, "fail", "else").result(LIMIT)
    assert "toy_agents.py" in str(own.value.__cause__)
    assert "\n" not in str(own.value)
    with pytest.raises(RemudaError):
        nodes.call(1, "fail", "unsent").result(LIMIT)
    assert nodes.lost() == []
    for _ in range(10):  # those that were taken are not taken again
        assert nodes.joined() == []
        time.sleep(0.1)

    nodes.stop()
    sessions = nodes.local.sessions.values()
    assert [members(session) for session in sessions] == [[], []]
    assert not directory.exists()
    with pytest.raises(NodeLostError):
        nodes.call(1, "who").result(LIMIT)


@pytest.mark.cluster
@pytest.mark.slow
def test_what_an_agent_raises_as_it_is_made_is_raised_by_calls(nodes):
    nodes.gather()
    nodes.start(0, TOY, ("x", ConfigError("no such game")))
    nodes.start(1, "toy_agents:Nothing", ())
    with refuses(ConfigError):
        nodes.call(0, "who").result(LIMIT)
    with pytest.raises(ConfigError) as raised:
        nodes.call(1, "who").result(LIMIT)
    assert "toy_agents" in str(raised.value)
    assert "Nothing" in str(raised.value)


@pytest.mark.slow
def test_a_killed_node_is_lost_soon_and_another_takes_a_new_number(nodes):
    nodes.gather()
    for number in (0, 1):
        nodes.start(number, TOY, (str(number),))
    child = nodes.call(1, "begin_child").result(LIMIT)
    waiting = nodes.call(1, "wait", LIMIT)
    kill_session(nodes.local.sessions[1])
    found, _ = until(nodes.lost, 3.0)
    assert found == [1]
    assert nodes.lost() == []
    with pytest.raises(NodeLostError) as lost:  # Ray's words are in the message
        waiting.result(LIMIT)
    assert "local-1 is gone" in str(lost.value)
    with pytest.raises(NodeLostError):
        nodes.call(1, "who").result(LIMIT)
    until(lambda: not is_there(child), 3.0)
    assert nodes.call(0, "who").result(LIMIT)[0] == "0", "the other one goes on"

    nodes.local.add()
    nodes.local.wait(3, LIMIT)
    (info,), _ = until(nodes.joined, 30.0)
    assert (info.number, info.name) == (2, "local-2")
    nodes.start(2, TOY, ("2",))
    assert nodes.call(2, "who").result(LIMIT)[0] == "2"


@pytest.mark.slow
def test_an_agent_that_is_killed_is_lost_and_its_node_comes_back_as_another(nodes, monkeypatch):
    monkeypatch.setattr("remuda.cluster.ray_nodes.RETURN_AFTER", 0.5)
    nodes.gather()
    nodes.start(1, TOY, ("1",))
    _, process, session = nodes.call(1, "who").result(LIMIT)
    os.kill(process, signal.SIGKILL)
    assert until(nodes.lost, 3.0)[0] == [1]
    (info,), _ = until(nodes.joined, 30.0)
    assert (info.number, info.name) == (2, "local-1")
    nodes.start(2, TOY, ("2",))
    assert nodes.call(2, "who").result(LIMIT)[2] == session


@pytest.mark.slow
def test_a_stopped_node_is_given_up_and_never_heard_again(nodes, monkeypatch):
    monkeypatch.setattr("remuda.cluster.ray_nodes.RETURN_AFTER", 0.5)
    nodes.gather()
    nodes.start(1, TOY, ("1",))
    child = nodes.call(1, "begin_child").result(LIMIT)
    _, process, session = nodes.call(1, "who").result(LIMIT)
    stopped = members(session)
    for each in stopped:
        os.kill(each, signal.SIGSTOP)
    call = nodes.call(1, "who")
    with pytest.raises(TimeoutError):
        call.result(0.5)
    nodes.give_up(1)
    with pytest.raises(NodeLostError):
        nodes.call(1, "who").result(LIMIT)
    until(lambda: not is_there(process) and not is_there(child), 3.0)
    assert nodes.lost() == [], "who gave it up knows"
    for each in stopped:
        if is_there(each):
            os.kill(each, signal.SIGCONT)
    (info,), _ = until(nodes.joined, 30.0)
    assert info.number == 2
    nodes.start(2, TOY, ("2",))
    assert nodes.call(2, "who").result(LIMIT)[1] != process


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("killed", ["driver", "keeper", "both"])
def test_nothing_stays_once_the_driver_was_killed(killed):
    driver, told = driven({"local": 2})
    try:
        assert len(members(told["sessions"][1])) >= 4
        if killed != "driver":
            os.kill(told["keeper"], signal.SIGKILL)
        if killed != "keeper":
            driver.kill()
        until(lambda: not any(members(session) for session in told["sessions"]), 10.0)
        until(lambda: not (is_there(told["agent"]) or is_there(told["child"])), 3.0)
        until(lambda: not (is_there(told["keeper"]) or Path(told["directory"]).exists()), 10.0)
    finally:
        driver.kill()
        driver.wait()
        for session in told["sessions"]:
            kill_session(session)


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["first process", "raylet"])
def test_a_node_without_its_first_process_or_its_raylet_ends_as_a_whole(nodes, killed):
    nodes.gather()
    session = nodes.local.sessions[1]
    (raylet,) = [each for each in members(session) if "raylet/raylet" in command_of(each)]
    os.kill(raylet if killed == "raylet" else session, signal.SIGKILL)
    until(lambda: not members(session), 5.0)
    assert until(nodes.lost, 3.0)[0] == [1]


WITHOUT_SERVICE = """
import os, signal, time
from pathlib import Path
from remuda.cluster import ray_nodes
from remuda.cluster.ray_local import members
from remuda.cluster.ray_nodes import RayNodes
from remuda.config import load_config
from remuda.errors import RoleDiedError
ray_nodes.GONE_AFTER = 3.0
nodes = RayNodes(load_config({"cluster": {"local": 2}}))
nodes.gather()
for _ in range(20):  # those that were taken are not taken again
    assert nodes.joined() == []
    time.sleep(0.1)
sessions = list(nodes.local.sessions.values())
(service,) = [
    member
    for member in members(sessions[0])
    if "gcs_server" in Path(f"/proc/{member}/cmdline").read_text()
]
os.kill(service, signal.SIGKILL)
began = time.monotonic()
while True:
    assert 1 not in nodes.lost()
    try:
        nodes.joined()
    except RoleDiedError as error:
        print(error)
        break
    assert time.monotonic() < began + 60
    time.sleep(0.1)
nodes.stop()
assert not any(members(session) for session in sessions)
time.sleep(75)  # Ray would have ended this process by now
print("goes on")
"""


@pytest.mark.slow
def test_without_rays_control_service_the_run_ends_and_the_program_goes_on():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SERVICE],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    words, after = done.stdout.splitlines()
    assert "its control service has ended" in words
    assert after == "goes on"


def command_of(process):
    return Path(f"/proc/{process}/cmdline").read_text().split("\0")[0]


CHATTER = """
import os, signal, time
from remuda.cluster.ray_local import kill_session
from remuda.cluster.ray_nodes import RayNodes
from remuda.config import load_config
nodes = RayNodes(load_config({"cluster": {"local": 2}}))
nodes.gather()
nodes.start(1, "toy_agents:Toy", ("1",))
nodes.start(0, "toy_agents:Toy", ("0",))
waiting = nodes.call(0, "wait", 60)
os.kill(nodes.call(0, "who").result(60)[1], signal.SIGKILL)
nodes.call(1, "imported", "json").result(60)
kill_session(nodes.local.sessions[1])
while not nodes.lost():
    time.sleep(0.1)
time.sleep(6)  # Ray finds the worker and the node dead too
nodes.joined()
nodes.stop()
"""


@pytest.mark.cluster
@pytest.mark.slow
def test_ray_says_nothing_in_the_users_terminal():
    search = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-c", CHATTER],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": search},
    )
    assert done.stdout == ""


@pytest.mark.cluster
@pytest.mark.slow
def test_nodes_that_do_not_start_are_told(monkeypatch):
    monkeypatch.setattr("remuda.cluster.ray_local.OBJECT_STORE", 1)
    nodes = begun(start_limit=0.2)
    with refuses(RemudaError, "cluster.start_limit"):
        nodes.gather()
    assert nodes.local.directory is None or not nodes.local.directory.exists()
