"""An update of many policies comes in pieces: the same in the end, and it can be asked between."""

from dataclasses import fields, replace

import numpy as np
import pytest

from assembled import assemble
from remuda.config import load_config
from remuda.coordinator.scoreboard_reader import ScoreboardReader
from remuda.learner import rollouts
from remuda.policies.algorithms.kernels.objective import RolloutMetrics
from remuda.population.specs import policy_specs
from remuda.runtime.layout import make_layout
from remuda.system.scoreboard import Learn
from support import Tape

STEPS = 8


@pytest.fixture
def make(monkeypatch):
    def parts(pieces_of, also=lambda assembly: None, has_trained=True):
        """An actor, the learner of five policies, their counters; so many policies in a piece."""
        monkeypatch.setattr(rollouts, "AT_ONCE", pieces_of * STEPS)
        if has_trained:
            monkeypatch.setattr(rollouts, "PIECE_SECONDS", 1e9)  # however slow this machine is
            monkeypatch.setattr(rollouts, "FIRST", pieces_of * STEPS)
        config = load_config(
            {
                "game": "support:Tape",
                "schedule": "async",
                "env": {"num_envs": 2, "options": {"num_agents": 5}},
                "policy": {
                    "algorithm": "ppo",
                    "network": {"hidden": (8,)},
                    "ppo": {"rollout_length": STEPS // 2, "minibatches": 2, "epochs": 2},
                },
                "learners": {"processes": 1},
                "run": {"turns": None, "seconds": 3600},
            }
        )
        agents = Tape(1, 5).agents
        specs = policy_specs(config, agents)
        assembly = assemble(config, specs, make_layout(config, len(specs)), agents=agents)
        actor, learner = assembly.roles()
        actor = actor.build()
        group = replace(learner, patience=0.0).build()  # no actor plays meanwhile
        rows = [assembly.scoreboard.learn(spec.name) for spec in specs]
        also(assembly)
        return actor, group, rows

    return parts


def updates(rows):
    return [int(row[Learn.UPDATES]) for row in rows]


def play(actor, group):
    while not group.learners[0].ready():
        assert actor.work()


def test_pieces_come_to_the_same_as_all_at_once(make):
    found = []
    for pieces_of in (2, 5):
        actor, group, rows = make(pieces_of)
        for _ in range(4):
            play(actor, group)
            while group.work():
                pass
        assert updates(rows) == [4] * 5
        (learner,) = group.learners
        found.append([learner.algorithm.weights(k).copy() for k in range(5)])
    for cut, whole in zip(*found, strict=True):
        np.testing.assert_allclose(cut, whole, rtol=1e-4, atol=1e-5)


def test_everybody_gets_a_turn_before_anybody_gets_two_and_it_can_be_asked_between(make):
    actor, group, rows = make(2)
    (learner,) = group.learners
    play(actor, group)
    seen = []
    while group.work():
        seen.append(updates(rows))
        assert learner.unfinished == (sum(seen[-1]) < 5)
    assert seen == [[1, 1, 0, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]


def test_the_actor_goes_on_before_the_last_piece(make):
    """Rollouts are taken at once, so that those of late pieces hold up no actor."""
    actor, group, _ = make(1)
    play(actor, group)
    assert group.work()
    assert all(each.experience.untaken == 0 for each in group.learners[0].rollouts)


def test_the_end_of_a_run_trains_on_what_was_taken(make):
    actor, group, rows = make(2)
    play(actor, group)
    assert group.work()
    group.finish()
    assert updates(rows) == [1] * 5


def test_a_piece_goes_by_the_steps_that_its_policies_bring(make):
    actor, group, _ = make(2)
    play(actor, group)
    (learner,) = group.learners
    bring, sizes = [STEPS // 2, STEPS, STEPS, 3 * STEPS, 1], []

    def bringing(take, steps):
        def taken(out, k, version):
            found = take(out, k, version)
            out.num_steps[k] = steps
            return found

        return taken

    def learned(_, members):
        sizes.append(len(members))
        return RolloutMetrics(
            **{field.name: np.ones(len(members)) for field in fields(RolloutMetrics)}
        )

    for queue, steps in zip(learner.rollouts, bring, strict=True):
        queue.take = bringing(queue.take, steps)
    learner.algorithm.update = learned
    assert group.work()
    while learner.unfinished:
        assert group.work()
    assert sizes == [2, 1, 1, 1]


def test_what_was_taken_for_a_later_piece_is_behind_until_it_is_trained_on(make):
    """It was in no count: neither waiting, nor trained on, nor lost."""
    assemblies = []
    actor, group, rows = make(2, assemblies.append)
    (assembly,) = assemblies
    board = ScoreboardReader(assembly.scoreboard, assembly.experience)
    experience = assembly.experience.values()
    play(actor, group)
    seen = []
    while True:
        policies = board.between(board.start, board.read()).policies.values()
        for policy, row, ring in zip(policies, rows, experience, strict=True):
            being_written = sum(each.open_steps for each in ring.rings)
            told = policy.trained + policy.behind + policy.lost + being_written
            assert told == policy.steps == ring.written
            assert policy.trained == row[Learn.TRAINED]
        seen.append([policy.behind for policy in policies])
        if not group.work():
            break
    assert seen == [[STEPS] * 5, [0, 0, *[STEPS] * 3], [0, 0, 0, 0, STEPS], [0] * 5]


def test_what_was_taken_for_a_later_piece_is_lost_to_a_successor_and_counted(make):
    actor, group, rows = make(2)
    play(actor, group)
    assert group.work()
    states = {part: group.state(part) for part in group.parts}
    assert [state["lost"] for state in states.values()] == [0, 0, STEPS, STEPS, STEPS]
    for part, state in states.items():
        group.restore(part, state)
    assert not group.learners[0].unfinished
    play(actor, group)
    while group.work():
        pass
    assert [int(row[Learn.LOST]) for row in rows] == [0, 0, STEPS, STEPS, STEPS]


def test_a_piece_is_as_short_as_the_last_ones_were_slow(make, monkeypatch):
    """Of large networks, or on a slow machine, so that a checkpoint does not wait for seconds."""
    actor, group, _ = make(1000, has_trained=False)
    (learner,) = group.learners
    clock, pace, seen = [0.0], [0.0], []
    monkeypatch.setattr(rollouts, "FIRST", STEPS)
    monkeypatch.setattr(rollouts, "PIECE_SECONDS", 1.0)
    monkeypatch.setattr(rollouts.time, "perf_counter", lambda: clock[0])
    update = learner.algorithm.update

    def timed(rollout, members):
        seconds = pace.pop(0) * float(rollout.num_steps[members].sum())
        clock[0] += seconds
        seen.append((len(members), seconds))
        return update(rollout, members)

    learner.algorithm.update = timed

    def round_at(*paces):
        play(actor, group)
        seen.clear()
        pace[:] = paces
        while not seen or learner.unfinished:
            learner.update()
        return [count for count, _ in seen]

    assert round_at(*[0.5 / STEPS] * 5) == [1, 2, 2], "how long the first one takes is not known"
    round_at(*[1e-9] * 5)  # so that the last two are fast
    for _ in range(3):
        sizes = round_at(*[0.04] * 5)
    assert len(sizes) > 1
    assert sum(sizes) == 5
    assert all(seconds <= 1.0 for _, seconds in seen)
    for _ in range(2):
        sizes = round_at(*[0.01] * 5)
    assert sizes == [5]
    assert round_at(100.0) == [5], "it was stopped for a while"
    assert round_at(0.01) == [5]
