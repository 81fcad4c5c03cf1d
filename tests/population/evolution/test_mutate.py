"""Mutations of weights: what moves, by how much, and what never does."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as some

from evolving import actor_critic, drawn
from refusals import refuses
from remuda.errors import UsageError
from remuda.policies.networks.actor_critic import COUNT, MEAN, VARIANCE
from remuda.population.evolution.weights import WeightLayout, add_noise_by_layer

NETWORK = actor_critic(normalised=True)
LAYOUT = WeightLayout.of(NETWORK)


def rng(seed=0):
    return np.random.default_rng(seed)


def weights_of(seed=0):
    """Weights of `NETWORK` with biases and moments that are not 0."""
    found = drawn(NETWORK, seed)
    tensors = LAYOUT.tensors(found)
    for name in ("hidden0.bias", "policy.bias", MEAN):
        tensors[name][...] = rng(seed).normal(0.0, 0.3, tensors[name].shape)
    tensors[VARIANCE][...], tensors[COUNT][...] = 2.0, 1000.0
    return found


@settings(max_examples=15, deadline=None)
@given(seed=some.integers(0, 1000), strength=some.floats(1e-3, 10.0))
def test_buffers_stay_and_a_seed_decides_all(seed, strength):
    weights = weights_of(seed)
    kept = weights.copy()
    found = add_noise_by_layer(weights, LAYOUT, strength, rng(seed))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(weights, kept)
    np.testing.assert_array_equal(found, add_noise_by_layer(weights, LAYOUT, strength, rng(seed)))
    np.testing.assert_array_equal(found[~LAYOUT.learned], weights[~LAYOUT.learned])
    assert (found[LAYOUT.learned] != weights[LAYOUT.learned]).sum() > 50
    assert np.isfinite(found).all()


def test_strength_0_is_the_identity_bit_for_bit():
    weights = weights_of()
    weights[:3] = -0.0, np.float32(1e-45), 3e38
    found = add_noise_by_layer(weights, LAYOUT, 0.0, rng())
    assert found.tobytes() == weights.tobytes()
    assert found is not weights


def test_noise_by_layer_is_in_proportion_to_each_tensor():
    layout = WeightLayout(
        {"a.weight": (50, 40), "b.weight": (40, 50), "b.bias": (1, 50), "c": (1, 1)}
    )
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


def test_weights_of_another_size_are_refused():
    with refuses(UsageError):
        add_noise_by_layer(np.zeros(3), LAYOUT, 0.1, rng())
