"""Measure learners of each niceness on a busy machine: `python benchmarks/starving.py`.

The game is played and learned while twice as many programs as there are cores want a processor all
the time. For each niceness: the replay ratio that was reached, of the configured one; the
processors that an actor and a learner had; and the line in which the run says why.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import mean
from typing import Any

from recording import Results, options_of

from remuda.config import load_config
from remuda.training.run import train
from remuda.ui.reports.results import remarks
from remuda.ui.reports.summary import read_run
from remuda.ui.terminal.live import PlainView

NICENESS = (10, 3, 0)
SPIN = (sys.executable, "-c", "while True: pass")


def starved(nice: int, seconds: float, programs: int) -> dict[str, Any]:
    """A run beside so many programs that compute all the time."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        for _ in range(programs):
            program = stack.enter_context(subprocess.Popen(SPIN))
            stack.callback(program.kill)
        config = load_config(
            {
                "learners": {"nice": nice},
                "policy": {"experience": {"learning_starts": 500}},
                "run": {
                    "directory": str(Path(name) / "run"),
                    "turns": None,
                    "seconds": seconds,
                    "evaluate_episodes": 0,
                    "calibrate": 0.0,
                },
            }
        )
        result = train(config, PlainView())
        asked = config.policy.experience.replay_ratio
        summary = read_run(result.directory)
    had = result.processors
    return {
        "nice": nice,
        "asked": asked,
        "reached": mean(policy.replay_ratio or 0.0 for policy in summary.policies),
        "actor": mean(share for role, share in had.items() if role.startswith("actor")),
        "learner": mean(share for role, share in had.items() if role.startswith("learner")),
        "told": " ".join(remarks(summary)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="of each run")
    parser.add_argument(
        "--programs", type=int, default=2 * (os.cpu_count() or 1), help="that compute beside it"
    )
    options = options_of(parser)
    results = Results("starving")
    for nice in NICENESS:
        results.row(starved(nice, options.seconds, options.programs))
    results.finish(options)


if __name__ == "__main__":
    main()
