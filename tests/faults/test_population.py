"""A population outlives every role that dies: matches go on, and records stay."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from assembled import assemble
from faults.runs import (
    FAULTS,
    SabotagedActor,
    SabotagedLearner,
    fail,
    restarts,
    run_until,
    small_config,
)
from remuda.coordinator.ledger_writer import LedgerWriter
from remuda.learner.role import LearnerRole
from remuda.population.births.inheritance import LearnerBirths
from remuda.population.ledger.ledger import BIRTH, MATCH, read_records
from remuda.population.ledger.records import PolicyRef
from remuda.population.members.table_parts import MATCHES, PROPOSED
from remuda.population.specs import policy_specs
from remuda.runtime.layout import make_layout
from remuda.system.checkpoint.store import Checkpoints, Manifest
from remuda.system.scoreboard import Learn
from support import Tape

NAMES = [f"policy_{i}" for i in range(4)]
PPO = {
    "algorithm": "ppo",
    "network": {"hidden": (16,)},
    "ppo": {"rollout_length": 16},
    "experience": {"segment_length": 4, "wait_limit": 120.0},
    "publish": {"every": 1},
}


def start(tmp_path, learner=SabotagedLearner, population=None, actor=SabotagedActor, **tree):
    config = small_config(
        policy=PPO,
        env={"num_envs": 4},
        population={
            "matchmaker": "round_robin",
            "policies": NAMES,
            "snapshots": {"every": 20, "keep": 2},
            **(population or {}),
        },
        **{"learners": {"processes": 4}, **tree},
    )
    agents = Tape().agents
    specs = policy_specs(config, agents)
    layout = make_layout(config, len(specs))
    ring = assemble(config, specs, layout, learner, actor, agents=agents)
    runtime = ring.runtime(tmp_path, Checkpoints(tmp_path / "checkpoints"))
    runtime.start(lambda: False)
    return ring, runtime


def save(ring, runtime, tmp_path):
    store = Checkpoints(tmp_path / "checkpoints")
    number = store.begin()
    assert runtime.save(number) == {*NAMES, "actor"}
    store.write(number, "coordinator", ring.state())
    store.commit(Manifest(number, 0, 0.0, False, {}, {}))
    return store.read(number, "policy_2")["algorithm"]["updates"]


def records_of(ring):
    return {m.ref: (m.games, m.total_reward) for m in ring.table.population().members}


@dataclass(frozen=True)
class NotesItsWaits(SabotagedActor):
    """An actor that adds a line to a file whenever it begins to wait for policy_2, and others."""

    def build(self):
        actor = super().build()
        learner = self.experience["policy_2"].learner
        (room,) = [room for room in actor.seats.backpressure if room.learner is learner]
        wait, waits = actor.wait, Path(os.environ["WAITS"])

        def wait_and_note(timeout, interrupted):
            if not room.has_room():
                with waits.open("a") as file:
                    file.write("waits\n")
            return wait(timeout, interrupted)

        actor.wait = wait_and_note
        return actor


@pytest.mark.slow
def test_while_a_learner_is_away_the_others_and_their_matches_go_on(tmp_path, monkeypatch):
    """Its successor does not come within the test: they must come further than one rollout.

    No role waits for it meanwhile, but where that had begun before it was found dead.
    """
    waits = tmp_path / "waits"
    waits.touch()
    monkeypatch.setenv("WAITS", str(waits))
    supervision = {"silence_limit": 20.0, "backoff": 3600.0, "max_backoff": 3600.0}
    ring, runtime = start(tmp_path, actor=NotesItsWaits, supervision=supervision)
    try:
        learn = {name: ring.scoreboard.learn(name) for name in NAMES}
        run_until(runtime, lambda: all(row[Learn.UPDATES] > 5 for row in learn.values()))
        os.kill(runtime.pids["learner-policy_2"], signal.SIGSTOP)
        run_until(runtime, waits.read_text)  # what is counted below is seen
        os.kill(runtime.pids["learner-policy_2"], signal.SIGKILL)
        run_until(runtime, lambda: any("was killed by SIGKILL" in line for line in runtime.news()))
        before = {name: row[Learn.UPDATES] for name, row in learn.items()}
        matches, games = ring.table.word(MATCHES), records_of(ring)
        waited = len(waits.read_text().splitlines())
        for name in set(NAMES) - {"policy_2"}:
            run_until(runtime, lambda name=name: learn[name][Learn.UPDATES] > before[name] + 10)
        run_until(runtime, lambda: ring.table.word(MATCHES) > matches + 200)
        for ref in map(PolicyRef, NAMES):  # the one that is away plays on as it is
            run_until(runtime, lambda ref=ref: records_of(ring)[ref][0] > games[ref][0] + 50)
        assert learn["policy_2"][Learn.UPDATES] == before["policy_2"]
        assert len(waits.read_text().splitlines()) <= waited + 3, "the dead is waited for"
        for role in ("actor", *(f"learner-{name}" for name in NAMES if name != "policy_2")):
            assert restarts(runtime, role) == 0
    finally:
        runtime.stop()


@pytest.mark.slow  # that the others go on is seen above; that a successor does, with one policy
@pytest.mark.parametrize("fault", ["kill -9", "exception"])
def test_one_crashed_learner_holds_up_neither_the_others_nor_their_matches(fault, tmp_path):
    supervision = {"silence_limit": 20.0, "backoff": 6.0}
    ring, runtime = start(tmp_path, supervision=supervision)
    try:
        learn = {name: ring.scoreboard.learn(name) for name in NAMES}
        run_until(runtime, lambda: all(row[Learn.UPDATES] > 5 for row in learn.values()))
        saved = save(ring, runtime, tmp_path)
        before = {name: row[Learn.UPDATES] for name, row in learn.items()}
        matches, version = ring.table.word(MATCHES), learn["policy_2"][Learn.VERSION]
        games = records_of(ring)
        # While it is away the others must come far further than one rollout takes them.
        fail(runtime, "learner-policy_2", fault)
        for name in set(NAMES) - {"policy_2"}:
            assert learn[name][Learn.UPDATES] > before[name] + 10, f"{name} stood still"
        assert ring.table.word(MATCHES) > matches + 200
        now = records_of(ring)
        for name in NAMES:
            assert now[PolicyRef(name)][0] > games[PolicyRef(name)][0] + 50  # it plays on as it is
        for role in ("actor", *(f"learner-{name}" for name in NAMES if name != "policy_2")):
            assert restarts(runtime, role) == 0
        run_until(runtime, lambda: learn["policy_2"][Learn.UPDATES] > saved + 5)
        run_until(runtime, lambda: learn["policy_2"][Learn.VERSION] > version + 5)
        assert records_of(ring)[PolicyRef("policy_2")][0] >= now[PolicyRef("policy_2")][0]
    finally:
        runtime.stop()


QUICK = {"kill -9"}
"""How a role dies is found out in the same way as elsewhere; what is left behind is not."""


@pytest.mark.process
@pytest.mark.slow_cases("kill -9")
@pytest.mark.parametrize(
    "fault", [pytest.param(f, marks=() if f in QUICK else pytest.mark.slow) for f in sorted(FAULTS)]
)
def test_a_population_outlives_its_actor(fault, tmp_path):
    tree = {"supervision": {"silence_limit": 5.0, "backoff": 0.05}, "learners": {"processes": 2}}
    ring, runtime = start(tmp_path, **tree)
    try:
        table = ring.table
        ledger_writer = LedgerWriter(table, tmp_path / "ledger.bin", print)
        frozen = lambda: [m for m in table.population().members if not m.learns]  # noqa: E731
        run_until(runtime, lambda: len(frozen()) >= 4)
        kept = {m.slot: (str(m.ref), table.snapshot(m.slot).weights) for m in frozen()}
        fail(runtime, "actor", fault)
        matches, proposed = table.word(MATCHES), table.word(PROPOSED)
        for slot, (ref, weights) in kept.items():
            now = {m.slot: str(m.ref) for m in table.population().members}
            if now.get(slot) == ref:
                assert np.array_equal(table.snapshot(slot).weights, weights)
        run_until(runtime, lambda: table.word(MATCHES) > matches + 300)
        runtime.stop()
        ledger_writer.write()
        members = table.population().members
        assert {m.ref for m in members if m.learns} == {PolicyRef(name) for name in NAMES}
        for name in NAMES:
            assert len([m for m in members if m.ref.policy == name and not m.learns]) <= 3
        records = read_records(tmp_path / "ledger.bin")[1]
        numbers = records["number"][records["kind"] == MATCH]
        assert len(set(numbers)) == len(numbers)  # no match has the number of another
        assert numbers.max() > proposed
        met, won = table.pairs[:2, :, : len(NAMES)]
        assert np.allclose(met, met.T, atol=2)
        assert np.allclose(won + won.T, met, atol=2)  # sums of one match may have been half done
    finally:
        runtime.stop()


@dataclass(frozen=True)
class DiesAtTheFirstBirth(LearnerRole):
    """It begins with a newborn and publishes it, and is killed before it can say so."""

    def build(self):
        confirm, marker = LearnerBirths.confirm, Path(os.environ["FIRST_BIRTH"])

        def die_once(births, policy, version):
            if not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            confirm(births, policy, version)

        LearnerBirths.confirm = die_once  # of this process, which is the learner's alone
        return super().build()


@pytest.mark.process
@pytest.mark.slow
def test_births_go_on_whoever_dies(tmp_path, monkeypatch):
    marker = tmp_path / "died"
    monkeypatch.setenv("FIRST_BIRTH", str(marker))
    births = {"slots": 1, "every": 60, "games": 5, "confidence": 0.0}
    ring, runtime = start(
        tmp_path,
        DiesAtTheFirstBirth,
        {"matchmaker": "random", "births": births},
        supervision={"silence_limit": 20.0, "backoff": 0.05},
    )
    try:
        table, ledger_writer = ring.table, LedgerWriter(ring.table, tmp_path / "ledger.bin", print)

        def born():
            ledger_writer.write()
            records = read_records(tmp_path / "ledger.bin")[1]
            return int((records["kind"] == BIRTH).sum())

        # The first newborn plays, though its learner died over it.
        run_until(runtime, lambda: "born_0" in table.occupants.living)
        assert marker.exists()
        assert restarts(runtime, "learner-born_0") == 1
        run_until(runtime, lambda: born() >= 3)
        before = born()
        fail(runtime, "actor", "kill -9")
        run_until(runtime, lambda: born() >= before + 3)
        assert 3 <= len(table.occupants.living) <= 5
        matches = table.word(MATCHES)
        run_until(runtime, lambda: table.word(MATCHES) > matches + 100)
    finally:
        runtime.stop()


@pytest.mark.slow
def test_a_league_in_async_is_resumed_with_its_population(tmp_path):
    ring, runtime = start(tmp_path, learners={"processes": 2})
    try:
        found = lambda: [m for m in ring.table.population().members if not m.learns]  # noqa: E731
        run_until(runtime, lambda: len(found()) >= 8)
        save(ring, runtime, tmp_path)
    finally:
        runtime.stop()
    store = Checkpoints(tmp_path / "checkpoints")
    newest = store.manifest(store.numbers()[-1])
    state = store.read(newest.number, "coordinator")["population"]
    config = ring.config
    agents = Tape().agents
    specs = policy_specs(config, agents)
    again = assemble(config, specs, make_layout(config, len(specs)), agents=agents)
    again.restore(store, newest)
    assert records_of(again) == {
        m.ref: (m.games, m.total_reward) for m in _population(state, ring).members
    }
    runtime = again.runtime(tmp_path, store)
    try:
        matches = again.table.word(MATCHES)
        runtime.start(lambda: False)
        run_until(runtime, lambda: again.table.word(MATCHES) > matches + 50)
        assert min(games for games, _ in records_of(again).values()) >= 0
        assert again.table.word(PROPOSED) > matches
    finally:
        runtime.stop()


def _population(state, ring):
    from remuda.population.members.table import Table

    sizes = {name: len(ring.snapshots()[name].weights) for name in NAMES}
    table = Table(sizes, 2, ring.table.slots.copies)
    table.restore(state)
    return table.population()
