"""How fast Treasure Hunt is by itself: `python benchmarks/treasure_hunt.py`.

Random actions, drawn beforehand, through every call of the `VectorEnv` interface, on one core.
"""

from __future__ import annotations

import argparse
import json
import time
from statistics import median

import numpy as np

from remuda.envs.treasure_hunt import TreasureHunt

BARS = {1: 500_000, 64: 1_000_000, 1000: 1_000_000}
"""Agent-steps per second to reach, by number of copies."""


def speed(copies: int, seconds: float) -> float:
    """Agent-steps per second of so many copies, two agents each."""
    env = TreasureHunt(copies)
    env.reset(np.arange(copies), np.ones(copies, bool))
    out = np.zeros((copies, *(env.agents[0].observation_space.shape or ())), np.uint8)
    actions = list(np.random.default_rng(0).integers(0, 4, (1000, copies)))
    turns = 0
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        for i in range(0, 1000, 2):
            env.begin_turn()
            env.observe(0, out)
            env.act(0, actions[i])
            env.observe(1, out)
            env.act(1, actions[i + 1])
            env.end_turn()
            if not env.active[0, 0]:
                env.reset(actions[i], ~env.active[:, 0])
        turns += 500
    return turns * copies * 2 / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=5, help="rounds to take the median of")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    speed(1, 0.1)  # compile
    rounds = [{copies: speed(copies, 1.0) for copies in BARS} for _ in range(options.rounds)]
    found = {copies: median(r[copies] for r in rounds) for copies in BARS}
    if options.json:
        print(json.dumps(found))
        return
    for copies, rate in found.items():
        print(f"{copies:5d} copies: {rate:12,.0f} agent-steps/s   (bar {BARS[copies]:,})")


if __name__ == "__main__":
    main()
