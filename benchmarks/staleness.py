"""Learning from old steps: PPO in Treasure Hunt.

python benchmarks/staleness.py --lag 10 --seeds 8 --epochs 1 --clip inf
    The actor acts with weights of 10 versions ago, and nothing holds an update close to the policy
    that it begins from: actor-critic as in Espeholt et al. 2018.
python benchmarks/staleness.py --lag 10 --seeds 8 --rate 3e-3 --turns 700000
    The same with PPO's clipping.
python benchmarks/staleness.py --replay --seeds 4
    off_policy: draws from all that is kept.
"""

from __future__ import annotations

import argparse
from collections import defaultdict, deque
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from multiprocessing import get_context
from statistics import mean
from typing import Any

import numpy as np
from recording import Results, options_of
from rich.console import Console
from rich.table import Table

from remuda.actor.actor import Actor
from remuda.actor.role import ActorRole
from remuda.assembly.assembly import Assembly
from remuda.config import load_config, overlay
from remuda.evaluation.evaluate import evaluate
from remuda.evaluation.results import standard_error
from remuda.population.run_spec import RunSpec
from remuda.publish.snapshot import Snapshot, SnapshotReader
from remuda.runtime.host import threads
from remuda.runtime.layout import make_layout
from remuda.system.scoreboard import Learn

BASE: dict[str, Any] = {
    "game": "treasure_hunt",
    "schedule": "sequential",
    "env": {"num_envs": 64},
    "policy": {"algorithm": "ppo", "ppo": {"rollout_length": 32}},
}


EPISODES = 500


class LateReader(SnapshotReader):
    """Hands on every snapshot once so many newer ones of its policy are there."""

    def __init__(self, reader: SnapshotReader, lag: int) -> None:
        self._reader, self._lag = reader, lag
        self._held: dict[str, deque[Snapshot]] = defaultdict(deque)
        self._first = True

    @property
    def overtaken(self) -> int:  # type: ignore[override]
        return self._reader.overtaken

    def has_update(self) -> bool:
        return self._reader.has_update()

    def newer(self) -> dict[str, Snapshot]:
        due = {}
        for policy, s in self._reader.newer().items():
            copy = Snapshot(s.weights.copy(), s.version, s.learner_step, s.epsilon)
            held = self._held[policy]
            held.append(copy)
            if len(held) > self._lag:
                due[policy] = held.popleft()
            elif copy.version == 1:  # there is nothing older to act with
                due[policy] = copy
        return due


@dataclass(frozen=True)
class LateActor(ActorRole):
    """Acts with weights of `lag` versions ago."""

    lag: int = 0

    def build(self) -> Actor:
        actor = super().build()
        assert actor._reader is not None
        actor._reader = LateReader(actor._reader, self.lag)
        return actor


def learn(lag: int, policy: dict[str, Any], seed: int, turns: int) -> tuple[float, float, float]:
    """The mean return of the newest weights at the end; mean staleness, and effective share."""
    tree = overlay(BASE, {"seed": seed, "policy": policy})
    config = load_config(overlay(tree, {"run": {"turns": turns}}))
    run = RunSpec.of(config)
    specs = run.policies

    with threads(1):
        assembly = Assembly(run, make_layout(config, len(specs)))
        actor_role, *learner_roles = assembly.roles()
        fields = {name: getattr(actor_role, name) for name in actor_role.__dataclass_fields__}
        actor = LateActor(**fields, lag=lag).build()
        learners = [role.build() for role in learner_roles]
        while not actor.done:
            actor.work()
            for learner in learners:
                while learner.work():
                    pass
        # The learned policy, and not what the late actor still does.
        played = evaluate(run, assembly.snapshots(), EPISODES, seed, sampled=True)
        learned = [assembly.scoreboard.learn(spec.name) for spec in specs]
        lags = [row[Learn.STALENESS_SUM] / row[Learn.UPDATES] for row in learned]
        shares = [row[Learn.EFFECTIVE_SUM] / row[Learn.UPDATES] for row in learned]
        return float(played.returns.mean()), float(np.mean(lags)), float(np.mean(shares))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lag", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--turns", type=int, default=500_000)
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate")
    parser.add_argument("--epochs", type=int, default=4, help="times an update sees its steps")
    parser.add_argument("--clip", type=float, default=0.2, help="how far a ratio counts from 1")
    parser.add_argument("--processes", type=int, default=2, help="runs at the same time")
    parser.add_argument("--replay", action="store_true", help="learn off_policy, without a lag")
    words = options_of(parser)
    first = "steps kept" if words.replay else "lag"
    table = Table(first, "correction", "return at the end", "against new", "staleness", "ESS")
    base = 0.0
    olds = (40_000, 200_000) if words.replay else (words.lag,)
    corrections = ("none", "decoupled", "vtrace")
    for old, correction in ((0, "none"), *((old, each) for old in olds for each in corrections)):
        policy: dict[str, Any] = {
            "learning_rate": words.rate,
            "ppo": {"correction": correction, "epochs": words.epochs, "clip": words.clip},
        }
        if words.replay and old:
            policy |= {"learning_mode": "off_policy", "experience": {"capacity": old}}
        lag = 0 if words.replay else old
        with ProcessPoolExecutor(words.processes, get_context("spawn")) as pool:
            alike = repeat(lag), repeat(policy), range(words.seeds), repeat(words.turns)
            found = list(pool.map(learn, *alike))
        returns = np.array([each[0] for each in found])
        base = base or float(returns.mean())
        each = " ".join(f"{x:.0f}" for x in returns)
        told = f"{returns.mean():.1f} ± {standard_error(returns):.1f} ({each})"
        row = (told, f"{returns.mean() / base:.2f}")
        stale, share = mean(x[1] for x in found), mean(x[2] for x in found)
        table.add_row(f"{old:,}", correction, *row, f"{stale:.1f}", f"{share:.2f}")
        Console().print(f"{old:,}, {correction}: {row[0]}")
    results = Results("staleness.replay" if words.replay else "staleness")
    results.table(table)
    results.finish(words)


if __name__ == "__main__":
    main()
