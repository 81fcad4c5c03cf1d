"""Centralised critics: MAPPO's returns beside BenchMARL's MAPPO, and its cost over PPO's.

python benchmarks/critics.py spread --record     MPE simple_spread
python benchmarks/critics.py lbf --record        LBF Foraging-8x8-2p-2f-coop-v3
python benchmarks/critics.py cost                trained steps a second of mappo and ppo, in turns

Both libraries have one actor for all agents and a critic of the observations of all agents, each
with two layers of 64, and equal numbers of copies, turns, epochs, minibatches and seeds. The rest
is each library's own: Remuda normalises values and advantages, BenchMARL does neither. Returns are
the team's, over whole greedy episodes. With --record each run is written when it is over, and the
same command leaves out the seeds that are recorded.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
from peers import PROGRAMS, peers_python
from recording import Results, options_of
from seeds import Run, by_seed, compare
from stacks import watched

import remuda
from remuda.config import load_config, overlay
from remuda.ui.terminal.live import PlainView

OURS, THEIRS = "Remuda", "BenchMARL"
COPIES = 32
MOST_COST = 1.6
POLICY: dict[str, Any] = {
    "learning_rate": 7e-4,
    "network": {"hidden": [64, 64], "shared": False},
    "ppo": {"rollout_length": 128, "epochs": 10, "minibatches": 4, "entropy_cost": 0.01},
}


@dataclass(frozen=True)
class World:
    """An environment with a team, and the turns of all copies together."""

    game: str
    turns: int
    options: Mapping[str, Any] = field(default_factory=dict)


SPREAD = {"N": 3, "local_ratio": 0.5, "max_cycles": 25}
WORLDS = {
    "spread": World("pettingzoo:mpe2.simple_spread_v3", 500_000, SPREAD),
    "lbf": World("lbf:Foraging-8x8-2p-2f-coop-v3", 1_000_000),
}
COSTS = {
    "spread": (WORLDS["spread"].game, SPREAD),
    "bucket_brigade": ("bucket_brigade", {}),
}
"""Games of the cost: in one of them the environment takes most of the time, in the other little."""


def policy(algorithm: str) -> dict[str, Any]:
    joint = {"value": {"input": "joint"}} if algorithm == "mappo" else {}
    return {"algorithm": algorithm, **POLICY, **joint}


def ours(world: World, turns: int, seed: int, episodes: int) -> Run:
    with tempfile.TemporaryDirectory() as directory:
        begun = time.perf_counter()
        result = remuda.train(
            world.game,
            seed=seed,
            env={"num_envs": COPIES, "options": dict(world.options)},
            policy=policy("mappo"),
            population={"sharing": {"*": "team"}},
            run={
                "turns": turns,
                "directory": str(Path(directory) / "run"),
                "evaluate_episodes": episodes,
                "evaluate_sampled": False,
                "log_every": 60,
            },
            checkpoint={"every": 3600, "evaluate_episodes": 0},
            view=PlainView(),
        )
        if result.evaluation is None:
            raise SystemExit("the run was stopped: its seed is not recorded")
        team = np.asarray(result.evaluation.returns).sum(1)
        return {
            "return": float(team.mean()),
            "error": float(team.std(ddof=1) / len(team) ** 0.5),
            "seconds": time.perf_counter() - begun,
        }


def theirs(python: str, world: World, turns: int, seed: int, episodes: int) -> Run:
    chosen = load_config({"game": world.game, "policy": policy("mappo")}).policy
    asked = {
        "game": world.game,
        "options": dict(world.options),
        "turns": turns,
        "seed": seed,
        "copies": COPIES,
        "hidden": chosen.network.hidden,
        "threads": len(psutil.Process().cpu_affinity()),
        "learning_rate": chosen.learning_rate,
        "discount": chosen.discount,
        "gae_lambda": chosen.ppo.gae_lambda,
        "rollout": chosen.ppo.rollout_length,
        "epochs": chosen.ppo.epochs,
        "minibatches": chosen.ppo.minibatches,
        "clip": chosen.ppo.clip,
        "entropy_cost": chosen.ppo.entropy_cost,
        "max_grad_norm": chosen.max_grad_norm,
        "episodes": episodes,
    }
    words = [python, "benchmarl_mappo.py", json.dumps(asked)]
    done = subprocess.run(words, cwd=PROGRAMS, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"benchmarl_mappo.py failed:\n{done.stderr[-2000:]}")
    found: Run = json.loads(done.stdout.splitlines()[-1])
    return found


def returns(results: Results, options: argparse.Namespace) -> None:
    """Compare the team's final returns; ours may not be below by more than a standard error."""
    world, python = WORLDS[options.what], peers_python("critics_requirements.txt")
    turns, episodes = options.turns or world.turns, options.episodes
    libraries = {
        OURS: lambda seed: ours(world, turns, seed, episodes),
        THEIRS: lambda seed: theirs(python, world, turns, seed, episodes),
    }
    found = by_seed(results, options, libraries, {"turns": turns})
    compare(results, found[OURS], found[THEIRS], least=-1)


def trained(game: str, env: Mapping[str, Any], algorithm: str, seconds: float) -> float:
    """Return the trained agent-steps a second of a run with a policy for each agent."""
    tree = {
        "game": game,
        "env": {"num_envs": COPIES, "options": dict(env)},
        # Short rollouts, so that many updates are over in the time of a run.
        "policy": overlay(policy(algorithm), {"ppo": {"rollout_length": 32}}),
    }
    rate = watched(seconds, tree).rates()[1]
    if not rate:
        raise SystemExit(f"{game}: nothing was trained in time; give more --seconds")
    return rate


def cost(results: Results, options: argparse.Namespace) -> None:
    """Compare the time of a whole trained step of mappo with ppo's, in turns."""
    for name, (game, env) in COSTS.items():
        rates: dict[str, list[float]] = {"ppo": [], "mappo": []}
        for _ in range(options.rounds):
            for algorithm, found in rates.items():
                found.append(trained(game, env, algorithm, options.seconds))
                print(f"{name}, {algorithm}: {found[-1]:,.0f}", flush=True)
        ratios = [ppo / mappo for ppo, mappo in zip(*rates.values(), strict=True)]
        results.row(
            {
                "game": name,
                **{f"{algorithm}, trained/s": median(each) for algorithm, each in rates.items()},
                "cost of mappo over ppo": median(ratios),
                "lowest": min(ratios),
                "highest": max(ratios),
            }
        )
        results.bar(f"{name}: cost of a trained step over ppo's", median(ratios), most=MOST_COST)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("what", choices=[*WORLDS, "cost"])
    add("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    add("--turns", type=int, help="of all copies together; by default as the world has them")
    add("--episodes", type=int, default=200, help="that each is judged by")
    add("--rounds", type=int, default=5, help="of `cost`")
    add("--seconds", type=float, default=30.0, help="of each run of `cost`, with 4 to warm up")
    options = options_of(parser)
    results = Results(f"critics.{options.what}")
    (cost if options.what == "cost" else returns)(results, options)
    results.finish(options)


if __name__ == "__main__":
    main()
