"""Processes: nobody waits for the stopped, or outlives the coordinator, or dies unsaid."""

import os
import subprocess
import sys
import time
from itertools import product

import psutil
import pytest

from faults.runs import (
    ALGORITHMS,
    StopsWhilePublishing,
    StopsWhileSampling,
    StopsWhileStarting,
    is_stopped,
    make_runtime,
    run_until,
    small_config,
    wait_until_gone,
)
from places import named_memory
from refusals import refuses
from remuda.config import overlay
from remuda.errors import RoleDiedError
from remuda.system.scoreboard import Learn, Play

QUICK = {
    ("ppo wait", StopsWhilePublishing, "snapshot"),
    ("ppo overwrite", StopsWhileSampling, "double_buffer"),
    ("dqn", StopsWhileSampling, "snapshot"),
}
STOPPED = [
    pytest.param(*each, marks=() if each in QUICK else pytest.mark.slow)
    for each in product(
        ALGORITHMS, (StopsWhilePublishing, StopsWhileSampling), ("snapshot", "double_buffer")
    )
]


@pytest.mark.process
@pytest.mark.slow_cases(
    "dqn-StopsWhileSampling-snapshot",
    "ppo overwrite-StopsWhileSampling-double_buffer",
    "ppo wait-StopsWhilePublishing-snapshot",
)
@pytest.mark.parametrize(("algorithm", "role", "mode"), STOPPED)
def test_the_actor_goes_on_while_a_learner_is_stopped(algorithm, role, mode, tmp_path):
    policy = overlay(ALGORITHMS[algorithm], {"publish": {"mode": mode}})
    config = small_config(policy=policy, run={"stop_limit": 1.0})
    ring, runtime = make_runtime(config, tmp_path, role)
    runtime.start(lambda: False)
    try:
        pid = runtime.pids["learner-agent_0"]
        run_until(runtime, lambda: is_stopped(pid))
        play, other = ring.scoreboard.play(), ring.scoreboard.learn("agent_1")
        turns, updates = play[Play.TURNS], other[Learn.UPDATES]
        # Longer than the ring: the actor overwrites what the stopped learner was copying.
        many = 4_000 if "wait" in algorithm else 10_000
        run_until(runtime, lambda: play[Play.TURNS] > turns + many)
        run_until(runtime, lambda: other[Learn.UPDATES] > updates + 10)
        assert is_stopped(pid)
        if "wait" in algorithm:
            assert play[Play.FORCED] > 0
        else:
            assert play[Play.WAITS] == 0
        assert ring.experience["agent_0"].overwritten > 0
    finally:
        runtime.stop()
    assert not psutil.pid_exists(pid)


@pytest.mark.slow
def test_who_has_not_begun_yet_is_not_waited_for(tmp_path):
    config = small_config(run={"stop_limit": 1000.0})
    _, runtime = make_runtime(config, tmp_path, StopsWhileStarting)
    learners = [f"learner-agent_{i}" for i in range(2)]
    runtime.start(lambda: all(is_stopped(runtime.pids.get(name)) for name in learners))
    pids = list(runtime.pids.values())
    runtime.stop()
    assert len(pids) == 3
    assert not any(psutil.pid_exists(pid) for pid in pids)


@pytest.mark.slow
def test_an_error_in_a_child_is_told_with_its_log(tmp_path):
    config = small_config(game="support:NoSuchGame")
    _, runtime = make_runtime(config, tmp_path)
    try:
        with refuses(RoleDiedError):
            runtime.start(lambda: False)  # it dies before it is ready
    finally:
        runtime.stop()
    assert "NoSuchGame" in (tmp_path / "actor.log").read_text()


@pytest.mark.process
def test_a_finished_actor_is_no_crash(tmp_path):
    ring, runtime = make_runtime(small_config(run={"turns": 500}), tmp_path)
    runtime.start(lambda: False)
    limit = time.monotonic() + 300
    while not runtime.run_for(0.05):
        assert time.monotonic() < limit
    assert ring.scoreboard.play()[Play.TURNS] == 500
    runtime.stop()
    # Every learner published its last weights before it went.
    for name in ("agent_0", "agent_1"):
        snapshot = ring.snapshots()[name]
        assert snapshot.learner_step == ring.scoreboard.learn(name)[Learn.UPDATES]


COORDINATOR = """
import sys
from pathlib import Path
from faults.runs import make_runtime, small_config
if __name__ == "__main__":
    ring, runtime = make_runtime(small_config(), Path(sys.argv[1]))
    runtime.start(lambda: False)
    print(*runtime.pids.values(), flush=True)
    while True:
        runtime.run_for(1.0)
"""


@pytest.mark.process
@pytest.mark.slow  # tests/faults/test_stopping.py kills that of a whole run, and waits likewise
def test_a_killed_coordinator_leaves_nothing_behind(tmp_path):
    script = tmp_path / "coordinator.py"
    script.write_text(COORDINATOR)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    coordinator = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)], stdout=subprocess.PIPE, env=environment
    )
    assert coordinator.stdout is not None
    pids = [int(pid) for pid in coordinator.stdout.readline().split()]
    assert len(pids) == 3
    assert named_memory(coordinator.pid, *pids) == set()  # so none can be left
    coordinator.kill()
    coordinator.wait(60)
    coordinator.stdout.close()
    wait_until_gone(pids, 30.0)
