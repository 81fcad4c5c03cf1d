"""Copies that worker processes step: the same game, and nothing left behind by any death."""

import contextlib
import errno
import gc
import os
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from refusals import refuses
from remuda.envs.registry import make_env
from remuda.envs.traces import play
from remuda.envs.workers import pool
from remuda.envs.workers.pool import WorkerEnvs
from remuda.errors import RemudaError, UserCodeError
from remuda.system.processes import client as forkserver

pytestmark = pytest.mark.process


@pytest.mark.slow_cases("cleanup", "pettingzoo:classic.tictactoe_v3")
@pytest.mark.parametrize("game", ["cleanup", "bucket_brigade", "pettingzoo:classic.tictactoe_v3"])
def test_it_is_the_same_game(game):
    alone, spread = make_env(game, 5), WorkerEnvs(game, 5, 3)
    assert spread.options() == alone.options()
    first, second = play(alone, seed=3), play(spread, seed=3)
    assert all(first.same_as(second, copy, copy) for copy in range(5))


@pytest.mark.parametrize("name", ["check", "first_copy", "game", "self", "name"])
def test_an_option_may_be_called_as_anything(name):
    """Red before: these were taken for parameters of the workers."""
    env = WorkerEnvs("envs.workers.test_workers:named", 2, 2, options={name: 3})
    assert env.options() == {name: 3}
    env.close()


def named(num_envs, **options):
    env = make_env("tag", num_envs)
    env.options = lambda: options
    return env


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
    assert set(told[0]) == set(envs[0].episode_metrics)
    for name in told[0]:
        assert (told[0][name] == told[1][name]).all()


def children():
    return psutil.Process().children(recursive=True)


def test_closing_leaves_nobody_behind():
    before = len(children())
    env = WorkerEnvs("tag", 4, 3)
    assert len(children()) > before
    env.close()
    assert not workers_left()


@pytest.mark.slow
def test_a_worker_that_is_killed_is_told():
    env = WorkerEnvs("tag", 4, 2)
    env.reset(np.arange(4), np.ones(4, bool))
    os.kill(env.pids[1], signal.SIGKILL)
    with refuses(RemudaError):
        env.reset(np.arange(4), np.ones(4, bool))
    env.close()


def test_a_worker_that_cannot_make_its_copies_says_why():
    with refuses(UserCodeError):
        WorkerEnvs("support:OneCopy", 4, 2)


@pytest.mark.slow_cases("BreaksBesideASlowOne")
@pytest.mark.parametrize("game", ["BreaksInTurnThree", "BreaksBesideASlowOne"])
def test_an_exception_in_a_worker_is_told(game):
    """Before it is told that the worker has ended; whatever the other worker does."""
    env = WorkerEnvs(f"support:{game}", 2, 2)
    env.reset(np.arange(2), np.ones(2, bool))
    for _ in range(2):
        env.begin_turn()
        env.end_turn()
    env.begin_turn()
    with refuses(UserCodeError):
        env.end_turn()
    env.close()


@pytest.mark.slow
def test_workers_whose_fork_server_dies_before_they_begin_are_asked_for_again(monkeypatch):
    """It was told as `worker 0 ... ended with exit code 255`."""
    forkserver.begin()
    server = psutil.Process(forkserver.server_pid())
    server.suspend()
    limit = time.monotonic() + 60
    while server.status() != psutil.STATUS_STOPPED:
        assert time.monotonic() < limit
        time.sleep(0.01)
    start, asked = forkserver.start, []

    def start_and_kill(*args, **kwargs):
        asked.append(start(*args, **kwargs))
        if len(asked) == 3:
            server.kill()
        return asked[-1]

    monkeypatch.setattr(forkserver, "start", start_and_kill)
    monkeypatch.setattr(pool, "GLANCE", 0.05)
    env = WorkerEnvs("tag", 3, 3)
    assert [process.was_lost for process in asked[:3]] == [True] * 3
    assert len(asked) == 6
    env.reset(np.arange(3), np.ones(3, bool))
    env.close()
    assert not workers_left()


