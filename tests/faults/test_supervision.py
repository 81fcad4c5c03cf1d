"""Whatever happens to a role, it is told, and the role is restarted from its last good state."""

import os
import re
import signal

import numpy as np
import pytest

from faults.runs import (
    FAULTS,
    SUPERVISION,
    checkpoint,
    fail,
    make_runtime,
    restarts,
    run_until,
    small_config,
    start,
)
from refusals import refuses
from remuda.config import SupervisionConfig
from remuda.errors import RoleDiedError
from remuda.system.checkpoint.store import Checkpoints, Manifest
from remuda.system.scoreboard import Learn, Play, Policy

TOLD = {
    "exception": "ended by an exception: .*an error in the user's code",
    "endless loop": r"gave no sign of life for \d s",
    "exit": "ended with exit code 3",
    "kill -9": "was killed by SIGKILL",
    "stopped": r"gave no sign of life for \d s",
}


@pytest.mark.process
@pytest.mark.slow
def test_actors_and_learners_may_be_silent_for_unlike_times(tmp_path):
    own = SUPERVISION | {"silence_limit": 600.0, "learner_silence": 3.0}
    ring, runtime = start(tmp_path, supervision=own)
    try:
        mine = ring.scoreboard.learn("agent_0")
        run_until(runtime, lambda: mine[Learn.UPDATES] > 5)
        (told,) = fail(runtime, "learner-agent_0", "stopped")
        assert r"gave no sign of life for 3 s (supervision.learner_silence) and was killed" in told
    finally:
        runtime.stop()
    supervision = SupervisionConfig(silence_limit=30.0, actor_silence=5.0)
    assert (
        supervision.limit_for("actor") == supervision.limit_for("actor-1") == (5.0, "actor_silence")
    )
    assert supervision.limit_for("learner-agent_0") == (30.0, "silence_limit")


# Quick are a kill, a stop and (of a stack, below) an exception, each of one of the roles.
@pytest.mark.process
@pytest.mark.slow_cases("kill -9")
@pytest.mark.parametrize(
    "fault",
    [pytest.param(f, marks=() if f == "kill -9" else pytest.mark.slow) for f in FAULTS],
)
def test_a_learner_goes_on_from_its_checkpoint(fault, tmp_path):
    ring, runtime = start(tmp_path)
    try:
        play = ring.scoreboard.play()
        mine, other = ring.scoreboard.learn("agent_0"), ring.scoreboard.learn("agent_1")
        run_until(runtime, lambda: mine[Learn.UPDATES] > 20)
        saved = checkpoint(runtime, tmp_path)
        at_checkpoint = saved["algorithm"]["updates"]
        run_until(runtime, lambda: mine[Learn.UPDATES] > at_checkpoint + 10)
        version, turns, updates = mine[Learn.VERSION], play[Play.TURNS], other[Learn.UPDATES]
        told = fail(runtime, "learner-agent_0", fault)
        assert len(told) == 1
        assert "learner-agent_0" in told[0]
        assert "learner-agent_0.log" in told[0]
        assert re.search(TOLD[fault], told[0])
        assert play[Play.TURNS] > turns + 100, "the game stood still meanwhile"
        assert other[Learn.UPDATES] > updates, "the other learner stood still meanwhile"
        assert mine[Learn.UPDATES] >= at_checkpoint
        run_until(runtime, lambda: mine[Learn.VERSION] > version + 2)
        log = (tmp_path / "learner-agent_0.log").read_text()
        assert "resumes from the newest checkpoint" in log
        assert restarts(runtime, "learner-agent_1") == 0
        assert play[Play.WAITS] == 0
    finally:
        runtime.stop()


