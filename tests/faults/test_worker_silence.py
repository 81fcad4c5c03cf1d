"""An actor sleeps while its workers work: what they do meanwhile decides whether it hangs."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass

import psutil
import pytest

from faults.runs import (
    SUPERVISION,
    env_workers,
    make_runtime,
    restarts,
    run_until,
    small_config,
    wait_until_gone,
)
from remuda.actor.role import ActorRole
from remuda.system.processes import client as forkserver
from remuda.system.scoreboard import Play
from support import Tape

LIMIT = 2.0
"""Seconds of silence in these runs."""


class Busy(Tape):
    """From its second episode on, the second worker's copies do what `how` says, once, in a turn.

    That lasts until the file `until` is there; `began` is made before.
    """

    def __init__(self, num_envs=1, how="", began="", until="", **options):
        super().__init__(num_envs, **options)
        self._how, self._began, self._until = how, began, until

    def end_turn(self):
        if self._how and self.first_copy and self._episode[0] == 1:
            how, self._how = self._how, ""
            if not os.path.exists(self._until):
                getattr(self, how)()
        return super().end_turn()

    def compile(self):
        """As Numba tells it, and without a word from anybody."""
        from numba.core import event

        with event.trigger_event("numba:compile"):
            self.sleep()

    def sleep(self):
        open(self._began, "w").close()
        while not os.path.exists(self._until):
            time.sleep(0.01)

    def compute(self):
        open(self._began, "w").close()
        while not os.path.exists(self._until):
            pass


class Slow(Tape):
    """A turn takes its workers as long as three times what an actor may be silent for."""

    def __init__(self, num_envs=1):
        super().__init__(num_envs, num_agents=12)

    def observe(self, agent, out):
        time.sleep(3 * LIMIT / 12)
        super().observe(agent, out)


def start(tmp_path, how, actor=ActorRole):
    began, until = tmp_path / "began", tmp_path / "until"
    options = {"how": how, "began": str(began), "until": str(until)}
    config = small_config(
        game="faults.test_worker_silence:Busy",
        env={"num_envs": 4, "workers": 2, "options": options},
        supervision=SUPERVISION | {"silence_limit": LIMIT},
    )
    ring, runtime = make_runtime(config, tmp_path, actor=actor)
    runtime.start(lambda: False)
    if how:
        run_until(runtime, began.exists)
    return ring, runtime, until


def worker(number):
    (found,) = (process for process in env_workers() if process.name() == f"rm:env-{number}")
    return found


def silence_of(runtime):
    """Seconds since the actor's last sign of life, whatever counts of them."""
    return next(status.heartbeat_age for status in runtime.status() if status.name == "actor")


def go_on(ring, runtime):
    turns = ring.scoreboard.play()[Play.TURNS]
    run_until(runtime, lambda: ring.scoreboard.play()[Play.TURNS] > turns + 100)


@pytest.mark.slow
def test_an_actor_whose_worker_compiles_is_not_killed(tmp_path):
    ring, runtime, until = start(tmp_path, "compile")
    try:
        run_until(runtime, lambda: silence_of(runtime) > 3 * LIMIT)
        until.touch()
        go_on(ring, runtime)
        assert restarts(runtime, "actor") == 0
    finally:
        runtime.stop()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["sleep", "compute"])
def test_an_actor_whose_worker_hangs_is_restarted(how, tmp_path):
    ring, runtime, until = start(tmp_path, how)
    try:
        stuck = worker(1)
        run_until(runtime, lambda: restarts(runtime, "actor") == 1)
        wait_until_gone([stuck.pid], 60.0)
        until.touch()  # its successor's does not hang
        go_on(ring, runtime)
        assert restarts(runtime, "actor") == 1
    finally:
        runtime.stop()


@pytest.mark.process
@pytest.mark.slow
def test_an_actor_whose_worker_answers_again_and_again_is_not_killed(tmp_path):
    """Each answer came within a second, so that nobody was said to be waited for."""
    config = small_config(
        game="faults.test_worker_silence:Slow",
        env={"num_envs": 2, "workers": 2},
        supervision=SUPERVISION | {"silence_limit": LIMIT},
    )
    ring, runtime = make_runtime(config, tmp_path, game=Slow)
    runtime.start(lambda: False)
    try:
        goal = ring.scoreboard.play()[Play.TURNS] + 2
        run_until(runtime, lambda: ring.scoreboard.play()[Play.TURNS] >= goal)
        assert restarts(runtime, "actor") == 0
    finally:
        runtime.stop()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="no way to starve a process")
def test_an_actor_whose_worker_gets_no_processor_is_not_killed(tmp_path):
    ring, runtime, until = start(tmp_path, "compute")
    spin = [sys.executable, "-c", "while True: pass"]
    spinners = []
    try:
        pid, starved, core = runtime.pids["actor"], worker(1).pid, {max(os.sched_getaffinity(0))}
        spinners = [subprocess.Popen(spin) for _ in range(4)]
        for spinner in spinners:
            os.sched_setaffinity(spinner.pid, core)
        for task in map(int, os.listdir(f"/proc/{starved}/task")):
            os.sched_setaffinity(task, core)
            os.sched_setscheduler(task, os.SCHED_IDLE, os.sched_param(0))
        run_until(runtime, lambda: silence_of(runtime) > 4 * LIMIT or restarts(runtime, "actor"))
        assert runtime.pids["actor"] == pid
        until.touch()
        for spinner in spinners:
            spinner.kill()
        go_on(ring, runtime)
        assert restarts(runtime, "actor") == 0
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
        runtime.stop()


@dataclass(frozen=True)
class LosesItsServer(ActorRole):
    """The fork server dies when it was asked for the workers, and has begun none of them."""

    def build(self):
        start, asked, server = forkserver.start, [], psutil.Process(os.getppid())
        server.suspend()
        while server.status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)

        def start_and_kill(*args, **kwargs):
            asked.append(start(*args, **kwargs))
            if len(asked) == self.config.env.workers:
                server.kill()
            return asked[-1]

        forkserver.start = start_and_kill
        try:
            return super().build()
        finally:
            forkserver.start = start
            assert [process.was_lost for process in asked[:2]] == [True] * 2


@pytest.mark.process
@pytest.mark.slow
def test_workers_that_are_lost_with_the_fork_server_cost_their_actor_nothing(tmp_path):
    """It ended by an exception: worker 0 of the environment ended with exit code 255."""
    try:
        ring, runtime, _ = start(tmp_path, "", LosesItsServer)
        try:
            go_on(ring, runtime)
            assert all(status.restarts == 0 for status in runtime.status())
        finally:
            runtime.stop()
    finally:
        forkserver.end()  # it is another one than before the test
