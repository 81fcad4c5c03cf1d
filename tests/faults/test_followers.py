"""A population dealt by several actor processes outlives each of them; no result is there twice."""

import contextlib
import os
import random
import signal

import numpy as np
import pytest

from assembled import assemble
from faults.runs import PPO, run_until, small_config
from remuda.config import load_config, overlay
from remuda.coordinator.ledger_writer import LedgerWriter
from remuda.population.ledger.ledger import LOST, MATCH, read_records
from remuda.population.ledger.lineage import read_lineage
from remuda.population.ledger.records import PolicyRef
from remuda.population.members.table_parts import MATCHES
from remuda.population.specs import policy_specs
from remuda.runs.run_directory import RunDirectory
from remuda.runtime.layout import make_layout
from remuda.system.checkpoint.store import Checkpoints
from remuda.system.scoreboard import Play, Policy
from remuda.training.run import train
from remuda.ui.terminal.live import PlainView
from support import Tape

NAMES = [f"policy_{i}" for i in range(4)]
RATES = {"learning_rate": {"low": 1e-6, "high": 1e-4, "log": True}}
EVOLUTION = {"every": 100, "games": 10, "confidence": 0.0, "numbers": RATES}
COPIES = 6


def start(tmp_path, actors=2, algorithm=PPO, **population):
    """Begin to play; returns the assembly, the runtime, and who writes the ledger."""
    config = small_config(
        policy=algorithm,
        env={"num_envs": COPIES},
        actor={"processes": actors},
        population={"matchmaker": "random", "policies": 4, **population},
        learners={"processes": 1},
        supervision={"restarts": 10**6, "backoff": 0.02, "max_backoff": 0.02},
    )
    agents = Tape().agents
    specs = policy_specs(config, agents)
    ring = assemble(config, specs, make_layout(config, len(specs)), agents=agents)
    runtime = ring.runtime(tmp_path, Checkpoints(tmp_path / "checkpoints"))
    ledger_writer = LedgerWriter(ring.table, tmp_path / "ledger.bin", print)
    runtime.start(lambda: False)
    return ring, runtime, ledger_writer


def kill(runtime, role):
    with contextlib.suppress(ProcessLookupError, KeyError):  # it is dead, and was not missed yet
        os.kill(runtime.pids[role], signal.SIGKILL)


def check_results(ring, ledger_writer, path, kills):
    """After all processes ended: what actors counted of episodes is in the ledger, once."""
    ledger_writer.close()
    assert ledger_writer.lost == ring.table.results_lost == 0
    records = read_records(path)[1]
    matches = records[records["kind"] == MATCH]
    assert len(np.unique(matches["number"])) == len(matches)
    live = matches["version"] == -1
    for slot, name in enumerate(ring.table.policies):
        played = ring.scoreboard.acted(name)[Policy.EPISODES]
        told = ((matches["policy"] == slot) & live).sum()
        # An actor counts an episode, and may die before it notes the match.
        assert 0 <= played - told <= 2 * COPIES * kills
    return matches


