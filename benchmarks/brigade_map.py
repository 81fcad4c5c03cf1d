"""The trainability map of Bucket Brigade: independent PPO beside a published study, cell by cell.

    python benchmarks/brigade_map.py --record             baselines, own rewards, shared, causes
    python benchmarks/brigade_map.py own --record         one of the four
    python benchmarks/brigade_map.py own --cells b0.50_k0.90_c0.50 --seeds 0

Each cell is `minimal_specialization` with four agents and another probability that fire spreads
(beta), probability that one agent puts out a fire (kappa) and cost of a night's work. Four
independent PPO learners train in each cell with each seed, from their own rewards (`own`) or from
the mean of all four agents' (`shared`). The gap closed is (trained - random) / (specialist -
random), of the team's reward per night, where the specialists work at their own burning houses.

`causes` trains two cells without a published equilibrium with PPO's usual lambda and with ours, for
the longest published training and for ours.

With --record every run is written as soon as it ends. The same command continues where an earlier
one was stopped, at most --jobs unfinished runs are repeated. The published numbers are in
figures/brigade_map.published.csv; docs/brigade_map.md describes the study.
"""

from __future__ import annotations

import argparse
import csv
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context, parent_process
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from recording import FIGURES, Results, commit_of_package, error_of, options_of
from seeds import Run, finished

import remuda
from remuda.envs.games.bucket_brigade_policies import owners_duty
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
    "ppo": {"rollout_length": 32, "epochs": 4, "minibatches": 4},
}
"""The same in every cell."""
LAMBDA, USUAL_LAMBDA = 0.2, 0.95
"""Of advantages. With less, the luck of later fires counts less in what a night's work earned."""
PUBLISHED_TURNS = 200 * 4096
"""Nights of the longest published training: 200 rollouts of 4096 nights."""


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


@dataclass(frozen=True)
class Plan:
    """One training: four independent learners in a cell."""

    cell: Cell
    seed: int
    rewards: str
    turns: int
    gae_lambda: float = LAMBDA

    @property
    def key(self) -> Run:
        """What identifies its recorded run."""
        return {
            "cell": self.cell.name,
            "seed": self.seed,
            "rewards": self.rewards,
            "turns": self.turns,
            "lambda": self.gae_lambda,
        }


def end_with_parent() -> None:
    """End this worker when the program is killed; an idle pool would wait for ever."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def train(plan: Plan, episodes: int) -> Run:
    """Train, and evaluate greedily and sampled."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        result = remuda.train(
            GAME,
            seed=plan.seed,
            schedule="sequential",
            view="quiet",
            env={"num_envs": COPIES, "options": plan.cell.options},
            policy={
                **POLICY,
                "share_rewards": REWARDS[plan.rewards],
                "ppo": {**POLICY["ppo"], "gae_lambda": plan.gae_lambda},
            },
            checkpoint={"every": 3600, "evaluate_episodes": 0},
            run={
                "turns": plan.turns,
                "directory": str(Path(directory) / "run"),
                "evaluate_episodes": 0,
            },
        )
        run = plan.key
        for way, sampled in (("greedy", False), ("sampled", True)):
            played = remuda.load(result).evaluate(episodes, sampled=sampled, seed=plan.seed)
            run[way] = float(played.metric(METRIC).mean())
            run[f"{way}, work share"] = float(played.metric("work_share").mean())
    return run | {"seconds": time.perf_counter() - began}


def trained(results: Results, plans: Sequence[Plan], options: argparse.Namespace) -> list[Run]:
    """Return the run of each plan: a recorded one, or a new one, `--jobs` at a time."""
    # an actor and a learner in one process, with one thread
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    keys = [tuple(plan.key.values()) for plan in plans]
    recorded = finished(results.name, {}) if options.record else []
    found = {tuple(run[name] for name in plans[0].key): run for run in recorded}
    missing = [plan for plan, key in zip(plans, keys, strict=True) if key not in found]
    results.parts = recorded
    with ProcessPoolExecutor(
        options.jobs, mp_context=get_context("spawn"), initializer=end_with_parent
    ) as pool:
        waiting = {pool.submit(train, plan, options.episodes): plan for plan in missing}
        try:
            for done in as_completed(waiting):
                run = done.result() | {"commit": commit_of_package()}
                found[tuple(waiting[done].key.values())] = run
                results.parts = list(found.values())
                left = sum(key not in found for key in keys)
                results.so_far = f"{len(plans) - left} of {len(plans)} runs" if left else ""
                print(
                    f"{run['cell']}, seed {run['seed']}: {run['greedy']:.1f} greedy, "
                    f"{run['sampled']:.1f} sampled, {run['seconds']:.0f} s; {left} runs left",
                    flush=True,
                )
                if options.record and left:
                    results.write()
        finally:
            pool.shutdown(cancel_futures=True)
    return [found[key] for key in keys]


