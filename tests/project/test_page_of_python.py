"""The programs of docs/api.md run in its order, each with what the page before it made."""

import inspect
import re
from itertools import count
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv
from torch import nn

import remuda
from remuda.config import overlay
from remuda.envs.registry import make_env
from remuda.population import Matchmaker
from remuda.ui.terminal.live import PlainView
from short_runs import trained

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
IMPORTS = """
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

"""


class MyEnv(gymnasium.Env):
    observation_space = spaces.Box(0.0, 1.0, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, size=4):
        self.size = size

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.turn = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.turn += 1
        return np.zeros(3, np.float32), float(action), False, self.turn == self.size, {}


class MyParallelEnv(ParallelEnv):
    """Each of two agents is paid for its second action."""

    seen, choices = spaces.Box(0.0, 1.0, (3,), np.float32), spaces.Discrete(2)

    def __init__(self, size=4):
        self.metadata = {"name": "mine"}
        self.possible_agents, self.size = ["left", "right"], size

    def observation_space(self, agent):
        return self.seen

    def action_space(self, agent):
        return self.choices

    def reset(self, seed=None, options=None):
        self.agents, self.turn = list(self.possible_agents), 0
        return {a: np.zeros(3, np.float32) for a in self.agents}, {a: {} for a in self.agents}

    def step(self, actions):
        self.turn += 1
        agents, over = self.agents, self.turn == self.size
        self.agents = [] if over else agents
        return (
            {a: np.zeros(3, np.float32) for a in agents},
            {a: float(actions[a]) for a in agents},
            dict.fromkeys(agents, False),
            dict.fromkeys(agents, over),
            {a: {} for a in agents},
        )


class MyTorso(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.layer = nn.Linear(shape[0], 8)

    def forward(self, observations):
        return self.layer(observations).tanh()


class MyAlgorithm(remuda.RolloutAlgorithm):
    """The policy gradient."""

    def losses(self, rows):
        return -rows.advantages * rows.log_probs, (rows.targets - rows.values).square()


class MyMatchmaker(Matchmaker):
    def seat(self, population, ledger, random):
        learning = [member.ref for member in population.members if member.learns]
        return [learning[i] for i in random.choice(len(learning), self.num_seats)]


def first_action(env, agent, observations, rng):
    return np.zeros(len(observations), np.int64)


@pytest.mark.slow
def test_the_page_runs_from_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_game.py").write_text(IMPORTS + inspect.getsource(MyParallelEnv))
    pair = trained(
        tmp_path / "pair", "connect_four", population={"matchmaker": "random", "policies": 4}
    )
    train, number = remuda.train, count()
    short = {
        "schedule": "sequential",
        "run": {"turns": 80, "seconds": None, "evaluate_episodes": 2},
        "checkpoint": {"evaluate_episodes": 0},
    }

    def train_shortly(game, **settings):
        shorter = overlay(settings, short)
        shorter["run"]["directory"] = f"runs/{next(number)}"
        return train(game, view=PlainView(), **shorter)

    monkeypatch.setattr(remuda, "train", train_shortly)
    found = {
        "MyParallelEnv": MyParallelEnv,
        "MyEnv": MyEnv,
        "MyWrapper": lambda env: env,
        "MyVectorEnv": lambda num_envs: make_env("tag", num_envs),
        "MyTorso": MyTorso,
        "MyAlgorithm": MyAlgorithm,
        "MyMatchmaker": MyMatchmaker,
        "my_function": first_action,
        "run_a": pair,
        "run_b": pair,
    }
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for program in programs:
        if "policy.act(observation)" in program:
            space = found["run"]["agent_0"].observation_space
            found["observation"] = space.sample()
            found["observations"] = np.stack([space.sample() for _ in range(3)])
        text = program.replace('"runs/tag-20261123-101500"', "result")
        text = text.replace("episodes=100", "episodes=2")
        exec(text, found)
        if "action" in found and "actions" in found and "observation" in found:
            assert len(found.pop("actions")) == 3
    assert found["result"].finished
    assert found["clone"].game == "tag"
    assert found["found"].groups[0].seeds == (0, 1, 2, 3, 4)
    assert (tmp_path / "comparison" / "report.html").exists()
