"""Small real runs for the fault tests: real processes, a tiny game, tiny networks."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from unittest import mock

import psutil
import pytest

from assembled import assemble
from places import processes
from remuda.actor.role import ActorRole
from remuda.config import load_config, overlay
from remuda.learner import role as learner_role
from remuda.learner.role import LearnerRole
from remuda.population.specs import policy_specs
from remuda.runtime.layout import make_layout
from remuda.runtime.processes import ProcessRuntime
from remuda.system.checkpoint.store import Checkpoints, Manifest
from remuda.system.rng import make_rng
from support import Tape

SMALL = {
    "game": "support:Tape",
    "run": {"turns": None, "seconds": 3600, "evaluate_episodes": 0, "log_every": 0.5},
    "policy": {
        "network": {"hidden": (16,)},
        "iqn": {"quantiles": 4},
        "batch_size": 16,
        "experience": {"learning_starts": 64, "capacity": 2_000, "replay_ratio": 0.1},
        "publish": {"every": 2},
    },
    "learners": {"processes": 2},
}


PPO = {
    "algorithm": "ppo",
    "ppo": {"rollout_length": 32},
    "experience": {"segment_length": 4},
    "publish": {"every": 1},
}
ALGORITHMS = {
    "ppo wait": PPO,
    "ppo overwrite": overlay(PPO, {"experience": {"on_full": "overwrite"}}),
    "iqn": {"algorithm": "iqn"},
    "dqn": {"algorithm": "dqn"},
    "iqn wait": {"algorithm": "iqn", "experience": {"on_full": "wait"}},
}
"""By name, what a policy learns by, and whether the game may wait for it."""


def small_config(**tree):
    return load_config(overlay(SMALL, tree))


def make_runtime(config, logs, learner=LearnerRole, actor=ActorRole, game=Tape):
    specs = policy_specs(config, game().agents)
    ring = assemble(config, specs, make_layout(config, len(specs)), learner, actor)
    return ring, ring.runtime(logs, Checkpoints(logs / "checkpoints"))


def run_until(runtime, condition, seconds=300.0):
    limit = time.monotonic() + seconds
    while not condition():
        runtime.run_for(0.02)
        assert time.monotonic() < limit, "the condition never came"


def env_workers():
    """The worker processes of actors, as they are now, whoever forked them."""
    found = []
    for pid in processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            if (process := psutil.Process(pid)).name().startswith("rm:env-"):
                found.append(process)
    return found


class SabotageError(RuntimeError):
    """What a sabotaged process raises, wherever it happens to be."""


def sabotage():
    """Let this process fail in the way of the signal that it is sent."""

    def fail(number, frame):
        if number == signal.SIGUSR1:
            raise SabotageError("an error in the user's code")
        if number == signal.SIGUSR2:
            while True:  # an endless loop in the user's code
                pass
        os._exit(3)

    for number in FAULTS.values():
        if number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGURG):
            signal.signal(number, fail)


FAULTS = {
    "exception": signal.SIGUSR1,
    "endless loop": signal.SIGUSR2,
    "exit": signal.SIGURG,
    "kill -9": signal.SIGKILL,
    "stopped": signal.SIGSTOP,
}
"""Ways to fail, and the signal that brings each about."""


@dataclass(frozen=True)
class SabotagedLearner(LearnerRole):
    """A learner that fails when it is told to."""

    def build(self):
        sabotage()
        return super().build()


@dataclass(frozen=True)
class SabotagedActor(ActorRole):
    """An actor that fails when it is told to."""

    def build(self):
        sabotage()
        return super().build()


class StopsWhenAsked:
    """Stands in for an argument, and stops the process where the argument is used."""

    def __init__(self, real, when=lambda: True):
        self.real, self.when = real, when

    def integers(self, *args):
        if self.when():
            os.kill(os.getpid(), signal.SIGSTOP)
        return self.real.integers(*args)

    def __array__(self, dtype=None, copy=None):
        os.kill(os.getpid(), signal.SIGSTOP)
        return self.real


@dataclass(frozen=True)
class StopsWhileSampling(LearnerRole):
    """agent_0's learner is stopped between its look at which steps there are and what it does next.

    It has not copied them yet, or has, and has not said so.
    """

    def build(self):
        has_rehearsed = []

        def stopping(seed, *words):
            random = make_rng(seed, *words)
            is_its_own = words[:2] == ("replay", "agent_0")
            return StopsWhenAsked(random, lambda: has_rehearsed) if is_its_own else random

        with mock.patch.object(learner_role, "make_rng", stopping):
            group = super().build()
        has_rehearsed.append(True)
        if self.specs[0].name == "agent_0":
            experience = self.experience["agent_0"]
            take = experience.take

            def stops(*words):
                os.kill(os.getpid(), signal.SIGSTOP)
                take(*words)

            experience.take = stops  # learners of steps take none
        return group


@dataclass(frozen=True)
class StopsWhileStarting(LearnerRole):
    """The learners are stopped before they are ready."""

    def build(self):
        os.kill(os.getpid(), signal.SIGSTOP)
        return super().build()


@dataclass(frozen=True)
class StopsWhilePublishing(LearnerRole):
    """agent_0's learner is stopped when it has marked its slot as being written."""

    def build(self):
        make = self.published.publisher

        def stopping(policy, checksum):
            publisher = make(policy, checksum)
            publish = publisher.publish
            if policy == "agent_0":
                publisher.publish = lambda weights, *rest: publish(StopsWhenAsked(weights), *rest)
            return publisher

        self.published.publisher = stopping
        return super().build()


