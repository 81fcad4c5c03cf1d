"""What a learner tells of its updates reaches the records, in every schedule's loop."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest

from assembled import assemble
from remuda.config import load_config, overlay
from remuda.coordinator.scoreboard_reader import ScoreboardReader
from remuda.policies.algorithms.kernels.objective import RolloutMetrics
from remuda.population.specs import policy_specs
from remuda.runs.metrics import POLICY_COLUMNS
from remuda.runtime.layout import make_layout
from remuda.system.checkpoint.state import pack, unpack
from remuda.system.scoreboard import Learn
from support import Tape


def make(algorithm, **policy):
    kept = {"learning_starts": 32, "capacity": 2000, "segment_length": 4}
    tree = {"algorithm": algorithm, "network": {"hidden": (8,)}, "learning_rate": 0.25}
    if algorithm == "ppo":
        tree |= {"ppo": {"rollout_length": 16}, "experience": kept}
    else:
        tree |= {"batch_size": 16, "experience": kept | {"replay_ratio": 0.5}}
    whole = {"game": "support:Tape", "schedule": "sequential", "policy": overlay(tree, policy)}
    config = load_config(whole | {"learners": {"processes": 1}})
    specs = policy_specs(config, Tape().agents)
    assembly = assemble(config, specs, make_layout(config, len(specs)))
    actor, learner = (role.build() for role in assembly.roles())
    return assembly, ScoreboardReader(assembly.scoreboard, assembly.experience), actor, learner


def train(assembly, actor, learner, updates):
    row = assembly.scoreboard.learn("agent_0")
    while row[Learn.UPDATES] < updates:
        actor.turn()
        while learner.work():
            pass


OF_KIND = {
    "all": {"loss", "gradient_norm", "learning_rate", "episode_length", "return_min"},
    "PPO, SAC": {"policy_loss", "value_loss", "entropy"},
    "SAC": {"temperature"},
    "PPO": {
        "kl",
        "clipped",
        "explained_variance",
        "entropy_cost",
        "effective",
    },
    "DQN, IQN, SAC": {"mean_q"},
}


@pytest.mark.parametrize("algorithm", ["ppo", "mappo", "dqn", "iqn", "sac"])
def test_every_algorithm_tells_its_own_columns_and_no_others(algorithm):
    assembly, board, actor, learner = make(algorithm)
    train(assembly, actor, learner, 6)
    record = vars(board.between(board.start, board.read()).policies["agent_0"])
    section = "PPO" if algorithm == "mappo" else algorithm.upper()
    for kind, names in OF_KIND.items():
        assert {n for n, each in POLICY_COLUMNS.items() if each.kind == kind} >= names
        for name in names:
            told = record[name]
            reported = kind == "all" or section in kind.split(", ")
            assert (told is not None and math.isfinite(told)) == reported, name
    assert record["gradient_norm"] > 0.0
    assert record["explained_variance"] is None or record["explained_variance"] <= 1.0
    assert record["return_min"] <= record["mean_return"] <= record["return_max"]
    assert record["return_deviation"] <= record["return_max"] - record["return_min"]
    assert 3.0 <= record["episode_length"] <= 5.0


def test_the_learning_rate_is_that_of_the_last_update():
    tree = {"ppo": {"anneal_steps": 160, "entropy_cost": 0.125}}
    assembly, board, actor, learner = make("ppo", **tree)
    row = assembly.scoreboard.learn("agent_0")
    assert (row[Learn.LEARNING_RATE], row[Learn.ENTROPY_COST]) == (0.25, 0.125)
    rates = []
    for updates in range(1, 5):
        train(assembly, actor, learner, updates)
        rates.append(board.between(board.start, board.read()).policies["agent_0"].learning_rate)
    steps = np.arange(4) * row[Learn.TRAINED] / 4  # each update of as many
    np.testing.assert_allclose(rates, 0.25 * (1 - steps / 160))


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_a_successor_tells_of_its_own_learning_rate_not_of_the_one_that_was_saved(algorithm):
    """A run may be resumed with another."""
    assembly, _, actor, learner = make(algorithm)
    train(assembly, actor, learner, 2)
    state = unpack(pack(learner.state("agent_0")))
    _, board, _, successor = make(algorithm, learning_rate=0.5)
    successor.restore("agent_0", state)
    found = board.between(board.start, board.read()).policies["agent_0"]
    assert (found.learning_rate, found.updates) == (0.5, 2)


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_one_number_that_is_not_finite_spoils_no_mean_after_it(algorithm):
    """A sum that was infinite once would be so for good, and the next interval's none at all."""
    assembly, board, actor, learner = make(algorithm)
    found = learner.learners[0].algorithm
    update = found.update
    train(assembly, actor, learner, 2)

    def explode(*args):
        learned = update(*args)
        nothing = learned.gradient_norm * math.inf
        if algorithm == "ppo":
            return replace(learned, gradient_norm=nothing, explained_variance=nothing)
        return learned._replace(gradient_norm=nothing)

    found.update = explode
    train(assembly, actor, learner, 3)
    found.update = update
    before = board.read()
    train(assembly, actor, learner, 6)
    record = board.between(before, board.read()).policies["agent_0"]
    assert math.isfinite(record.gradient_norm)
    assert record.gradient_norm > 0.0


def test_an_update_without_explained_variance_is_not_counted_among_those_that_have_one():
    assembly, board, actor, learner = make("ppo")
    found, told = learner.learners[0].algorithm, [-0.25, math.nan, 0.5]

    def learned(rollout, members):
        (k,) = members
        two = {field.name: np.full(1, 2.0, np.float32) for field in fields(RolloutMetrics)}
        others = {"others": rollout.num_steps[[k]] / 2}
        explained = {"explained_variance": np.array([told[found.updates[k] % 3]], np.float32)}
        found.updates[k] += 1
        return RolloutMetrics(**two | others | explained)

    found.update = learned
    train(assembly, actor, learner, 3)
    record = board.between(board.start, board.read()).policies["agent_0"]
    assert record.updates == 3
    assert record.explained_variance == pytest.approx(0.125)
    assert (record.gradient_norm, record.others) == (2.0, 0.5)
