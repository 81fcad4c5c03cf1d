"""Does it learn, how well and how fast: independent PPO in several games, seed by seed.

python benchmarks/learning.py cartpole --seeds 10
python benchmarks/learning.py own_network --seeds 3
python benchmarks/learning.py treasure_hunt --seeds 3
python benchmarks/learning.py bucket_brigade --seeds 5
python benchmarks/learning.py tic_tac_toe --seeds 5
python benchmarks/learning.py cleanup --seeds 3
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from recording import Results, options_of
from rich.console import Console
from rich.table import Table

from remuda.config import load_config, overlay
from remuda.evaluation.results import standard_error
from remuda.runs.metrics import Goal, Record
from remuda.runs.result import Result
from remuda.training.run import train

CARTPOLE: dict[str, Any] = {
    "game": "gymnasium:CartPole-v1",
    "env": {"num_envs": 8},
    "policy": {
        "algorithm": "ppo",
        "network": {"shared": True},
        "ppo": {
            "epochs": 10,
            "minibatches": 8,
            "entropy_cost": 0.0,
            "anneal_steps": 150_000,
        },
    },
    "run": {"turns": 150_000, "evaluate_episodes": 100},
}
OWN_NETWORK: dict[str, dict[str, Any]] = {
    "ppo": overlay(CARTPOLE, {"policy": {"network": {"module": "own_network:features"}}}),
    "dqn": {
        # So that results repeat themselves, whatever else the machine does meanwhile.
        "schedule": "sequential",
        "game": "gymnasium:CartPole-v1",
        "env": {"num_envs": 8},
        "policy": {
            "algorithm": "dqn",
            "network": {"module": "own_network:features"},
            "n_frames": 1,
            "discount": 0.99,
            "learning_rate": 5e-4,
            "batch_size": 128,
            "n_steps": 10,
            "dqn": {"target_every": 50},
            "exploration": {"end": 0.04, "decay_steps": 10_000},
            "experience": {
                "replay_ratio": 16.0,
                "capacity": 100_000,
                "learning_starts": 1000,
                "on_full": "wait",
            },
        },
        "run": {"turns": 100_000, "evaluate_episodes": 100},
    },
}
"""CartPole with the module of examples/own_network.py."""
TREASURE_HUNT: dict[str, Any] = {
    "game": "treasure_hunt",
    "env": {"num_envs": 64},
    "policy": {"algorithm": "ppo", "network": {"shared": True}, "ppo": {"minibatches": 4}},
    "run": {"evaluate_episodes": 200, "log_every": 0.5},
}
BUCKET_BRIGADE: dict[str, Any] = {
    "game": "bucket_brigade",
    "env": {"num_envs": 64},
    "policy": {
        "algorithm": "ppo",
        "network": {"shared": True},
        "reward_scale": 0.01,
        "ppo": {"minibatches": 4},
    },
    "run": {"evaluate_episodes": 2000},
}


@dataclass(frozen=True)
class Brigade:
    """A scenario of Bucket Brigade, and how it is trained."""

    scenario: str
    turns: int
    optimum: float
    """Team reward per night of the best four cooperators."""
    bar: float | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


BRIGADES = (
    Brigade("rest_trap", 2_000_000, 393.7, 388.0),
    Brigade("default", 5_000_000, 379.9, 340.0),
    Brigade("v2_minimal", 4_000_000, 38.3, 30.0),
    Brigade("minimal_specialization", 2_000_000, 33.8, 0.0),
    Brigade(
        "minimal_specialization",
        5_000_000,
        33.8,
        more={
            "env": {"num_envs": 256},
            "policy": {"share_rewards": 1.0, "ppo": {"rollout_length": 64}},
        },
        note=" (policy.share_rewards 1)",
    ),
)
TIC_TAC_TOE: dict[str, Any] = {
    "game": "pettingzoo:classic/tictactoe-v3",
    "env": {"num_envs": 64},
    "policy": {
        "algorithm": "ppo",
        "network": {"shared": True},
        "discount": 1.0,
        "experience": {"segment_length": 5},
        "ppo": {"rollout_length": 32},
    },
    "run": {"turns": 1_200_000, "evaluate_episodes": 2000},
}
CLEANUP: dict[str, Any] = {
    "game": "cleanup",
    "env": {"num_envs": 32},
    "policy": {"algorithm": "ppo", "network": {"shared": True}},
    "run": {"turns": 300_000, "evaluate_episodes": 200},
}


class Watch:
    """Notes when all policies together first reached a return in training."""

    def __init__(self, wanted: float) -> None:
        self.wanted, self.reached = wanted, float("nan")

    def start(self, goal: Goal) -> None: ...

    def show(self, record: Record) -> None: ...

    def say(self, message: str) -> None: ...

    def close(self) -> None: ...

    def log(self, record: Record) -> None:
        returns = [p.mean_return for p in record.policies.values()]
        known = [r for r in returns if r is not None]
        if known and self.reached != self.reached and sum(known) / len(known) >= self.wanted:
            self.reached = record.seconds


def run(tree: dict[str, Any], schedule: str, seed: int, wanted: float) -> tuple[Result, float]:
    """One run, and the seconds of play and training until its return was as wanted."""
    with tempfile.TemporaryDirectory() as directory:
        fixed = {
            "schedule": schedule,
            "seed": seed,
            "run": {"directory": str(Path(directory) / "run")},
            "checkpoint": {"every": 3600, "evaluate_episodes": 0},
        }
        watch = Watch(wanted)
        result = train(load_config(overlay(tree, fixed)), watch)
        return result, watch.reached


def cartpole(seeds: int, console: Console) -> Table:
    table = Table("schedule", "seed", "turns", "greedy return", "seconds")
    for schedule in ("sequential", "async"):
        reach_475(table, schedule, CARTPOLE, schedule, seeds, console)
    return table


def own_network(seeds: int, console: Console) -> Table:
    """The user's own network, by both kinds of algorithm."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
    table = Table("algorithm", "seed", "turns", "greedy return", "seconds")
    for algorithm, tree in OWN_NETWORK.items():
        reach_475(table, algorithm, tree, tree.get("schedule", "async"), seeds, console)
    return table


