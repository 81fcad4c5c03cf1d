"""Random settings, and a program that trains by them where memory is laid out in its own way.

    python layouts.py DIRECTORY JUNK NUMBER...

trains by each setting NUMBER in turn, one after another in this process, with the schedule
`sequential`, and leaves the runs in DIRECTORY. JUNK is the seed of what is allocated in between, so
that with another number every array of a run lies somewhere else.
"""

import sys
from pathlib import Path

import numpy as np

SETTINGS = 40

GAMES = (
    ("bucket_brigade", {"scenario": "chain_reaction"}),
    ("bucket_brigade", {"scenario": "hard"}),
    ("bucket_brigade", {"scenario": "overcrowding"}),
    ("treasure_hunt", {"num_agents": 3, "max_turns": 30}),
    ("tag", {}),
    ("cleanup", {}),
    ("kuhn_poker", {}),
    ("connect_four", {}),
    ("gymnasium:Pendulum-v1", {}),
)
ONLY_PPO = {"bucket_brigade", "kuhn_poker", "connect_four", "gymnasium:Pendulum-v1"}
"""Games with several choices at once, masks, or continuous actions."""


def setting(number):
    """The configuration of a random setting, as a tree."""
    rng = np.random.default_rng((71, number))

    def pick(*choices):
        return choices[int(rng.integers(len(choices)))]

    # Every game is met as often as any other; all else is drawn.
    game, options = GAMES[number % len(GAMES)]
    algorithm = "ppo" if game in ONLY_PPO else pick("ppo", "dqn", "iqn")
    num_envs = int(rng.integers(1, 12))
    network = {"hidden": pick((64, 64), (17,), (33, 7), (16, 40))}
    policy = {"algorithm": algorithm, "network": network, "n_frames": pick(1, 2)}
    policy["publish"] = {"mode": pick("snapshot", "double_buffer")}
    policy["learning_rate"] = 3e-3  # what differs in the last bit soon differs more
    if algorithm == "ppo":
        network["shared"] = pick(True, False)
        network["activation"] = pick("tanh", "relu")
        network["recurrent"] = pick(0, 0, 0, 13) if network["shared"] else 0
        policy["ppo"] = {
            "rollout_length": int(rng.integers(9, 20)),
            "minibatches": pick(1, 2, 3),
            "epochs": 2,
            "normalise_observations": pick(True, False),
            "normalise_rewards": pick(True, False),
        }
        policy["experience"] = {"segment_length": pick(7, 16)}
    else:
        network["noisy"] = pick(True, False)
        policy["batch_size"] = pick(13, 16, 64)
        policy["experience"] = {"learning_starts": 64, "replay_ratio": 0.5, "capacity": 500}
        policy["iqn"] = {"quantiles": 4, "cosines": 8}
    tree = {
        "game": game,
        "seed": int(rng.integers(1000)),
        "env": {"num_envs": num_envs, "options": options},
        "policy": policy,
        "run": {"turns": 60 * num_envs, "evaluate_episodes": 0, "log_every": 3600},
        "checkpoint": {"every": 3600, "evaluate_episodes": 0},
    }
    if game in ("kuhn_poker", "connect_four"):
        tree["population"] = {
            "matchmaker": pick("self_play", "random"),
            "policies": 3,
            "snapshots": {"every": 1, "keep": 2},
        }
    return tree


def train_by(number, directory, **more):
    """Train by a setting into a directory."""
    from remuda.config import load_config, overlay
    from remuda.training.run import train
    from remuda.ui.terminal.live import PlainView

    tree = overlay(setting(number), {"run": {"directory": directory}} | more)
    train(load_config(tree), PlainView())


def saved(directory):
    """By policy, the content of the file of its weights."""
    return {path.name: path.read_bytes() for path in sorted((directory / "weights").iterdir())}


def litter(rng, held):
    """Allocate and free so much of so many sizes that what comes next lies anywhere."""
    held += [np.zeros(int(size), np.uint8) for size in rng.integers(1, 3000, 2000)]
    for i in rng.permutation(len(held))[: len(held) // 2].tolist():
        held[i] = None
    held[:] = [array for array in held if array is not None][:5000]


def main(directory, junk, *numbers):
    """Train by each of these settings."""
    rng, held = np.random.default_rng(junk), []
    for number in numbers:
        litter(rng, held)
        train_by(number, Path(directory) / str(number), schedule="sequential")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
