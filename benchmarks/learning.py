"""Does it learn, how well and how fast: CartPole-v1 and Treasure Hunt, by PPO, seed by seed.

python benchmarks/learning.py cartpole --seeds 10
python benchmarks/learning.py treasure_hunt --seeds 3
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from remuda.config import load_config, overlay
from remuda.coordinator.metrics import Goal, Record
from remuda.train import Result, train

CARTPOLE: dict[str, Any] = {
    "game": "gymnasium:CartPole-v1",
    "env": {"num_envs": 8},
    "policy": {
        "algorithm": "ppo",
        "ppo": {
            "epochs": 10,
            "minibatches": 8,
            "entropy_cost": 0.0,
            "anneal_steps": 150_000,
        },
    },
    "run": {"turns": 150_000, "evaluate_episodes": 100},
}
TREASURE_HUNT: dict[str, Any] = {
    "game": "treasure_hunt",
    "env": {"num_envs": 64},
    "policy": {"algorithm": "ppo"},
    "run": {"evaluate_episodes": 200, "log_every": 0.5},
}


class Watch:
    """Notes when all policies together first reached a return in training."""

    def __init__(self, wanted: float) -> None:
        self.wanted, self.reached = wanted, float("nan")

    def start(self, goal: Goal) -> None: ...

    def show(self, record: Record) -> None: ...

    def say(self, message: str) -> None: ...

    def close(self) -> None: ...

    def log(self, record: Record) -> None:
        returns = [p.mean_return for p in record.policies.values()]
        known = [r for r in returns if r is not None]
        if known and self.reached != self.reached and sum(known) / len(known) >= self.wanted:
            self.reached = record.seconds


def run(tree: dict[str, Any], schedule: str, seed: int, wanted: float) -> tuple[Result, float]:
    """One run, and the seconds of play and training until its return was as wanted."""
    with tempfile.TemporaryDirectory() as directory:
        fixed = {
            "schedule": schedule,
            "seed": seed,
            "run": {"directory": str(Path(directory) / "run")},
            "checkpoint": {"every": 3600, "evaluate_episodes": 0},
        }
        watch = Watch(wanted)
        result = train(load_config(overlay(tree, fixed)), watch)
        return result, watch.reached


def cartpole(seeds: int, console: Console) -> None:
    table = Table("schedule", "seed", "steps", "greedy return", "seconds")
    for schedule in ("sequential", "async"):
        good = 0
        for seed in range(seeds):
            start = time.perf_counter()
            result, _ = run(CARTPOLE, schedule, seed, 475.0)
            seconds = time.perf_counter() - start
            assert result.evaluation is not None
            mean, error = result.evaluation.mean(0), result.evaluation.standard_error(0)
            good += mean >= 475.0
            table.add_row(
                schedule,
                str(seed),
                f"{result.record.turns:,}",
                f"{mean:.1f} ± {error:.1f}",
                f"{seconds:.0f}",
            )
            console.print(f"{schedule} seed {seed}: {mean:.1f}")
        table.add_row(schedule, "all", "", f"{good} of {seeds} reach 475", "", end_section=True)
    console.print(table)


def treasure_hunt(seeds: int, console: Console) -> None:
    """Two agents to 150 and beyond; eight agents to the return that they level off near."""
    table = Table("agents", "schedule", "seed", "to", "after s", "greedy return", "agent-steps/s")
    for agents, wanted, turns in ((2, 150.0, 1_000_000), (8, 75.0, 400_000)):
        times: dict[str, list[float]] = {"sequential": [], "async": []}
        for seed in range(seeds):
            for (
                schedule,
                reached_at,
            ) in times.items():  # in turns, so that both meet the same machine
                tree = overlay(
                    TREASURE_HUNT,
                    {"env": {"options": {"num_agents": agents}}, "run": {"turns": turns}},
                )
                result, reached = run(tree, schedule, seed, wanted)
                reached_at.append(reached)
                assert result.evaluation is not None
                least = min(result.evaluation.mean(a) for a in range(agents))
                rate = result.record.agent_steps / result.record.seconds
                table.add_row(
                    *(str(agents), schedule, str(seed), f"{wanted:.0f}", f"{reached:.1f}"),
                    *(f"worst {least:.1f}", f"{rate:,.0f}"),
                )
                console.print(f"{agents} agents, {schedule}, seed {seed}: {reached:.1f} s")
        ratio = median(times["sequential"]) / median(times["async"])
        table.add_row(str(agents), f"async is {ratio:.2f}x as fast", end_section=True)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("cartpole", "treasure_hunt"))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    console = Console(width=110)
    {"cartpole": cartpole, "treasure_hunt": treasure_hunt}[options.what](options.seeds, console)


if __name__ == "__main__":
    main()
