"""Policies of every kind that can be files, with random weights."""

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from remuda.config import load_config
from remuda.evaluation.policy import Policy
from remuda.policies.networks.module import PolicyModule
from remuda.policies.stack import ParameterStack
from remuda.population.specs import policy_specs
from remuda.publish.snapshot import Snapshot
from remuda.types import AgentSpec

OBSERVATIONS = 1000
STREAMS = 50
ROUNDING = 1e-5
"""How far the outputs may lie apart, relative to the greatest of them."""

VECTOR = Box(-3.0, 3.0, (7,), np.float32)
GRID = Box(-2.0, 2.0, (3, 8, 6), np.float32)
PIXELS = Box(0, 255, (9, 8, 3), np.uint8)
COUNTS = Box(-100, 100, (2, 3), np.int16)
EXACT = Box(-3.0, 3.0, (7,), np.float64)

FOUR, CHOICES = Discrete(4), MultiDiscrete([3, 2, 4])
MOVES = Box(np.array([-0.5, -1.0, -np.inf], np.float32), np.array([0.5, np.inf, 0.2], np.float32))
TABLE = Box(-0.5, 0.5, (2, 2), np.float32)

DQN, IQN = {"algorithm": "dqn"}, {"algorithm": "iqn"}
PPO = {"algorithm": "ppo", "ppo": {"normalise_observations": True}}
RAW = {"algorithm": "ppo", "ppo": {"normalise_observations": False}}
CONVOLUTIONS = [[8, 3, 1], [6, 2, 2]]

CASES = {
    "dqn": (DQN, {"hidden": [16, 16]}, VECTOR, FOUR),
    "dqn, a plain head": (DQN, {"hidden": [16], "dueling": False}, EXACT, FOUR),
    "dqn, noisy, tanh": (DQN, {"noisy": True, "activation": "tanh"}, VECTOR, FOUR),
    "dqn, frames of pixels": (DQN | {"n_frames": 3}, {"hidden": [16]}, PIXELS, FOUR),
    "iqn": (IQN, {"hidden": [16, 16]}, VECTOR, FOUR),
    "iqn, noisy, frames": (IQN | {"n_frames": 4}, {"noisy": True}, VECTOR, FOUR),
    "ppo": (PPO, {"hidden": [16, 16]}, VECTOR, FOUR),
    "ppo, not normalised": (RAW, {"hidden": [16]}, VECTOR, FOUR),
    "ppo, frames of integers": (PPO | {"n_frames": 2}, {"shared": False}, COUNTS, FOUR),
    "ppo, masks": (PPO, {"hidden": [16]}, VECTOR, FOUR, "masked"),
    "ppo, choices": (RAW, {"hidden": [16]}, VECTOR, CHOICES),
    "ppo, choices and masks": (PPO, {"hidden": [16]}, VECTOR, CHOICES, "masked"),
    "ppo, continuous": (PPO, {"hidden": [16]}, VECTOR, MOVES),
    "ppo, a table of numbers": (RAW, {"hidden": [16], "activation": "relu"}, VECTOR, TABLE),
    "convolution": (RAW, {"convolutions": CONVOLUTIONS}, GRID, FOUR),
    "convolution of pixels": (PPO, {"convolutions": CONVOLUTIONS}, PIXELS, CHOICES),
    "convolution of frames": (RAW | {"n_frames": 3}, {"convolutions": CONVOLUTIONS}, PIXELS, FOUR),
    "convolution, continuous": (RAW, {"convolutions": CONVOLUTIONS}, GRID, TABLE),
    "recurrent": (RAW, {"recurrent": 8}, VECTOR, FOUR),
    "recurrent, masks and frames": (
        PPO | {"n_frames": 2},
        {"recurrent": 8},
        VECTOR,
        FOUR,
        "masked",
    ),
    "recurrent dqn": (DQN | {"n_frames": 2}, {"recurrent": 8}, VECTOR, FOUR, "masked"),
    "recurrent iqn": (IQN, {"recurrent": 8, "noisy": True}, VECTOR, CHOICES),
    "recurrent, continuous": (PPO, {"recurrent": 8}, VECTOR, MOVES),
    "recurrent convolution": (RAW, {"convolutions": CONVOLUTIONS, "recurrent": 8}, PIXELS, FOUR),
}


def made(policy, network, sees, does, masked="", name="", game="support:Tape"):
    """A policy of random weights, which prefers different actions at different observations."""
    agent = AgentSpec("agent_0", sees, does, masked=bool(masked))
    network = {"hidden": [16]} | network
    config = load_config({"game": "tag", "policy": policy | {"network": network}})
    (spec,) = policy_specs(config, [agent])
    return with_weights(spec, agent, drawn(spec, sees), name, game)


def with_weights(spec, agent, weights, name="", game=""):
    return Policy(
        spec, Snapshot(weights, version=7, learner_step=3, epsilon=0.1), agent, name, game
    )


def drawn(spec, sees):
    """Weights [P] of which every layer counts, and no action is the best everywhere."""
    network, rng = spec.network(), np.random.default_rng(5)
    stack = ParameterStack(network.shapes, 1)
    parameters = stack.parameters
    network.initialise(parameters, torch.Generator().manual_seed(1))
    for name, values in parameters.items():
        draw = torch.from_numpy(rng.normal(0.0, 0.3, values.shape).astype(np.float32))
        if name.endswith(".variance"):
            values.copy_(draw.abs() * 10.0 + 0.3)
        elif name.endswith("sigma"):  # noise that must not be heard
            values.copy_(draw * 10.0)
        else:
            values.add_(draw)
    seen = observations_of(sees, 100 * spec.config.n_frames, 9).reshape(100, -1)
    with torch.no_grad():
        outputs = PolicyModule(network, parameters)(torch.from_numpy(seen))
        outputs = outputs[0] if network.memory else outputs
        if "head.bias" in parameters:
            parameters["head.bias"][..., -outputs.shape[1] :] -= outputs.mean(0)
        else:
            scales, means = torch.std_mean(outputs[:, : spec.actions.num_logits], 0)
            parameters["policy.weight"] /= scales
            parameters["policy.bias"].sub_(means).div_(scales)
    return stack.flat[0].numpy().copy()


def observations_of(space, count, seed):
    space.seed(seed)
    return np.array([space.sample() for _ in range(count)], space.dtype).reshape(-1, *space.shape)
