"""Runs whose every number can be compared."""

import zlib

import numpy as np

from remuda.config import load_config, overlay
from remuda.runs.run_directory import RunDirectory
from remuda.runs.saved_weights import load_run
from remuda.system.checkpoint.names import COORDINATOR
from remuda.system.scoreboard import Learn, Play, Policy
from remuda.training.run import train
from remuda.ui.terminal.live import PlainView

BASE = {
    "game": "treasure_hunt",
    "seed": 5,
    "env": {"num_envs": 2},
    "policy": {
        "n_frames": 2,
        "network": {"hidden": (16, 16)},
        "iqn": {"quantiles": 4, "cosines": 8, "target_every": 20},
        "batch_size": 16,
        "experience": {"learning_starts": 100, "capacity": 600, "segment_length": 15},
        "publish": {"every": 3},
        "dqn": {"target_every": 20},
        "exploration": {"decay_steps": 500},
    },
    "run": {"turns": 800, "evaluate_episodes": 0, "log_every": 3600},
    "checkpoint": {"every": 3600, "evaluate_episodes": 0},
}

PPO = {
    "rollout_length": 20,
    "normalise_observations": True,
    "normalise_rewards": True,
    "anneal_steps": 2000,
}
"""Everything of PPO that has a state of its own."""

PLAYED = [Play.TURNS, Play.AGENT_STEPS]
LEARNED = [Learn.UPDATES, Learn.SAMPLES, Learn.LOSS_SUM, Learn.VERSION, Learn.STALENESS_SUM]
"""What is counted and does not tell of time, which never repeats itself."""


def configure(directory, **tree):
    return load_config(overlay(overlay(BASE, tree), {"run": {"directory": directory}}))


def run(directory, *, resume=False, **tree):
    """Train; returns the weights of every policy, and all counts that do not tell of time."""
    train(configure(directory, **tree), PlainView(), resume=resume)
    return outcome(directory)


def stops(*named, first=40, last=760, count=1):
    """Turns at which a run stops, in order: drawn by what the case is named, so mostly odd ones."""
    random = np.random.default_rng(zlib.crc32(repr(named).encode()))
    return sorted(random.choice(np.arange(first, last), count, replace=False).tolist())


def outcome(directory):
    run = RunDirectory.open(directory)
    weights = {name: s.weights.copy() for name, s in load_run(run)[1].items()}
    last = run.checkpoints.read(run.checkpoints.numbers()[-1], COORDINATOR)
    rows = last["scoreboard"]
    counts = {
        "play": rows["play"][PLAYED],
        "policy": rows["policy"],
        "learn": rows["learn"][:, LEARNED],
        "written": np.array(list(last["written"].values())),
    }
    return weights, counts


def assert_same(one, other, policies=slice(None), updates=10):
    """Nothing differs; and these policies, all unless they are named, have played and learned."""
    weights, counts = one
    other_weights, other_counts = other
    assert counts["learn"][:, LEARNED.index(Learn.UPDATES)][policies].min() > updates
    assert counts["policy"][policies, Policy.EPISODES].min() >= 8
    for name, rows in counts.items():
        assert np.array_equal(rows, other_counts[name]), f"{name} differs"
    for name, flat in weights.items():
        assert np.array_equal(flat, other_weights[name]), f"{name} learned something else"