def reach_475(
    table: Table, name: str, tree: dict[str, Any], schedule: str, seeds: int, console: Console
) -> None:
    """Rows of a table: what CartPole returns after training, by seed."""
    good = 0
    for seed in range(seeds):
        start = time.perf_counter()
        result, _ = run(tree, schedule, seed, 475.0)
        seconds = time.perf_counter() - start
        assert result.evaluation is not None
        mean, error = result.evaluation.mean(0), result.evaluation.standard_error(0)
        good += mean >= 475.0
        turns, earned = f"{result.record.turns:,}", f"{mean:.1f} ± {error:.1f}"
        table.add_row(name, str(seed), turns, earned, f"{seconds:.0f}")
        console.print(f"{name} seed {seed}: {mean:.1f}")
    table.add_row(name, "all", "", f"{good} of {seeds} reach 475", "", end_section=True)


def treasure_hunt(seeds: int, console: Console) -> Table:
    """Two agents to 150 and beyond; eight agents to the return that they level off near."""
    table = Table("agents", "schedule", "seed", "to", "after s", "greedy return", "agent-steps/s")
    for agents, wanted, turns in ((2, 150.0, 1_000_000), (8, 75.0, 400_000)):
        times: dict[str, list[float]] = {"sequential": [], "async": []}
        for seed in range(seeds):
            for (
                schedule,
                reached_at,
            ) in times.items():  # in turns, so that both meet the same machine
                tree = overlay(
                    TREASURE_HUNT,
                    {"env": {"options": {"num_agents": agents}}, "run": {"turns": turns}},
                )
                result, reached = run(tree, schedule, seed, wanted)
                reached_at.append(reached)
                assert result.evaluation is not None
                least = min(result.evaluation.mean(a) for a in range(agents))
                rate = result.record.agent_steps / result.record.seconds
                table.add_row(
                    *(str(agents), schedule, str(seed), f"{wanted:.0f}", f"{reached:.1f}"),
                    *(f"worst {least:.1f}", f"{rate:,.0f}"),
                )
                console.print(f"{agents} agents, {schedule}, seed {seed}: {reached:.1f} s")
        ratio = median(times["sequential"]) / median(times["async"])
        table.add_row(str(agents), f"async is {ratio:.2f}x as fast", end_section=True)
    return table


