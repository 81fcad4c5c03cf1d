"""Starts: a child may die at any instant of its own, and the system may refuse to start one."""

import errno
import os
import signal
import threading
import time
from dataclasses import dataclass, field

import psutil
import pytest

from faults.runs import (
    FAULTS,
    SUPERVISION,
    SabotagedActor,
    SabotagedLearner,
    fail,
    is_stopped,
    lives,
    make_runtime,
    restarts,
    run_until,
    small_config,
    start,
    wait_until_gone,
)
from refusals import refuses
from remuda.actor.role import ActorRole
from remuda.errors import CannotStartError, ConfigError, RoleDiedError
from remuda.learner.role import LearnerRole
from remuda.runs.run_directory import RunDirectory
from remuda.system.processes import client as forkserver
from remuda.system.scoreboard import Learn, Play
from remuda.training.run import train
from remuda.ui.terminal.live import PlainView


class Bomb:
    """Sends a signal to the process that unpickles it."""

    def __init__(self, number):
        self.number = number

    def __reduce__(self):
        return _explode, (self.number,)


def _explode(number):
    os.kill(os.getpid(), number)


@dataclass(frozen=True)
class DiesWhileItIsRead(ActorRole):
    """Its process dies before it has read all of its recipe, of which there is a lot."""

    bomb: Bomb = field(default_factory=lambda: Bomb(signal.SIGKILL))
    ballast: bytes = bytes(2**22)


@dataclass(frozen=True)
class StopsWhileItIsRead(ActorRole):
    """Its process is stopped there."""

    bomb: Bomb = field(default_factory=lambda: Bomb(signal.SIGSTOP))
    ballast: bytes = bytes(2**22)


@pytest.fixture
def watchdog():
    """Kill the children if the test hangs where the coordinator must not."""
    limit = threading.Timer(
        60.0, lambda: [child.kill() for child in psutil.Process().children(recursive=True)]
    )
    limit.start()
    yield limit
    assert limit.is_alive(), "the coordinator hung"
    limit.cancel()


@pytest.mark.process
def test_a_child_that_dies_before_it_has_read_its_recipe_hangs_nobody(tmp_path, watchdog):
    _, runtime = make_runtime(small_config(), tmp_path, actor=DiesWhileItIsRead)
    try:
        with refuses(RoleDiedError):
            runtime.start(lambda: False)
    finally:
        runtime.stop()


@pytest.mark.process
def test_one_that_stops_there_can_be_left_by_ctrl_c(tmp_path, watchdog):
    _, runtime = make_runtime(small_config(), tmp_path, actor=StopsWhileItIsRead)
    try:
        runtime.start(lambda: is_stopped(runtime.pids.get("actor")))
    finally:
        runtime.stop()


@pytest.mark.slow  # tests/system/processes/test_client.py kills one beside a child without a run
def test_a_killed_fork_server_stops_nobody(tmp_path):
    ring, runtime = start(tmp_path)
    try:
        learn, play = ring.scoreboard.learn("agent_0"), ring.scoreboard.play()
        before = forkserver.server_pid()
        os.kill(before, signal.SIGKILL)
        wait_until_gone([before], 10.0)
        turns, updates = play[Play.TURNS], learn[Learn.UPDATES]
        run_until(runtime, lambda: play[Play.TURNS] > turns + 1000)
        run_until(runtime, lambda: learn[Learn.UPDATES] > updates + 5)
        assert all(status.restarts == 0 for status in runtime.status())
        # Its children's deaths are still seen, and successors come from another server.
        fail(runtime, "learner-agent_0", "kill -9")
        assert forkserver.server_pid() not in (None, before)
        assert restarts(runtime, "actor") == 0
    finally:
        runtime.stop()
        forkserver.end()  # it is another one than before the test


@pytest.mark.slow
def test_a_fork_server_that_does_not_answer_is_done_without(tmp_path):
    forkserver.begin()
    server = forkserver.server_pid()
    os.kill(server, signal.SIGSTOP)
    config = small_config(run={"start_limit": 1.0})
    _, runtime = make_runtime(config, tmp_path)
    try:
        runtime.start(lambda: not lives(server))
        assert forkserver.ProcessState.why_not
        runtime.start_limit = 120.0
        run_until(runtime, lambda: all(s.state == "running" for s in runtime.status()))
    finally:
        runtime.stop()


def refuse(monkeypatch):
    def start(*_, **__):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(forkserver, "start", start)


def test_where_no_process_can_be_started_a_way_without_is_offered(tmp_path, monkeypatch):
    refuse(monkeypatch)
    _, runtime = make_runtime(small_config(), tmp_path)
    try:
        with refuses(CannotStartError):
            runtime.start(lambda: False)
    finally:
        runtime.stop()