def trainability(
    results: Results, options: argparse.Namespace, chosen: Sequence[Cell], rewards: str
) -> None:
    """Train all cells; add a row for each."""
    # all cells with a seed before the next seed, so that an unfinished map has every cell
    plans = [Plan(cell, seed, rewards, options.turns) for seed in options.seeds for cell in chosen]
    runs = trained(results, plans, options)
    gaps = {cell: row_of(results, cell, runs) for cell in chosen}
    closed = sum(gap >= CLOSED for gap in gaps.values())
    what = f"{rewards} rewards: cells of {len(gaps)} with gap closed >= {CLOSED}"
    results.bar(what, closed, least=CELLS_CLOSED)
    hard = [gap for cell, gap in gaps.items() if cell.equilibrium == "no_convergence"]
    if hard:
        what = f"{rewards} rewards: lowest gap closed where no equilibrium was found"
        results.bar(what, min(hard), least=CLOSED_WITHOUT_EQUILIBRIUM)
    hours = sum(run["seconds"] for run in runs) / options.jobs / 3600
    results.bar(f"{rewards} rewards: hours of the map", hours, most=HOURS)


def causes(results: Results, options: argparse.Namespace, chosen: Sequence[Cell]) -> None:
    """Train cells without a published equilibrium for two times, with two lambdas."""
    hard = {
        (cell.kappa, cell.cost): cell for cell in chosen if cell.equilibrium == "no_convergence"
    }
    variants = [
        (cell, budget, gae_lambda)
        for budget in (PUBLISHED_TURNS, options.turns)
        for gae_lambda in (USUAL_LAMBDA, LAMBDA)
        for cell in hard.values()
    ]
    plans = [
        Plan(cell, seed, "own", budget, gae_lambda)
        for cell, budget, gae_lambda in variants
        for seed in options.seeds
    ]
    runs = trained(results, plans, options)
    for cell, budget, gae_lambda in variants:
        wanted = {"cell": cell.name, "turns": budget, "lambda": gae_lambda}
        each = gaps_of(cell, [run for run in runs if wanted.items() <= run.items()])["greedy"]
        results.row(
            {
                "cell": cell.name,
                "nights": budget,
                "lambda": gae_lambda,
                "gap closed": mean(each),
                "standard error": error_of(each),
                "published": cell.gap_closed,
            }
        )


def gaps_of(cell: Cell, runs: Sequence[Run]) -> dict[str, list[float]]:
    """Return the gaps closed by greedy and by sampled policies, by run."""
    floor, top = (scripted(cell.kappa, cell.cost, each).mean for each in (at_random, owners_duty))
    return {
        way: [(run[way] - floor) / (top - floor) for run in runs] for way in ("greedy", "sampled")
    }


def row_of(results: Results, cell: Cell, runs: Sequence[Run]) -> float:
    """Add the row of a cell; return the gap that its greedy policies closed, mean over seeds."""
    own = [run for run in runs if run["cell"] == cell.name]
    gaps = gaps_of(cell, own)
    results.row(
        {
            "cell": cell.name,
            "published equilibrium": cell.equilibrium,
            "random": scripted(cell.kappa, cell.cost, at_random).mean,
            "specialist": scripted(cell.kappa, cell.cost, owners_duty).mean,
            "trained": mean(run["greedy"] for run in own),
            "gap closed": mean(gaps["greedy"]),
            "standard error": error_of(gaps["greedy"]),
            "lowest seed": min(gaps["greedy"]),
            "sampled": mean(gaps["sampled"]),
            "sampled, standard error": error_of(gaps["sampled"]),
            "published": cell.gap_closed,
            "work share": mean(run["greedy, work share"] for run in own),
        }
    )
    return mean(gaps["greedy"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    known = cells()
    add("what", nargs="?", choices=["baselines", *REWARDS, "causes"], help="default: all four")
    add("--cells", nargs="+", choices=known, metavar="CELL", default=list(known))
    add("--seeds", type=int, nargs="+", default=list(SEEDS))
    add("--turns", type=int, default=TURNS, help="nights of all copies together")
    add("--episodes", type=int, default=EPISODES, help="of each evaluation")
    add("--jobs", type=int, default=2, help="runs at a time; each uses one core")
    options = options_of(parser)
    chosen = [known[name] for name in options.cells]
    for what in [options.what] if options.what else ["baselines", *REWARDS, "causes"]:
        results = Results(f"brigade_map.{what}")
        if what == "baselines":
            baselines(results, chosen)
        elif what == "causes":
            causes(results, options, chosen)
        else:
            trainability(results, options, chosen, what)
        results.finish(options)


if __name__ == "__main__":
    main()