@pytest.mark.process
@pytest.mark.slow_cases("exception-learner-agent_0..agent_1", "kill -9-actor")
@pytest.mark.parametrize(
    ("fault", "role"),
    [
        ("exception", "learner-agent_0..agent_1"),
        ("kill -9", "actor"),
        pytest.param("exception", "actor", marks=pytest.mark.slow),
        pytest.param("kill -9", "learner-agent_0..agent_1", marks=pytest.mark.slow),
    ],
)
def test_a_stack_that_learns_from_rollouts_goes_on(role, fault, tmp_path):
    """Nobody waits for ever for a rollout that died with the other."""
    policy = {"algorithm": "ppo", "network": {"hidden": (16,)}, "ppo": {"rollout_length": 64}}
    policy |= {"experience": {"segment_length": 8}, "publish": {"every": 1}}
    ring, runtime = start(tmp_path, policy=policy, learners={"processes": 1})
    try:
        rows = [ring.scoreboard.learn(f"agent_{k}") for k in range(2)]
        run_until(runtime, lambda: min(row[Learn.UPDATES] for row in rows) > 5)
        checkpoint(runtime, tmp_path)
        kept = Checkpoints(tmp_path / "checkpoints")
        saved = [kept.newest(name) for name in ring.experience]
        since = max(state["counted"][Learn.UPDATES] for state in saved) + 5
        run_until(runtime, lambda: min(row[Learn.UPDATES] for row in rows) > since)
        trained = [row[Learn.TRAINED] for row in rows]
        fail(runtime, role, fault)
        collected = [experience.written for experience in ring.experience.values()]
        goal = max(row[Learn.UPDATES] for row in rows) + 20
        run_until(runtime, lambda: min(row[Learn.UPDATES] for row in rows) > goal)
        runtime.stop()
        for k, (row, experience) in enumerate(zip(rows, ring.experience.values(), strict=True)):
            being_written = sum(each.open_steps for each in experience.rings)
            through = row[Learn.TRAINED] + row[Learn.LOST]
            assert through + experience.untaken + being_written == experience.written
            if ring.scoreboard.play()[Play.FORCED]:
                continue  # on a very busy machine
            if role == "actor":
                assert row[Learn.LOST] == 0
                continue
            # What was trained on since the checkpoint is behind no weights any more: it is lost,
            # and so is what was taken, or came while nobody learned. Nothing else is.
            before = saved[k]["counted"][Learn.TRAINED]
            assert 0 < trained[k] - before <= row[Learn.LOST] - saved[k]["lost"]
            assert row[Learn.LOST] <= collected[k] - before
        assert max(row[Learn.STALENESS_MAX] for row in rows) < 20
    finally:
        runtime.stop()


@pytest.mark.process
@pytest.mark.slow_cases("stopped")
@pytest.mark.parametrize(
    "fault",
    [pytest.param(f, marks=() if f == "stopped" else pytest.mark.slow) for f in FAULTS],
)
def test_an_actor_goes_on_with_new_episodes(fault, tmp_path):
    ring, runtime = start(tmp_path)
    try:
        play, row = ring.scoreboard.play(), ring.scoreboard.policy("agent_1")
        learn = ring.scoreboard.learn("agent_1")
        run_until(runtime, lambda: learn[Learn.UPDATES] > 20)
        told = fail(runtime, "actor", fault)
        assert re.search(TOLD[fault], told[0])
        turns, episodes, updates = play[Play.TURNS], row[Policy.EPISODES], learn[Learn.UPDATES]
        run_until(runtime, lambda: play[Play.TURNS] > turns + 5_000)
        run_until(runtime, lambda: learn[Learn.UPDATES] > updates + 10)
        assert row[Policy.EPISODES] > episodes
        # What the ring counts is what it holds, though its writer died at any instruction.
        held = ring.experience["agent_1"].written - ring.experience["agent_1"].overwritten
        assert 0 < held <= 2_100
        assert (ring.experience["agent_1"].rings[0].shared["sequence"] % 2).sum() <= 1
    finally:
        runtime.stop()


@pytest.mark.process
@pytest.mark.slow
def test_a_learner_without_a_checkpoint_goes_on_from_what_it_published(tmp_path):
    ring, runtime = start(tmp_path)
    try:
        mine = ring.scoreboard.learn("agent_0")
        run_until(runtime, lambda: mine[Learn.UPDATES] > 50)
        published = ring.snapshots()["agent_0"]
        fail(runtime, "learner-agent_0", "kill -9")
        run_until(runtime, lambda: mine[Learn.VERSION] > published.version + 5)
        newer = ring.snapshots()["agent_0"]
        assert newer.learner_step > published.learner_step
        first = make_runtime(small_config(), tmp_path)[0].snapshots()["agent_0"].weights
        learned = np.abs(published.weights - first).mean()
        moved = np.abs(newer.weights - published.weights).mean()
        assert moved < learned, "it began from random weights"
    finally:
        runtime.stop()


@pytest.mark.process
@pytest.mark.slow
def test_a_budget_that_is_spent_ends_the_run(tmp_path):
    _, runtime = start(tmp_path, supervision=SUPERVISION | {"restarts": 2})
    try:
        pids = set(runtime.pids.values())
        fail(runtime, "learner-agent_1", "kill -9")
        fail(runtime, "learner-agent_1", "kill -9")
        pids |= set(runtime.pids.values())
        os.kill(runtime.pids["learner-agent_1"], signal.SIGKILL)
        with refuses(RoleDiedError, "supervision.restarts"):
            run_until(runtime, lambda: False)
    finally:
        runtime.stop()


