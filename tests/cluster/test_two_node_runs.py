"""Whole runs over two nodes that are processes here: equal to one node, and to `sequential`."""

import contextlib
import glob
import os
import pickle
import signal
import tempfile
import threading
import time
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from cluster.process_nodes import ProcessNodes
from equivalence.runs import PPO, assert_same, configure, run, stops
from refusals import refuses
from remuda.cluster.agent import sweep_homes
from remuda.cluster.cluster import Cluster
from remuda.cluster.nodes import Placement
from remuda.config import load_config, overlay
from remuda.errors import RemudaError
from remuda.population.ledger.ledger import BIRTH, BORN_WITH, FREEZE, MATCH, RETIRE, read_records
from remuda.system.checkpoint.names import COORDINATOR
from remuda.system.checkpoint.store import Checkpoints
from remuda.system.scoreboard import Learn, Play
from remuda.training.run import train
from remuda.ui.terminal.live import PlainView

pytestmark = pytest.mark.cluster

SCATTERED = Placement((0,), (0, 1))
"""In lockstep: the actor and a learner on the head, another learner elsewhere."""
APART = Placement((1,), (0,))
FIXED = {"env": {"options": {"num_agents": 3}}, "run": {"turns": 800}}
POPULATION = {
    "matchmaker": "self_play",
    "policies": 2,
    "snapshots": {"every": 1, "keep": 2},
    "births": {"slots": 1, "every": 6, "games": 1, "confidence": 0.0},
}
DEALT = {
    "env": {"num_envs": 4, "options": {"num_agents": 3, "max_turns": 30}},
    "population": POPULATION,
    "run": {"turns": 600},
    "policy": {"ppo": PPO | {"rollout_length": 10, "normalise_rewards": False}},
}


