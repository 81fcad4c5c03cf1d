"""Run directories to look at: real ones, made once a process, and damaged ones."""

import functools
import json
import tempfile
from pathlib import Path

import remuda

QUICK = {
    "schedule": "sequential",
    "run": {
        "turns": 600,
        "log_every": 0.05,
        "evaluate_episodes": 0,
        "live": False,
    },
    "checkpoint": {"evaluate_episodes": 0},
}


@functools.cache
def place():
    """A directory for runs that tests only read."""
    return Path(tempfile.mkdtemp(prefix="dashboard-"))


@functools.cache
def fixed_run():
    """Treasure Hunt: each agent has its policy for good."""
    path = place() / "fixed"
    run = {**QUICK["run"], "directory": str(path)}
    policy = {"experience": {"learning_starts": 100}, "network": {"hidden": [32]}}
    remuda.train("treasure_hunt", **{**QUICK, "run": run}, policy=policy)
    return path


@functools.cache
def population_run():
    """Three policies of rock, paper, scissors, with a ledger, ratings and births."""
    path = place() / "population"
    run = {**QUICK["run"], "turns": 3000, "directory": str(path)}
    remuda.train(
        "rock_paper_scissors",
        **{**QUICK, "run": run},
        env={"num_envs": 8},
        population={"policies": 3, "matchmaker": "random"},
        policy={"algorithm": "ppo"},
    )
    return path


def lines_of(count, **numbers):
    """So many lines of metrics, as a run writes them, each with these numbers of one policy."""
    for i in range(1, count + 1):
        policy = {name: value(i) if callable(value) else value for name, value in numbers.items()}
        record = {
            "seconds": 0.5 * i,
            "turns": 10 * i,
            "agent_steps": 20 * i,
            "turns_per_second": 20.0,
            "agent_steps_per_second": 40.0,
            "shares": {"env": 0.5, "wait": 0.25},
            "policies": {"learner": policy},
        }
        yield json.dumps(record) + "\n"


def made_run(path, game="treasure_hunt", seed=0, records=5, **numbers):
    """A run directory written by hand: a configuration and metrics."""
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(f"game: {json.dumps(game)}\nseed: {seed}\n")
    (path / "metrics.jsonl").write_text("".join(lines_of(records, **(numbers or {"loss": 1.0}))))
    return path
