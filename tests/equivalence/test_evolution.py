"""Evolution in exact schedules: they agree bit for bit, and a resumed run equals a whole one."""

import numpy as np
import pytest

from equivalence.runs import PPO, assert_same, outcome, run, stops
from remuda.config import overlay
from remuda.population.ledger.ledger import BIRTH, BORN_WITH, read_records
from remuda.population.ledger.lineage import read_lineage
from remuda.system.checkpoint.state import pack
from remuda.system.checkpoint.store import Checkpoints

NUMBERS = {"learning_rate": {"low": 1e-5, "high": 1e-2, "log": True}}
EVOLUTION = {
    "every": 6,
    "games": 2,
    "confidence": 0.0,
    "numbers": NUMBERS,
    "mutation": 0.1,
}
KINDS = {
    "fixed": {
        "matchmaker": "fixed",
        "evolution": EVOLUTION | {"crossover_numbers": 0.5, "crossover_layers": 0.5},
    },
    "random": {
        "matchmaker": "random",
        "policies": 4,
        "evolution": EVOLUTION | {"explore": "pb2", "select": "tournament"},
    },
    "inherited": {
        "matchmaker": "random",
        "policies": 4,
        "evolution": EVOLUTION | {"mutation": 0.0},
    },
    "networks": {
        "matchmaker": "random",
        "policies": 4,
        "evolution": EVOLUTION | {"mutation": 0.0, "networks": "any", "crossover_layers": 0.3},
    },
    "past": {
        "matchmaker": "prioritized",
        "policies": 3,
        "snapshots": {"every": 4, "keep": 2},
        "evolution": EVOLUTION | {"select": "non_dominated", "fitness": ["rating", "return"]},
    },
    "told": {
        "matchmaker": "random",
        "policies": 5,
        "evolution": EVOLUTION | {"fitness": "game/ruined_houses:min"},
    },
}
NETWORKS = {
    "policies": {
        f"policy_{i}": {"network": {"hidden": hidden}}
        for i, hidden in enumerate([(16, 16), (24, 20), (12,), (20, 16, 16)])
    }
}
GAMES = {
    "networks": NETWORKS,
    "told": {"game": "bucket_brigade", "env": {"num_envs": 4}},
}


def tree_of(kind, algorithm):
    tree = {
        "policy": {"algorithm": algorithm},
        "env": {"num_envs": 4, "options": {"num_agents": 3, "max_turns": 30}},
        **GAMES.get(kind, {}),
        "learners": {"processes": 2},
        "population": KINDS[kind],
    }
    if algorithm == "ppo":
        own = {"ppo": PPO | {"rollout_length": 10, "normalise_rewards": False}}
        tree = overlay(tree, {"policy": own})
    return tree


def births_in(directory):
    return (read_records(directory / "ledger.bin")[1]["kind"] == BIRTH).sum()


def check_inherited(kind, directory):
    """Whether the newborn took over the moments of their parents where weights were left alone."""
    born = [b for b in read_lineage(directory / "ledger.bin") if b.parent is not None]
    assert any(b.optimizer_steps for b in born) == (kind == "inherited")


@pytest.mark.process
@pytest.mark.slow_cases("fixed-ppo", "inherited-ppo", "networks-ppo", "random-dqn")
@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [
        ("fixed", "ppo"),
        ("random", "dqn"),
        ("inherited", "ppo"),
        pytest.param("inherited", "iqn", marks=pytest.mark.slow),
        ("networks", "ppo"),
        pytest.param("networks", "iqn", marks=pytest.mark.slow),
        pytest.param("past", "ppo", marks=pytest.mark.slow),
        pytest.param("told", "dqn", marks=pytest.mark.slow),
        pytest.param("fixed", "iqn", marks=pytest.mark.slow),
    ],
)
def test_lockstep_equals_sequential_where_policies_evolve(kind, algorithm, tmp_path):
    tree = overlay(tree_of(kind, algorithm), {"run": {"turns": 1_000}})
    outcomes = [
        run(tmp_path / schedule, schedule=schedule, **tree)
        for schedule in ("sequential", "lockstep")
    ]
    assert_same(*outcomes, slice(2), updates=5)
    ledgers = [(tmp_path / name / "ledger.bin").read_bytes() for name in ("sequential", "lockstep")]
    assert ledgers[0] == ledgers[1]
    kinds = read_records(tmp_path / "lockstep" / "ledger.bin")[1]["kind"]
    assert {BIRTH, BORN_WITH} <= set(kinds)
    assert births_in(tmp_path / "lockstep") >= 2
    check_inherited(kind, tmp_path / "lockstep")


@pytest.mark.slow_cases("fixed-dqn", "inherited-dqn", "networks-dqn", "past-ppo", "told-ppo")
@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [
        ("fixed", "dqn"),
        ("past", "ppo"),
        ("told", "ppo"),
        ("inherited", "dqn"),
        ("networks", "dqn"),
        pytest.param("inherited", "ppo", marks=pytest.mark.slow),
        pytest.param("random", "ppo", marks=pytest.mark.slow),
    ],
)
def test_evolution_resumes_exactly(kind, algorithm, tmp_path):
    tree = tree_of(kind, algorithm) | {"schedule": "sequential"}
    whole = run(tmp_path / "whole", **tree)
    first, second = stops(kind, algorithm, count=2)
    run(tmp_path / "parts", **tree, run={"turns": first})
    for turns in (second, 800):
        run(tmp_path / "parts", resume=True, **tree, run={"turns": turns})
    assert_same(whole, outcome(tmp_path / "parts"), slice(2), updates=5)
    ledgers = [(tmp_path / name / "ledger.bin").read_bytes() for name in ("whole", "parts")]
    assert ledgers[0] == ledgers[1]
    assert births_in(tmp_path / "parts") >= 2
    check_inherited(kind, tmp_path / "parts")
    tables = []
    for name in ("whole", "parts"):
        kept = Checkpoints(tmp_path / name / "checkpoints")
        tables.append(pack(kept.read(kept.numbers()[-1], "coordinator")["population"]))
    assert tables[0] == tables[1]
    assert np.isfinite(next(iter(whole[0].values()))).all()
