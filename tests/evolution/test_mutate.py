"""Mutations of weights: what moves, by how much, and what never does."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

from evolving import actor_critic, drawn, values
from remuda.errors import UsageError
from remuda.evolution.layout import Layout, outputs_of
from remuda.evolution.mutate import (
    LEAST,
    add_noise,
    add_noise_by_layer,
    add_safe_noise,
    sensitivity,
)
from remuda.policies.networks.actor_critic import COUNT, MEAN, VARIANCE

NETWORK = actor_critic(normalised=True)
LAYOUT = Layout.of(NETWORK)
STATES = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)


def rng(seed=0):
    return np.random.default_rng(seed)


def safe(weights, layout, strength, random):
    return add_safe_noise(weights, layout, strength, random, outputs_of(NETWORK), STATES)


MUTATIONS = [add_noise, add_noise_by_layer, safe]


def weights_of(seed=0):
    """Weights of `NETWORK` with biases and moments that are not 0."""
    found = drawn(NETWORK, seed)
    tensors = LAYOUT.tensors(found)
    for name in ("hidden0.bias", "policy.bias", MEAN):
        tensors[name][...] = rng(seed).normal(0.0, 0.3, tensors[name].shape)
    tensors[VARIANCE][...], tensors[COUNT][...] = 2.0, 1000.0
    return found


@pytest.mark.parametrize("mutate", MUTATIONS)
@settings(max_examples=15, deadline=None)
@given(seed=some.integers(0, 1000), strength=some.floats(1e-3, 10.0))
def test_buffers_stay_and_a_seed_decides_all(mutate, seed, strength):
    weights = weights_of(seed)
    kept = weights.copy()
    found = mutate(weights, LAYOUT, strength, rng(seed))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(weights, kept)
    np.testing.assert_array_equal(found, mutate(weights, LAYOUT, strength, rng(seed)))
    np.testing.assert_array_equal(found[~LAYOUT.learned], weights[~LAYOUT.learned])
    assert (found[LAYOUT.learned] != weights[LAYOUT.learned]).sum() > 50
    assert np.isfinite(found).all()


@pytest.mark.parametrize("mutate", MUTATIONS)
def test_strength_0_is_the_identity_bit_for_bit(mutate):
    weights = weights_of()
    weights[:3] = -0.0, np.float32(1e-45), 3e38
    found = mutate(weights, LAYOUT, 0.0, rng())
    assert found.tobytes() == weights.tobytes()
    assert found is not weights


def test_equal_noise_has_the_deviation_asked_for():
    layout = Layout({"a.weight": (100, 100), "a.count": (1, 1)}, frozenset({"a.count"}))
    weights = np.full(layout.size, 3.0, np.float32)
    moved = (add_noise(weights, layout, 0.2, rng()) - weights)[:-1].astype(np.float64)
    count = len(moved)
    assert abs(moved.mean()) < 5 * 0.2 / math.sqrt(count)
    assert abs(moved.std() - 0.2) < 5 * 0.2 / math.sqrt(2 * count)


def test_noise_by_layer_is_in_proportion_to_each_tensor():
    layout = Layout({"a.weight": (50, 40), "b.weight": (40, 50), "b.bias": (1, 50), "c": (1, 1)})
    random = rng()
    weights = np.concatenate(
        [random.normal(0.0, 0.5, 2000), random.normal(7.0, 0.01, 2000), np.zeros(50), [4.0]]
    ).astype(np.float32)
    found = layout.tensors(add_noise_by_layer(weights, layout, 0.3, rng()) - weights)
    for name, spread in (("a.weight", 0.5), ("b.weight", 0.01)):
        wanted = 0.3 * spread
        assert abs(found[name].std() - wanted) < wanted * (5 / math.sqrt(2 * 2000) + 0.1)
    assert not found["b.bias"].any()
    assert not found["c"].any()


def linear(weights, states):
    """Two outputs of two inputs: weights [4] and states [B, 2]."""
    return states @ weights.reshape(2, 2)


def test_sensitivities_worked_out_by_hand():
    states = np.array([[1.0, 0.0], [-3.0, 0.5]], np.float32)
    found = sensitivity(np.zeros(4, np.float32), linear, states)
    # Each weight feeds one output: the mean of |its input|.
    assert found == pytest.approx([2.0, 2.0, 0.25, 0.25])

    def both(weights, inputs):
        return torch.stack([3.0 * weights[0] * inputs[:, 0], 4.0 * weights[0] * inputs[:, 0]], 1)

    assert sensitivity(np.ones(1, np.float32), both, [[1.0]]) == pytest.approx([5.0])


def test_safe_noise_moves_outputs_as_far_as_was_asked_whatever_the_scale_of_weights():
    layout, strength, random = Layout({"a.weight": (2, 2)}), 0.25, rng()
    state = np.array([[100.0, 0.02]], np.float32)
    before = linear(torch.ones(4), torch.from_numpy(state)).numpy()
    moves = []
    for _ in range(2000):
        found = add_safe_noise(np.ones(4), layout, strength, random, linear, state)
        moves.append(linear(torch.from_numpy(found), torch.from_numpy(state)).numpy() - before)
    squares = (np.array(moves, np.float64) ** 2).sum((1, 2))
    error = squares.std() / math.sqrt(len(squares))
    assert abs(squares.mean() - strength**2) < 5 * error


def test_safe_noise_leaves_what_outputs_do_not_depend_on():
    found = safe(weights_of(), LAYOUT, 0.5, rng())
    moved = LAYOUT.tensors(found != weights_of())
    assert not moved["value.weight"].any()
    assert not moved["value.bias"].any()
    assert moved["policy.weight"].all()
    assert moved["hidden0.weight"].any()


def test_what_hardly_matters_is_not_moved_out_of_all_proportion():
    layout, state = Layout({"a.weight": (2, 2)}), np.array([[1.0, 1e-9]], np.float32)
    moves = np.array(
        [add_safe_noise(np.zeros(4), layout, 1.0, rng(s), linear, state) for s in range(400)]
    )
    wanted = 1.0 / (LEAST * 2.0)
    assert abs(moves[:, 2:].std() - wanted) < 5 * wanted / math.sqrt(2 * 800)


def test_safe_noise_changes_less_than_noise_of_its_size():
    """With weights of unlike importance, as many standard deviations of noise change more."""
    network = values(hidden=(32, 32), dueling=False)
    layout, outputs = Layout.of(network), outputs_of(network)
    weights, states = drawn(network), rng().standard_normal((40, 5)).astype(np.float32)
    states[:, 0] *= 30.0  # one input is large

    def change(found):
        with torch.no_grad():
            pair = [
                outputs(torch.from_numpy(w), torch.from_numpy(states)) for w in (found, weights)
            ]
        return float((pair[0] - pair[1]).square().mean())

    ratios = []
    for seed in range(20):
        gently = add_safe_noise(weights, layout, 0.1, rng(seed), outputs, states[:10])
        size = float((gently - weights).std())
        plainly = add_noise(weights, layout, size, rng(seed))
        ratios.append(change(gently) / change(plainly))
    assert np.median(ratios) < 0.5


@pytest.mark.parametrize("mutate", MUTATIONS)
@pytest.mark.parametrize("strength", [-0.1, math.nan, math.inf])
def test_a_strength_that_is_none_is_refused(mutate, strength):
    with pytest.raises(UsageError, match="strength is"):
        mutate(weights_of(), LAYOUT, strength, rng())


@pytest.mark.parametrize("mutate", MUTATIONS)
def test_weights_of_another_size_are_refused(mutate):
    with pytest.raises(UsageError, match=r"weights are \(3,\)"):
        mutate(np.zeros(3), LAYOUT, 0.1, rng())


def test_safe_noise_needs_states():
    with pytest.raises(UsageError, match="at least one state"):
        add_safe_noise(weights_of(), LAYOUT, 0.1, rng(), outputs_of(NETWORK), STATES[:0])
