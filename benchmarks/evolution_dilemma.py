"""Measure evolution in social dilemmas, where it finds how much of rewards to share."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from recording import Results

from remuda.config import load_config, overlay
from remuda.population.ledger.lineage import read_lineage
from remuda.training.run import train
from remuda.ui.reports.summary import read_run
from remuda.ui.terminal.live import PlainView


@dataclass(frozen=True)
class Dilemma:
    """A game in which what is good for one is bad for all, and how it is played.

    Attributes:
        tree: of the configuration.
        fact: what of an episode is held to the bar.
        bar: what it must be on average.
    """

    tree: Mapping[str, Any]
    fact: str
    bar: float


EVOLUTION: dict[str, Any] = {
    "every": 4000,
    "games": 1000,
    "fitness": "team_return",
    "share": 0.25,
    "confidence": 0.9,
    "draw_first": True,
    "numbers": {"share_rewards": {"low": 0.0, "high": 1.0}},
}
DILEMMAS = {
    "brigade": Dilemma(
        {
            "game": "bucket_brigade",
            "env": {"num_envs": 256, "options": {"scenario": "minimal_specialization"}},
            "policy": {
                "algorithm": "ppo",
                "network": {"shared": True},
                "reward_scale": 0.01,
                "ppo": {"rollout_length": 64, "minibatches": 4},
            },
            "population": {"matchmaker": "random", "policies": 8, "evolution": EVOLUTION},
            "run": {"turns": 10_000_000, "evaluate_episodes": 2000},
        },
        "team_reward_per_night",
        25.0,
    ),
    "cleanup": Dilemma(
        {
            "game": "cleanup",
            "env": {"num_envs": 32},
            "policy": {"algorithm": "ppo", "network": {"shared": True}},
            "population": {
                "matchmaker": "random",
                "policies": 10,
                "evolution": EVOLUTION | {"every": 200, "games": 100},
            },
            "run": {"turns": 1_000_000, "evaluate_episodes": 200},
        },
        "apples_eaten",
        42.0,
    ),
}
"""Own rewards alone, and shared ones, are in `learning.py bucket_brigade` and `cleanup`."""


def dilemma(results: Results, name: str, seeds: int, turns: int | None) -> None:
    """Let shares evolve, seed by seed, and hold what the agents bring about to its bar."""
    chosen = DILEMMAS[name]
    for seed in range(seeds):
        found = play(chosen, seed, turns)
        results.row({"game": name, "seed": seed} | found)
        reached = found[chosen.fact]
        results.bar(f"{name}, seed {seed}: {chosen.fact}", reached, least=chosen.bar)


def play(chosen: Dilemma, seed: int, turns: int | None) -> dict[str, float]:
    """Train once, in a directory that is thrown away; its results as a mapping."""
    with tempfile.TemporaryDirectory() as parent:
        directory = Path(parent) / "run"
        more: dict[str, Any] = {
            "seed": seed,
            "run": {"directory": directory},
            "checkpoint": {"evaluate_episodes": 0},
        }
        if turns is not None:
            more["run"]["turns"] = turns
        result = train(load_config(overlay(dict(chosen.tree), more)), PlainView())
        assert result.evaluation is not None
        facts = {
            fact: float(told.mean()) for fact, told in result.evaluation.episode_metrics.items()
        }
        summary = read_run(directory)
        births = read_lineage(summary.files.ledger)
        newest = {birth.policy: birth.hyperparameters["share_rewards"] for birth in births}
        return {
            chosen.fact: facts[chosen.fact],
            "lowest share": min(newest.values()),
            "mean share": mean(newest.values()),
            "highest share": max(newest.values()),
            "births": sum(birth.generation > 0 for birth in births),
            "minutes": summary.records[-1].seconds / 60.0,
        }
