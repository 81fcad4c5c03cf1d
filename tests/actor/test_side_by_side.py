"""Seats whose policies are asked in one call are still seats of their own."""

from importlib import import_module

import numpy as np
import pytest
from gymnasium.spaces import Box

from masked_games import Doors
from remuda.config import load_config, overlay
from remuda.training.run import train
from remuda.types import AgentSpec
from remuda.ui.terminal.live import PlainView
from support import Tape

TREE = {
    "schedule": "sequential",
    "env": {"num_envs": 3},
    "run": {"turns": 300, "evaluate_episodes": 0},
    "checkpoint": {"evaluate_episodes": 0},
}


class SeenLast(Doors):
    """Allows what it worked out when it was observed last, as games may."""

    def __init__(self, num_envs=1, **options):
        super().__init__(num_envs, num_agents=3, lengths=(4, 7), together=True, **options)
        self._worked_out = None

    def observe(self, agent, out):
        super().observe(agent, out)
        self._worked_out = agent

    def mask(self, agent, out):
        assert self._worked_out == agent, "it is asked what another may do"
        super().mask(agent, out)
        self._worked_out = None


class Narrow(Tape):
    """Agents whose bounds are so close that their spaces are equal, as Gymnasium has it."""

    SCALES = (1e-9, 5e-9, 1e-9)
    LARGEST = np.zeros(3)
    """Of all actions so far, by agent."""

    def __init__(self, num_envs=1):
        super().__init__(num_envs, num_agents=3, lengths=(4, 7), together=True)
        self.agents = tuple(
            AgentSpec(agent.name, agent.observation_space, Box(-scale, scale, (1,), np.float32))
            for agent, scale in zip(self.agents, self.SCALES, strict=True)
        )
        assert len({str(agent.action_space) for agent in self.agents}) == 2
        assert self.agents[0].action_space == self.agents[1].action_space

    def act(self, agent, actions):
        self.LARGEST[agent] = max(self.LARGEST[agent], np.abs(actions).max())
        super().act(agent, np.zeros(self.num_envs, np.int64))


@pytest.mark.slow_cases("fixed")
@pytest.mark.parametrize("dealt", [False, True], ids=["fixed", "dealt"])
def test_masks_are_asked_right_after_what_their_agent_observes(dealt, tmp_path):
    """Red before: all observed first, and each was given the mask of the last."""
    tree = {
        "game": "actor.test_side_by_side:SeenLast",
        "run": {"directory": tmp_path / "run"},
        "policy": {"algorithm": "dqn", "network": {"hidden": (8,)}},
    }
    if dealt:
        tree["population"] = {"policies": 3, "matchmaker": "random"}
    train(load_config(overlay(TREE, tree)), PlainView())


@pytest.mark.slow
def test_each_acts_within_its_own_bounds(tmp_path):
    """Red before: all within those of the first, where spaces are nearly the same."""
    tree = {
        "game": "actor.test_side_by_side:Narrow",
        "run": {"directory": tmp_path / "run"},
        "policy": {"algorithm": "ppo", "network": {"hidden": (8,)}},
    }
    train(load_config(overlay(TREE, tree)), PlainView())
    of_run = import_module("actor.test_side_by_side").Narrow  # as a run imports it
    # Draws of one standard deviation and more are cut to the bounds.
    assert pytest.approx(np.array(of_run.SCALES), rel=1e-3) == of_run.LARGEST
