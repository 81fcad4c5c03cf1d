"""Products of a few streams with the weights of many policies, and passes made of them."""

import numpy as np
import pytest
import torch

from remuda.policies.acting import ActingStack
from remuda.policies.networks.gathered_pass import GatheredPass
from remuda.policies.networks.plain_pass import PlainPass
from remuda.policies.networks.products import LARGEST, LINEAR, finish, layer, multiply

COUNTS = ([0, 1, 2, 3, 4, 5, 9], [8, 0, 0, 16], [1], [0, 0, 7])


def gathered(counts, num_inputs, num_outputs, seed=0):
    """Streams [M, I] of policies that play so many each, where they begin, and weights."""
    random = np.random.default_rng(seed)
    begins = np.concatenate(([0], np.cumsum(counts)))
    x = random.standard_normal((begins[-1], num_inputs), np.float32)
    weight = random.standard_normal((len(counts), num_inputs, num_outputs), np.float32)
    return x, begins, weight


@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize("sizes", [(1, 1), (3, 5), (4, 8), (27, 6), (64, 64), (125, 33)])
def test_products_are_those_of_numpy(counts, sizes):
    x, begins, weight = gathered(counts, *sizes)
    out = np.full((len(x), sizes[1]), np.nan, np.float32)
    multiply(x, begins, weight, out)
    for k in range(len(counts)):
        mine = slice(begins[k], begins[k + 1])
        exact = x[mine].astype(float) @ weight[k].astype(float)
        scale = np.abs(x[mine]).astype(float) @ np.abs(weight[k]).astype(float)
        assert (np.abs(out[mine] - exact) <= 1e-6 * scale).all()


@pytest.mark.parametrize("sizes", [(3, 5), (27, 6), (64, 64), (125, 33)])
def test_what_a_stream_is_told_does_not_depend_on_its_neighbours(sizes):
    x, begins, weight = gathered([13], *sizes)
    together = np.zeros((13, sizes[1]), np.float32)
    multiply(x, begins, weight, together)
    for first in range(13):
        for end in range(first + 1, 14):
            part = np.zeros((end - first, sizes[1]), np.float32)
            multiply(x[first:end].copy(), np.array([0, end - first]), weight, part)
            assert (part == together[first:end]).all()


@pytest.mark.parametrize("sizes", [(3, 5), (27, 6), (64, 64), (125, 33)])
def test_products_do_not_depend_on_where_their_arrays_lie(sizes):
    x, begins, weight = gathered([3, 6], *sizes)
    place, found = np.random.default_rng(1), set()
    bias = np.ones((2, sizes[1]), np.float32)
    for _ in range(300):
        memory = np.zeros(4 * (x.size + weight.size + 9 * sizes[1]), np.float32)
        order, at, views = place.permutation(3), 0, {}
        for each in order:
            shape = (x.shape, weight.shape, (9, sizes[1]))[each]
            at += int(place.integers(0, 40))
            views[each] = memory[at : at + np.prod(shape)].reshape(shape)
            at += int(np.prod(shape))
        views[0][...], views[1][...] = x, weight
        multiply(views[0], begins, views[1], views[2])
        finish(views[2], begins, bias, LINEAR)
        found.add(views[2].tobytes())
        layer(views[0], begins, views[1], bias, LINEAR, views[2])
        found.add(views[2].tobytes())
    assert len(found) == 1


class Perceptron:
    """What a stack asks of a network of two layers."""

    class Config:
        activation = "relu"

    config, memory, plain_layers = Config(), 0, ("hidden0", "policy")

    def __init__(self, num_inputs=27, hidden=40, outputs=6):
        self.num_inputs = num_inputs
        self.shapes = {
            "hidden0.weight": (num_inputs, hidden),
            "hidden0.bias": (1, hidden),
            "policy.weight": (hidden, outputs),
            "policy.bias": (1, outputs),
        }

    def acting(self, parameters, noise):
        return dict(parameters)

    def outputs(self, weights, inputs):
        x = inputs @ weights["hidden0.weight"] + weights["hidden0.bias"]
        return x.clamp(min=0) @ weights["policy.weight"] + weights["policy.bias"]


def loaded(policies, **options):
    stack = ActingStack(Perceptron(**options), [None] * policies, 64, gathered=True)
    random = np.random.default_rng(5)
    for k in range(policies):
        stack.load(k, random.standard_normal(stack.flat_weights(k).shape, np.float32))
    return stack


@pytest.mark.parametrize("counts", COUNTS)
def test_gathered_streams_are_told_what_their_own_policy_says(counts):
    stack = loaded(len(counts))
    random = np.random.default_rng(2)
    inputs = random.standard_normal((50, 27), np.float32)
    begins = np.concatenate(([0], np.cumsum(counts)))
    streams = random.permutation(50)[: begins[-1]]
    said = stack.gathered_pass(inputs, begins, streams).copy()
    assert said.shape == (begins[-1], 6)
    for k in range(len(counts)):
        weights = stack.network.acting(stack.parameters_of(k), None)
        mine = streams[begins[k] : begins[k + 1]]
        with torch.inference_mode():
            wanted = stack.network.outputs(weights, torch.from_numpy(inputs[mine][None]))[0]
        np.testing.assert_allclose(said[begins[k] : begins[k + 1]], wanted, 1e-4, 1e-4)


def test_a_snapshot_loaded_between_two_passes_is_what_the_next_one_uses():
    stack = loaded(2)
    inputs, begins, streams = np.ones((2, 27), np.float32), np.array([0, 1, 2]), np.arange(2)
    before = stack.gathered_pass(inputs, begins, streams).copy()
    stack.load(1, 2 * stack.flat_weights(1))
    after = stack.gathered_pass(inputs, begins, streams)
    assert (after[0] == before[0]).all()
    assert (after[1] != before[1]).any()


def test_layers_that_no_cache_holds_go_through_a_library():
    assert loaded(1, num_inputs=256, hidden=256).gathered_pass is not None
    assert LARGEST == 256 * 256
    assert loaded(1, num_inputs=257, hidden=256).gathered_pass is None


@pytest.mark.parametrize("streams", [1, 4, 6, 64, 68])
@pytest.mark.parametrize("policies", [1, 3])
def test_streams_of_seats_for_good_are_told_the_same(policies, streams):
    """Whichever product is the quickest for so many streams."""
    random = np.random.default_rng(3)
    network = Perceptron()
    weights = {
        name: torch.from_numpy(random.standard_normal((policies, *shape), np.float32))
        for name, shape in network.shapes.items()
    }
    inputs = torch.from_numpy(random.standard_normal((policies, streams, 27), np.float32))
    said = PlainPass(weights, network.plain_layers, inputs, "relu")()
    np.testing.assert_allclose(said, network.outputs(weights, inputs), 1e-4, 1e-4)
    begins = np.arange(policies + 1) * streams
    flat = inputs.reshape(-1, 27).numpy()
    other = GatheredPass(weights, network.plain_layers, "relu")
    np.testing.assert_allclose(
        said.reshape(-1, 6), other(flat, begins, np.arange(len(flat))), 1e-4, 1e-4
    )
