"""Runs of a moment, for tests of what is done with a run afterwards."""

import remuda
from remuda.config import overlay
from remuda.ui.terminal.live import PlainView

SHORT = {
    "schedule": "sequential",
    "env": {"num_envs": 1},
    "policy": {"algorithm": "ppo", "network": {"hidden": (8,)}, "ppo": {"rollout_length": 20}},
    "run": {"turns": 60, "evaluate_episodes": 0, "log_every": 3600},
    "checkpoint": {"evaluate_episodes": 0},
}


def trained(directory, game, **tree):
    """Train for 60 turns, with these settings over `SHORT`; return the run."""
    config = overlay(SHORT, tree)
    remuda.train(game, config=config, run={"directory": directory}, view=PlainView())
    return remuda.load(directory)
