"""Measure the cost of an idle learner, and how soon it wakes: `python benchmarks/waiting.py`.

Idle: a real learner process that never gets enough experience; the share of a core it uses and the
memory it holds. Waking: the time from the moment that the writer commits the step that completes
what the waiter needs, to the moment that the waiter runs, through real experience.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from recording import Results, options_of

from remuda.actor.role import ActorRole
from remuda.assembly.assembly import Assembly
from remuda.config import ExperienceConfig, load_config
from remuda.experience.experience import Experience
from remuda.experience.ring import StreamShape
from remuda.experience.ring_block import Choices, StreamPlan
from remuda.experience.ring_block import TurnOutcomes as Outcomes
from remuda.experience.writer import BlockWriter
from remuda.population.run_spec import RunSpec
from remuda.runtime.control import DONE
from remuda.runtime.layout import make_layout
from remuda.runtime.processes import ProcessRuntime
from remuda.system.checkpoint.store import Checkpoints
from remuda.system.memory.shared import SharedArrays
from remuda.system.memory.waiting import Wakeup

SPAWN = multiprocessing.get_context("spawn")
UNCOUNTED = 20
"""Wake-ups before those that are timed: in the first, what is compiled is loaded."""


def idle(seconds: float) -> dict[str, float]:
    """CPU share and memory of learners in whose game nothing happens, and how soon they stop."""
    config = load_config({})
    spec = RunSpec.of(config)
    assembly = Assembly(spec, make_layout(config, len(spec.policies)), actor_role=_Nobody)
    with tempfile.TemporaryDirectory() as name:
        logs = Path(name)
        runtime = assembly.runtime(logs, Checkpoints(logs / "checkpoints"))
        assert isinstance(runtime, ProcessRuntime)
        try:
            runtime.start(lambda: False)
            learners = [psutil.Process(p) for n, p in runtime.pids.items() if n != "actor"]
            runtime.run_for(2.0)
            before = [p.cpu_times() for p in learners]
            time.sleep(seconds)
            after = [p.cpu_times() for p in learners]
            used = [
                b.user + b.system - a.user - a.system for a, b in zip(before, after, strict=True)
            ]
            found = {
                "cpu_share": max(*used, 0.0) / seconds,
                "mib": max(p.memory_info().rss for p in learners) / 2**20,
            }
            control = runtime.control
            began = time.perf_counter()
            control.stop()
            while not all(control.state(i) == DONE for i in range(1, len(learners) + 1)):
                assert time.perf_counter() - began < 60, "a learner never stopped"
                time.sleep(0.0005)
            return found | {"stopped_ms": (time.perf_counter() - began) * 1e3}
        finally:
            runtime.stop()


class _Nobody(ActorRole):
    """An actor that plays nothing."""

    def build(self) -> Any:
        """It builds itself."""
        return _Sleeper()


class _Sleeper:
    done, parts = False, ()

    def work(self) -> bool:
        return False

    def wait(self, timeout: float, interrupted: object) -> None:  # noqa: ARG002
        time.sleep(timeout)

    def finish(self) -> None:
        pass


def _wait_for_steps(experience: Experience, woken: SharedArrays, ready: Wakeup, count: int) -> None:
    woken["up"][0] = 1
    for i in range(1, count + 1):
        ready.ring()
        experience.learner.wait(lambda i=i: experience.has(i), 60.0)  # type: ignore[misc]
        woken["at"][i - 1] = time.perf_counter_ns()


def waking(count: int) -> dict[str, float]:
    """Microseconds from commit to wake, over so many sleeps."""
    count += UNCOUNTED
    config = ExperienceConfig(capacity=1000, learning_starts=1)
    experience = Experience(StreamShape((125,), np.uint8, 1), config, (1,), Wakeup(), (Wakeup(),))
    woken, ready = SharedArrays({"at": ((count,), np.int64), "up": ((1,), np.int64)}), Wakeup()
    child = SPAWN.Process(
        target=_wait_for_steps, args=(experience, woken, ready, count), daemon=True
    )
    child.start()
    writer, plan = (
        BlockWriter([(experience, 0)]),
        StreamPlan(np.array([0, 1]), np.zeros(1, np.int64)),
    )
    seen, every, none = np.zeros((1, 125), np.uint8), np.ones(1, bool), np.zeros(1, bool)
    zeros, nothing = np.zeros(1, np.float32), np.zeros((1, 0), np.float32)
    actions, masks = np.zeros((1, 1), np.int64), np.ones((1, 0), bool)
    choices = Choices(
        every,
        seen,
        actions,
        zeros,
        masks,
        nothing,
        versions=np.zeros(1, np.int64),
        rewards_before=zeros,
    )
    outcomes = Outcomes(every, zeros, every, none, seen, masks)
    random = np.random.default_rng(0)
    sent = np.zeros(count, np.int64)
    # Else the first wake-up would hold the start of the child.
    assert ready.wait(lambda: bool(woken["up"][0]), 120.0), "the waiter never began"
    for i in range(count):
        time.sleep(random.uniform(0.0002, 0.003))
        writer.decide(plan, choices)
        sent[i] = time.perf_counter_ns()
        writer.outcome(plan, outcomes)
        limit = time.monotonic() + 60
        while woken["at"][i] == 0:
            assert time.monotonic() < limit, f"wake-up {i} was lost"
    child.join(60)
    delay = (woken["at"] - sent)[UNCOUNTED:] / 1000.0
    return {
        "p50_us": float(np.percentile(delay, 50)),
        "p99_us": float(np.percentile(delay, 99)),
        "max_us": float(delay.max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to watch idleness")
    parser.add_argument("--count", type=int, default=3000, help="how many wake-ups to time")
    options = options_of(parser)
    results = Results("waiting")
    found = idle(options.seconds) | waking(options.count)
    rows = {
        "an idle learner: % of a core": 100 * found["cpu_share"],
        "an idle learner: MiB": found["mib"],
        "from stop to stopped, ms": found["stopped_ms"],
        "from the step to the learner awake, us, median": found["p50_us"],
        "the same, 99%": found["p99_us"],
        "the same, the longest": found["max_us"],
    }
    for what, figure in rows.items():
        results.row({"what": what, "figure": figure})
    results.bar("an idle learner: % of a core", 100 * found["cpu_share"], most=0.5)
    results.bar("from stop to stopped, ms", found["stopped_ms"], most=100)
    results.bar("awake after, us, median", found["p50_us"], most=100)
    results.bar("awake after, us, 99%", found["p99_us"], most=2000)
    results.finish(options)


if __name__ == "__main__":
    main()