def test_a_run_falls_back_to_one_process_where_it_is_told_to(tmp_path, monkeypatch):
    refuse(monkeypatch)
    told = []
    view = PlainView()
    view.say = told.append
    run = {"turns": 300, "seconds": None, "directory": str(tmp_path / "run"), "fallback": True}
    assert train(small_config(run=run), view).finished
    assert any("could not be started" in line and "in one process" in line for line in told)


@pytest.mark.slow_cases("policy1")
@pytest.mark.parametrize(
    "policy",
    [
        {"time_budget": 0.1},
        {"experience": {"replay_ratio": None}},
    ],
)
def test_a_fallback_that_could_not_be_is_refused_before_there_is_a_directory(policy, tmp_path):
    """It was found out once a process could not be started: about a schedule nobody asked for."""
    run = {"turns": 300, "seconds": None, "directory": str(tmp_path / "run"), "fallback": True}
    with refuses(ConfigError):
        train(small_config(run=run, policy=policy), PlainView())
    assert not (tmp_path / "run").exists()


@pytest.mark.process
@pytest.mark.slow_cases("ppo")
@pytest.mark.parametrize("algorithm", [pytest.param("dqn", marks=pytest.mark.slow), "ppo"])
def test_a_resume_of_several_actors_with_their_experience_falls_back_without_it(
    algorithm, tmp_path, monkeypatch
):
    """It ended in a CheckpointError that named another number of actors, which nobody asked for."""
    directory, told, view = tmp_path / "run", [], PlainView()
    view.say = told.append

    def go_on(turns, resume=True):
        tree = {
            "run": {"turns": turns, "seconds": None, "directory": str(directory), "fallback": True},
            "policy": {"algorithm": algorithm, "ppo": {"rollout_length": 20}},
            "env": {"num_envs": 4},
            "actor": {"processes": 2},
            "checkpoint": {"replay": True},
        }
        result = train(small_config(**tree), view, resume)
        assert result.finished
        return result.record.policies["agent_0"]

    before = go_on(400, resume=False)
    with monkeypatch.context() as patch:
        refuse(patch)
        told.clear()
        after = go_on(1200)
    (said,) = [line for line in told if "checkpoint.replay" in line]
    assert "experience is neither restored nor saved" in said
    assert "the experience of 2 actors" in said
    assert after.updates > before.updates
    assert after.steps > before.steps
    go_on(1600)  # processes can be started again, and what was saved meanwhile fits them
    assert RunDirectory.open(directory).read_config().actor.processes == 2


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize(
    ("game", "processes", "matchmaker"),
    [
        ("support:Tape", 1, "fixed"),
        ("treasure_hunt", 2, "fixed"),
        ("treasure_hunt", 1, "random"),
    ],
)
def test_a_run_that_fell_back_can_be_resumed_both_ways(
    game, processes, matchmaker, tmp_path, monkeypatch
):
    """It refused its own resume: the checkpoint had one worker, and config.yaml two."""
    directory, view = tmp_path / "run", PlainView()

    def go_on(turns, resume=True):
        run = {"turns": turns, "seconds": None, "directory": str(directory), "fallback": True}
        actor, env = {"processes": processes}, {"workers": 2, "num_envs": 4}
        dealt = {"matchmaker": matchmaker}
        config = small_config(game=game, run=run, env=env, actor=actor, population=dealt)
        assert train(config, view, resume).finished
        saved = RunDirectory.open(directory).read_config()
        assert (saved.schedule, saved.env.workers) == ("async", 2)

    with monkeypatch.context() as patch:
        refuse(patch)
        go_on(300, resume=False)
        go_on(600)
        earlier = [path.name for path in (directory / "earlier").iterdir()]
        assert earlier == ["1"], "a resume that falls back supersedes once"
    go_on(900)


@pytest.mark.slow_cases("random")
@pytest.mark.parametrize("matchmaker", [pytest.param("fixed", marks=pytest.mark.slow), "random"])
def test_a_resume_may_let_others_step_the_copies(matchmaker, tmp_path):
    """Worker processes cannot restore a copy in mid-episode: episodes begin anew."""
    population = {"matchmaker": matchmaker, "policies": 2 if matchmaker == "fixed" else 3}
    for turns, workers in ((300, 1), (600, 2), (900, 1)):
        run = {"turns": turns, "seconds": None, "directory": str(tmp_path / "run")}
        env = {"num_envs": 4, "workers": workers}
        config = small_config(
            game="treasure_hunt", schedule="sequential", run=run, env=env, population=population
        )
        assert train(config, PlainView(), resume=turns > 300).finished


