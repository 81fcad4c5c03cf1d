"""Self-play against cross-play in Overcooked: policies of different seeds in one tournament.

python benchmarks/jax_crossplay.py --record

For each seed one shared policy of both cooks is trained in cramped_room, with the settings of
`jax_returns.py`, and stays in the directory of --runs; seeds whose run has ended there are not
trained again. Then `remuda tournament` plays all policies with themselves and with each other, on
both seats; the same command continues an interrupted tournament.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path
from statistics import mean
from typing import Any

from jax_returns import WORLDS, train, training_return
from recording import ROOT, Results, options_of

from remuda.runs.run_directory import RunDirectory

TOURNAMENT = "tournament"


def ended(directory: Path, turns: int) -> bool:
    """Return whether a run has ended; refuse one of other turns, or one that was interrupted."""
    if not directory.exists():
        return False
    found = RunDirectory.open(directory)
    if found.read_config().run.turns != turns:
        raise SystemExit(f"{directory} has other turns; choose another directory by --runs")
    if not found.is_finished():
        raise SystemExit(f"{directory} has not ended: remuda train --resume {directory}")
    return True


def play(runs: list[Path], options: argparse.Namespace) -> dict[str, Any]:
    """Play the tournament by the command line, and return its JSON."""
    words = [sys.executable, "-m", "remuda", "tournament", *map(str, runs)]
    words += ["--env.options.shaped_reward", "0", "--sampled", "true", "--format", "json"]
    words += ["--episodes", str(options.episodes)]
    words += ["--directory", str(options.runs / f"{TOURNAMENT}_{len(runs)}")]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--seeds", type=int, nargs="+", default=list(range(1, 11)))
    add("--steps", type=int, help="of all copies together; by default as jax_returns.py")
    add("--episodes", type=int, default=100, help="of each pair and seat")
    add("--runs", type=Path, default=ROOT / "runs" / "jax_crossplay", help="directory of the runs")
    add("--jaxmarl", default="", help="a checkout of JaxMARL's repository")
    options = options_of(parser)
    world = WORLDS["cramped_room"]
    results = Results("jax_crossplay")
    runs = [options.runs / f"seed_{seed}" for seed in options.seeds]
    for seed, directory in zip(options.seeds, runs, strict=True):
        if not ended(directory, options.steps or world.steps):
            train(world, options, seed, True, directory)
        print(f"seed {seed}: {training_return(directory):,.3g} in training", flush=True)
    found = play(runs, options)
    for i, (name, earned) in enumerate(zip(found["entrants"], found["means"], strict=True)):
        others = [value for j, value in enumerate(earned) if j != i]
        cross = mean(others) if others else math.nan
        results.row(
            {"policy": name, "self-play": earned[i], "cross-play": cross, "gap": earned[i] - cross}
        )
    compared = found.get("self_and_cross_play")
    if compared is not None:
        columns = {"self-play": "self_play", "cross-play": "cross_play", "gap": "gap"}
        for i, name in enumerate(("mean", "standard error over policies")):
            results.row(
                {"policy": name} | {each: compared[key][i] for each, key in columns.items()}
            )
    results.finish(options)


if __name__ == "__main__":
    main()
