"""The trainability map of Bucket Brigade: independent PPO beside a published study, cell by cell.

    python benchmarks/brigade_map.py --record             baselines, own rewards, shared rewards
    python benchmarks/brigade_map.py own --record         one of the three
    python benchmarks/brigade_map.py own --cells b0.50_k0.90_c0.50 --seeds 0

Each cell is `minimal_specialization` with four agents and another probability that fire spreads
(beta), probability that one agent puts out a fire (kappa) and cost of a night's work. Four
independent PPO learners train in each cell with each seed, from their own rewards (`own`) or from
the mean of all four agents' (`shared`). The gap closed is (trained - random) / (specialist -
random), of the team's reward per night, where the specialists work at their own burning houses.

With --record every run is written as soon as it ends. The same command continues where an earlier
one was stopped, at most --jobs unfinished runs are repeated. The published numbers are in
figures/brigade_map.published.csv; docs/brigade_map.md describes the study.
"""

from __future__ import annotations

import argparse
import csv
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from recording import FIGURES, Results, commit_of_package, error_of, options_of
from seeds import Run, finished

import remuda
from remuda.envs.games.bucket_brigade import owners_duty
from remuda.envs.registry import make_env
from remuda.envs.scripted import ScriptedPolicy, at_random, turns

PUBLISHED = FIGURES / "brigade_map.published.csv"
GAME, AGENTS, METRIC = "bucket_brigade", 4, "team_reward_per_night"
REWARDS = {"own": 0.0, "shared": 1.0}
"""The share of the team's mean reward in what each agent learns from."""
COPIES, TURNS, SEEDS = 256, 3_000_000, (0, 1, 2, 3)
EPISODES, BASELINE_EPISODES = 20_000, 100_000
"""Episodes of an evaluation; where fires are hard to put out, returns vary most beside the gap."""
CLOSED, CELLS_CLOSED, CLOSED_WITHOUT_EQUILIBRIUM, HOURS, MOST_ERRORS = 0.9, 30, 0.5, 4.0, 3.0
POLICY: dict[str, Any] = {
    "algorithm": "ppo",
    "learning_rate": 3e-3,
    "network": {"hidden": [32, 32]},
    "ppo": {"rollout_length": 32, "epochs": 4, "minibatches": 4, "gae_lambda": 0.2},
}
"""The same in every cell. With PPO's usual lambda of 0.95, later fires drown what one night's work
earned, and where one agent puts out a fire in 10, the gap closed halves."""


@dataclass(frozen=True)
class Estimate:
    """A mean and its standard error."""

    mean: float
    error: float


@dataclass(frozen=True)
class Cell:
    """A cell of the map, with what was published about it."""

    name: str
    beta: float
    kappa: float
    cost: float
    equilibrium: str
    gap_closed: float
    random: Estimate
    specialist: Estimate

    @property
    def options(self) -> dict[str, Any]:
        return {
            "scenario": "minimal_specialization",
            "num_agents": AGENTS,
            "prob_fire_spreads_to_neighbor": self.beta,
            "prob_solo_agent_extinguishes_fire": self.kappa,
            "cost_to_work_one_night": self.cost,
        }


def cells() -> dict[str, Cell]:
    """Return the published cells by name."""

    def estimate(row: dict[str, str], name: str) -> Estimate:
        width = float(row[f"{name}_high"]) - float(row[f"{name}_low"])
        return Estimate(float(row[name]), width / (2 * 1.96))

    with PUBLISHED.open() as lines:
        return {
            row["cell"]: Cell(
                row["cell"],
                *(float(row[name]) for name in ("beta", "kappa", "cost")),
                row["equilibrium"],
                float(row["gap_closed"]),
                estimate(row, "random"),
                estimate(row, "specialist"),
            )
            for row in csv.DictReader(lines)
        }


@cache
def scripted(kappa: float, cost: float, policy: ScriptedPolicy) -> Estimate:
    """Play four scripted policies; the probability that fire spreads never matters (see docs)."""
    options = {**next(iter(cells().values())).options}
    options |= {"prob_solo_agent_extinguishes_fire": kappa, "cost_to_work_one_night": cost}
    env = make_env(GAME, 1000, **options)
    found: list[np.ndarray[Any, Any]] = []
    for result, over, _ in turns(env, [policy] * AGENTS, np.random.default_rng(0)):
        found.append(result.info[METRIC][over].copy())
        if sum(map(len, found)) >= BASELINE_EPISODES:
            break
    values = np.concatenate(found)
    return Estimate(float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5))


def baselines(results: Results, chosen: Sequence[Cell]) -> None:
    """Measure random play and the specialists again, beside the published numbers."""
    largest = 0.0
    for kappa, cost in sorted({(cell.kappa, cell.cost) for cell in chosen}):
        published = next(cell for cell in chosen if (cell.kappa, cell.cost) == (kappa, cost))
        row: dict[str, Any] = {"kappa": kappa, "cost": cost}
        for name, policy in (("random", at_random), ("specialist", owners_duty)):
            own, other = scripted(kappa, cost, policy), getattr(published, name)
            errors = (own.mean - other.mean) / (own.error**2 + other.error**2) ** 0.5
            row |= {name: own.mean, f"{name}, published": other.mean, f"{name}, errors": errors}
            largest = max(largest, abs(errors))
        results.row(row)
    what = "baselines: largest difference, in standard errors of the difference"
    results.bar(what, largest, most=MOST_ERRORS)