@pytest.mark.process
@pytest.mark.slow
def test_a_respawn_that_the_system_refuses_is_tried_again(tmp_path, monkeypatch):
    ring, runtime = start(tmp_path)
    try:
        with monkeypatch.context() as patch:
            refuse(patch)
            os.kill(runtime.pids["learner-agent_1"], signal.SIGKILL)
            told = []

            def was_refused():
                told.extend(runtime.news())
                return any("could not be started: resource temp" in line for line in told)

            run_until(runtime, was_refused)
        run_until(runtime, lambda: all(s.state == "running" for s in runtime.status()))
        turns = ring.scoreboard.play()[Play.TURNS]
        run_until(runtime, lambda: ring.scoreboard.play()[Play.TURNS] > turns + 100)
    finally:
        runtime.stop()


@dataclass(frozen=True)
class HangsInItsEnd(LearnerRole):
    """Raises, and then something does not let its process end."""

    def build(self):
        import atexit

        atexit.register(time.sleep, 600)
        raise ZeroDivisionError("its own fault")


@pytest.mark.slow
def test_an_exception_is_told_as_such_though_the_end_hangs(tmp_path):
    config = small_config(supervision={"restarts": 0})  # the first death is told as the last
    _, runtime = make_runtime(config, tmp_path, HangsInItsEnd)
    try:
        with refuses(RoleDiedError):
            runtime.start(lambda: False)
    finally:
        runtime.stop()


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["kill -9", "exception"])
def test_a_role_that_fails_at_once_was_ready_all_the_same(fault, tmp_path, monkeypatch):
    """Its run ended, and "it never got ready", if it failed before it was looked at again."""
    config = small_config(supervision=SUPERVISION)
    _, runtime = make_runtime(config, tmp_path, SabotagedLearner, SabotagedActor)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(runtime, "run_for", time.sleep)  # nobody looks while they get ready
            runtime.start(lambda: False)
        for pid in runtime.pids.values():
            os.kill(pid, FAULTS[fault])
        run_until(
            runtime,
            lambda: all(s.restarts == 1 and s.state == "running" for s in runtime.status()),
        )
        assert not any("got ready" in line for line in runtime.news())
    finally:
        runtime.stop()


@pytest.mark.slow
def test_an_exception_in_an_actor_with_workers_ends_it(tmp_path):
    """Not after `silence_limit`, and not as silence: its workers go with it."""
    tree = {
        "env": {"num_envs": 4, "workers": 2},
        "supervision": SUPERVISION | {"silence_limit": 60},
    }
    _, runtime = start(tmp_path, **tree)
    try:
        began = time.monotonic()
        (told,) = fail(runtime, "actor", "exception")
        assert "ended by an exception: " in told
        assert "an error in the user's code" in told
        assert time.monotonic() - began < 50.0
    finally:
        runtime.stop()


@pytest.mark.slow
def test_healthy_children_outlive_a_sleep_of_the_whole_machine(tmp_path):
    """All are stopped for longer than `silence_limit`; the coordinator is first to go on."""
    _, runtime = start(tmp_path, supervision=SUPERVISION | {"silence_limit": 3.0})
    try:
        pids = list(runtime.pids.values())
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(5.0)  # as long as this process watches nobody, it is as good as stopped
        runtime.run_for(0.3)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        runtime.run_for(1.0)
        assert list(runtime.pids.values()) == pids
        assert all(status.restarts == 0 for status in runtime.status())
    finally:
        runtime.stop()


@pytest.mark.slow
def test_a_role_that_gets_no_processor_is_not_killed(tmp_path):
    import subprocess
    import sys

    cores = os.sched_getaffinity(0)
    _, runtime = start(tmp_path, supervision=SUPERVISION | {"silence_limit": 3.0})
    spin = [sys.executable, "-c", "while True: pass"]
    spinners = []
    try:
        pid = runtime.pids["learner-agent_0"]
        core = {max(cores)}
        spinners = [subprocess.Popen(spin) for _ in range(4)]
        for spinner in spinners:
            os.sched_setaffinity(spinner.pid, core)
        for task in os.listdir(f"/proc/{pid}/task"):
            os.sched_setaffinity(int(task), core)
            os.sched_setscheduler(int(task), os.SCHED_IDLE, os.sched_param(0))
        end = time.monotonic() + 12.0
        while time.monotonic() < end:
            runtime.run_for(0.2)
        assert runtime.pids["learner-agent_0"] == pid
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
        runtime.stop()
