"""The negative control: learning against each other without a past runs in circles.

In rock-paper-scissors two independent learners chase each other, however long they learn: what they
do last loses to the right answer. A pool of past selves and entropy are the cure, and this is what
they must be compared with.
"""

import numpy as np
import pytest
import torch

from remuda.config import load_config
from remuda.coordinator.run_directory import RunDirectory
from remuda.envs.registry import make_env
from remuda.evaluate import load_run
from remuda.policies.spec import policy_specs
from remuda.policies.stack import ParameterStack
from remuda.train import train
from remuda.ui.live import PlainView

PAYOFF = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])
"""To the row player, by the actions of both."""


def exploitability(first, second):
    """NashConv / 2: what the best answers to both gain, on average; 0 at an equilibrium."""
    value = first @ PAYOFF @ second
    return ((PAYOFF @ second).max() - value + value - (first @ PAYOFF).min()) / 2


def mixtures(directory):
    """What each policy of a run does, as probabilities: [2][3]."""
    config, snapshots = load_run(RunDirectory.open(directory))
    env = make_env(config.game, 1)
    env.reset(np.zeros(1, np.int64), np.ones(1, bool))
    found = []
    for agent, spec in enumerate(policy_specs(config, env.agents)):
        seen = np.zeros((1, 1, spec.observation_size), np.float32)
        env.observe(agent, seen[0])
        network = spec.network()
        stack = ParameterStack(network.shapes, 1)
        with torch.no_grad():
            stack.flat[0].copy_(torch.from_numpy(snapshots[spec.name].weights))
            weights = network.acting(stack.parameters, None)
            logits = network.outputs(weights, torch.from_numpy(seen))[0, 0]
        found.append(logits.double().softmax(0).numpy())
    return found


def test_exploitability_by_hand():
    uniform, rock, paper = np.full(3, 1 / 3), np.eye(3)[0], np.eye(3)[1]
    assert exploitability(uniform, uniform) == pytest.approx(0.0)
    assert exploitability(rock, rock) == 1.0
    assert exploitability(rock, uniform) == 0.5
    assert exploitability(paper, rock) == 1.0


@pytest.mark.parametrize("seed", [0, 1])
def test_two_learners_without_entropy_or_a_past_are_exploitable_in_the_end(seed, tmp_path):
    tree = {
        "game": "rock_paper_scissors",
        "schedule": "sequential",
        "seed": seed,
        "env": {"num_envs": 64},
        "policy": {
            "algorithm": "ppo",
            "experience": {"segment_length": 1},
            "ppo": {"entropy_cost": 0.0, "rollout_length": 32},
        },
        "run": {
            "turns": 200_000,
            "directory": tmp_path / "run",
            "evaluate_episodes": 0,
            "log_every": 3600,
        },
        "checkpoint": {"every": 3600, "evaluate_episodes": 0},
    }
    train(load_config(tree), PlainView())
    assert exploitability(*mixtures(tmp_path / "run")) >= 0.8
