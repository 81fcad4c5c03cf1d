"""Likelihoods of demonstrated actions, and networks that are fitted to them."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from remuda.config import load_config
from remuda.policies.actions import DiscreteActions, JointActions
from remuda.policies.continuous_actions import ContinuousActions, SquashedActions
from remuda.policies.imitation import (
    LEAST_LOG_SCALE,
    CloningSettings,
    Demonstrations,
    clone_behaviour,
    log_likelihoods,
)
from remuda.policies.stack import ParameterStack
from remuda.population.run_spec import policy_of
from remuda.types import AgentSpec

LOW, HIGH = np.array([10], np.float32), np.array([20], np.float32)


def likelihood(actions, outputs, chosen, masks=None):
    found = log_likelihoods(
        actions,
        torch.tensor([[outputs]], dtype=torch.float32),
        torch.tensor([[chosen]]),
        None if masks is None else torch.tensor([[masks]]),
    )
    return found.item()


def test_likelihoods_are_those_worked_by_hand():
    odds = [0.0, math.log(3.0), 0.0]
    assert likelihood(DiscreteActions((3,)), odds, [1]) == pytest.approx(math.log(3 / 5))
    masked = likelihood(DiscreteActions((3,)), odds, [1], [True, True, False])
    assert masked == pytest.approx(math.log(3 / 4))
    # Combination (1, 0) of 2 x 2 is number 2.
    joint = likelihood(JointActions((2, 2)), [0.0, 0.0, math.log(2.0), 0.0], [1, 0])
    assert joint == pytest.approx(math.log(2 / 5))
    normal = likelihood(ContinuousActions(LOW, HIGH), [0.5, math.log(2.0)], [2.5])
    assert normal == pytest.approx(-0.5 - math.log(2.0) - 0.5 * math.log(2 * math.pi))
    # Of tanh(x), with x = 0 at the mean, the slope is 1.
    squashed = likelihood(SquashedActions(LOW, HIGH), [0.0, 0.0], [0.0])
    assert squashed == pytest.approx(-0.5 * math.log(2 * math.pi))
    at = math.tanh(1.0)
    squashed = likelihood(SquashedActions(LOW, HIGH), [0.0, 0.0], [at])
    assert squashed == pytest.approx(
        -0.5 - 0.5 * math.log(2 * math.pi) - math.log(1 - at**2), abs=1e-5
    )
    assert math.isfinite(likelihood(SquashedActions(LOW, HIGH), [0.0, 0.0], [1.0]))


def test_normalised_actions_are_those_that_are_scaled_to_them():
    low = np.array([10, -np.inf, 0, -np.inf], np.float32)
    high = np.array([20, np.inf, np.inf, 5], np.float32)
    bounds = ContinuousActions(low, high).bounds
    assert bounds.normalise(np.array([[12.5, 7, 3, 1]])).tolist() == [[-0.5, 7, 2, -3]]
    assert bounds.scale(np.array([[-0.5, 7, 2, -3]], np.float32)).tolist() == [[12.5, 7, 3, 1]]


OBSERVED = Box(-1, 1, (2,), np.float32)
ACTIONS = {
    "discrete": Discrete(3),
    "choices": MultiDiscrete([2, 3]),
    "continuous": Box(10, 20, (1,), np.float32),
}
SETTINGS = CloningSettings(epochs=60, batch_size=32, learning_rate=3e-3, seed=0)


def demonstrations(kind, frames=1, count=400):
    """Actions that depend on the sum of the first entries of an observation and its `frames`."""
    rng = np.random.default_rng(0)
    observations = rng.uniform(-1, 1, (count, 2)).astype(np.float32)
    firsts = np.arange(count) // 20 * 20  # trajectories of 20 steps
    sums = observations[:, 0].copy()
    for back in range(1, frames):
        shifted = np.roll(observations[:, 0], back)
        sums += np.where(np.arange(count) - back >= firsts, shifted, 0)
    actions = {
        "discrete": np.digitize(sums, [-0.3, 0.3])[:, None],
        "choices": np.stack((sums > 0, np.digitize(sums, [-0.3, 0.3])), 1).astype(np.int64),
        "continuous": 15 + 3 * np.tanh(sums)[:, None].astype(np.float32),
    }[kind]
    return Demonstrations(observations, actions, None, firsts)


@pytest.mark.parametrize(
    ("kind", "policy"),
    [
        ("discrete", {"algorithm": "ppo"}),
        ("discrete", {"algorithm": "ppo", "ppo": {"normalise_observations": True}, "n_frames": 3}),
        (
            "discrete",
            {"algorithm": "mappo", "ppo": {"normalise_observations": True}, "n_frames": 2},
        ),
        ("discrete", {"algorithm": "dqn", "network": {"noisy": True, "dueling": True}}),
        ("discrete", {"algorithm": "sac"}),
        ("choices", {"algorithm": "ppo"}),
        ("choices", {"algorithm": "dqn", "network": {"dueling": False}}),
        ("continuous", {"algorithm": "ppo"}),
        ("continuous", {"algorithm": "sac"}),
    ],
)
def test_a_clone_does_as_was_demonstrated(kind, policy):
    network = {"hidden": (32,)} | policy.get("network", {})
    config = load_config({"policy": {"n_frames": 1} | policy | {"network": network}})
    agents = [AgentSpec(f"agent_{i}", OBSERVED, ACTIONS[kind]) for i in (0, 1)]
    spec = policy_of(config, agents, 0)
    steps = demonstrations(kind, frames=spec.config.n_frames)
    weights = clone_behaviour(spec, steps, SETTINGS)
    short = replace(SETTINGS, epochs=4)
    assert np.array_equal(*(clone_behaviour(spec, steps, short) for _ in range(2)))
    from remuda.evaluation.policy import Policy
    from remuda.publish.snapshot import Snapshot

    clone = Policy(
        spec, Snapshot(weights, 0, 0, 0.0), AgentSpec("agent_0", OBSERVED, ACTIONS[kind])
    )
    state, found = clone.initial_state(1), []
    for step, observation in enumerate(steps.observations):
        if step in steps.firsts:
            state.begin()
        found.append(np.ravel(clone.act(observation, state=state)))
    if kind == "continuous":
        assert np.abs(np.array(found) - steps.actions).mean() < 0.3
    else:
        assert (np.array(found) == steps.actions).mean() > 0.9
    if kind == "continuous":
        network, stack = spec.network(), ParameterStack(spec.network().shapes, 1)
        stack.write(0, torch.from_numpy(weights))
        observed = 10 * torch.from_numpy(steps.observations)  # also where nothing was shown
        outputs = network.outputs(network.acting(stack.parameters, None), observed[None])
        assert outputs[0, :, 1].min() == outputs[0, :, 1].max() >= LEAST_LOG_SCALE