def test_workers_that_are_lost_again_and_again_are_told(monkeypatch):
    """A server that dies by every request: after a few attempts the failure is the user's."""
    forkserver.begin()
    server = psutil.Process(forkserver.server_pid())
    server.suspend()
    start, asked = forkserver.start, []

    def start_and_give_up(*args, **kwargs):
        asked.append(start(*args, **kwargs))
        asked[-1].kill()  # as if the server had died
        return asked[-1]

    monkeypatch.setattr(forkserver, "start", start_and_give_up)
    monkeypatch.setattr(pool, "GLANCE", 0.05)
    try:
        with refuses(RemudaError):
            WorkerEnvs("tag", 1, 2)
    finally:
        server.resume()
    assert 1 < len(asked) < 10


def workers_left():
    """Those that live: who has ended is reaped by the server when it comes to it."""
    left = []
    for child in children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.name().startswith("rm:env-") and child.status() != psutil.STATUS_ZOMBIE:
                left.append(child)
    return left


def descriptors():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def child_ended(monkeypatch):
    """For each child that the fork server is asked for False, and True when it is let go."""
    gc.collect()  # those of other tests
    told, send, release = [], forkserver.Server.send, forkserver.Server.child_ended

    def asked(server, parts):
        send(server, parts)
        told.append(False)

    def ended(server):
        release(server)
        told.append(True)

    monkeypatch.setattr(forkserver.Server, "send", asked)
    monkeypatch.setattr(forkserver.Server, "child_ended", ended)
    return told


def fail_to_make(monkeypatch, how):
    """Try to make one that cannot be made."""
    if how == "a worker raises":
        with refuses(RemudaError):
            WorkerEnvs("support:OneCopy", 3, 2)
        return
    error = KeyboardInterrupt() if how == "Ctrl-C" else OSError(errno.EAGAIN, "no more processes")
    start, asked = forkserver.start, []

    def start_one(*args, **kwargs):
        if asked:
            raise error
        asked.append(start(*args, **kwargs))
        return asked[-1]

    with monkeypatch.context() as patch:
        patch.setattr(forkserver, "start", start_one)
        with pytest.raises(KeyboardInterrupt if how == "Ctrl-C" else RemudaError):
            WorkerEnvs("tag", 3, 2)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["a worker raises", "no process for the second", "Ctrl-C"])
def test_one_that_cannot_be_made_leaves_nothing_open(monkeypatch, how, child_ended):
    """It left a descriptor for each worker, and those that had begun until they were collected."""
    WorkerEnvs("tag", 2, 2).close()  # the server, and what is loaded once
    before = descriptors()
    for _ in range(3):
        fail_to_make(monkeypatch, how)
        assert not workers_left()
    assert descriptors() == before
    assert child_ended.count(True) == child_ended.count(False) > 0


@pytest.mark.slow
def test_one_whose_worker_broke_is_closed(monkeypatch):
    WorkerEnvs("tag", 2, 2).close()
    before = descriptors()
    env = WorkerEnvs("support:BreaksInTurnThree", 2, 2)
    env.reset(np.arange(2), np.ones(2, bool))
    for _ in range(2):
        env.begin_turn()
        env.end_turn()
    env.begin_turn()
    with refuses(RemudaError):
        env.end_turn()
    assert not workers_left()
    with refuses(RemudaError):
        env.reset(np.arange(2), np.ones(2, bool))
    env.close()
    env.close()
    del env
    assert descriptors() == before


PARENT = """
from remuda.envs.workers.pool import WorkerEnvs
import time

if __name__ == "__main__":
    env = WorkerEnvs("tag", 2, 2)
    print(*env.pids, flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_workers_end_with_their_parent(tmp_path):
    """The parent is killed while its workers sleep; none of them is left."""
    program = tmp_path / "parent.py"
    program.write_text(PARENT)
    with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE) as parent:
        left = [psutil.Process(int(word)) for word in parent.stdout.readline().split()]
        assert len(left) == 2
        parent.kill()
    limit = time.monotonic() + 300
    while any(w.is_running() and w.status() != psutil.STATUS_ZOMBIE for w in left):
        assert time.monotonic() < limit
        time.sleep(0.02)
