"""Measure the cost of checking all that a game hands over: turns with and without, in turns.

    python benchmarks/checking.py [--seconds 20]

Prints, for each game, what share the checks add to the processor time of a turn: the median over
many pairs of neighbouring turns, one with checks and one without, in random order; and between what
bounds that median is, 95 of 100 times. The pass over observations, which copies them for the
network and finds what is not finite, is timed apart, against one that only copies.
"""

import argparse
import time

import numpy as np
from recording import Results, options_of

from remuda.actor.actor import Actor
from remuda.actor.fixed_seats import FixedSeats
from remuda.actor.frames import _push
from remuda.actor.make_seats import make_seats
from remuda.config import load_config
from remuda.envs.checks import TurnChecks
from remuda.envs.registry import make_env
from remuda.population.specs import policy_specs
from remuda.system.rng import make_rng
from remuda.system.scoreboard import Scoreboard

GAMES = {
    "treasure_hunt": 512,
    "cleanup": 128,
    "bucket_brigade": 512,
    "connect_four": 512,
    "gymnasium:CartPole-v1": 16,
    "pettingzoo:classic/tictactoe-v3": 16,
}
"""The number of copies for each game."""
BAR = 2.0
"""Percent of a turn that the checks of a game of this library may take."""


DRAWS = 1000
"""How often the pairs are resampled, for the bounds of their median."""


def make_actor(game: str, copies: int) -> Actor:
    env = make_env(game, copies)
    tree = {"policy": {"algorithm": "ppo", "network": {"hidden": (64, 64), "shared": True}}}
    specs = policy_specs(load_config(tree), env.agents)
    board = Scoreboard(tuple(spec.name for spec in specs))
    seats = make_seats(env, specs, board, seed=0, purpose="actor")
    return Actor(env, FixedSeats(env, seats), board.play(), make_rng(0, "env"))


def switch(actor: Actor, checks: TurnChecks | None) -> None:
    """Let an actor check, or not, from now on."""
    actor.env.check = checks is not None
    actor._checks = actor.seats.checks = checks


def share_of(times: list[tuple[float, float]]) -> tuple[float, float, float]:
    """Percent that the second of each pair takes more than the first: median, and its bounds."""
    shares = np.array([100 * (second / first - 1) for first, second in times])
    draws = np.random.default_rng(1).choice(shares, (DRAWS, len(shares)))
    low, high = np.percentile(np.median(draws, axis=1), (2.5, 97.5))
    return float(np.median(shares)), float(low), float(high)


def time_turns(actor: Actor, seconds: float) -> list[tuple[float, float]]:
    """Pairs of turns of one actor: seconds of the processor without checks, and with them."""
    # Of two actors one is a few percent slower than the other, whatever they check: by where
    # their arrays lie. And in strict turns either side meets other moments of an episode.
    checks, random = actor._checks, np.random.default_rng(0)
    pairs, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        pair = [0.0, 0.0]
        for on in random.permutation(2):
            switch(actor, checks if on else None)
            begin = time.thread_time()
            actor.turn()
            pair[on] = time.thread_time() - begin
        pairs.append((pair[0], pair[1]))
    return pairs


def time_pass(actor: Actor) -> float:
    """Seconds more that finding what is not finite takes in the pass over a turn's observations."""
    more = 0.0
    for spec in actor.env.agents:
        space = spec.observation_space
        if space.dtype.kind != "f":
            continue
        streams, size = actor.env.num_envs, int(np.prod(space.shape))
        observations = np.zeros((streams, size), space.dtype)
        stacked = np.zeros((streams, size), np.float32)
        acts = np.ones(streams, np.bool_)
        taken = [[], []]
        for _ in range(200):
            for i, checks in enumerate((False, True)):
                begin = time.perf_counter()
                _push(stacked, observations, acts, np.zeros(streams, np.bool_), size, checks)
                taken[i].append(time.perf_counter() - begin)
        more += float(np.median(taken[1]) - np.median(taken[0]))
    return more


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each game")
    options = options_of(parser)
    results = Results("checking")
    for game, copies in GAMES.items():
        actor = make_actor(game, copies)
        actor.turn()
        pairs = time_turns(actor, options.seconds)
        share, low, high = share_of(pairs)
        turn = float(np.median(pairs, axis=0)[0])
        in_pass = 100 * time_pass(actor) / turn
        results.row(
            {
                "game": game,
                "copies": copies,
                "turn, us": turn * 1e6,
                "checks, %": share,
                "from": low,
                "to": high,
                "in the pass, %": in_pass,
            }
        )
        if ":" not in game:
            results.bar(f"{game}: checks, % of a turn", share + in_pass, most=BAR)
    results.finish(options)


if __name__ == "__main__":
    main()
