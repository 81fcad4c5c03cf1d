"""How much memory learners take while policies are ready in every pattern there is.

python benchmarks/learner_memory.py --policies 64 --seconds 600

Seats are dealt unevenly: a few policies may take one seat alone, the others all the rest, so that
rollouts are filled at unlike times and other policies are trained together in almost every update.
A learner's memory must stay level after its first updates, and grow with the number of policies.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import psutil
from recording import Results, options_of

from remuda.config import load_config
from remuda.runs.metrics import Goal, Record
from remuda.training.run import train


class Watch:
    """Keeps the memory of the largest child, by the second."""

    def __init__(self) -> None:
        self.readings: list[tuple[float, float, int]] = []
        """Seconds, MiB, updates of all policies."""

    def start(self, goal: Goal) -> None: ...

    def show(self, record: Record) -> None: ...

    def say(self, message: str) -> None:
        print(message)

    def close(self) -> None: ...

    def log(self, record: Record) -> None:
        memory = 0.0
        for child in psutil.Process().children(recursive=True):
            try:
                memory = max(memory, child.memory_info().rss / 2**20)
            except psutil.NoSuchProcess:
                continue
        updates = sum(policy.updates for policy in record.policies.values())
        self.readings.append((record.seconds, memory, updates))


def measure(policies: int, seconds: float) -> Watch:
    """Play and train for so many seconds, in one learner process."""
    names = [f"policy_{k}" for k in range(policies)]
    few = {name: ["agent_0"] for name in names[: policies // 4]}
    many = {name: [f"agent_{i}" for i in range(1, 8)] for name in names[policies // 4 :]}
    watch = Watch()
    with tempfile.TemporaryDirectory() as directory:
        config = {
            "game": "treasure_hunt",
            "env": {"num_envs": 64, "options": {"num_agents": 8}},
            "policy": {"algorithm": "ppo", "network": {"shared": True}, "ppo": {"minibatches": 4}},
            "population": {"matchmaker": "random", "policies": names, "seats": few | many},
            "learners": {"processes": 1},
            "run": {
                "turns": 10**9,
                "seconds": seconds,
                "directory": str(Path(directory) / "run"),
                "evaluate_episodes": 0,
                "log_every": 1.0,
            },
            "checkpoint": {"every": 3600, "evaluate_episodes": 0},
        }
        train(load_config(config), watch)
    return watch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", type=int, nargs="+", default=(16, 64))
    parser.add_argument("--seconds", type=float, default=600.0)
    options = options_of(parser)
    results = Results("learner_memory")
    last: dict[int, float] = {}
    for count in options.policies:
        readings = measure(count, options.seconds).readings
        for share in (0.1, 0.25, 0.5, 0.75, 1.0):
            found = readings[max(int(len(readings) * share) - 1, 0)]
            results.row(
                {
                    "policies": count,
                    "seconds": round(found[0]),
                    "updates": found[2],
                    "largest process, MiB": found[1],
                }
            )
        quarter, last[count] = readings[max(len(readings) // 4 - 1, 0)][1], readings[-1][1]
        growth = last[count] / quarter
        results.bar(f"{count} policies: memory at the end by that at a quarter", growth, most=1.1)
    few, many = min(last), max(last)
    if few < many:
        results.bar(
            f"memory of {many} policies by that of {few}", last[many] / last[few], most=many / few
        )
    results.finish(options)


if __name__ == "__main__":
    start = time.perf_counter()
    main()
    print(f"{time.perf_counter() - start:.0f} s in all")
