"""Stacks that learn from rollouts on a GPU learn what they learn on the processor."""

import numpy as np
import pytest
import torch

from devices.alike import FEW, assert_alike, told
from devices.gpus import gpus, is_there
from policies.made_rollouts import KINDS, fill, make_stack, room_for, some_lengths
from remuda.policies.algorithms.kernels.ppo import Fused

MEMBERS = (3, 4, 5)
GPU = "cuda:0"
INTEGERS = "own module, numbers"
"""Has buffers that are no real numbers."""
KINDS_HERE = {INTEGERS: {"network": {"module": "policies.own_networks:Ordered"}}}
KINDS_HERE |= {
    "own module, LSTM": {"network": {"module": "policies.own_networks:Long"}},
    "own module, GRU": {"network": {"module": "policies.own_networks:Gated"}},
    "own module with a state": {"network": {"module": "policies.own_networks:Remembers"}},
}


def unlike(k):
    """Hyperparameters of a policy's own."""
    return {
        "learning_rate": 1e-3 * k,
        "discount": 1.0 - 0.01 * k,
        "ppo": {"clip": 0.05 * k, "entropy_cost": 0.01 * k, "epochs": 2, "minibatches": 2},
    }


def stack(kind, device, monkeypatch):
    for name, options in KINDS_HERE.items():
        monkeypatch.setitem(KINDS, name, options)
    return make_stack(kind, MEMBERS, device, own=unlike)


def rollout_of(algorithm, seed):
    rollout = room_for(algorithm, 60)
    rng = np.random.default_rng(seed)
    for row, segments in enumerate((5, 5, 3)):
        fill(rollout, row, some_lengths(segments, rng), algorithm, rng)
    return rollout


def lived(algorithm):
    """All that is done with a stack, and what could be seen of it."""
    seen = []
    for seed, members in enumerate(([0, 1, 2], [0, 2], [1])):
        learned = algorithm.update(rollout_of(algorithm, seed), members)
        seen += [told(learned), *(algorithm.weights(k).copy() for k in range(3))]
    assert all(algorithm.is_finite(k) for k in range(3))
    parent = algorithm.learned(0)
    training = algorithm.training(parent)
    algorithm.begin(1, torch.from_numpy(parent["online"]), algorithm.configs[2], training)
    seen += [algorithm.state(k) for k in range(3)]
    algorithm.update(rollout_of(algorithm, 7), [0, 1, 2])
    algorithm.begin(2, torch.from_numpy(parent["online"]), algorithm.configs[0])
    seen += [algorithm.state(k) for k in range(3)]
    return seen


@pytest.mark.slow_cases(
    "anchor",
    "anchor, target_kl",
    "annealed",
    "averaged anchor",
    "continuous",
    "convolution",
    "masks",
    "normalised",
    "own algorithm",
    "own algorithm, recurrent",
    "own module",
    "own module with a state",
    "own module, GRU",
    "own module, LSTM",
    "own module, no vmap",
    "own module, numbers",
    "own module, recurrent",
    "own module, towers",
    "recurrent",
    "recurrent, continuous",
    "recurrent, masks",
    "recurrent, target_kl",
    "several choices",
    "target_kl",
    "towers",
    "trunk",
    "value clip",
    "values as they are",
)
@pytest.mark.parametrize("kind", [*KINDS, *KINDS_HERE])
def test_a_stack_there_learns_what_it_learns_here(kind, monkeypatch):
    # Both by torch: the kernels add up in another order, and go their own way soon.
    monkeypatch.setattr(Fused, "suits", lambda *_: False)
    here = stack(kind, "cpu", monkeypatch)
    expected = lived(here)
    with gpus() as counted:
        there = stack(kind, GPU, monkeypatch)
        for name in ("flat", "gradients"):
            assert is_there(getattr(there.online, name))
        counted.on_cpu.clear()
        assert_alike(lived(there), expected)
        assert set(counted.on_cpu) <= FEW
        assert {"_fused_adam_", "linalg_vector_norm"} <= set(counted.on_gpu)


@pytest.mark.slow_cases("trunk")
@pytest.mark.parametrize("kind", ["trunk", "towers", "masks", "target_kl"])
def test_the_kernels_of_the_processor_find_the_same(kind, monkeypatch):
    here = stack(kind, "cpu", monkeypatch)
    assert here._is_fused
    learned = here.update(rollout_of(here, 0), [0, 1, 2])
    with gpus():
        there = stack(kind, GPU, monkeypatch)
        assert not there._is_fused
        found = there.update(rollout_of(there, 0), [0, 1, 2])
        assert_alike(told(found), told(learned), 1e-3)
        for k in range(3):
            assert_alike(there.weights(k), here.weights(k), 1e-3)


@pytest.mark.slow_cases(
    "cpu-cuda:0-averaged anchor",
    "cpu-cuda:0-normalised",
    "cpu-cuda:0-recurrent",
    "cpu-cuda:0-trunk",
    "cuda:0-cpu-averaged anchor",
    "cuda:0-cpu-normalised",
    "cuda:0-cpu-recurrent",
    "cuda:0-cuda:0-averaged anchor",
    "cuda:0-cuda:0-normalised",
    "cuda:0-cuda:0-recurrent",
    "cuda:0-cuda:0-trunk",
)
@pytest.mark.parametrize("kind", ["trunk", "normalised", "averaged anchor", "recurrent"])
@pytest.mark.parametrize(("first", "then"), [(GPU, GPU), (GPU, "cpu"), ("cpu", GPU)])
def test_a_stack_goes_on_where_it_is_restored(kind, first, then, monkeypatch):
    monkeypatch.setattr(Fused, "suits", lambda *_: False)
    with gpus():
        one = stack(kind, first, monkeypatch)
        one.update(rollout_of(one, 0), [0, 1, 2])
        saved = [one.state(k) for k in range(3)]
        other = stack(kind, then, monkeypatch)
        for k in range(3):
            other.restore(k, saved[k])
        for algorithm in (one, other):
            algorithm.update(rollout_of(one, 1), [0, 1, 2])
        assert_alike([other.state(k) for k in range(3)], [one.state(k) for k in range(3)])