@pytest.mark.process
@pytest.mark.slow_cases("2")
@pytest.mark.parametrize("actors", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_all_results_are_in_the_ledger_once(actors, tmp_path):
    ring, runtime, ledger_writer = start(tmp_path, actors, snapshots={"every": 5, "keep": 2})
    try:
        run_until(runtime, lambda: ledger_writer.write() or ring.table.word(MATCHES) >= 2000)
    finally:
        runtime.stop()
    matches = check_results(ring, ledger_writer, tmp_path / "ledger.bin", 0)
    assert set((matches["number"] % actors).tolist()) == set(range(actors))
    assert (matches["version"][matches["number"] % actors == 1] >= 0).any()  # the past plays too


@pytest.mark.process
@pytest.mark.slow_cases("ppo-6")
@pytest.mark.parametrize("kills", [6, pytest.param(100, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "algorithm",
    [PPO, pytest.param({"algorithm": "dqn"}, marks=pytest.mark.slow)],
    ids=["ppo", "dqn"],
)
def test_policies_evolve_and_no_result_is_there_twice_whoever_is_killed(algorithm, kills, tmp_path):
    ring, runtime, ledger_writer = start(
        tmp_path, 2, algorithm, evolution=EVOLUTION, snapshots={"every": 20, "keep": 2}
    )
    draw, path = random.Random(kills), tmp_path / "ledger.bin"

    def births():
        ledger_writer.write()
        return len(read_lineage(path))

    def all_live():
        ledger_writer.write()
        live = {member.ref for member in ring.table.population().learning}
        return live == {PolicyRef(name) for name in NAMES}

    try:
        run_until(runtime, lambda: ring.table.word(MATCHES) >= 100)
        for i in range(kills):
            before, role = births(), f"actor-{i % 2}"
            run_until(runtime, lambda: role in runtime.pids)  # noqa: B023
            runtime.run_for(draw.random() * 0.2)
            kill(runtime, role)
            run_until(runtime, lambda: births() > before)  # noqa: B023
        run_until(runtime, all_live)
    finally:
        runtime.stop()
    check_results(ring, ledger_writer, path, kills)
    orders = ring.table.births
    count = [born.policy for born in read_lineage(path)]
    for slot, name in enumerate(NAMES):
        # An order may be noted and its actor die before it counts; its successor orders anew.
        assert 0 <= count.count(name) - orders.ordered(slot) <= 1 + kills
        assert orders.ordered(slot) == orders.confirmed(slot)


@pytest.mark.slow
def test_a_follower_that_dies_holds_nobody_up(tmp_path):
    ring, runtime, _ = start(tmp_path)
    try:
        play = ring.scoreboard.play
        run_until(runtime, lambda: min(play(0)[Play.TURNS], play(1)[Play.TURNS]) > 100)
        for victim in (1, 0):
            other = 1 - victim
            before = play(other)[Play.TURNS], play(victim)[Play.TURNS]
            kill(runtime, f"actor-{victim}")
            run_until(runtime, lambda: play(other)[Play.TURNS] > before[0] + 100)  # noqa: B023
            run_until(runtime, lambda: play(victim)[Play.TURNS] > before[1] + 100)  # noqa: B023
    finally:
        runtime.stop()


def tree_of(directory, actors, turns, **more):
    return load_config(
        {
            "game": "kuhn_poker",
            "policy": {"algorithm": "ppo", "network": {"hidden": [8]}},
            "env": {"num_envs": 8},
            "actor": {"processes": actors},
            "learners": {"processes": 1},
            "population": {"matchmaker": "round_robin", "policies": 3, "snapshots": {"every": 20}},
            "run": {"turns": turns, "directory": directory, "evaluate_episodes": 0},
            "checkpoint": {"evaluate_episodes": 0},
            **more,
        }
    )


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("actors", [1, 2])
def test_a_run_that_ends_by_time_has_all_results_in_its_ledger(actors, tmp_path):
    """What was played after the last look of the coordinator was missing, and lost by a resume."""
    directory = tmp_path / "run"
    for seconds in (3.0, 6.0):
        more = {"seconds": seconds, "turns": None, "directory": directory, "evaluate_episodes": 0}
        config = tree_of(directory, actors, 1)
        config = load_config(overlay(config.model_dump(), {"run": more}))
        result = train(config, PlainView(), resume=seconds > 3.0)
        records = read_records(RunDirectory.open(directory).ledger)[1]
        assert not (records["kind"] == LOST).any()
        matches = records[records["kind"] == MATCH]
        assert len(matches) >= result.record.matches
        assert len(np.unique(matches["number"])) == len(matches)


@pytest.mark.slow
def test_a_run_ends_with_all_results_and_goes_on_with_another_number_of_actors(tmp_path):
    directory, turns = tmp_path / "run", 0
    for actors in (2, 1, 3):
        turns += 6000
        config = tree_of(directory, actors, turns)
        result = train(config, PlainView(), resume=turns > 6000)
        assert result.record.turns >= turns
        run = RunDirectory.open(directory)
        records = read_records(run.ledger)[1]
        matches = records[records["kind"] == MATCH]
        assert len(matches) == result.record.matches
        assert len(np.unique(matches["number"])) == len(matches)
        episodes = sum(p.episodes for p in result.record.policies.values())
        live = (matches["version"] == -1).sum()
        assert episodes == live
