"""Policies of equal sizes, with unlike inputs or actions, share neither stack nor ring."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from assembled import spec_of
from remuda.assembly.experience_layout import dealt_rings
from remuda.config import load_config
from remuda.policies.acting import ActingStack
from remuda.policies.compatibility import network_layout, stream_shape
from remuda.policies.spec import first_weights
from remuda.policies.stack import ParameterStack
from remuda.population.specs import policy_specs
from remuda.system.rng import torch_rng
from remuda.types import AgentSpec

PIXELS, BYTES = Box(0, 255, (3,), np.uint8), Box(0, 100, (3,), np.uint8)
NUMBERS, SMALL = Box(-1, 1, (3,), np.float32), Box(-100, 100, (3,), np.int8)
ALGORITHMS = ("ppo", "dqn", "iqn")
POLICIES = ("p", "q")


def specs_of(algorithm, observations, actions, hidden=(4,), **tree):
    agents = tuple(AgentSpec(f"agent_{i}", observations[i // 2], actions[i // 2]) for i in range(4))
    policy = {"algorithm": algorithm, "network": {"hidden": hidden}, "n_frames": 1}
    config = load_config({"policy": policy, "env": {"num_envs": 3}, **tree})
    return config, agents, policy_specs(config, agents)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("other", [NUMBERS, BYTES])
def test_networks_that_scale_their_inputs_otherwise_are_no_stack(algorithm, other):
    _, _, specs = specs_of(algorithm, (PIXELS, other), (Discrete(3),) * 2)
    pixels, _, unlike, _ = specs
    assert pixels.network().input_scale != unlike.network().input_scale
    assert network_layout(pixels) != network_layout(unlike)
    assert pixels.specification != unlike.specification
    assert pixels.specification == specs[1].specification


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "policies.own_algorithms:Soft"])
@pytest.mark.parametrize("hidden", [(4,), (8, 4)])
def test_pixels_are_brought_to_0_to_1_whatever_comes_first(algorithm, hidden):
    """Without convolutions too, where actors and learners ask."""
    _, _, (pixels, _, numbers, _) = specs_of(
        algorithm, (PIXELS, NUMBERS), (Discrete(3),) * 2, hidden=hidden
    )
    weights = first_weights(pixels, torch_rng(0, "first"))
    values = np.array([[255.0, 51.0, 0.0], [0.0, 102.0, 204.0]], np.float32)
    found = []
    for spec, inputs in ((pixels, values), (numbers, values / 255.0)):
        acting = ActingStack(spec.network(), [None], len(values))
        acting.load(0, weights)
        acting.inputs[0] = inputs
        acted = acting.outputs(0, 1).reshape(2, -1)
        network, stack = spec.network(), ParameterStack(spec.network().shapes, 1)
        stack.flat[0] = torch.from_numpy(weights)
        with torch.no_grad():
            known = network.acting(stack.parameters, None)
            learned = network.outputs(known, torch.from_numpy(inputs)[None])
        found += [acted.copy(), learned.numpy().reshape(2, -1)]
    for each in found[1:]:
        assert each == pytest.approx(found[0], abs=1e-5)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    ("observations", "actions"),
    [
        ((SMALL, NUMBERS), (Discrete(2),) * 2),
        ((PIXELS, BYTES), (Discrete(2),) * 2),
        ((NUMBERS, NUMBERS), (Discrete(6), MultiDiscrete([2, 3]))),
        ((NUMBERS, NUMBERS), (Discrete(5), MultiDiscrete([2, 3]))),
    ],
)
def test_what_is_dealt_lies_in_rings_of_its_own_kind(algorithm, observations, actions):
    seats = {name: [f"agent_{2 * i}", f"agent_{2 * i + 1}"] for i, name in enumerate(POLICIES)}
    population = {"policies": POLICIES, "seats": seats, "matchmaker": "random"}
    config, agents, specs = specs_of(algorithm, observations, actions, population=population)
    for rings in dealt_rings(spec_of(config, agents), specs, (3,)):
        assert {stream_shape(spec) for spec in rings.members} == {stream_shape(rings.members[0])}
