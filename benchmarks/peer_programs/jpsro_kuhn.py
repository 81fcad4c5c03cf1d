"""OpenSpiel's JPSRO in Kuhn poker for three players.

Arguments: a seed, the most CPU seconds, the bar, and the meta-solver. The first policies are drawn
at random and deterministic, so that seeds differ. Prints a line of JSON for each iteration: the sum
of the exact gains of deviations from its meta-distribution, and the CPU seconds so far. The
operating system ends the process when its time is over, because an iteration may take minutes.
"""

import contextlib
import json
import resource
import sys
import time

import pyspiel
from open_spiel.python.algorithms import jpsro

ITERATIONS = 1000


class _OverError(Exception):
    """The bar is reached, or the time is over."""


def main():
    """Run until the bar or the time."""
    seed, seconds, bar = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    began = time.process_time()
    limit = int(seconds + began) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))

    def told(iteration, repeats, policies, *others):
        gaps = others[7][-1]  # of the training meta-distribution, by player
        spent = time.process_time() - began
        counts = [len(each) for each in policies]
        line = {"iteration": iteration, "gap": float(sum(gaps)), "policies": counts}
        print(json.dumps({**line, "seconds": spent}), flush=True)
        if sum(gaps) <= bar or spent > seconds:
            raise _OverError

    game = pyspiel.load_game("kuhn_poker", {"players": 3})
    settings = {"policy_init": "random_deterministic", "ignore_repeats": True}
    solver = sys.argv[4]
    with contextlib.suppress(_OverError):
        jpsro.run_loop(
            game,
            "kuhn_poker_3p",
            seed,
            ITERATIONS,
            train_meta_solver=solver,
            eval_meta_solver=solver,
            callback=told,
            **settings,
        )


main()
