"""Training while its processes are killed: `python benchmarks/chaos.py`.

Two runs of the same configuration, one after the other: one is left alone; in the other, every few
seconds a random role is killed, stopped, or made to raise an exception, until the given time is
over. Then the disturbed run must end by itself, having played the turns that were planned, and this
program prints the cost: restarts, work lost, standstill, and what the policies earn in the end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from recording import Results, options_of

from remuda.actor.actor import Actor
from remuda.actor.role import ActorRole
from remuda.config import load_config
from remuda.learner.group import LearnerGroup
from remuda.learner.role import LearnerRole
from remuda.population.run_spec import RunSpec
from remuda.runtime.layout import Layout
from remuda.system.checkpoint.store import Checkpoints
from remuda.training import run as training
from remuda.ui.terminal.live import PlainView

INTERVAL = 10.0
"""Seconds between two checkpoints."""
SILENCE = 3.0
"""Seconds after which a role that was stopped is found."""
KINDS = {"kill -9": signal.SIGKILL, "SIGSTOP": signal.SIGSTOP, "exception": signal.SIGUSR1}


def raise_when_told() -> None:
    """Raise an exception wherever this process is when it gets SIGUSR1."""

    def fail(*_: object) -> None:
        raise RuntimeError("chaos")

    signal.signal(signal.SIGUSR1, fail)


class ChaoticLearner(LearnerRole):
    """A learner that can be made to raise."""

    def build(self) -> LearnerGroup:
        """Make the learners, and listen for the signal."""
        group = super().build()
        raise_when_told()
        return group


class ChaoticActor(ActorRole):
    """An actor that can be made to raise."""

    def build(self) -> Actor:
        """Make the actor, and listen for the signal."""
        actor = super().build()
        raise_when_told()
        return actor


class ChaoticAssembly(training.Assembly):
    """A run whose roles can be made to raise."""

    def __init__(self, spec: RunSpec, layout: Layout, **more: Any) -> None:
        super().__init__(spec, layout, ChaoticLearner, ChaoticActor, **more)


def play(directory: Path, turns: int) -> None:
    """The run itself, in a separate process."""
    training.Assembly = ChaoticAssembly  # type: ignore[misc]
    config = load_config(
        {
            "run": {"directory": directory, "turns": turns, "live": False},
            "checkpoint": {"every": INTERVAL},
            "supervision": {"restarts": 10_000, "silence_limit": SILENCE, "max_backoff": 0.25},
        }
    )
    training.train(config, PlainView())


@dataclass
class Fault:
    """Something done to a role."""

    time: float
    role: str
    pid: int
    kind: str
    lost: float | None
    """Seconds of a learner's work since it was last saved or began; None: an actor has none."""


@dataclass
class Outcome:
    """The result of a run."""

    seconds: float
    exit_code: int
    turns: int
    restarts: int
    returns: dict[str, float]
    errors: dict[str, float]
    standstill_actor: float
    """The longest time without a turn after a fault of the actor."""
    standstill_other: float
    """The longest time without a turn otherwise."""
    checkpoints: int
    """How many were written."""


def observe(directory: Path, turns: int, chaos: float, every: float, log: Path) -> Any:
    """Run, do harm, and look; returns the outcome and the faults."""
    moments = random.Random(0)
    words = [sys.executable, __file__, "--play", str(directory), "--turns", str(turns)]
    faults: list[Fault] = []
    hit: set[int] = set()
    started: dict[int, float] = {}
    played: list[tuple[float, int]] = []
    written: set[int] = set()
    status: dict[str, Any] = {}
    began = time.time()
    with log.open("wb") as output:
        run = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT)
        due = began + 15.0
        while run.poll() is None:
            time.sleep(0.2)
            try:
                status = json.loads((directory / "status.json").read_bytes())
            except (OSError, ValueError):
                continue
            now = time.time()
            written.update(Checkpoints(directory / "checkpoints").numbers())
            played.append((status["time"], status["turns"]))
            for role in status["roles"]:
                if role["state"] == "running":
                    started.setdefault(role["pid"], status["time"])
            if status["ended"] or now < due or now - began > chaos:
                continue
            fit = [r for r in status["roles"] if r["state"] == "running" and r["pid"] not in hit]
            fit = [r for r in fit if psutil.pid_exists(r["pid"])]
            if not fit:
                continue
            role = moments.choice(fit)
            kind = moments.choice(list(KINDS))
            os.kill(role["pid"], KINDS[kind])
            hit.add(role["pid"])
            lost = _lost(directory, role["name"], now, started[role["pid"]])
            faults.append(Fault(now, role["name"], role["pid"], kind, lost))
            due = now + every
    actor_faults = [fault.time for fault in faults if fault.role == "actor"]
    during, otherwise = _standstills(played, actor_faults)
    evaluation = json.loads((directory / "summary.json").read_text())["evaluation"]["agents"]
    outcome = Outcome(
        seconds=time.time() - began,
        exit_code=run.returncode,
        turns=status["turns"],
        restarts=sum(role["restarts"] for role in status["roles"]),
        returns={name: agent["mean"] for name, agent in evaluation.items()},
        errors={name: agent["standard_error"] for name, agent in evaluation.items()},
        standstill_actor=during,
        standstill_other=otherwise,
        checkpoints=len(written),
    )
    return outcome, faults