@pytest.mark.process
def test_a_role_that_dies_for_good_during_a_checkpoint_still_ends_the_run(tmp_path):
    tree = {"checkpoint": {"write_limit": 5.0}}
    _, runtime = start(tmp_path, supervision=SUPERVISION | {"restarts": 0}, **tree)
    try:
        os.kill(runtime.pids["learner-agent_0"], signal.SIGKILL)
        store = Checkpoints(tmp_path / "checkpoints")
        assert runtime.save(store.begin()) == {"agent_1"}
        for _ in range(2):
            with refuses(RoleDiedError, "supervision.restarts"):
                runtime.run_for(0.0)
    finally:
        runtime.stop()


@pytest.mark.slow
def test_many_deaths_at_once(tmp_path):
    ring, runtime = start(tmp_path)
    try:
        for pid in runtime.pids.values():
            os.kill(pid, signal.SIGKILL)
        run_until(runtime, lambda: all(s.restarts == 1 for s in runtime.status()))
        run_until(runtime, lambda: all(s.state == "running" for s in runtime.status()))
        turns = ring.scoreboard.play()[Play.TURNS]
        run_until(runtime, lambda: ring.scoreboard.play()[Play.TURNS] > turns + 1000)
    finally:
        runtime.stop()


@pytest.mark.slow_cases("actor")
@pytest.mark.parametrize("role", ["actor", pytest.param("learner-agent_0", marks=pytest.mark.slow)])
def test_lockstep_goes_on_after_a_death(role, tmp_path):
    ring, runtime = start(tmp_path, schedule="lockstep")
    try:
        play, learn = ring.scoreboard.play(), ring.scoreboard.learn("agent_0")
        run_until(runtime, lambda: learn[Learn.UPDATES] > 5)
        fail(runtime, role, "kill -9")
        turns, updates = play[Play.TURNS], learn[Learn.UPDATES]
        run_until(runtime, lambda: play[Play.TURNS] > turns + 500)
        run_until(runtime, lambda: learn[Learn.UPDATES] > updates)
    finally:
        runtime.stop()


@pytest.mark.slow
def test_a_role_that_ends_by_a_real_time_signal_is_told_and_restarted(tmp_path):
    """Such signals have no name, and asking for it ended the coordinator by a ValueError."""
    number = signal.SIGRTMIN + 6
    _, runtime = start(tmp_path)
    try:
        os.kill(runtime.pids["learner-agent_0"], number)
        told = []
        run_until(
            runtime, lambda: told.extend(runtime.news()) or restarts(runtime, "learner-agent_0")
        )
        assert any(f"learner-agent_0 was killed by signal {int(number)};" in line for line in told)
        run_until(runtime, lambda: all(s.state == "running" for s in runtime.status()))
    finally:
        runtime.stop()


@pytest.mark.slow
def test_after_a_checkpoint_that_failed_the_next_has_every_part_anew(tmp_path):
    ring, runtime = start(tmp_path)
    try:
        store = Checkpoints(tmp_path / "checkpoints")
        os.kill(runtime.pids["learner-agent_0"], signal.SIGKILL)
        number = store.begin()
        assert "agent_0" not in runtime.save(number)
        store.abandon(number)
        runtime.settle(number)
        run_until(runtime, lambda: all(s.state == "running" for s in runtime.status()))
        learn = ring.scoreboard.learn("agent_1")
        updates = learn[Learn.UPDATES]
        run_until(runtime, lambda: learn[Learn.UPDATES] > updates + 5)
        number = store.begin()
        assert runtime.save(number) >= {"agent_0", "agent_1"}
        store.commit(Manifest(number, 0, 0.0, False, {}, {}))
        runtime.settle(number)
        assert store.read(number, "agent_1")["algorithm"]["updates"] >= updates
        store.read(number, "agent_0")
    finally:
        runtime.stop()


@pytest.mark.slow
def test_a_stopped_role_costs_a_checkpoint_its_own_new_part_only(tmp_path):
    tree = {"checkpoint": {"write_limit": 1.0}, "supervision": {"silence_limit": 60.0}}
    _, runtime = start(tmp_path, **tree, run={"stop_limit": 1.0})
    try:
        checkpoint(runtime, tmp_path)
        os.kill(runtime.pids["learner-agent_0"], signal.SIGSTOP)
        store = Checkpoints(tmp_path / "checkpoints")
        number = store.begin()
        assert runtime.save(number) == {"agent_1"}
        assert store.carry_over(number, "agent_0")
        store.commit(Manifest(number, 0, 0.0, False, {}, {}))
        assert store.read(number, "agent_0")["algorithm"]["updates"] >= 0
    finally:
        runtime.stop()
