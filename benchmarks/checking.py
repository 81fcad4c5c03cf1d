"""What it costs to check all that a game hands over: turns with and without, in turns.

    python benchmarks/checking.py [--seconds 10]

Prints, for each game, what share the checks add to the processor time of a turn, by the medians
of many short stretches in random order.
"""

import argparse
import time

import numpy as np
from recording import Results, options_of

from remuda.actor.actor import Actor
from remuda.actor.fixed import FixedSeats
from remuda.actor.seating import make_seats
from remuda.config import load_config
from remuda.envs.checks import TurnChecks
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
BAR = 2.0
"""Percent of a turn that the checks of a game of this library may take."""


TURNS = 10
"""Of a stretch."""


def make_actor(game: str, copies: int) -> Actor:
    env = make_env(game, copies)
    tree = {"policy": {"algorithm": "ppo", "network": {"hidden": (64, 64)}}}
    specs = policy_specs(load_config(tree), env.agents)
    board = Scoreboard(tuple(spec.name for spec in specs))
    seats = make_seats(env, specs, board, seed=0, purpose="actor")
    return Actor(env, FixedSeats(env, seats), board.play(), stream(0, "env"))


def switch(actor: Actor, checks: TurnChecks | None) -> None:
    """Let an actor check, or not, from now on."""
    actor.env.check = checks is not None
    actor._checks = actor.seats.checks = checks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each game")
    options = options_of(parser)
    results = Results("checking")
    for game, copies in GAMES.items():
        actor = make_actor(game, copies)
        spent: tuple[list[float], list[float]] = ([], [])
        actor.turn()
        end = time.perf_counter() + options.seconds
        # Of two actors one is a few percent slower than the other, whatever they check: by where
        # their arrays lie. And in strict turns either side meets other moments of an episode.
        checks, random = actor._checks, np.random.default_rng(0)
        while time.perf_counter() < end:
            for on in random.permutation(2):
                switch(actor, checks if on else None)
                begin = time.thread_time()
                for _ in range(TURNS):
                    actor.turn()
                spent[on].append(time.thread_time() - begin)
        without, with_checks = (float(np.median(times)) for times in spent)
        share = 100 * (with_checks / without - 1)
        turn = without / TURNS * 1e6
        results.row({"game": game, "copies": copies, "turn, us": turn, "checks, %": share})
        if ":" not in game:
            results.bar(f"{game}: checks, % of a turn", share, most=BAR)
    results.finish(options)


if __name__ == "__main__":
    main()
