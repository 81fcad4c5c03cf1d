"""What the supervisor of an actor knows of the workers that it waits for."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from remuda.envs.workers.pool import WorkerEnvs
from remuda.envs.workers.process import WorkerStatus
from remuda.runtime.child import Child, RoleSetup
from remuda.runtime.control import Control
from remuda.system.memory.waiting import Wakeup
from remuda.system.processes.activity import started
from support import Tape


def test_each_actor_has_words_of_its_own():
    first, second = WorkerStatus.of_all(2, 3)
    me = os.getpid()
    first.set_waiting(1, me)
    assert (first.waited_for(), second.waited_for()) == ([(me, started(me))], [])
    first.set_waiting(1, None)
    assert first.waited_for() == []


@pytest.mark.process
def test_a_worker_that_is_gone_is_not_told_of():
    (status,) = WorkerStatus.of_all(1, 1)
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    status.set_waiting(0, process.pid)
    assert status.waited_for() == []


def test_only_one_that_is_waited_for_is_said_to_compile():
    """What a worker of the actor before left behind means nothing."""
    (status,) = WorkerStatus.of_all(1, 2)
    me, before = os.getpid(), status.signs()
    status.set_compiling(0, me, True)
    assert not status.is_compiling()
    status.set_waiting(0, me)
    assert status.is_compiling()
    assert (status.compiled(), status.signs() != before) == (1, True)
    before = status.signs()
    status.set_compiling(0, me, False)
    assert not status.is_compiling()
    assert status.signs() != before
    status.set_compiling(0, me + 1, True)
    assert not status.is_compiling()
    status.reset()
    assert status.waited_for() == []


class Waits(Tape):
    """In the second of two processes, its third turn waits for a file, as it is told to wait."""

    def __init__(self, num_envs=1, until="", compiling=False, **options):
        super().__init__(num_envs, **options)
        self._until, self._compiling = until, compiling

    def end_turn(self):
        if self._turn[0] == 2 and self.first_copy:
            from numba.core import event

            if self._compiling:
                event.start_event("numba:compile")
            while not os.path.exists(self._until):
                time.sleep(0.01)
            if self._compiling:
                event.end_event("numba:compile")
        return super().end_turn()


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("compiling", [False, True])
def test_an_actor_tells_for_which_workers_it_waits(tmp_path, monkeypatch, compiling):
    """Only of those that owe an answer, only after a while, and no longer than it waits."""
    (status,) = WorkerStatus.of_all(1, 2)
    told, until = [], tmp_path / "until"
    env = WorkerEnvs(
        "envs.workers.test_worker_status:Waits",
        2,
        2,
        status=status,
        options={"until": str(until), "compiling": compiling},
    )
    set_waiting = WorkerStatus.set_waiting

    def tell(self, worker, pid):
        set_waiting(self, worker, pid)
        if worker == 1 and pid is not None:
            told.append((status.waited_for(), status.is_compiling()))
            until.touch()

    monkeypatch.setattr(WorkerStatus, "set_waiting", tell)
    try:
        env.reset(np.arange(2), np.ones(2, bool))
        pid = env.pids[1]
        for _ in range(3):
            env.begin_turn()
            env.end_turn()
        waited = [workers for workers, _ in told if pid in dict(workers)]
        assert (pid, started(pid)) in waited[0]
        assert any(compiles for _, compiles in told) == compiling
        assert status.compiled() >= compiling
        assert status.waited_for() == []
    finally:
        env.close()


@pytest.mark.process
def test_a_worker_tells_which_process_it_is():
    """Its actor's supervisor counts what it computes to what the actor has."""
    (status,) = WorkerStatus.of_all(1, 3)
    env = WorkerEnvs("support:Tape", 2, 2, status=status)
    try:
        assert status.processes() == [(pid, started(pid)) for pid in env.pids]
        assert len(env.pids) == 2
        status.reset()
        assert len(status.processes()) == 2, "they are the workers' own words"
    finally:
        env.close()


@pytest.mark.process
def test_an_actor_whose_workers_answer_is_not_silent_however_long_its_turn_takes(tmp_path):
    """It gives a heartbeat a turn, in which each of many requests may take a second."""
    (status,) = WorkerStatus.of_all(1, 2)
    control = Control((Wakeup(),))
    child = Child(0, RoleSetup(None, control.wakeups[0], None, workers=status), tmp_path / "log")
    env = WorkerEnvs("support:Tape", 2, 2, status=status, options={"num_agents": 12})
    try:
        env.reset(np.arange(2), np.ones(2, bool))
        child.hear(control, 0.0, os.getpid())
        seen = np.zeros((2, 5), np.float32)
        env.begin_turn()
        for agent in range(12):
            env.observe(agent, seen)
            env.act(agent, np.zeros(2, np.int64))
            assert child.hear(control, 0.9, os.getpid()) < 1.0, f"silent by agent {agent}"
        env.end_turn()
        assert child.hear(control, 0.9, os.getpid()) == 0.0
        assert child.hear(control, 0.9, os.getpid()) == 0.9, "it asks nothing now"
    finally:
        env.close()