def train(cell: Cell, rewards: str, seed: int, budget: int, episodes: int) -> Run:
    """Train four independent learners in a cell, and evaluate them greedily and sampled."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        result = remuda.train(
            GAME,
            seed=seed,
            schedule="sequential",
            view="quiet",
            env={"num_envs": COPIES, "options": cell.options},
            policy={**POLICY, "share_rewards": REWARDS[rewards]},
            checkpoint={"every": 3600, "evaluate_episodes": 0},
            run={
                "turns": budget,
                "directory": str(Path(directory) / "run"),
                "evaluate_episodes": 0,
            },
        )
        run: Run = {"cell": cell.name, "seed": seed, "turns": budget}
        for way, sampled in (("greedy", False), ("sampled", True)):
            played = remuda.load(result).evaluate(episodes, sampled=sampled, seed=seed)
            run[way] = float(played.metric(METRIC).mean())
            run[f"{way}, work share"] = float(played.metric("work_share").mean())
    return run | {"seconds": time.perf_counter() - began}


def trained(
    jobs: int, plan: Sequence[tuple[Cell, int]], rewards: str, budget: int, episodes: int
) -> Iterator[Run]:
    """Train each cell and seed, so many at a time; yield each when it ends."""
    # a learner and an actor in one process, with one thread
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(train, cell, rewards, seed, budget, episodes) for cell, seed in plan]
        try:
            for done in as_completed(waiting):
                yield done.result()
        finally:
            pool.shutdown(cancel_futures=True)


def trainability(results: Results, options: argparse.Namespace, chosen: Sequence[Cell]) -> None:
    """Train the cells whose runs are not recorded; add a row for each cell."""
    results.parts = finished(results.name, {"turns": options.turns}) if options.record else []
    found = {(run["cell"], run["seed"]): run for run in results.parts}
    # all cells with a seed before the next seed, so that an unfinished map has every cell
    whole = [(cell, seed) for seed in options.seeds for cell in chosen]
    plan = [(cell, seed) for cell, seed in whole if (cell.name, seed) not in found]
    for run in trained(options.jobs, plan, options.what, options.turns, options.episodes):
        found[run["cell"], run["seed"]] = run | {"commit": commit_of_package()}
        results.parts = list(found.values())
        left = sum((cell.name, seed) not in found for cell, seed in whole)
        results.so_far = f"{len(whole) - left} of {len(whole)} runs" if left else ""
        print(
            f"{run['cell']}, seed {run['seed']}: {run['greedy']:.1f} greedy, "
            f"{run['sampled']:.1f} sampled, {run['seconds']:.0f} s; {left} runs left",
            flush=True,
        )
        if options.record and left:
            results.write()
    gaps = {cell: rows_of(results, cell, found, options.seeds) for cell in chosen}
    closed = sum(gap >= CLOSED for gap in gaps.values())
    results.bar(
        f"{options.what} rewards: cells of {len(gaps)} with gap closed >= {CLOSED}",
        closed,
        least=CELLS_CLOSED,
    )
    hard = [gap for cell, gap in gaps.items() if cell.equilibrium == "no_convergence"]
    if hard:
        results.bar(
            f"{options.what} rewards: lowest gap closed where no equilibrium was found",
            min(hard),
            least=CLOSED_WITHOUT_EQUILIBRIUM,
        )
    seconds = sum(found[cell.name, seed]["seconds"] for cell, seed in whole)
    hours = seconds / options.jobs / 3600
    results.bar(f"{options.what} rewards: hours of the map", hours, most=HOURS)


def rows_of(
    results: Results, cell: Cell, found: dict[tuple[str, int], Run], seeds: Sequence[int]
) -> float:
    """Add the row of a cell; return the gap that its greedy policies closed, mean over seeds."""
    floor = scripted(cell.kappa, cell.cost, at_random).mean
    span = scripted(cell.kappa, cell.cost, owners_duty).mean - floor
    gaps = {
        way: [(found[cell.name, seed][way] - floor) / span for seed in seeds]
        for way in ("greedy", "sampled")
    }
    results.row(
        {
            "cell": cell.name,
            "published equilibrium": cell.equilibrium,
            "random": floor,
            "specialist": floor + span,
            "trained": mean(found[cell.name, seed]["greedy"] for seed in seeds),
            "gap closed": mean(gaps["greedy"]),
            "standard error": error_of(gaps["greedy"]),
            "lowest seed": min(gaps["greedy"]),
            "sampled": mean(gaps["sampled"]),
            "sampled, standard error": error_of(gaps["sampled"]),
            "published": cell.gap_closed,
            "work share": mean(found[cell.name, seed]["greedy, work share"] for seed in seeds),
        }
    )
    return mean(gaps["greedy"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    known = cells()
    add("what", nargs="?", choices=["baselines", *REWARDS], help="default: all three")
    add("--cells", nargs="+", choices=known, metavar="CELL", default=list(known))
    add("--seeds", type=int, nargs="+", default=list(SEEDS))
    add("--turns", type=int, default=TURNS, help="nights of all copies together")
    add("--episodes", type=int, default=EPISODES, help="of each evaluation")
    add("--jobs", type=int, default=2, help="runs at a time; each uses one core")
    options = options_of(parser)
    chosen = [known[name] for name in options.cells]
    for what in [options.what] if options.what else ["baselines", *REWARDS]:
        options.what, results = what, Results(f"brigade_map.{what}")
        if what == "baselines":
            baselines(results, chosen)
        else:
            trainability(results, options, chosen)
        results.finish(options)


if __name__ == "__main__":
    main()
