"""Environments in worker processes, in a real run: whoever dies, the run goes on."""

import os
import signal

import pytest

from faults.runs import env_workers, fail, restarts, run_until, start
from remuda.system.scoreboard import Learn, Play

pytestmark = pytest.mark.process

PPO = {
    "algorithm": "ppo",
    "network": {"hidden": (16,)},
    "ppo": {"rollout_length": 32},
    "experience": {"segment_length": 4, "wait_limit": 60.0},
    "publish": {"every": 1},
}


@pytest.mark.slow_cases("a worker")
@pytest.mark.parametrize(
    "who",
    [
        "a worker",
        *(pytest.param(w, marks=pytest.mark.slow) for w in ("a stopped worker", "the actor")),
    ],
)
def test_a_run_survives_the_death_of(who, tmp_path):
    ring, runtime = start(
        tmp_path,
        policy=PPO,
        env={"num_envs": 4, "workers": 2},
        # An actor sleeps while its workers work, and starve where the machine is busy.
        supervision={"silence_limit": 20.0 if who == "a stopped worker" else 200.0},
    )
    try:
        board, learn = ring.scoreboard, ring.scoreboard.learn("agent_0")
        run_until(runtime, lambda: learn[Learn.UPDATES] > 5)
        workers = env_workers()
        assert len(workers) == 2
        if who == "the actor":
            fail(runtime, "actor", "kill -9")
        else:
            os.kill(workers[1].pid, signal.SIGKILL if who == "a worker" else signal.SIGSTOP)
        run_until(runtime, lambda: restarts(runtime, "actor") == 1)
        before = board.play()[Play.TURNS], learn[Learn.UPDATES]
        run_until(runtime, lambda: board.play()[Play.TURNS] > before[0] + 1000)
        run_until(runtime, lambda: learn[Learn.UPDATES] > before[1] + 5)
        assert not any(worker.is_running() for worker in workers), "an old worker is left"
        assert len(env_workers()) == 2
        assert restarts(runtime, "actor") == 1
    finally:
        runtime.stop()
