"""Where there are neither nameless memory, event counters, signals of a parent's death nor /proc.

So it is on macOS, whose ways are tried here by taking those of Linux away.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import remuda

pytestmark = pytest.mark.process

FOLDER = Path(__file__).parent / "without_linux"
WORDS = [
    *("train", "treasure_hunt", "--env.options.num_agents", "2", "--env.num_envs", "4"),
    *("--policy.network.hidden", "8", "--checkpoint.every", "1", "--run.evaluate_episodes", "2"),
]
PPO = ["--policy.algorithm", "ppo", "--policy.ppo.rollout_length", "32"]
DQN = ["--policy.algorithm", "dqn", "--policy.experience.learning_starts", "200"]
IQN = ["--policy.algorithm", "iqn", *DQN[2:], "--policy.publish.mode", "snapshot"]
ALGORITHMS = {"ppo": PPO, "dqn": DQN, "iqn, snapshot": IQN}


def started(directory, *words):
    """A run in a process of its own."""
    paths = [str(FOLDER), str(Path(__file__).parents[1]), *filter(None, sys.path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "remuda", *WORDS, *words, "--run.directory", str(directory)]
    with directory.with_suffix(".txt").open("w") as said:
        return subprocess.Popen(command, env=environment, stdout=said, stderr=subprocess.STDOUT)


def until(condition, what, seconds=300.0):
    """Wait for it."""
    limit = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < limit, f"{what} never came"
        time.sleep(0.05)
    return found


def updates(directory):
    """By role, its process, once every policy has been trained; else nothing."""
    try:
        status = json.loads((directory / "status.json").read_text())
    except (OSError, ValueError):
        return {}
    if not status["policies"] or min(p["updates"] for p in status["policies"].values()) < 3:
        return {}
    return {role["name"]: role["pid"] for role in status["roles"]}


@pytest.mark.slow_cases(
    "dqn-async",
    "dqn-lockstep",
    "iqn, snapshot-async",
    "iqn, snapshot-lockstep",
    "ppo-async",
    "ppo-lockstep",
)
@pytest.mark.parametrize("schedule", ["async", "lockstep"])
@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
def test_a_run_is_trained(algorithm, schedule, tmp_path):
    words = [*algorithm, "--schedule", schedule, "--run.turns", "4000"]
    with started(tmp_path / "run", *words) as run:
        assert run.wait(600) == 0, (tmp_path / "run.txt").read_text()
    trained = remuda.load(tmp_path / "run").metrics()
    assert min(trained[f"agent_{i}/updates"][-1] for i in range(2)) > 3
    assert trained["turns"][-1] >= 4000


@pytest.mark.slow_cases("iqn, snapshot", "ppo")
@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)
def test_who_is_killed_is_replaced_and_nobody_outlives_the_coordinator(algorithm, tmp_path):
    endless = ["--run.turns", "null", "--run.seconds", "3600", "--learners.processes", "2"]
    endless += ["--actor.processes", "1"]  # a trial on a busy machine may choose two
    run = started(tmp_path / "run", *algorithm, *endless)
    try:
        roles = until(lambda: updates(tmp_path / "run"), "an update of every policy")
        assert set(roles) == {"actor", "learner-agent_0", "learner-agent_1"}
        for killed in ("learner-agent_0", "actor"):
            before = updates(tmp_path / "run")[killed]
            os.kill(before, signal.SIGKILL)
            until(
                lambda killed=killed, before=before: (
                    updates(tmp_path / "run").get(killed) not in (None, before)
                ),
                f"a successor of the {killed}",
            )
        children = psutil.Process(run.pid).children(recursive=True)
        assert len(children) >= 3
        run.kill()
        run.wait()
        _, alive = psutil.wait_procs(children, 60)
        assert not alive
    finally:
        run.kill()
        run.wait()
