"""A stack that learns from samples: each policy by itself, as much as it has paid for."""

import time

import numpy as np
import pytest

from assembled import assemble
from refusals import refuses
from remuda.config import load_config, overlay
from remuda.errors import ConfigError
from remuda.population.specs import policy_specs
from remuda.runtime.layout import make_layout
from remuda.system.scoreboard import Learn
from support import Tape

TREE = {
    "game": "support:Tape",
    "schedule": "sequential",
    "env": {"options": {"num_agents": 3}},
    "policy": {
        "algorithm": "dqn",
        "network": {"hidden": [8]},
        "batch_size": 16,
        "publish": {"every": 2},
        "dqn": {"target_every": 5},
        "experience": {"learning_starts": 32, "replay_ratio": 2.0, "capacity": 500},
    },
    "learners": {"processes": 1},
    "run": {"turns": 100_000},
}


def build(**tree):
    config = load_config(overlay(TREE, tree))
    specs = policy_specs(config, Tape(num_agents=3).agents)
    assembly = assemble(config, specs, make_layout(config, 3))
    actor, group = (role.build() for role in assembly.roles())
    return assembly, actor, group


def play(actor, group, turns):
    for _ in range(turns):
        actor.work()
        while group.work():
            pass


@pytest.mark.parametrize("algorithm", ["dqn", "iqn"])
def test_policies_of_one_specification_are_one_stack_and_learn_as_if_alone(algorithm):
    """With hyperparameters of their own; one that differs in what shapes a stack is apart."""
    own = {"agent_1": {"learning_rate": 1e-2, "discount": 0.5, "n_steps": 1}}
    tree = {"policy": {"algorithm": algorithm}, "policies": own}
    stacked, actor, group = build(**tree)
    assert [len(learner.policies) for learner in group.learners] == [3]
    play(actor, group, 100)
    priorities = {f"agent_{k}": {"priority": 1.0 + k} for k in range(3)}
    apart, actor, group = build(**overlay(tree, {"policies": priorities}))
    assert [len(learner.policies) for learner in group.learners] == [1, 1, 1]
    play(actor, group, 100)
    for name, snapshot in stacked.snapshots().items():
        other = apart.snapshots()[name]
        # As many updates as the steps have paid for; every second one is published.
        updates = (stacked.experience[name].written - 32) // 8 + 1
        assert stacked.scoreboard.learn(name)[Learn.UPDATES] == updates > 2
        assert snapshot.learner_step == other.learner_step == updates - updates % 2
        assert snapshot.version == other.version == 1 + updates // 2
        np.testing.assert_allclose(snapshot.weights, other.weights, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("algorithm", ["dqn", pytest.param("iqn", marks=pytest.mark.slow)])
def test_beside_others_with_other_amounts_it_learns_as_it_would_alone(algorithm):
    """One is trained 64 times as often as another; a stack in `async` is one computation."""
    own = {
        "agent_0": {"experience": {"replay_ratio": 4.0}},
        "agent_1": {"experience": {"replay_ratio": 0.0625}},
        "agent_2": {"experience": {"replay_ratio": 0.5, "learning_starts": 90}},
    }
    shape = {"schedule": "async", "policy": {"algorithm": algorithm, "iqn": {"quantiles": 4}}}
    tree = overlay(shape, {"policies": own})
    stacked, actor, group = build(**tree)
    assert [len(learner.policies) for learner in group.learners] == [3]
    together = []
    (learner,) = group.learners
    update = learner.algorithm.update

    def noted(batch, first, end):
        together.append(end - first)
        return update(batch, first, end)

    learner.algorithm.update = noted
    play(actor, group, 200)
    group.finish()  # publishes those that are not due too
    assert {1, 2} <= set(together)
    priorities = {f"agent_{k}": {"priority": 1.0 + k} for k in range(3)}
    apart, actor, group = build(**overlay(tree, {"policies": priorities}))
    assert [len(learner.policies) for learner in group.learners] == [1, 1, 1]
    play(actor, group, 200)
    group.finish()
    for name, snapshot in stacked.snapshots().items():
        other = apart.snapshots()[name]
        assert snapshot.version == other.version > 1
        np.testing.assert_allclose(snapshot.weights, other.weights, rtol=1e-3, atol=1e-5)


def test_a_neighbour_whose_ring_was_cleared_holds_up_nobody():
    assembly, actor, group = build(schedule="async")
    play(actor, group, 100)
    (learner,) = group.learners
    rows = [assembly.scoreboard.learn(f"agent_{k}") for k in range(3)]
    before = [row[Learn.UPDATES] for row in rows]
    sample = learner.replays[1].sample
    learner.replays[1].sample = lambda *_: False
    while not learner.all_ready():
        actor.work()
    learner.update()
    assert [row[Learn.UPDATES] - was for row, was in zip(rows, before, strict=True)] == [1, 0, 1]
    learner.replays[1].sample = sample
    learner.update()
    assert rows[1][Learn.UPDATES] == before[1] + 1


def test_each_policy_is_trained_as_often_as_its_own_steps_have_paid_for():
    own = {"agent_2": {"experience": {"replay_ratio": 4.0}}}
    assembly, actor, group = build(policies=own)
    play(actor, group, 200)
    for name, ratio in (("agent_0", 2.0), ("agent_1", 2.0), ("agent_2", 4.0)):
        steps, row = assembly.experience[name].written, assembly.scoreboard.learn(name)
        paid = (steps - 32) * ratio
        assert paid <= row[Learn.SAMPLES] < paid + 16
        assert row[Learn.SAMPLES] == 16 * row[Learn.UPDATES]


def test_a_time_budget_makes_batches_smaller_and_updates_more_frequent():
    tree = {"schedule": "async", "policy": {"time_budget": 0.01}}
    assembly, actor, group = build(**tree)
    (learner,) = group.learners
    update, sizes = learner.algorithm.update, []

    def slow(batch, first, end):
        sizes.append(batch.a_tm1.shape[1])
        time.sleep(0.002 * sizes[-1])
        return update(batch, first, end)

    learner.algorithm.update = slow
    play(actor, group, 60)
    row = assembly.scoreboard.learn("agent_0")
    assert (sizes[0], sizes[-1]) == (16, 8)
    assert row[Learn.SAMPLES] < 16 * row[Learn.UPDATES]
    paid = (assembly.experience["agent_0"].written - 32) * 2.0
    assert paid <= row[Learn.SAMPLES] < paid + 16


def test_an_on_policy_update_leaves_out_the_epochs_that_would_take_too_long():
    tree = {
        "schedule": "async",
        "policy": {
            "algorithm": "ppo",
            "ppo": {"rollout_length": 32, "epochs": 50},
            "experience": {"segment_length": 4},
            "time_budget": 1e-6,
        },
    }
    assembly, actor, group = build(**tree)
    play(actor, group, 200)
    row = assembly.scoreboard.learn("agent_0")
    assert row[Learn.UPDATES] > 2
    assert row[Learn.SAMPLES] == row[Learn.TRAINED]  # one epoch of each


def test_a_time_budget_is_refused_where_runs_repeat_themselves():
    tree = overlay(TREE, {"policies": {"agent_1": {"time_budget": 0.1}}})
    with refuses(ConfigError):
        load_config(tree)
