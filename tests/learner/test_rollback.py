"""An update that is undone goes back to the last publication, whoever makes it."""

import math

import numpy as np
import pytest

from remuda.assembly import Assembly
from remuda.checkpoint.state import pack, unpack
from remuda.config import load_config
from remuda.coordinator.board import Board
from remuda.policies.spec import policy_specs
from remuda.runtime.layout import make_layout
from remuda.scoreboard import Learn
from support import Tape

EVERY = 4


def make(algorithm):
    kept = {"learning_starts": 32, "capacity": 2000, "segment_length": 4}
    policy = {"algorithm": algorithm, "network": {"hidden": (8,)}, "publish": {"every": EVERY}}
    if algorithm == "ppo":
        policy |= {"ppo": {"rollout_length": 16}, "experience": kept}
    else:
        policy |= {"batch_size": 16, "experience": kept | {"replay_ratio": 0.5}}
    tree = {"game": "support:Tape", "schedule": "sequential", "policy": policy}
    config = load_config(tree | {"learners": {"processes": 1}})
    specs = policy_specs(config, Tape().agents)
    assembly = Assembly(config, specs, make_layout(config, len(specs)))
    return assembly, *(role.build() for role in assembly.roles())


def train(assembly, actor, learner, updates):
    row = assembly.scoreboard.learn("agent_0")
    while row[Learn.UPDATES] < updates:
        actor.turn()
        while row[Learn.UPDATES] < updates and learner.work():
            pass


@pytest.mark.parametrize("after", [0, 2])
@pytest.mark.parametrize("algorithm", ["ppo", "iqn", "dqn"])
def test_a_successor_goes_back_to_the_last_publication_not_to_the_checkpoint(algorithm, after):
    """The checkpoint is taken some updates after a publication."""
    assembly, actor, learner = make(algorithm)
    train(assembly, actor, learner, EVERY)
    published = assembly.snapshots()["agent_0"]
    assert published.learner_step == EVERY
    counted = assembly.scoreboard.learn("agent_0")[[Learn.SAMPLES, Learn.TRAINED]].copy()
    train(assembly, actor, learner, EVERY + after)
    state = unpack(pack(learner.state("agent_0")))
    other, _, successor = make(algorithm)
    successor.restore("agent_0", state)
    for board, group in ((assembly.scoreboard, learner), (other.scoreboard, successor)):
        student = group.learners[0]._students[0]
        assert student.updates == EVERY + after
        assert not student.accept(math.nan)
        assert student.updates == EVERY
        weights = student._algorithm.weights(0)
        assert np.array_equal(weights, published.weights)
        # What was trained on since is not behind these weights.
        now = board.learn("agent_0")[[Learn.SAMPLES, Learn.TRAINED]]
        assert now.tolist() == counted.tolist()


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_means_over_updates_are_of_those_that_were_undone_too(algorithm):
    """The sum kept their losses, and was divided by the updates that were left."""
    assembly, actor, learner = make(algorithm)
    board = Board(assembly.scoreboard, assembly.experience)
    begun = board.read()
    train(assembly, actor, learner, EVERY + 2)
    row, experience = assembly.scoreboard.learn("agent_0"), assembly.experience["agent_0"]
    mean = row[Learn.LOSS_SUM] / (EVERY + 2)
    student = learner.learners[0]._students[0]
    trained = row[Learn.TRAINED]
    assert not student.accept(math.nan)
    assert row[Learn.UPDATES] == EVERY
    undone = trained - row[Learn.TRAINED]
    record = board.between(begun, board.read()).policies["agent_0"]
    assert record.loss == pytest.approx(mean)
    assert record.staleness == pytest.approx(row[Learn.STALENESS_SUM] / (EVERY + 2))
    if algorithm == "ppo":  # what they were trained on is lost
        assert undone > 0
        train(assembly, actor, learner, EVERY + 1)
        assert row[Learn.LOST] == undone
        assert row[Learn.TRAINED] + undone == experience.passed
