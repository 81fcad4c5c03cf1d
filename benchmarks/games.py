"""How fast the games are by themselves, on one core: `python benchmarks/games.py [GAME ...]`.

Random actions, drawn beforehand, through every call of the `VectorEnv` interface, episodes begun
anew as they end.
"""

from __future__ import annotations

import argparse
import json
import time
from statistics import median

import numpy as np

from remuda.envs.registry import GAMES, make_env
from remuda.envs.scripted import sample_actions

BARS = {
    "treasure_hunt": {1: 500_000, 64: 1_000_000, 1000: 1_000_000},
    "cleanup": {64: 500_000},
    "tag": {64: 500_000},
    "bucket_brigade": {64: 5_000_000},
}
"""Agent-steps per second to reach, by game and number of copies."""
DRAWN = 500
"""Turns for which actions are drawn; they are played over and over."""


def speed(game: str, copies: int, seconds: float) -> float:
    """Agent-steps per second of so many copies."""
    env = make_env(game, copies)
    random, over = np.random.default_rng(0), np.ones(copies, np.bool_)
    seeds = random.integers(2**62, size=(DRAWN, copies))
    env.reset(seeds[0], over)
    outs = [
        np.zeros((copies, *spec.observation_space.shape), spec.observation_space.dtype)
        for spec in env.agents
    ]
    actions = [
        [sample_actions(spec.action_space, copies, random) for spec in env.agents]
        for _ in range(DRAWN)
    ]
    turns = 0
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        for turn in range(DRAWN):
            env.begin_turn()
            for group in env.turn_groups:
                for agent in group:
                    env.observe(agent, outs[agent])
                for agent in group:
                    env.act(agent, actions[turn][agent])
            result = env.end_turn()
            if (result.terminated | result.truncated).any():
                env.reset(seeds[turn], ~env.active.any(1))
        turns += DRAWN
    return turns * copies * env.num_agents / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("games", nargs="*", help="the games; all that there are by default")
    parser.add_argument("--rounds", type=int, default=5, help="rounds to take the median of")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    runs = [
        (game, copies)
        for game in options.games or GAMES
        for copies in {1: 0, 64: 0, 1000: 0} | BARS.get(game, {})
    ]
    for game, _ in runs:
        speed(game, 1, 0.1)  # compile
    rounds = [{run: speed(*run, 0.5) for run in runs} for _ in range(options.rounds)]
    found = {run: median(r[run] for r in rounds) for run in runs}
    if options.json:
        print(json.dumps({f"{game} {copies}": rate for (game, copies), rate in found.items()}))
        return
    print(f"{'game':<20} {'copies':>6}  {'agent-steps/s':>14}")
    for (game, copies), rate in found.items():
        bar = BARS.get(game, {}).get(copies)
        print(f"{game:<20} {copies:>6}  {rate:>14,.0f}" + (f"   (bar {bar:,})" if bar else ""))


if __name__ == "__main__":
    main()
