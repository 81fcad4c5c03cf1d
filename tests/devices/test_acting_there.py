"""Networks that act on a GPU say what they say on the processor."""

import numpy as np
import pytest

from devices.alike import PASSES, assert_alike
from devices.gpus import gpus, is_there
from remuda.config import PolicyConfig
from remuda.policies.acting import ActingStack
from remuda.policies.actions import DiscreteActions
from remuda.policies.spec import PolicySpec, first_weights
from remuda.system.rng import torch_rng

GPU = "cuda:0"
POLICIES, STREAMS = 3, 4
OWN = "policies.own_networks"
NETWORKS = {
    "plain": {"hidden": (8, 8)},
    "towers": {"hidden": (8, 8), "shared": False},
    "convolution": {"hidden": (8,), "convolutions": ((4, 3, 1),)},
    "recurrent": {"hidden": (8,), "recurrent": 6},
    "noisy": {"hidden": (8, 8), "noisy": True},
    "own module": {"module": f"{OWN}:Wide"},
    "own module, numbers": {"module": f"{OWN}:Ordered"},
    "own module, no vmap": {"module": f"{OWN}:Branching"},
    "own module, LSTM": {"module": f"{OWN}:Long"},
    "own module, GRU": {"module": f"{OWN}:Gated"},
}
CASES = [
    (kind, network)
    for kind in ("ppo", "dqn", "iqn")
    for network in NETWORKS
    if (kind, network) not in {("ppo", "noisy"), ("dqn", "towers"), ("iqn", "towers")}
]


def stack_of(kind, network, device, gathered=False):
    tree = {"algorithm": kind, "n_frames": 1, "network": NETWORKS[network]}
    if kind == "iqn":
        tree["iqn"] = {"quantiles": 4}
    if kind == "ppo":
        tree["ppo"] = {"normalise_observations": True}
    seen = (5, 4, 1) if network == "convolution" else (5,)
    config = PolicyConfig.model_validate(tree)
    spec = PolicySpec("a", config, seen, "float32", DiscreteActions((3,)))
    noise = [torch_rng(0, "noise", k) if network == "noisy" else None for k in range(POLICIES)]
    stack = ActingStack(spec.network(), noise, STREAMS, device, gathered)
    for k in range(POLICIES):
        stack.load(k, first_weights(spec, torch_rng(0, "weights", k)))
    return stack


def acted(kind, network, device):
    """What K policies with N streams each said, turn by turn, and what was saved of them."""
    stack, rng = stack_of(kind, network, device), np.random.default_rng(0)
    said = []
    for turn in range(4):
        stack.inputs[...] = rng.random(stack.inputs.shape, np.float32)
        for part in ((0, POLICIES), (1, 2)):
            said.append(stack.outputs(*part).copy())
        stack.stay(1, np.arange(STREAMS) % 2 == 0)
        said.append(stack.recurrent_states.copy())
        if turn == 1:
            stack.load(2, stack.flat_weights(0))
        if turn == 2:
            saved = [stack.state(k) for k in range(POLICIES)]
            said += saved
            stack = stack_of(kind, network, device)
            for k in range(POLICIES):
                stack.restore(k, saved[k])
    return said


def gathered(kind, network, device):
    """What policies said whose streams were gathered for a pass."""
    stack, rng = stack_of(kind, network, device, gathered=True), np.random.default_rng(0)
    said = []
    for first, end, width in ((0, 3, 2), (1, 3, 1), (0, 3, 4), (0, 3, 2), (2, 3, 3)):
        room, forward = stack.padded_pass(first, end, width)
        room[...] = rng.random(room.shape, np.float32)
        if stack.network.memory:
            at = (end - first, width, stack.network.memory)
            said += stack.recurrent_pass(first, end, width, rng.random(at, np.float32))
        else:
            said.append(forward().copy())
    return said


def in_both_ways():
    """Return all cases. Quick are one way of each, and both of every algorithm and network."""
    for kind, network in CASES:
        first = (("ppo", "dqn", "iqn").index(kind) + [*NETWORKS].index(network)) % 2
        for place, way in enumerate((acted, gathered)):
            marks = () if place == first else pytest.mark.slow
            yield pytest.param(kind, network, way, marks=marks)


@pytest.mark.parametrize(("kind", "network", "way"), list(in_both_ways()))
def test_networks_there_say_what_they_say_here(kind, network, way):
    expected = way(kind, network, "cpu")
    with gpus() as counted:
        assert is_there(stack_of(kind, network, GPU).parameters_of(0).popitem()[1])
        counted.on_cpu.clear()
        assert_alike(way(kind, network, GPU), expected)
        assert not PASSES & set(counted.on_cpu)
        assert counted.on_gpu


def test_what_was_saved_there_is_restored_here():
    with gpus():
        there = stack_of("iqn", "noisy", GPU)
        there.inputs[...] = np.random.default_rng(0).random(there.inputs.shape)
        expected = there.outputs(0, POLICIES)
        saved = [there.state(k) for k in range(POLICIES)]
    here = stack_of("iqn", "noisy", "cpu")
    here.inputs[...] = there.inputs
    for k in range(POLICIES):
        here.restore(k, saved[k])
    assert_alike(here.outputs(0, POLICIES), expected)