def _lost(directory: Path, role: str, now: float, started: float) -> float | None:
    """Seconds that a learner worked since its part of a checkpoint was written, or it began."""
    if role == "actor":
        return None
    checkpoints = Checkpoints(directory / "checkpoints")
    # Named after its only policy, or after the first and the last: each has its own part.
    lost = []
    for policy in role.removeprefix("learner-").split(".."):
        files = checkpoints.path.glob(f"[0-9]*/{policy}.safetensors")
        lost.append(now - max([*(file.stat().st_mtime for file in files), started]))
    return max(lost)


def _standstills(played: list[tuple[float, int]], faults: list[float]) -> tuple[float, float]:
    """The longest times without a turn: those that began with a fault of the actor, and others."""
    during = otherwise = 0.0
    began, turns = played[0]
    for when, count in played:
        if count == turns:
            if any(began - 2.0 <= fault <= when for fault in faults):
                during = max(during, when - began)
            else:
                otherwise = max(otherwise, when - began)
        else:
            began, turns = when, count
    return during, otherwise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="how long harm is done")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two faults")
    parser.add_argument("--turns", type=int, default=2_500_000, help="turns that are planned")
    parser.add_argument("--play", type=Path, help=argparse.SUPPRESS)
    options = options_of(parser)
    if options.play is not None:
        play(options.play, options.turns)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        calm, _ = observe(folder / "calm", options.turns, 0.0, 1.0, folder / "calm.log")
        wild, faults = observe(
            folder / "wild", options.turns, options.minutes * 60, options.every, folder / "wild.log"
        )
    results = Results("chaos")
    for what, outcome in (("undisturbed", calm), ("disturbed", wild)):
        results.row(
            {
                "run": what,
                "turns": outcome.turns,
                "seconds": round(outcome.seconds),
                "checkpoints": outcome.checkpoints,
                "faults": len(faults) if outcome is wild else 0,
                "restarts": outcome.restarts,
                **{
                    f"{name} earns": f"{mean:.1f} ± {outcome.errors[name]:.1f}"
                    for name, mean in outcome.returns.items()
                },
            }
        )
    kinds = Counter(fault.kind for fault in faults) + Counter(fault.role for fault in faults)
    print(f"{len(faults)} faults: {dict(kinds)}")
    lost = max((fault.lost for fault in faults if fault.lost is not None), default=0.0)
    planned = options.turns
    # Fewer: the turns were over before the minutes, and little was shown.
    results.bar("faults", len(faults), least=round(options.minutes * 60 / options.every / 2))
    results.bar("exit code", wild.exit_code, most=0, least=0)
    results.bar("turns played", wild.turns, most=planned, least=planned)
    results.bar("restarts, one for each fault", wild.restarts, most=len(faults), least=len(faults))
    # A checkpoint that is being written when its learner is hit does not count yet.
    results.bar("most work that a learner lost, s", lost, most=INTERVAL + 1.0)
    # An actor that was stopped is found by its silence; its successor begins within two seconds.
    results.bar(
        "longest standstill after a fault of the actor, s",
        wild.standstill_actor,
        most=SILENCE + 2.0,
    )
    results.bar(
        "longest standstill otherwise, s (status is written once in 1 s)",
        wild.standstill_other,
        most=2.0,
    )
    worst = max(
        abs(wild.returns[n] - calm.returns[n]) / max(abs(calm.returns[n]), 1e-9)
        for n in calm.returns
    )
    results.bar("returns, share by which they differ at most", worst, most=0.15)
    results.finish(options)


if __name__ == "__main__":
    main()