def is_stopped(pid):
    return pid is not None and psutil.Process(pid).status() == psutil.STATUS_STOPPED


QUICK = (
    *("--policy.network.hidden", "16", "--policy.n_frames", "1", "--policy.batch_size", "16"),
    *("--policy.experience.learning_starts", "200", "--policy.experience.capacity", "2000"),
    *("--policy.experience.replay_ratio", "0.1", "--run.log_every", "0.5"),
    *("--checkpoint.every", "0.5", "--checkpoint.evaluate_episodes", "0"),
    *("--run.evaluate_episodes", "0", "--learners.processes", "2"),
)
"""Flags of a run that soon has something to save."""


class Terminal:
    """`remuda` as a user runs it, in a process of its own, with all that it says."""

    def __init__(self, log, *words):
        self.log = log
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "remuda", *words],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )

    @property
    def said(self):
        return self.log.read_text()

    def until(self, condition, seconds=300.0):
        limit = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, f"it ended too soon:\n{self.said}"
            assert time.monotonic() < limit, f"the condition never came:\n{self.said}"
            time.sleep(0.02)

    def children(self):
        """The processes of its roles, and those of their environments."""
        servers = psutil.Process(self.process.pid).children()
        return [child for server in servers for child in server.children(recursive=True)]

    def wait(self, seconds=300.0):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            states = [(c.pid, c.status(), c.cmdline()[-1:]) for c in self.children()]
            pytest.fail(f"it never ended; its children are {states}; it said:\n{self.said}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(60)


def lives(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until_gone(pids, seconds):
    limit = time.monotonic() + seconds
    while any(lives(pid) for pid in pids):
        assert time.monotonic() < limit, "processes are left"
        time.sleep(0.01)


SUPERVISION = {"silence_limit": 4.0, "backoff": 0.05}


def start(tmp_path, **tree):
    config = small_config(**{"supervision": SUPERVISION} | tree)
    ring, runtime = make_runtime(config, tmp_path, SabotagedLearner, SabotagedActor)
    assert isinstance(runtime, ProcessRuntime)
    runtime.start(lambda: False)
    return ring, runtime


def checkpoint(runtime, tmp_path):
    store = Checkpoints(tmp_path / "checkpoints")
    number = store.begin()
    assert runtime.save(number) == {"agent_0", "agent_1"}
    store.commit(Manifest(number, 0, 0.0, False, {}, {}))
    return store.read(number, "agent_0")


def restarts(runtime, role):
    return next(status.restarts for status in runtime.status() if status.name == role)


def fail(runtime, role, fault):
    """Bring a fault about; returns what was told, once the role is there again."""
    before = restarts(runtime, role)
    os.kill(runtime.pids[role], FAULTS[fault])
    if fault == "stopped":
        run_until(runtime, lambda: is_stopped(runtime.pids[role]))
    told = []

    def is_back():
        told.extend(runtime.news())
        status = next(s for s in runtime.status() if s.name == role)
        return status.restarts > before and status.state == "running"

    run_until(runtime, is_back)
    return told
