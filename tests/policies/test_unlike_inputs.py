"""Policies of equal sizes, with unlike inputs or actions, share neither stack nor ring."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from remuda.config import load_config
from remuda.experience_layout import dealt_rings
from remuda.policies.sharing import network_layout, stream_shape
from remuda.policies.spec import policy_specs
from remuda.types import AgentSpec

PIXELS, BYTES = Box(0, 255, (3,), np.uint8), Box(0, 100, (3,), np.uint8)
NUMBERS, SMALL = Box(-1, 1, (3,), np.float32), Box(-100, 100, (3,), np.int8)
ALGORITHMS = ("ppo", "dqn", "iqn")
POLICIES = ("p", "q")


def specs_of(algorithm, observations, actions, **tree):
    agents = tuple(AgentSpec(f"agent_{i}", observations[i // 2], actions[i // 2]) for i in range(4))
    policy = {"algorithm": algorithm, "network": {"hidden": (4,)}}
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
    for rings in dealt_rings(config, specs, agents, (3,)):
        assert {stream_shape(spec) for spec in rings.members} == {stream_shape(rings.members[0])}
