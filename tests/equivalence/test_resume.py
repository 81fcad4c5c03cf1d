"""A run that was stopped and resumed equals one that was not, bit for bit, where order is fixed."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from equivalence.runs import LEARNED, PLAYED, PPO, assert_same, outcome, run, stops
from remuda.population.ledger.ledger import BIRTH, MATCH, read_records
from remuda.runs.metrics import read_metrics
from remuda.system.checkpoint.state import pack
from remuda.system.checkpoint.store import Checkpoints
from remuda.system.scoreboard import Learn, Play


@pytest.mark.process
@pytest.mark.slow_cases("iqn-True-sequential", "ppo-False-sequential")
@pytest.mark.parametrize(
    ("algorithm", "noisy", "schedule"),
    [
        pytest.param("dqn", False, "sequential", marks=pytest.mark.slow),
        ("iqn", True, "sequential"),
        ("ppo", False, "sequential"),
        pytest.param("dqn", False, "lockstep", marks=pytest.mark.slow),  # as iqn, without noise
        pytest.param("iqn", True, "lockstep", marks=pytest.mark.slow),
        pytest.param("ppo", False, "lockstep", marks=pytest.mark.slow),  # killed in lockstep below
    ],
)
def test_a_resumed_run_equals_an_uninterrupted_one(schedule, algorithm, noisy, tmp_path):
    tree = {
        "schedule": schedule,
        "policy": {"algorithm": algorithm, "network": {"noisy": noisy}, "ppo": PPO},
        "learners": {"processes": 2},
    }
    whole = run(tmp_path / "whole", **tree)
    # Twice where it costs no processes.
    first, *more = stops(schedule, algorithm, count=2 if schedule == "sequential" else 1)
    run(tmp_path / "parts", **tree, run={"turns": first})
    for turns in (*more, 800):
        run(tmp_path / "parts", resume=True, **tree, run={"turns": turns})
    assert_same(whole, outcome(tmp_path / "parts"))


@pytest.mark.process
@pytest.mark.slow_cases("sequential-prioritized-ppo", "sequential-self_play-dqn")
@pytest.mark.parametrize(
    ("schedule", "matchmaker", "algorithm"),
    [
        ("sequential", "prioritized", "ppo"),
        ("sequential", "self_play", "dqn"),
        pytest.param("lockstep", "self_play", "dqn", marks=pytest.mark.slow),
    ],
)
def test_a_league_resumes_exactly(schedule, matchmaker, algorithm, tmp_path):
    tree = {
        "schedule": schedule,
        "env": {"num_envs": 4, "options": {"max_turns": 30}},
        "policy": {
            "algorithm": algorithm,
            "ppo": PPO | {"rollout_length": 10, "normalise_rewards": False},
            "learning_mode": "hybrid" if algorithm == "ppo" else "off_policy",
        },
        "population": {
            "matchmaker": matchmaker,
            "policies": 2,
            "snapshots": {"every": 4, "keep": 3, "drop": "crowded"},
            "births": {"slots": 1, "every": 6, "games": 1, "confidence": 0.0},
        },
    }
    whole = run(tmp_path / "whole", **tree)
    first, second = stops(schedule, matchmaker, algorithm, count=2)
    run(tmp_path / "parts", **tree, run={"turns": first})
    for turns in (second, 800):
        run(tmp_path / "parts", resume=True, **tree, run={"turns": turns})
    assert_same(whole, outcome(tmp_path / "parts"), slice(2), updates=5)
    ledgers = [(tmp_path / name / "ledger.bin").read_bytes() for name in ("whole", "parts")]
    assert ledgers[0] == ledgers[1]
    assert BIRTH in read_records(tmp_path / "parts" / "ledger.bin")[1]["kind"]
    tables = []
    for name in ("whole", "parts"):
        kept = Checkpoints(tmp_path / name / "checkpoints")
        tables.append(pack(kept.read(kept.numbers()[-1], "coordinator")["population"]))
    assert tables[0] == tables[1]  # who exists, all records, and the frozen weights


@pytest.mark.slow_cases("sequential")
@pytest.mark.parametrize(
    "schedule", ["sequential", pytest.param("lockstep", marks=pytest.mark.slow)]
)
def test_main_agents_keep_their_share_of_matches_over_a_stop(schedule, tmp_path):
    """Of all matches of a run, of what a resumed one deals too, and none is dealt another way."""
    roles = {"main": ["m"], "main_exploiters": ["x"], "league_exploiters": ["y"]}
    begins_anew = {"after": 1, "timeout": 2, "reset": 0.5}
    tree = {
        "schedule": schedule,
        "env": {"num_envs": 4, "options": {"max_turns": 10}},
        "policy": {
            "algorithm": "ppo",
            "ppo": PPO | {"rollout_length": 10, "normalise_rewards": False},
            "learning_mode": "hybrid",
        },
        "population": {
            "matchmaker": "league",
            "snapshots": {"keep": 3},
            "league": roles | begins_anew | {"learn_from": "own", "main_share": 0.75},
        },
    }
    run(tmp_path / "whole", **tree)
    first, second = stops(schedule, "league", count=2)
    run(tmp_path / "parts", **tree, run={"turns": first})
    for turns in (second, 800):
        run(tmp_path / "parts", resume=True, **tree, run={"turns": turns})
    ledgers = [(tmp_path / name / "ledger.bin").read_bytes() for name in ("whole", "parts")]
    assert ledgers[0] == ledgers[1]
    names, records = read_records(tmp_path / "parts" / "ledger.bin")
    assert BIRTH in records["kind"]  # an exploiter that began anew
    matches = records[records["kind"] == MATCH]
    live = (matches["version"] == -1)[:, :2]
    main = ((matches["policy"][:, :2] == names.index("m")) & live).any(1)
    assert main.mean() > 0.8


@pytest.mark.process
@pytest.mark.slow
def test_a_run_changes_its_schedule_when_it_is_resumed(tmp_path):
    whole = run(tmp_path / "whole", schedule="sequential")
    run(tmp_path / "parts", schedule="sequential", run={"turns": stops("changes")[0]})
    parts = run(tmp_path / "parts", resume=True, schedule="lockstep")
    assert_same(whole, parts)


@pytest.mark.slow
def test_async_goes_on_with_what_was_learned_and_collects_afresh(tmp_path):
    tree = {"schedule": "async", "policy": {"experience": {"on_full": "wait"}}}
    directory = tmp_path / "run"
    before, counts = run(directory, **tree)
    after, later = run(directory, resume=True, **tree, run={"turns": 3000})
    assert later["play"][PLAYED.index(Play.TURNS)] == 3000
    for count in (Learn.UPDATES, Learn.VERSION):
        column = LEARNED.index(count)
        assert (later["learn"][:, column] > counts["learn"][:, column]).all()
    assert (later["written"] > 2900).all()
    assert not np.array_equal(before["agent_0"], after["agent_0"])
    turns = [record.turns for record in read_metrics(directory / "metrics.jsonl")]
    assert turns == sorted(turns)


ENDLESS = """
import sys
from pathlib import Path
from equivalence.runs import run
if __name__ == "__main__":
    run(Path(sys.argv[1]), schedule=sys.argv[2], run={"turns": 10**9}, checkpoint={"every": 0.2})
"""


@pytest.mark.process
@pytest.mark.slow_cases("lockstep")
@pytest.mark.parametrize(
    "schedule",
    [pytest.param("sequential", marks=pytest.mark.slow), "lockstep"],  # whose parts are of many
)
def test_a_run_that_was_killed_goes_on_as_if_nothing_had_happened(schedule, tmp_path):
    """Its checkpoints were taken while it played, each of one moment."""
    directory = tmp_path / "run"
    store = Checkpoints(directory / "checkpoints")
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, str(script), str(directory), schedule]
    with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL) as process:
        limit = time.monotonic() + 300
        while max(store.numbers(), default=0) < 2:
            assert process.poll() is None
            assert time.monotonic() < limit
            time.sleep(0.01)
        process.kill()
    # However few turns a busy machine has played by then.
    turns = max(store.verify(store.numbers()[-1]).turns + 300, 800)
    parts = run(directory, resume=True, schedule=schedule, run={"turns": turns})
    assert_same(run(tmp_path / "whole", schedule="sequential", run={"turns": turns}), parts)
