"""What it costs to check all that a game hands over: turns with and without, in turns.

    python benchmarks/checking.py [seconds]

Prints, for each game, what share the checks add to the processor time of a turn, by the medians
of many short stretches that take turns.
"""

import sys
import time

import numpy as np

from remuda.actor.actor import Actor
from remuda.actor.fixed import FixedSeats
from remuda.actor.role import make_seats
from remuda.config import load_config
from remuda.envs.registry import make_env
from remuda.policies.spec import policy_specs
from remuda.scoreboard import Scoreboard
from remuda.streams import stream

GAMES = {
    "treasure_hunt": 512,
    "cleanup": 128,
    "bucket_brigade": 512,
    "connect_four": 512,
    "gymnasium:CartPole-v1": 16,
    "pettingzoo:classic/tictactoe-v3": 16,
}
"""By game, how many copies are played."""


def make_actor(game: str, copies: int, check: bool) -> Actor:
    env = make_env(game, copies)
    env.check = check
    tree = {"policy": {"algorithm": "ppo", "network": {"hidden": (64, 64)}}}
    specs = policy_specs(load_config(tree), env.agents)
    board = Scoreboard(tuple(spec.name for spec in specs))
    seats = make_seats(env, specs, board, seed=0, purpose="actor")
    return Actor(env, FixedSeats(env, seats), board.play(), stream(0, "env"), check=check)


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    for game, copies in GAMES.items():
        actors = [make_actor(game, copies, check) for check in (False, True)]
        spent: tuple[list[float], list[float]] = ([], [])
        for actor in actors:
            actor.turn()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for actor, times in zip(actors, spent, strict=True):
                begin = time.thread_time()
                for _ in range(10):
                    actor.turn()
                times.append(time.thread_time() - begin)
        without, with_checks = (float(np.median(times)) for times in spent)
        print(f"{game:34} {100 * (with_checks / without - 1):+5.1f}% of a turn")


if __name__ == "__main__":
    main()
