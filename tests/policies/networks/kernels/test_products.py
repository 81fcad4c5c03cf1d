"""Products of rows with the weights of many policies, and passes made of them."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

from remuda.config import NetworkConfig
from remuda.policies.acting import ActingStack
from remuda.policies.networks.kernels import gemm
from remuda.policies.networks.kernels.compiled_pass import CompiledPass, GatheredPass, PlainLayers
from remuda.policies.networks.kernels.gemm import TERMS, add_products, multiply
from remuda.policies.networks.kernels.llvm_tiles import LANES, ROWS
from remuda.policies.networks.kernels.perceptron import LINEAR, through
from remuda.policies.networks.network import Network
from support import drawn

pytestmark = pytest.mark.usefixtures("one_thread")

COUNTS = ([0, 1, 2, 3, 4, 5, 9], [8, 0, 0, 16], [1], [0, 0, 7], [0, 0])
SIZES = [(1, 1), (3, 5), (4, 8), (27, 6), (64, 64), (125, 33), (TERMS + 3, 9 * LANES + 1)]
"""Inputs and outputs of layers."""


def assert_close(found, exact, scale):
    """Sums of so many terms, each rounded, are within this of the exact ones."""
    assert ((found.double() - exact).abs() <= 1e-6 * scale).all()


def guarded(*shape):
    """An array amid others, and whether these are as they were."""
    memory = torch.full((3, *shape), 7.0)
    return memory[1], lambda: bool((memory[[0, 2]] == 7.0).all())


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 5, ROWS, ROWS + 1, 3 * ROWS - 1])
@pytest.mark.parametrize("sizes", SIZES)
def test_products_are_exact_and_nothing_else_is_written(sizes, rows):
    inputs, outputs = sizes
    x, weight, bias = drawn(2, rows, inputs), drawn(2, *sizes, seed=1), drawn(2, 1, outputs, seed=2)
    errors = drawn(2, rows, outputs, seed=3)
    out, alone = guarded(2, rows, outputs)
    multiply(x, weight, bias, out)
    magnitude = x.abs().double() @ weight.abs().double()
    assert_close(out, x.double() @ weight.double() + bias.double(), magnitude + bias.abs())
    multiply(x, weight, None, out)
    assert_close(out, x.double() @ weight.double(), magnitude)
    assert alone()
    if not rows:
        return
    gradient, alone = guarded(2, *sizes)
    exact = x.mT.double() @ errors.double()
    magnitude = x.mT.abs().double() @ errors.abs().double()
    add_products(x, errors, gradient, fresh=True)
    assert_close(gradient, exact, magnitude)
    add_products(x, errors, gradient)
    assert_close(gradient, 2.0 * exact, 2.0 * magnitude)
    assert alone()


@pytest.mark.parametrize("sizes", SIZES)
def test_what_a_row_is_told_does_not_depend_on_its_neighbours(sizes):
    rows = 2 * ROWS + 3
    x, weight, bias = drawn(1, rows, sizes[0]), drawn(1, *sizes, seed=1), drawn(1, 1, sizes[1])
    together = torch.empty(1, rows, sizes[1])
    multiply(x, weight, bias, together)
    for first in range(rows):
        for end in range(first + 1, rows + 1):
            part = torch.empty(1, end - first, sizes[1])
            multiply(x[:, first:end], weight, bias, part)
            assert (part == together[:, first:end]).all()


@pytest.mark.parametrize("sizes", SIZES)
def test_products_do_not_depend_on_where_their_arrays_lie(sizes):
    """Nor on how far their rows lie apart, nor on how many policies there are."""
    place, found = np.random.default_rng(1), set()
    x, weight, bias = drawn(3, 7, sizes[0]), drawn(3, *sizes, seed=1), drawn(3, 1, sizes[1])
    errors = drawn(3, 7, sizes[1], seed=2)
    for _ in range(100):

        def moved(array):
            apart = [int(place.integers(0, 9)) for _ in array.shape[1:]]
            size = [array.shape[0], array.shape[1] + apart[0], array.shape[2] + apart[1]]
            first = int(place.integers(0, 40))
            room = torch.empty(first + size[0] * size[1] * size[2])[first:].view(size)
            room = room[:, : array.shape[1], : array.shape[2]]
            return room.copy_(array)

        x_there, weight_there, bias_there, out, gradient, errors_there = map(
            moved, (x, weight, bias, torch.zeros(3, 7, sizes[1]), torch.zeros(3, *sizes), errors)
        )
        policies = int(place.integers(1, 4))
        some = slice(3 - policies, 3)
        multiply(x_there[some], weight_there[some], bias_there[some], out[some])
        add_products(x_there[some], errors_there[some], gradient[some])
        found.add(out[2].numpy().tobytes() + gradient[2].numpy().tobytes())
    assert len(found) == 1


def test_with_more_threads_products_are_torchs(monkeypatch):
    """They use them; and they are the same but for the order of sums."""
    x, weight, bias, errors = drawn(2, 9, 5), drawn(2, 5, 6), drawn(2, 1, 6), drawn(2, 9, 6)
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        outs = [
            torch.zeros(2, 9, 6),
            torch.zeros(2, 9, 6),
            torch.zeros(2, 5, 6),
            torch.ones(2, 5, 6),
        ]
        if threads == 2:
            monkeypatch.setattr(gemm, "gemm", None)
        multiply(x, weight, bias, outs[0])
        multiply(x, weight, None, outs[1])
        add_products(x, errors, outs[2], fresh=True)
        add_products(x, errors, outs[3])
        outs.append(through(x, [(weight, bias)], "tanh"))
        found.append(outs)
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("activation", ["relu", "tanh", LINEAR])
@pytest.mark.parametrize("turned", [False, True], ids=["in rows", "turned"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_gradients_of_layers_are_those_of_torch(layers, turned, activation):
    widths = (19, 7, 33, 5)[: layers + 1]
    found = []
    for kind in (torch.float32, torch.float64):  # torch's own where it is not of 32 bits
        x = drawn(2, 40, widths[0])
        x = x.mT.contiguous().mT if turned else x
        x = x.to(kind).requires_grad_()
        parts = [
            (
                drawn(2, i, o, seed=i).to(kind).requires_grad_(),
                drawn(2, 1, o).to(kind).requires_grad_(),
            )
            for i, o in pairwise(widths)
        ]
        tensors = [x, *(part for layer in parts for part in layer)]
        out = through(x * 1.0 if turned else x, parts, activation)
        errors = drawn(*out.shape, seed=9).to(kind)
        gradients = torch.autograd.grad((out * errors).sum(), tensors)
        found.append([out.detach(), *gradients])
    for ours, theirs in zip(*found, strict=True):
        assert theirs.abs().max() > 1e-3
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-4)


def test_inputs_and_layers_that_learn_nothing_are_given_no_gradient():
    x, weight, bias = drawn(1, 4, 3), drawn(1, 3, 2), drawn(1, 1, 2)
    assert not through(x, [(weight, bias)], "relu").requires_grad
    bias.requires_grad_()
    through(x, [(weight, bias)], "relu").sum().backward()
    assert bias.grad is not None
    assert x.grad is weight.grad is None
    x.requires_grad_()
    through(x, [(weight, bias)], "relu").sum().backward()
    assert x.grad.abs().max() > 0.0


@pytest.mark.parametrize("activation", ["relu", "tanh", LINEAR])
def test_gradients_can_be_differentiated_again(activation):
    """Red before: of a linear layer it was a constant, without a word."""
    found = []
    for kind in (torch.float32, torch.float64):
        x, weight, bias = (
            drawn(*shape, seed=i).to(kind).requires_grad_()
            for i, shape in enumerate([(2, 9, 5), (2, 5, 4), (2, 1, 4)])
        )
        out = through(x, [(weight, bias)], activation)
        (by_x,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(by_x.square().sum(), [x, weight, bias]))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-3, atol=1e-3)


def test_what_a_layer_says_may_be_changed_in_place():
    """Red before: torch refused to go back through it."""
    x, weight, bias = drawn(2, 9, 5), drawn(2, 5, 4).requires_grad_(), drawn(2, 1, 4)
    through(x, [(weight, bias)], LINEAR).relu_().sum().backward()
    twin = weight.detach().clone().requires_grad_()
    torch.baddbmm(bias, x, twin).relu().sum().backward()
    torch.testing.assert_close(weight.grad, twin.grad)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_transforms_of_torch_go_through_layers():
    weight, bias = drawn(1, 5, 4), drawn(1, 1, 4)

    def of(x):
        return through(x, [(weight, bias)], "tanh").sum()

    x = drawn(3, 1, 9, 5)
    found = torch.vmap(torch.func.grad(of))(x)
    for mine, rows in zip(found, x, strict=True):
        leaf = rows.clone().requires_grad_()
        of(leaf).backward()
        torch.testing.assert_close(mine, leaf.grad)
    with forward_ad.dual_level():
        dual = of(forward_ad.make_dual(x[0], torch.ones_like(x[0])))
        torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent, found[0].sum())


def test_where_there_is_nothing_there_is_no_garbage():
    """Red before: it was whatever lay there in memory."""
    weight, bias = drawn(2, 5, 4).requires_grad_(), drawn(2, 1, 4)
    through(torch.zeros(2, 0, 5), [(weight, bias)], "relu").sum().backward()
    assert (weight.grad == 0.0).all()
    found = through(torch.zeros(2, 3, 0), [(torch.zeros(2, 0, 4), bias)], LINEAR)
    assert torch.equal(found, bias.expand(2, 3, 4))


@pytest.mark.parametrize(
    "shapes",
    [[(2, 9, 5), (2, 6, 4), (2, 1, 4)], [(2, 9, 5), (1, 5, 4), (1, 1, 4)]],
    ids=["inputs", "policies"],
)
def test_what_does_not_fit_is_an_error_and_no_look_at_others_memory(shapes):
    """Red before: sums went on beyond the end of what was given."""
    x, weight, bias = (drawn(*shape) for shape in shapes)
    with pytest.raises(RuntimeError):
        through(x, [(weight, bias)], "relu")


def test_biases_may_lie_anywhere():
    x, weight, bias = drawn(2, 9, 5), drawn(2, 5, 4), drawn(2, 1, 8)[..., ::2]
    found = through(x, [(weight, bias)], LINEAR)
    torch.testing.assert_close(found, torch.baddbmm(bias, x, weight))
    one = drawn(2, 1, 1).expand(2, 1, 4)
    torch.testing.assert_close(through(x, [(weight, one)], LINEAR), torch.baddbmm(one, x, weight))


class Perceptron(Network):
    """Two layers."""

    layers = plain_layers = ("hidden0", "policy")

    def __init__(self, num_inputs=27, hidden=40, outputs=6):
        super().__init__(num_inputs, NetworkConfig(hidden=(hidden,), activation="relu"))
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


@pytest.mark.parametrize("streams", [1, 4, 6, 64, 68])
@pytest.mark.parametrize("policies", [1, 3])
def test_streams_of_seats_for_good_are_told_the_same(policies, streams):
    """To the bit: it is the same whichever way they come to a pass."""
    random = np.random.default_rng(3)
    network = Perceptron()
    weights = {
        name: torch.from_numpy(random.standard_normal((policies, *shape), np.float32))
        for name, shape in network.shapes.items()
    }
    inputs = torch.from_numpy(random.standard_normal((policies, streams, 27), np.float32))
    said = CompiledPass(PlainLayers(weights, network.plain_layers, "relu"), inputs)()
    np.testing.assert_allclose(said, network.outputs(weights, inputs), 1e-4, 1e-4)
    begins = np.arange(policies + 1) * streams
    flat = inputs.reshape(-1, 27).numpy()
    other = GatheredPass(PlainLayers(weights, network.plain_layers, "relu"))
    assert (said.reshape(-1, 6) == other(flat, begins, np.arange(len(flat)))).all()


@pytest.mark.parametrize("activation", ["relu", "tanh", LINEAR])
def test_a_layer_that_is_gone_through_twice_counts_twice(activation):
    """Red before: where its gradient was to be differentiated, one of the two counted again."""
    found = []
    for kind in (torch.float32, torch.float64):
        weight, bias = (drawn(2, n, 5).to(kind).requires_grad_() for n in (5, 1))
        x = drawn(2, 9, 5, seed=3).to(kind)
        for _ in range(2):
            x = through(x, [(weight, bias)], activation)
        first = torch.autograd.grad(x.sum(), [weight, bias], create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), [weight, bias])
        found.append([*first, *second])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-3, atol=1e-3)


def looked_on(call, x):
    """As `make_fx` does, which writes down torch's operations."""
    return make_fx(call)(x)(x)


def compiled(call, x):
    return torch.compile(call, fullgraph=True, backend="eager")(x)


def elsewhere(call, x):
    with torch.device("meta"):
        return call(x)


@pytest.mark.slow_cases("compiled")
@pytest.mark.parametrize("way", [looked_on, compiled, elsewhere], ids=lambda way: way.__name__)
def test_who_looks_on_sees_the_same(way):
    """Red before: no numbers at all, an error, and the end of the process."""
    weight, bias, x = drawn(2, 5, 4), drawn(2, 1, 4), drawn(2, 9, 5)

    def call(given):
        return through(given, [(weight, bias)], "tanh")

    found = way(call, x)
    assert found.device.type == "cpu"
    torch.testing.assert_close(found, call(x))


def test_what_torch_is_told_of_precision_is_heeded():
    """Red before: kernels went on with 32 bits."""
    weight, bias, x = drawn(2, 5, 4), drawn(2, 1, 4), drawn(2, 9, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert through(x, [(weight, bias)], LINEAR).dtype == torch.bfloat16
