"""Policies of every kind that were trained for a moment, and games for them."""

import numpy as np
from gymnasium.spaces import Box

import remuda
from masked_games import Doors
from remuda.policies.algorithms.transition_algorithm import Part
from remuda.ui.terminal.live import PlainView
from support import Tape

SMALL = {
    "schedule": "sequential",
    "env": {"num_envs": 2},
    "policy": {
        "network": {"hidden": (16, 16)},
        "iqn": {"quantiles": 4, "cosines": 8},
        "batch_size": 16,
        "experience": {"learning_starts": 60, "capacity": 300, "segment_length": 10},
        "exploration": {"decay_steps": 100, "end": 0.3},
    },
    "run": {"turns": 150, "evaluate_episodes": 0, "log_every": 3600},
    "checkpoint": {"evaluate_episodes": 0},
}
PPO = {"algorithm": "ppo", "ppo": {"rollout_length": 20, "normalise_observations": True}}
Q = {"batch_size": 16, "experience": {"learning_starts": 60}}


class Push(Tape):
    """Two numbers are chosen, within bounds."""

    def __init__(self, num_envs=1):
        super().__init__(num_envs)
        space = Box(-0.5, 0.5, (2,), np.float32)
        self.agents = tuple(
            remuda.types.AgentSpec(agent.name, agent.observation_space, space)
            for agent in self.agents
        )

    def act(self, agent, actions):
        super().act(agent, actions.sum(1))


class Locks(Doors):
    """Two choices are made, both of them with masks."""

    def __init__(self, num_envs=1):
        super().__init__(num_envs, choices=(2, 3))


SETTINGS = {
    "uint8": ("treasure_hunt", PPO),
    "dqn": ("treasure_hunt", {"algorithm": "dqn"}),
    "iqn": ("treasure_hunt", {"algorithm": "iqn"}),
    "ppo": ("treasure_hunt", PPO),
    "dqn with frames": ("treasure_hunt", {"algorithm": "dqn", "n_frames": 3}),
    "ppo with frames": ("treasure_hunt", PPO | {"n_frames": 2}),
    "noisy": ("treasure_hunt", {"algorithm": "iqn", "network": {"noisy": True}}),
    "recurrent": ("support:Recall", PPO | {"network": {"recurrent": 8}}),
    "recurrent dqn": ("treasure_hunt", {"algorithm": "dqn", "network": {"recurrent": 8}}),
    "recurrent iqn": (
        "treasure_hunt",
        {"algorithm": "iqn", "network": {"recurrent": 8}, "n_frames": 2},
    ),
    "towers": ("treasure_hunt", PPO | {"network": {"shared": False}}),
    "masked": ("connect_four", PPO),
    "masked dqn": ("connect_four", {"algorithm": "dqn"}),
    "masked choices": ("trained_policies:Locks", {"algorithm": "iqn"}),
    "own ppo": ("support:Tape", PPO | {"network": {"module": "policies.own_networks:small"}}),
    "own dqn": (
        "support:Tape",
        {"algorithm": "dqn", "network": {"module": "policies.own_networks:Wide"}, "n_frames": 2},
    ),
    "own iqn": (
        "support:Tape",
        {"algorithm": "iqn", "network": {"module": "policies.own_networks:small", "hidden": ()}},
    ),
    "convolving dqn": (
        "treasure_hunt",
        {"algorithm": "dqn", "n_frames": 2, "network": {"convolutions": ((4, 3, 1),)}},
    ),
    "convolving iqn": (
        "treasure_hunt",
        {"algorithm": "iqn", "network": {"convolutions": ((4, 3, 1),)}},
    ),
    "continuous": ("trained_policies:Push", PPO),
}


def trained(directory, game, policy, **tree):
    tree = remuda.config.overlay(SMALL, {"policy": policy} | tree)
    for name in ("experience", "exploration", "batch_size") if "ppo" in policy else ():
        tree["policy"].pop(name, None)
    return remuda.load(
        remuda.train(game, config=tree, run={"directory": directory}, view=PlainView())
    )


def part_of(algorithm, first, end):
    """Return some rows of a stack of Q-networks, as an update trains them."""
    return Part(first, end, algorithm.online.rows(first, end), algorithm.target.rows(first, end))
