"""What a stranger adds from a directory of his own: a game, a network, an algorithm, a matchmaker.

Nothing of Remuda is edited, and nothing is imported but what docs/api.md and the pages that it
names tell of.
"""

import subprocess
import sys

import pytest

import remuda
from remuda.population.ledger.ledger import MATCH, read_records

GAME = '''
import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv


class Matching(ParallelEnv):
    """Two agents are paid for choosing the same number, ten times."""

    metadata = {"name": "matching"}
    possible_agents = ["left", "right"]

    def observation_space(self, agent):
        return Box(0.0, 1.0, (3,), np.float32)

    def action_space(self, agent):
        return Discrete(3)

    def reset(self, seed=None, options=None):
        self.agents, self.turn = list(self.possible_agents), 0
        seen = {agent: np.zeros(3, np.float32) for agent in self.agents}
        return seen, {agent: {} for agent in self.agents}

    def step(self, actions):
        self.turn += 1
        paid = float(actions["left"] == actions["right"])
        seen = {a: np.eye(3, dtype=np.float32)[actions[a]] for a in self.agents}
        rewards = dict.fromkeys(self.agents, paid)
        never, over = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, self.turn == 10)
        infos = {agent: {} for agent in self.agents}
        if self.turn == 10:
            self.agents = []
        return seen, rewards, never, over, infos
'''
NETWORK = """
from torch import nn


def features(shape, units=8):
    return nn.Sequential(nn.Linear(shape[0], units), nn.Tanh())
"""
ALGORITHM = '''
import remuda


class Reinforce(remuda.RolloutAlgorithm):
    """The policy gradient with a baseline (Williams 1992)."""

    preset = {"ppo": {"epochs": 1}}
    settings = {"baseline": 0.5}

    def losses(self, rows):
        error = (rows.targets - rows.values).square()
        return -rows.advantages * rows.log_probs, rows.settings["baseline"] * error
'''
MATCHMAKER = '''
from remuda.population import Matchmaker


class Neighbours(Matchmaker):
    """Each meets the one after it in the list, in turn."""

    seats_differ = True

    def __init__(self, num_seats, step=1):
        super().__init__(num_seats)
        self._at, self._step = 0, step

    def seat(self, population, ledger, random):
        learning = [member.ref for member in population.members if member.learns]
        self._at = (self._at + 1) % len(learning)
        places = range(self._at, self._at + self._step * self.num_seats, self._step)
        return [learning[place % len(learning)] for place in places]
'''


@pytest.fixture
def remuda_in(tmp_path):
    """Runs the command in a directory of the stranger's, and opens its run."""
    files = {"matching": GAME, "nets": NETWORK, "algorithms": ALGORITHM, "pairs": MATCHMAKER}
    for name, text in files.items():
        (tmp_path / f"own_{name}.py").write_text(text)

    def train(*words, turns=600):
        more = ("--run.turns", str(turns), "--run.directory", "run", "--run.live", "false")
        more += ("--checkpoint.evaluate_episodes", "0", "--run.evaluate_episodes", "2")
        words = (sys.executable, "-m", "remuda", "train", *words, *more)
        found = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stdout + found.stderr
        return found.stdout

    train.directory = tmp_path
    return train


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["async", "sequential"])
def test_a_game(remuda_in, schedule, monkeypatch):
    words = ("own_matching:Matching", "--schedule", schedule, "--policy.algorithm", "ppo")
    remuda_in(*words, "--policy.ppo.rollout_length", "32")
    monkeypatch.syspath_prepend(remuda_in.directory)
    run = remuda.load(remuda_in.directory / "run")
    assert list(run) == ["left", "right"]
    assert run["left"].learner_step > 0
    assert run.evaluate(episodes=3).returns.shape == (3, 2)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_a_network(remuda_in, algorithm, monkeypatch):
    network = (
        "--policy.network.module",
        "own_nets:features",
        "--policy.network.options.units",
        "5",
    )
    learning = ("--policy.ppo.rollout_length", "32")
    if algorithm == "dqn":
        learning = ("--policy.experience.learning_starts", "100", "--policy.n_frames", "1")
    game = ("gymnasium:CartPole-v1", "--policy.algorithm", algorithm)
    remuda_in(*game, *network, *learning, turns=800)
    monkeypatch.syspath_prepend(remuda_in.directory)
    (policy,) = remuda.load(remuda_in.directory / "run").values()
    assert policy.learner_step > 0
    assert policy.weights()["hidden_module.0.weight"].shape == (5, 4)


@pytest.mark.slow
def test_an_algorithm(remuda_in, monkeypatch):
    own = ("--policy.algorithm", "own_algorithms:Reinforce", "--policy.settings.baseline", "0.25")
    remuda_in("tag", *own, "--policy.ppo.rollout_length", "32")
    monkeypatch.syspath_prepend(remuda_in.directory)
    run = remuda.load(remuda_in.directory / "run")
    assert {policy.algorithm for policy in run.values()} == {"own_algorithms:Reinforce"}
    assert all(policy.learner_step > 0 for policy in run.values())


@pytest.mark.slow
def test_a_matchmaker(remuda_in):
    own = ("--population.matchmaker", "own_pairs:Neighbours", "--population.options.step", "2")
    words = ("connect_four", "--population.policies", "4", "--policy.algorithm", "ppo", *own)
    remuda_in(*words, "--policy.ppo.rollout_length", "32", turns=2000)
    names, records = read_records(remuda_in.directory / "run" / "ledger.bin")
    seats = records[records["kind"] == MATCH]["policy"][:, :2]
    assert len(names) == 4
    assert len(seats) > 20
    assert ((seats[:, 1] - seats[:, 0]) % 4 == 2).all()