def bucket_brigade(seeds: int, console: Console) -> Table:
    """Four independent learners; the team's reward per night, greedy, beside the optimum."""
    table = Table("scenario", "seed", "team reward per night", "bar", "optimum", "work", "minutes")
    for brigade in BRIGADES:
        found = []
        name = brigade.scenario + brigade.note
        for seed in range(seeds):
            start = time.perf_counter()
            tree = overlay(
                BUCKET_BRIGADE,
                {
                    "env": {"options": {"scenario": brigade.scenario}},
                    "run": {"turns": brigade.turns},
                },
            )
            result, _ = run(overlay(tree, dict(brigade.more)), "async", seed, 0.0)
            assert result.evaluation is not None
            episode_metrics = result.evaluation.episode_metrics
            reward, work = episode_metrics["team_reward_per_night"], episode_metrics["work_share"]
            found.append(float(reward.mean()))
            told = f"{found[-1]:.1f} ± {standard_error(reward):.1f}"
            minutes = f"{(time.perf_counter() - start) / 60:.1f}"
            table.add_row(name, str(seed), told, "", "", f"{work.mean():.2f}", minutes)
            console.print(f"{name} seed {seed}: {told} in {minutes} minutes")
        seeds_apart = stdev(found) / len(found) ** 0.5 if len(found) > 1 else float("nan")
        table.add_row(
            name,
            "all",
            f"{mean(found):.1f} ± {seeds_apart:.1f}",
            "" if brigade.bar is None else f"{brigade.bar:g}",
            f"{brigade.optimum:g}",
            end_section=True,
        )
    return table


def tic_tac_toe(seeds: int, console: Console) -> Table:
    """One learns against who plays at random, on the first seat and on the second; then greedy."""
    table = Table("seat", "seed", "wins", "draws", "wins or draws", "minutes")
    for seat, other in enumerate(("player_2", "player_1")):
        for seed in range(seeds):
            start = time.perf_counter()
            tree = overlay(TIC_TAC_TOE, {"env": {"scripted": {other: "random"}}})
            result, _ = run(tree, "async", seed, 0.0)
            assert result.evaluation is not None
            returns = result.evaluation.returns[:, seat]
            wins, draws = float((returns > 0.0).mean()), float((returns == 0.0).mean())
            minutes = f"{(time.perf_counter() - start) / 60:.1f}"
            shares = [f"{share:.1%}" for share in (wins, draws, wins + draws)]
            table.add_row("second" if seat else "first", str(seed), *shares, minutes)
            console.print(f"tic-tac-toe, seat {seat}, seed {seed}: {shares} in {minutes} minutes")
    return table


def cleanup(seeds: int, console: Console) -> Table:
    """The dilemma: ten who learn for themselves, beside ten who share what they are given."""
    names = ("return of an agent", "polluted_share", "cleaning_actions", "apples_eaten", "equality")
    table = Table("rewards", "seed", *(name.replace("_", " ") for name in names), "minutes")
    for share in (0.0, 1.0):
        for seed in range(seeds):
            start = time.perf_counter()
            tree = overlay(CLEANUP, {"policy": {"share_rewards": share}})
            result, _ = run(tree, "async", seed, 0.0)
            assert result.evaluation is not None
            episode_metrics = {
                name: float(told.mean()) for name, told in result.evaluation.episode_metrics.items()
            }
            episode_metrics["return of an agent"] = float(result.evaluation.returns.mean())
            minutes = f"{(time.perf_counter() - start) / 60:.1f}"
            words = [f"{episode_metrics[name]:.2f}" for name in names]
            table.add_row("shared" if share else "own", str(seed), *words, minutes)
            console.print(f"cleanup, share {share:g}, seed {seed}: {words} in {minutes} minutes")
    return table


GAMES = {
    "cartpole": cartpole,
    "own_network": own_network,
    "treasure_hunt": treasure_hunt,
    "bucket_brigade": bucket_brigade,
    "tic_tac_toe": tic_tac_toe,
    "cleanup": cleanup,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=GAMES)
    parser.add_argument("--seeds", type=int, default=3)
    options = options_of(parser)
    results = Results(f"learning.{options.what}")
    results.table(GAMES[options.what](options.seeds, Console(width=110)))
    results.finish(options)


if __name__ == "__main__":
    main()
