"""Hundreds of policies with their past: what the coordinator, checkpoints and a trained step cost.

python benchmarks/scale.py                                        256 policies, 10 minutes, and 8
python benchmarks/scale.py --policies 32 --seconds 20 --base 0    a small trial, without the 8

Treasure Hunt of 8 agents, two copies of the game for each policy, PPO, a round robin, ten frozen
copies each. It prints how long the coordinator was busy between two looks (a tick: board, results,
status, metrics; not the benchmark's own looks at the memory), how long checkpoints took and how
large they are, the memory of all processes, and trained agent-steps a second beside those of 8
policies with as many streams each.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
from recording import Results, options_of

from remuda.config import load_config
from remuda.coordinator.checkpointing import Checkpointer
from remuda.runs.metrics import Goal, Record
from remuda.runtime.processes import ProcessRuntime
from remuda.training.run import train

BARS = {
    "tick, ms, 99%": 20.0,
    "checkpoint, s, most": 3.0,
    "checkpoint, MiB": 1024.0,
    "memory, GiB": 12.0,
    "cost": 1.5,
}


@dataclass
class Found:
    """The measurements of one run."""

    ticks: list[float] = field(default_factory=list)
    """Seconds, of those without a checkpoint."""
    checkpoints: list[float] = field(default_factory=list)
    """Seconds."""
    size: float = 0.0
    """Bytes of the largest checkpoint."""
    memory: float = 0.0
    """Most bytes of all processes at a time, shared memory once."""
    trained: float = 0.0
    """Agent-steps trained a second, from the second third of the run on."""
    policies: int = 0
    frozen: int = 0
    start: float = 0.0
    """Seconds until play began."""


LOOK = 10.0
"""Seconds between two looks at the memory, which take tens of milliseconds."""


class Watch:
    """Keeps of each record what is needed in the end."""

    def __init__(self, found: Found) -> None:
        self.found, self.seen = found, list[Seen]()
        self.begun = time.monotonic()

    def start(self, goal: Goal) -> None: ...

    def say(self, message: str) -> None:
        print(message, flush=True)

    def close(self) -> None: ...

    def show(self, record: Record) -> None:
        self.found.start = self.found.start or time.monotonic() - self.begun - record.seconds

    def log(self, record: Record) -> None:
        trained = sum(policy.trained for policy in record.policies.values())
        self.seen.append(Seen(record.seconds, trained, record.num_live, record.num_frozen))


class Seen(NamedTuple):
    """The kept parts of a record."""

    seconds: float
    trained: int
    policies: int
    frozen: int


class Timed:
    """Takes the time of ticks and checkpoints, by timers around them."""

    def __init__(self, found: Found, checkpoints: Path) -> None:
        self.found, self.checkpoints = found, checkpoints
        self.returned, self.saved, self.looked = 0.0, False, 0.0
        self.run_for, self.take = ProcessRuntime.run_for, Checkpointer.take

    def install(self) -> None:
        timed = self

        def run_for(runtime: ProcessRuntime, seconds: float) -> bool:
            if timed.found.start and not timed.saved:  # play has begun
                timed.found.ticks.append(time.perf_counter() - timed.returned)
            timed.saved = False
            timed.look_at_memory()
            over = timed.run_for(runtime, seconds)
            timed.returned = time.perf_counter()
            return over

        def take(checkpointer: Checkpointer, *arguments: Any) -> int | None:
            begun, timed.saved = time.perf_counter(), True
            number = timed.take(checkpointer, *arguments)
            if number is not None:
                timed.found.checkpoints.append(time.perf_counter() - begun)
                files = (timed.checkpoints / f"{number:06d}").iterdir()
                timed.found.size = max(timed.found.size, sum(f.stat().st_size for f in files))
            return number

        ProcessRuntime.run_for = run_for  # type: ignore[method-assign]
        Checkpointer.take = take  # type: ignore[method-assign]

    def look_at_memory(self) -> None:
        """Now and then, between two ticks: it is no part of either."""
        if not self.found.start or time.monotonic() - self.looked < LOOK:
            return
        self.looked = time.monotonic()
        own = psutil.Process()
        family = [own, *own.children(recursive=True)]
        pss = sum(each.memory_full_info().pss for each in family)
        self.found.memory = max(self.found.memory, pss)


def tree_of(policies: int, seconds: float, directory: Path) -> dict[str, Any]:
    return {
        "game": "treasure_hunt",
        "policy": {"algorithm": "ppo", "network": {"shared": True}},
        "env": {"num_envs": 2 * policies, "options": {"num_agents": 8}},
        "population": {
            "matchmaker": "round_robin",
            "policies": policies,
            "snapshots": {"every": 1, "keep": 10},
        },
        "checkpoint": {"every": max(seconds / 10, 5.0), "evaluate_episodes": 0},
        "run": {
            "turns": None,
            "seconds": seconds,
            "directory": str(directory),
            "evaluate_episodes": 0,
        },
    }


def measure(policies: int, seconds: float) -> Found:
    """One run, in a separate process."""
    found = Found()
    watch = Watch(found)
    with tempfile.TemporaryDirectory() as home:
        directory = Path(home) / "run"
        Timed(found, directory / "checkpoints").install()
        train(load_config(tree_of(policies, seconds, directory)), watch)
    kept = [seen for seen in watch.seen if seen.seconds >= seconds / 3]
    first, last = kept[0], kept[-1]
    found.trained = (last.trained - first.trained) / max(last.seconds - first.seconds, 1e-9)
    assert found.trained > 0, f"{policies} policies trained nothing in {seconds:.0f} s; give more"
    found.policies, found.frozen = last.policies, last.frozen
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--policies", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--base", type=int, default=8, help="policies to compare with; 0: none")
    parser.add_argument("--base-seconds", type=float, default=60.0)
    words = options_of(parser)
    runs = [(words.policies, words.seconds)]
    if words.base:
        runs.insert(0, (words.base, words.base_seconds))
    measured = []
    for policies, seconds in runs:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, context) as pool:
            measured.append(pool.submit(measure, policies, seconds).result())
    results = Results("scale")
    for found in measured:
        typical, rare, most = (1e3 * x for x in np.quantile(found.ticks, [0.5, 0.99, 1.0]))
        results.row(
            {
                "policies": found.policies,
                "frozen copies": found.frozen,
                "seconds to begin": found.start,
                "tick, ms, median": typical,
                "99%": rare,
                "most": most,
                "checkpoint, s, most": max(found.checkpoints, default=0.0),
                "checkpoint, MiB": found.size / 2**20,
                "memory, GiB": found.memory / 2**30,
                "trained agent-steps/s": found.trained,
                "cost of a step": measured[0].trained / max(found.trained, 1e-9),
            }
        )
    found, row = measured[-1], results.rows[-1]
    for column in ("99%", "checkpoint, s, most", "checkpoint, MiB", "memory, GiB"):
        what = "tick, ms, 99%" if column == "99%" else column
        results.bar(what, float(row[column] or 0.0), most=BARS[what])
    if words.base:
        what = f"cost of a step against {measured[0].policies} policies"
        results.bar(what, measured[0].trained / max(found.trained, 1e-9), most=BARS["cost"])
    results.finish(words)


if __name__ == "__main__":
    main()
