"""The negative control: learning against each other without a past runs in circles.

In rock-paper-scissors two independent learners chase each other, however long they learn: what they
do last loses to the right answer. A pool of past selves and entropy are the cure, and this is what
they must be compared with.
"""

import numpy as np
import pytest
import torch

from remuda.config import load_config
from remuda.envs.registry import make_env
from remuda.policies.stack import ParameterStack
from remuda.population.members.table_parts import POLICY, VERSION
from remuda.population.specs import policy_specs
from remuda.runs.run_directory import RunDirectory
from remuda.system.checkpoint.names import COORDINATOR
from remuda.training.run import train
from remuda.ui.terminal.live import PlainView

pytestmark = pytest.mark.learning

PAYOFF = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])
"""To the row player, by the actions of both."""


def exploitability(first, second):
    """NashConv / 2: what the best answers to both gain, on average; 0 at an equilibrium."""
    value = first @ PAYOFF @ second
    return ((PAYOFF @ second).max() - value + value - (first @ PAYOFF).min()) / 2


def mixtures(directory):
    """What the policies of a run did in its last versions, as probabilities: [versions][2][3]."""
    files = RunDirectory.open(directory)
    config = files.read_config()
    env = make_env(config.game, 1)
    env.reset(np.zeros(1, np.int64), np.ones(1, bool))
    saved = files.checkpoints.read(files.checkpoints.numbers()[-1], COORDINATOR)["population"]
    specs = policy_specs(config, env.agents)
    found = []
    for agent, spec in enumerate(specs):
        seen = np.zeros((1, 1, spec.observation_size), np.float32)
        env.observe(agent, seen[0])
        network, stack = spec.network(), ParameterStack(spec.network().shapes, 1)
        weights_of = saved["copies"][spec.name]["weights"]
        first = len(specs) + agent * len(weights_of)
        versions = saved["identity"][first : first + len(weights_of), VERSION]
        held = saved["identity"][first : first + len(weights_of), POLICY] == agent
        mine = []
        for i in np.argsort(versions)[held[np.argsort(versions)]]:
            with torch.no_grad():
                stack.flat[0].copy_(torch.from_numpy(weights_of[i]))
                weights = network.acting(stack.parameters, None)
                logits = network.outputs(weights, torch.from_numpy(seen))[0, 0]
            mine.append(logits.double().softmax(0).numpy())
        found.append(mine)
    return list(zip(*found, strict=True))


def test_exploitability_by_hand():
    uniform, rock, paper = np.full(3, 1 / 3), np.eye(3)[0], np.eye(3)[1]
    assert exploitability(uniform, uniform) == pytest.approx(0.0)
    assert exploitability(rock, rock) == 1.0
    assert exploitability(rock, uniform) == 0.5
    assert exploitability(paper, rock) == 1.0


@pytest.mark.slow_cases("0")
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
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
        # Frozen copies that never play: the last versions, to be looked at afterwards.
        "population": {"matchmaker": "fixed", "snapshots": {"every": 1, "keep": 15}},
        "run": {
            "turns": 100_000,
            "directory": tmp_path / "run",
            "evaluate_episodes": 0,
            "log_every": 3600,
        },
        "checkpoint": {"every": 3600, "evaluate_episodes": 0},
    }
    train(load_config(tree), PlainView())
    last = [exploitability(*pair) for pair in mixtures(tmp_path / "run")]
    assert len(last) == 15
    # It goes round, and on the way from one corner to the next it passes the middle of a side.
    assert np.median(last) >= 0.8
