"""How fast the games are by themselves, on one core: `python benchmarks/games.py [GAME ...]`.

Random actions, drawn beforehand, through every call of the `VectorEnv` interface; finished
episodes restart.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import numpy as np
from recording import Results, options_of

from remuda.envs.registry import GAMES, make_env
from remuda.envs.scripted import sample_actions

BARS = {
    "treasure_hunt": {1: 500_000, 64: 1_000_000, 1000: 1_000_000},
    "cleanup": {64: 500_000},
    "tag": {64: 500_000},
    "bucket_brigade": {64: 5_000_000},
}
"""Agent-steps per second to reach, by game and number of copies."""
COPIES = (1, 64, 1000)
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
    options = options_of(parser)
    results = Results("games")
    games = options.games or tuple(GAMES)
    runs = [(game, copies) for game in games for copies in COPIES]
    for game, _ in runs:
        speed(game, 1, 0.1)  # compile
    rounds = [{run: speed(*run, 0.5) for run in runs} for _ in range(options.rounds)]
    found = {run: median(r[run] for r in rounds) for run in runs}
    for game in games:
        rates = {
            f"{copies:,} {'copy' if copies == 1 else 'copies'}": found[game, copies]
            for copies in COPIES
        }
        results.row({"agent-steps/s": game} | rates)
        for copies, bar in BARS.get(game, {}).items():
            results.bar(
                f"{game}, copies: {copies:,}; agent-steps/s", found[game, copies], least=bar
            )
    results.finish(options)


if __name__ == "__main__":
    main()
