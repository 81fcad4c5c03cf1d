"""Measure evolution in Treasure Hunt, beside random search and numbers chosen by hand."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from recording import Results

from remuda.config import load_config, overlay
from remuda.training.run import train
from remuda.ui.reports.summary import read_run
from remuda.ui.terminal.live import PlainView

TREE: dict[str, Any] = {
    "game": "treasure_hunt",
    "env": {"num_envs": 64, "options": {"num_agents": 8}},
    "policy": {"algorithm": "ppo", "network": {"shared": True}, "ppo": {"minibatches": 4}},
    "run": {"evaluate_episodes": 1000, "evaluate_seconds": 120},
    "checkpoint": {"evaluate_episodes": 0},
}
EVOLUTION: dict[str, Any] = {
    "games": 250,
    "share": 0.25,
    "confidence": 0.9,
    "draw_first": True,
    "numbers": {
        "learning_rate": {"low": 1e-5, "high": 1e-1, "log": True},
        "ppo.entropy_cost": {"low": 1e-4, "high": 1e-1, "log": True},
    },
}
EVERY, NEVER = 500, 10**9
BY_HAND = (1e-3, 3e-3, 1e-2)
"""Learning rates that all eight policies have; their entropy costs are the preset's."""
SCORED, BEST, COST = 1.3, 0.97, 0.95


@dataclass(frozen=True)
class Played:
    """The result of one run.

    Attributes:
        greedy: mean greedy return of each policy in the end, all eight playing together.
        trained: steps that all learners trained on in a second of the run.
        births: policies that were born.
    """

    greedy: tuple[float, ...]
    trained: float
    births: int


def hunt(results: Results, seeds: int, turns: int) -> None:
    """Train eight hunters in each way, seed by seed, and hold evolution to its bars.

    Per seed and in turns: evolution; random search, which begins with the same numbers and keeps
    them; and all eight with one learning rate chosen by hand, for each of those.
    """
    found: dict[str, list[Played]] = {}
    for seed in range(seeds):
        ways: dict[str, dict[str, Any]] = {
            "evolution": {"population": {"evolution": EVOLUTION | {"every": EVERY}}},
            "random search": {"population": {"evolution": EVOLUTION | {"every": NEVER}}},
        }
        ways |= {f"by hand, {rate:g}": {"policy": {"learning_rate": rate}} for rate in BY_HAND}
        for name, tree in ways.items():
            played = play(overlay(overlay(TREE, tree), {"seed": seed, "run": {"turns": turns}}))
            found.setdefault(name, []).append(played)
            _tell(results, name, seed, played)
    evolved, drawn = found["evolution"], found["random search"]
    by_hand = [name for name in found if name.startswith("by hand")]
    # Single seeds differ by what random search happens to draw.
    means = [mean(mean(played.greedy) for played in runs) for runs in (evolved, drawn)]
    results.bar("mean of the population, of random search's", means[0] / means[1], least=SCORED)
    best = mean(max(played.greedy) for played in evolved)
    by_seed = zip(*(found[name] for name in by_hand), strict=True)
    hand = mean(max(max(played.greedy) for played in runs) for runs in by_seed)
    results.bar("best of the population, of the best by hand", best / hand, least=BEST)
    speeds = [one.trained / other.trained for one, other in zip(evolved, drawn, strict=True)]
    results.bar("trained steps a second, of random search's (median)", median(speeds), least=COST)


def play(tree: dict[str, Any]) -> Played:
    """Train once, in a directory that is thrown away."""
    with tempfile.TemporaryDirectory() as parent:
        directory = Path(parent) / "run"
        train(load_config(overlay(tree, {"run": {"directory": directory}})), PlainView())
        summary = read_run(directory)
        greedy = tuple(policy.evaluated_return or 0.0 for policy in summary.policies)
        record = summary.records[-1]
        trained = sum(policy.trained for policy in record.policies.values()) / record.seconds
        births = 0
        if summary.files.ledger.is_file():
            from remuda.population.ledger.lineage import read_lineage

            births = sum(born.generation > 0 for born in read_lineage(summary.files.ledger))
    return Played(greedy, trained, births)


def _tell(results: Results, name: str, seed: int, played: Played) -> None:
    results.row(
        {
            "variant": name,
            "seed": seed,
            "mean return": mean(played.greedy),
            "worst": min(played.greedy),
            "best": max(played.greedy),
            "births": played.births,
            "trained steps/s": played.trained,
        }
    )
