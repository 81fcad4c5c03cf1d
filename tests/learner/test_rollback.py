"""An update that is undone goes back to the last publication, whichever update it is."""

import math
from itertools import pairwise

import numpy as np
import pytest

from assembled import assemble
from remuda.config import load_config
from remuda.coordinator.scoreboard_reader import ScoreboardReader
from remuda.learner.role import LearnerRole
from remuda.population.specs import policy_specs
from remuda.runtime.layout import make_layout
from remuda.system.checkpoint.state import pack, unpack
from remuda.system.memory.atomic import fence_acquire
from remuda.system.scoreboard import Learn, Scoreboard, count_on
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
    assembly = assemble(config, specs, make_layout(config, len(specs)))
    return assembly, *(role.build() for role in assembly.roles())


def train(assembly, actor, learner, updates):
    row = assembly.scoreboard.learn("agent_0")
    while row[Learn.UPDATES] < updates:
        actor.turn()
        while row[Learn.UPDATES] < updates and learner.work():
            pass


@pytest.mark.parametrize("after", [0, 2])
@pytest.mark.parametrize("algorithm", ["ppo", "mappo", "iqn", "dqn", "sac"])
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
        trainer = group.learners[0].trainers[0]
        assert trainer.updates == EVERY + after
        assert not trainer.accept(math.nan)
        assert trainer.updates == EVERY
        weights = group.learners[0].algorithm.weights(0)
        assert np.array_equal(weights, published.weights)
        # What was trained on since is not behind these weights.
        now = board.learn("agent_0")[[Learn.SAMPLES, Learn.TRAINED]]
        assert now.tolist() == counted.tolist()


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_means_over_updates_are_of_those_that_were_undone_too(algorithm):
    """The sum kept their losses, and was divided by the updates that were left."""
    assembly, actor, learner = make(algorithm)
    board = ScoreboardReader(assembly.scoreboard, assembly.experience)
    begun = board.read()
    train(assembly, actor, learner, EVERY + 2)
    row, experience = assembly.scoreboard.learn("agent_0"), assembly.experience["agent_0"]
    mean = row[Learn.LOSS_SUM] / (EVERY + 2)
    trainer = learner.learners[0].trainers[0]
    trained = row[Learn.TRAINED]
    assert not trainer.accept(math.nan)
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


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_an_interval_in_which_a_learner_went_back_has_no_means(algorithm):
    """What it had counted before was taken from what its successor counted."""
    assembly, actor, learner = make(algorithm)
    board = ScoreboardReader(assembly.scoreboard, assembly.experience)
    row = assembly.scoreboard.learn("agent_0")
    train(assembly, actor, learner, EVERY)
    state = unpack(pack(learner.state("agent_0")))
    train(assembly, actor, learner, 2 * EVERY)
    row[Learn.LOSS_SUM] += 1000.0  # of the history that is given up
    before = board.read()
    learner.restore("agent_0", state)
    during = board.read()
    train(assembly, actor, learner, 4 * EVERY)
    after = board.read()
    found = board.between(before, after).policies["agent_0"]
    assert (found.loss, found.staleness, found.batch, found.others) == (None,) * 4
    assert (found.updates, found.busy, found.updates_per_second) == (4 * EVERY, None, None)
    assert (found.policy_loss, found.value_loss, found.entropy) == (None,) * 3
    other = board.between(before, after).policies["agent_1"]
    assert other.loss is not None
    assert other.busy is not None
    later = board.between(during, after).policies["agent_0"]
    since = row[Learn.LOSS_SUM] - state["counted"][Learn.LOSS_SUM]
    assert later.loss == pytest.approx(since / (3 * EVERY))


@pytest.mark.parametrize("algorithm", [pytest.param("ppo", marks=pytest.mark.slow), "dqn"])
def test_a_successor_that_finds_no_state_is_seen_too(algorithm):
    """Its updates count from the last publication; so did the rate at which it made them."""
    assembly, actor, learner = make(algorithm)
    board = ScoreboardReader(assembly.scoreboard, assembly.experience)
    train(assembly, actor, learner, EVERY + 2)
    before = board.read()
    successor = next(r for r in assembly.roles() if isinstance(r, LearnerRole)).build()
    train(assembly, actor, successor, 2 * EVERY)
    found = board.between(before, board.read()).policies["agent_0"]
    assert (found.loss, found.batch, found.updates_per_second) == (None,) * 3


def test_counts_that_were_read_while_a_learner_went_back_belong_to_no_interval():
    """Half of them are of one history, half of the other."""
    assembly, actor, learner = make("dqn")
    board = ScoreboardReader(assembly.scoreboard, assembly.experience)
    train(assembly, actor, learner, EVERY)
    state = unpack(pack(learner.state("agent_0")))
    readings = [board.read()]

    class Slow(np.ndarray):
        def __setitem__(self, key, value):
            if key == slice(None):
                readings.append(board.read())  # as it begins
                self[: Learn.SAMPLES] = value[: Learn.SAMPLES]
                readings.append(board.read())  # half way
            super().__setitem__(key, value)

    trainer = learner.learners[0].trainers[0]
    trainer.row = trainer.row.view(Slow)
    learner.restore("agent_0", state)
    for steps in (1, 2):
        train(assembly, actor, learner, EVERY + steps)
        readings.append(board.read())
    means = [board.between(*pair).policies["agent_0"].busy for pair in pairwise(readings)]
    assert [mean is None for mean in means] == [True, True, True, False]


def test_counts_that_change_hands_while_they_are_copied_belong_to_no_interval(monkeypatch):
    scoreboard = Scoreboard(("one", "two"))
    board = ScoreboardReader(scoreboard, {})
    begun = []

    def restored():  # a learner goes back just when the reader is about to copy the counts
        if not begun:
            begun.append(1)
            count_on(scoreboard.learn("one"), np.ones(len(Learn)))
        fence_acquire()

    monkeypatch.setattr("remuda.system.scoreboard.fence_acquire", restored)
    assert np.isnan(board.read().learn[:, Learn.RESTORED]).tolist() == [True, False]
    assert not np.isnan(board.read().learn[:, Learn.RESTORED]).any()


def test_counts_that_a_dead_learner_left_half_written_belong_to_no_interval():
    assembly, actor, learner = make("dqn")
    board = ScoreboardReader(assembly.scoreboard, assembly.experience)
    train(assembly, actor, learner, EVERY)
    row = assembly.scoreboard.learn("agent_0")
    row[Learn.RESTORED] += 1.0  # it dies in `count_on`
    readings = [board.read(), board.read()]
    successor = next(r for r in assembly.roles() if isinstance(r, LearnerRole)).build()
    readings.append(board.read())
    train(assembly, actor, successor, EVERY + 1)
    readings.append(board.read())
    means = [board.between(*pair).policies["agent_0"].busy for pair in pairwise(readings)]
    assert [mean is None for mean in means] == [True, True, False]
