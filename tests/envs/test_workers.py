"""Copies that worker processes step: the same game, and nothing left behind by any death."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from remuda.envs.contract import play
from remuda.envs.registry import make_env
from remuda.envs.workers import WorkerEnvs
from remuda.errors import RemudaError


@pytest.mark.parametrize("game", ["cleanup", "bucket_brigade", "pettingzoo:classic.tictactoe_v3"])
def test_it_is_the_same_game(game):
    alone, spread = make_env(game, 5), WorkerEnvs(game, 5, 3)
    assert spread.options() == alone.options()
    first, second = play(alone, seed=3), play(spread, seed=3)
    assert all(first.same_as(second, copy, copy) for copy in range(5))


def test_facts_come_along():
    envs = make_env("bucket_brigade", 4), WorkerEnvs("bucket_brigade", 4, 2)
    told = []
    for env in envs:
        env.reset(np.arange(4), np.ones(4, bool))
        while env.active.any():
            env.begin_turn()
            result = env.end_turn()
        told.append({name: values.copy() for name, values in result.info.items()})
        env.close()
    assert set(told[0]) == set(envs[0].facts)
    for name in told[0]:
        assert (told[0][name] == told[1][name]).all()


def children():
    return psutil.Process().children(recursive=True)


def test_closing_leaves_nobody_behind():
    before = len(children())
    env = WorkerEnvs("tag", 4, 3)
    assert len(children()) > before
    env.close()
    assert not [child for child in children() if child.name().startswith("rm:env-")]


def test_a_worker_that_is_killed_is_told():
    env = WorkerEnvs("tag", 4, 2)
    env.reset(np.arange(4), np.ones(4, bool))
    os.kill(env._processes[1].pid, signal.SIGKILL)
    with pytest.raises(RemudaError, match=r"worker 1 .*ended with exit code -9"):
        env.reset(np.arange(4), np.ones(4, bool))
    env.close()


def test_a_worker_that_cannot_make_its_copies_says_why():
    with pytest.raises(RemudaError, match=r"worker \d .*only one copy at a time"):
        WorkerEnvs("support:OneCopy", 4, 2)


@pytest.mark.parametrize("game", ["BreaksInTurnThree", "BreaksBesideASlowOne"])
def test_an_exception_in_a_worker_is_told(game):
    """Before it is told that the worker has ended; whatever the other worker does."""
    env = WorkerEnvs(f"support:{game}", 2, 2)
    env.reset(np.arange(2), np.ones(2, bool))
    for _ in range(2):
        env.begin_turn()
        env.end_turn()
    env.begin_turn()
    with pytest.raises(RemudaError, match=r"worker \d .*ZeroDivisionError: the third turn"):
        env.end_turn()
    env.close()


PARENT = """
from remuda.envs.workers import WorkerEnvs
import time

if __name__ == "__main__":
    env = WorkerEnvs("tag", 2, 2)
    print(*(process.pid for process in env._processes), flush=True)
    time.sleep(600)
"""


def test_workers_end_with_their_parent(tmp_path):
    """The parent is killed while its workers sleep; nobody is left."""
    program = tmp_path / "parent.py"
    program.write_text(PARENT)
    with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE) as parent:
        workers = [psutil.Process(int(word)) for word in parent.stdout.readline().split()]
        assert len(workers) == 2
        parent.kill()
    limit = time.monotonic() + 300
    while any(w.is_running() and w.status() != psutil.STATUS_ZOMBIE for w in workers):
        assert time.monotonic() < limit
        time.sleep(0.02)
