"""The three schedules side by side at the same replay ratio: `python benchmarks/schedules.py`.

One world of Treasure Hunt with 2 to 32 agents, each an IQN of 250 units that learns for itself, one
update for each 100 of its steps: `sequential` as the plain loop has it, `lockstep`, and `async`
where the game waits for learners that fall behind, so that all train as much for what they play.
Then the same with fewer of this machine's cores. An episode is 100 turns, an epoch 100 episodes.
"""

from __future__ import annotations

import argparse
import os
from statistics import median
from typing import Any

from recording import Results, options_of
from throughput import BASE, measure

from remuda.config import load_config, overlay

TURNS, EPISODES = 100, 100
"""The turns of an episode, and the episodes of an epoch."""
SCHEDULES = ("sequential", "lockstep", "async")


def played(agents: int, schedule: str, seconds: float) -> tuple[float, float]:
    """Turns a second, and a policy's own steps for each of its updates."""
    tree: dict[str, Any] = {
        "schedule": schedule,
        "env": {"options": {"num_agents": agents, "max_turns": TURNS}},
    }
    if schedule != "sequential":
        tree["policy"] = {"experience": {"on_full": "wait", "capacity": 2_000}}
    record, _ = measure(load_config(overlay(BASE, tree)), seconds, 3.0)
    updates = sum(p.updates_per_second or 0.0 for p in record.policies.values())
    return record.turns_per_second, record.agent_steps_per_second / max(updates, 1e-9)


def main() -> None:
    """Measure in turns, and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--agents", type=int, nargs="+", default=[2, 4, 8, 16, 32])
    add("--seconds", type=float, default=4.0, help="of each measurement")
    add("--rounds", type=int, default=3)
    options = options_of(parser)
    cores = sorted(os.sched_getaffinity(0))
    counts = [1 << i for i in range(8) if 1 << i < len(cores)] + [len(cores)]
    cases = [(agents, len(cores)) for agents in options.agents]
    cases += [(8, count) for count in counts[:-1]]
    found: dict[tuple[int, int, str], list[tuple[float, float]]] = {}
    for _ in range(options.rounds):
        for agents, count in cases:
            os.sched_setaffinity(0, cores[:count])
            for schedule in SCHEDULES:
                case = agents, count, schedule
                found.setdefault(case, []).append(played(agents, schedule, options.seconds))
                print(f"{case}: {found[case][-1][0]:,.0f} turns/s", flush=True)
            os.sched_setaffinity(0, cores)
    results = Results("schedules")
    for (agents, count, schedule), runs in found.items():
        rates = [rate for rate, _ in runs]
        plain = [rate for rate, _ in found[agents, count, "sequential"]]
        ratios = [rate / other for rate, other in zip(rates, plain, strict=True)]
        results.row(
            {
                "agents": agents,
                "cores": count,
                "schedule": schedule,
                "turns/s": median(rates),
                "agent-steps/s": agents * median(rates),
                "an episode, s": TURNS / median(rates),
                f"an epoch of {EPISODES}, s": TURNS * EPISODES / median(rates),
                "own steps an update": round(median(each for _, each in runs)),
                "times sequential": median(ratios),
                "from": min(ratios),
                "to": max(ratios),
            }
        )
        if schedule == "async" and count == len(cores) > 1:
            what = f"{agents} agents: async, times sequential at the same replay ratio"
            results.bar(what, median(ratios), least=1.0)
    results.finish(options)


if __name__ == "__main__":
    main()
