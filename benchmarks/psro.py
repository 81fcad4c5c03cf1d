"""Double oracle in Kuhn poker, with exact oracles and with trained ones, held to bars.

    python benchmarks/psro.py exact            NashConv <= 0.005 within 10 iterations
    python benchmarks/psro.py ppo --seeds 5    NashConv <= 0.02, 10 policies, 5 minutes, each seed

A benchmark of trained oracles ends a seed as soon as NashConv, worked out exactly from the
networks, is no more than the bar; the time is that of everything, with starts and matches.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from recording import Results, options_of

from remuda.double_oracle.iterations import Iteration
from remuda.ui.live import PlainView
from remuda.ui.psro import print_line, psro

EXACT_BAR, EXACT_ITERATIONS = 0.005, 10
PPO_BAR, POLICIES, SECONDS = 0.02, 10, 300.0
TRAINED: dict[str, Any] = {
    "schedule": "sequential",
    "seconds": None,
    "turns": 80_000,
    "num_envs": 128,
    "candidates": 2,
    "matches": 20_000,
    "trials": 20_000,
    "policy": {
        "network": {"hidden": [32]},
        "learning_rate": 5e-3,  # 1e-3 levels off below best responses in 35 updates
        "ppo": {"rollout_length": 16, "minibatches": 4, "epochs": 4},
    },
}
"""How oracles are trained, but for the seed: in this process, whose start costs nothing."""


class QuietView(PlainView):
    """Training in silence: each iteration is one line already."""

    def say(self, message: str) -> None:
        """Nothing."""


def exact(results: Results) -> None:
    """Exact best responses from a uniform start."""
    for solver in ("nash", "max-entropy-nash", "rectified-nash"):
        began = time.perf_counter()
        found = psro("kuhn_poker", meta_solver=solver, iterations=EXACT_ITERATIONS)
        seconds = time.perf_counter() - began
        curve = [each.nash_conv for each in found.iterations]
        first = next((i for i, value in enumerate(curve) if value <= EXACT_BAR), None)
        results.row(
            {"meta-solver": solver, "NashConv": curve[-1], "iterations": first, "seconds": seconds}
        )
        if solver == "nash":
            results.bar(f"exact, {solver}: NashConv", curve[-1], most=EXACT_BAR)


def ppo(results: Results, seeds: int, first: int) -> None:
    """PPO best responses, all candidates of both players as one stack."""
    for seed in range(first, first + seeds):
        lines: list[Iteration] = []

        def told(found: Iteration, lines: list[Iteration] = lines) -> None:
            lines.append(found)
            print_line(found)

        began, computed = time.perf_counter(), time.process_time()
        with tempfile.TemporaryDirectory() as home:
            found = psro(
                "kuhn_poker",
                oracle="ppo",
                iterations=POLICIES - 1,
                enough=PPO_BAR,
                seed=seed,
                directory=Path(home) / "psro",
                view=QuietView(),
                told=told,
                **TRAINED,
            )
        seconds = time.perf_counter() - began
        policies = max(found.last.policies)
        results.row(
            {
                "seed": seed,
                "NashConv": found.nash_conv,
                "policies of a player": policies,
                "seconds": seconds,
                "CPU seconds": time.process_time() - computed,
            }
        )
        results.bar(f"seed {seed}: NashConv", found.nash_conv, most=PPO_BAR)
        results.bar(f"seed {seed}: policies of a player", policies, most=POLICIES)
        results.bar(f"seed {seed}: seconds", seconds, most=SECONDS)


def main() -> None:
    """Run one of the benchmarks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("exact", "ppo"))
    parser.add_argument("--seeds", type=int, default=5, help="of ppo: so many")
    parser.add_argument("--first-seed", type=int, default=0)
    options = options_of(parser)
    results = Results(f"psro.{options.what}")
    if options.what == "exact":
        exact(results)
    else:
        ppo(results, options.seeds, options.first_seed)
    results.finish(options)


if __name__ == "__main__":
    main()