@pytest.fixture(autouse=True)
def own_place(monkeypatch, tmp_path_factory):
    """Agents make their directories in one of the test's own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("nodes")))
    monkeypatch.setattr(tempfile, "tempdir", None)


@pytest.fixture
def nodes(monkeypatch, request):
    """Lets runs with `cluster.local` have nodes that are processes, at places that a test says."""
    made = []

    def prepare(placement, count=2, cores=2):
        def gather(config):
            made.append(ProcessNodes(count, cores))
            return made[-1]

        monkeypatch.setattr("remuda.cluster.ray_nodes.RayNodes", gather)
        monkeypatch.setattr(Cluster, "place", lambda cluster, assembly: placement)
        return made

    before = set(descendants())
    yield prepare
    for each in made:
        each.stop()
    end = time.monotonic() + 10.0
    while (left := {p: w for p, w in descendants().items() if p not in before}) and (
        time.monotonic() < end
    ):
        time.sleep(0.1)
    assert not left
    if "gone" not in request.node.name:  # see the test of what it leaves
        assert not directories()


def directories():
    """Those of nodes."""
    return set(glob.glob(f"{tempfile.gettempdir()}/remuda-node-*"))


def descendants():
    """The processes that this one began, by id, but for its fork server, which stays."""
    found = {}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            line = " ".join(process.cmdline())
            is_server = process.ppid() == os.getpid() and " -c import sys" in line
            if not is_server and "resource_tracker" not in line:
                found[process.pid] = line[:200]
    return found


def over_nodes(directory, tree, *, resume=False, **more):
    tree = overlay(overlay(tree, {"schedule": "lockstep", "cluster": {"local": 2}}), more)
    return run(directory, resume=resume, **tree)


@pytest.mark.slow
@pytest.mark.parametrize("placement", [SCATTERED, APART], ids=["scattered", "apart"])
@pytest.mark.parametrize("algorithm", ["ppo", "mappo", "dqn", "iqn", "sac"])
def test_lockstep_over_two_nodes_equals_sequential(algorithm, placement, tmp_path, nodes):
    nodes(placement)
    tree = overlay(FIXED, {"policy": {"algorithm": algorithm}})
    if algorithm in ("ppo", "mappo"):
        tree = overlay(tree, {"policy": {"ppo": PPO}})
    learners = {"processes": len(placement.learners)}
    assert_same(
        run(tmp_path / "one", schedule="sequential", **tree),
        over_nodes(tmp_path / "two", tree, learners=learners),
    )


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_a_population_over_two_nodes_equals_sequential(algorithm, tmp_path, nodes):
    nodes(SCATTERED)
    tree = overlay(DEALT, {"policy": {"algorithm": algorithm}})
    assert_same(
        run(tmp_path / "one", schedule="sequential", **tree),
        over_nodes(tmp_path / "two", tree, learners={"processes": 2}),
        slice(2),
        updates=5,
    )
    ledgers = [(tmp_path / name / "ledger.bin").read_bytes() for name in ("one", "two")]
    assert ledgers[0] == ledgers[1]
    kinds = set(read_records(tmp_path / "two" / "ledger.bin")[1]["kind"])
    assert kinds == {MATCH, FREEZE, RETIRE, BIRTH, BORN_WITH}


@pytest.mark.slow
@pytest.mark.parametrize(
    "tree", [overlay(FIXED, {"policy": {"ppo": PPO}}), DEALT], ids=["fixed", "dealt"]
)
def test_a_run_that_is_resumed_over_two_nodes_equals_one_that_was_not_interrupted(
    tree, tmp_path, nodes
):
    nodes(SCATTERED)
    tree = overlay(tree, {"policy": {"algorithm": "ppo"}, "learners": {"processes": 2}})
    (stop,) = stops(str(tree), last=tree["run"]["turns"] - 40)
    over_nodes(tmp_path / "two", tree, run={"turns": stop})
    assert_same(
        run(tmp_path / "one", schedule="sequential", **tree),
        over_nodes(tmp_path / "two", tree, resume=True),
        slice(2),
        updates=5,
    )


def wait_until_it_plays(made, directory):
    while not (made and 1 in made[-1].processes and (directory / "status.json").exists()):
        time.sleep(0.05)
    time.sleep(2.0)


def check_steps(directory):
    """No step is trained twice: what was trained, waits or is lost is at most what was written."""
    kept = Checkpoints(directory / "checkpoints")
    found = kept.read(kept.numbers()[-1], COORDINATOR)
    for steps, row in zip(found["written"].values(), found["scoreboard"]["learn"], strict=True):
        assert 0 < row[Learn.TRAINED] + row[Learn.LOST] <= steps
    return found["scoreboard"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_node_that_is_gone_costs_no_turns_of_others(how, tmp_path, nodes):
    made = nodes(Placement((0, 1), (0, 1)))
    tree = {
        "schedule": "async",
        "cluster": {"local": 2, "silence": 3.0},
        "env": {"num_envs": 4, "options": {"num_agents": 2}},
        "actor": {"processes": 2},
        "learners": {"processes": 2},
        "policy": {"algorithm": "ppo", "ppo": {"rollout_length": 20}},
        "run": {"turns": 150_000},
    }
    seen, stopped = [], []

    def strike():
        wait_until_it_plays(made, tmp_path / "run")
        pid = made[-1].pid(1)
        own = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        if how == "killed":
            os.kill(pid, signal.SIGKILL)
        else:
            for process in own:
                process.suspend()
            stopped.extend(own)

    thread = threading.Thread(target=strike)
    thread.start()
    try:
        view = PlainView()
        say = view.say
        view.say = lambda line: (seen.append(line), say(line))
        train(configure(tmp_path / "run", **tree), view)
    finally:
        thread.join()
        for process in stopped:
            if process.is_running():
                process.kill()
    board = check_steps(tmp_path / "run")
    assert board["play"][Play.TURNS] >= tree["run"]["turns"]
    assert np.isfinite(board["learn"][:, Learn.UPDATES]).all()
    assert any("node-1" in line for line in seen), "nobody was told"


@pytest.mark.slow
def test_in_an_exact_schedule_a_node_that_is_gone_ends_the_run(tmp_path, nodes):
    made = nodes(SCATTERED)

    def strike():
        wait_until_it_plays(made, tmp_path / "two")
        os.kill(made[-1].pid(1), signal.SIGKILL)

    thread = threading.Thread(target=strike)
    thread.start()
    with refuses(RemudaError):
        over_nodes(tmp_path / "two", FIXED, run={"turns": 10**7}, learners={"processes": 2})
    thread.join()


@pytest.mark.slow
def test_what_a_killed_node_leaves_is_swept():
    made = ProcessNodes(2)
    spec = SimpleNamespace(config=load_config({}))
    recipe = pickle.dumps(SimpleNamespace(checkpoints="", spec=spec))
    made.start(1, "remuda.cluster.agent:NodeAgent", (recipe,))
    made.call(1, "poll").result(60.0)
    assert len(directories()) == 1
    made.stop()
    sweep_homes()  # as the head does at its end, and the next agent at its beginning
    assert not directories()
