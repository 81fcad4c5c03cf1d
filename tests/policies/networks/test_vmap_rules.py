"""Linear layers of a module of the user's, for K policies at once."""

import pickle

import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap

from remuda.policies.networks.kernels.perceptron import LINEAR, through
from remuda.policies.networks.vmap_rules import with_own_parts
from support import drawn

pytestmark = pytest.mark.usefixtures("one_thread")


class Mine(nn.Linear):
    """A class of the user's, which may compute something else."""

    def forward(self, x):
        return super().forward(x) + 1.0


@pytest.mark.parametrize("shape", [(6, 5), (6, 4, 5)], ids=["rows", "rows of rows"])
@pytest.mark.parametrize("same", [False, True], ids=["own inputs", "the same inputs"])
def test_linear_layers_of_policies_are_torchs_with_their_gradients(shape, same):
    plain = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3, bias=False), Mine(3, 2))
    own = with_own_parts(plain, nn.Linear, nn.Tanh)
    assert own is not plain
    weights = {
        name: drawn(3, *x.shape, seed=i) for i, (name, x) in enumerate(plain.named_parameters())
    }
    x, found = drawn(*(shape if same else (3, *shape)), seed=9), []
    for module in (own, plain):
        tensors = [w.clone().requires_grad_() for w in (x, *weights.values())]
        named = dict(zip(weights, tensors[1:], strict=True))

        def call(given, rows, module=module):
            return functional_call(module, given, (rows,))

        out = vmap(call, in_dims=(0, None if same else 0))(named, tensors[0])
        gradients = torch.autograd.grad((out * drawn(*out.shape, seed=8)).sum(), tensors)
        found.append([out, *gradients])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_they_are_products_of_our_own_there(monkeypatch):
    """And not torch's, whichever class they stand in."""

    from remuda.policies.networks import vmap_rules

    seen, through = [], vmap_rules.through
    monkeypatch.setattr(vmap_rules, "through", lambda *given: seen.append(1) or through(*given))
    own = with_own_parts(nn.Sequential(nn.Linear(2, 2), Mine(2, 2)), nn.Linear)
    weights = {name: x.detach().expand(3, *x.shape) for name, x in own.named_parameters()}
    vmap(lambda given, x: functional_call(own, given, (x,)))(weights, drawn(3, 4, 2))
    assert len(seen) == 1


@pytest.mark.parametrize("policies", [1, 3])
def test_layers_may_be_changed_in_place(policies):
    """Red before: the first update of such a module was the end of a run."""
    module = nn.Sequential(nn.Linear(4, 3), nn.ReLU(inplace=True), nn.Linear(3, 2))
    own = with_own_parts(module, nn.Linear)
    weights = {
        name: drawn(policies, *x.shape).requires_grad_() for name, x in own.named_parameters()
    }
    out = vmap(lambda given, x: functional_call(own, given, (x,)))(weights, drawn(policies, 5, 4))
    out.sum().backward()
    assert all(weight.grad is not None for weight in weights.values())


def test_modules_without_such_parts_stay_as_they_are():
    module = nn.Sequential(nn.Flatten(), nn.Tanh())
    assert with_own_parts(module, nn.Linear) is module


def test_a_part_that_was_given_a_forward_of_its_own_keeps_it():
    """Red before: as adapters do it, and it was forgotten without a word."""
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    module[0].forward = lambda x: 100.0 * x
    own = with_own_parts(module, nn.Linear)
    x = drawn(3, 2)
    torch.testing.assert_close(own(x), module(x))


def test_such_modules_can_be_saved():
    """Red before: they were saved, and could not be loaded."""
    own = with_own_parts(nn.Sequential(nn.Linear(2, 2), nn.LSTMCell(2, 3)), nn.Linear, nn.LSTMCell)
    assert isinstance(own[0], nn.Linear)
    x, again = drawn(4, 2), pickle.loads(pickle.dumps(own))
    for ours, theirs in zip(own(x), again(x), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_they_can_be_differentiated_forward():
    """Red before: it said that a formula was missing."""
    own = with_own_parts(
        nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)), nn.Linear, nn.Tanh
    )
    x = drawn(5)
    forward, back = torch.func.jacfwd(own)(x), torch.func.jacrev(own)(x)
    torch.testing.assert_close(forward, back)
    named = {name: part.detach() for name, part in own.named_parameters()}

    def call(given):
        return functional_call(own, given, (x,))

    ways = torch.func.jacfwd(call)(named), torch.func.jacrev(call)(named)
    for name in named:
        torch.testing.assert_close(ways[0][name], ways[1][name])


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("way", [lambda f: f, vmap, torch.func.grad], ids=["alone", "vmap", "grad"])
def test_the_tangent_is_torchs_differentiated_as_often_as_one_likes(way):
    own, found = with_own_parts(nn.Sequential(nn.Tanh()), nn.Tanh), []
    for module in (own, nn.Tanh()):
        x = drawn(3, 4).requires_grad_()
        if way is torch.func.grad:
            out = torch.func.grad(lambda given, module=module: module(given).square().sum())(x)
        else:
            out = way(module)(x)
        (first,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x)
        found.append([out, first, second])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


class Asks(nn.Module):
    """Goes by the classes of its layers."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2), nn.Tanh()])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x) * {nn.Linear: 1.0, nn.Tanh: 3.0}[type(layer)]
        return x


def test_parts_are_still_of_their_class():
    """Red before: the user's code took the other branch, and the policy was another network."""
    plain = Asks()
    own = with_own_parts(plain, nn.Linear, nn.Tanh)
    assert own is not plain
    x = drawn(6, 3)
    torch.testing.assert_close(own(x), plain(x))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning")
def test_they_can_be_traced_and_saved(tmp_path):
    """Red before: a function of Python stood in the graph."""
    own = with_own_parts(nn.Sequential(nn.Linear(2, 3), nn.Tanh()), nn.Linear, nn.Tanh)
    x, file = drawn(4, 2), str(tmp_path / "traced.pt")
    torch.jit.trace(own, x).save(file)
    torch.testing.assert_close(torch.jit.load(file)(x), own(x))


def test_the_tangent_of_what_is_sparse_is_torchs():
    own = with_own_parts(nn.Sequential(nn.Tanh()), nn.Tanh)
    x = drawn(3, 4).to_sparse()
    torch.testing.assert_close(own(x).to_dense(), x.tanh().to_dense())


def test_the_gradient_of_a_bias_does_not_depend_on_how_many_rows_of_nothing_there_are():
    """Red before: torch adds up in an order that depends on how many rows there are."""
    weight, errors = drawn(5, 3)[None], drawn(171, 3, seed=2)
    found = []
    for more in (0, 3):
        bias = torch.zeros(1, 1, 3, requires_grad=True)
        x = torch.cat([drawn(171, 5, seed=1), torch.zeros(more, 5)])[None]
        out = through(x, [(weight.clone().requires_grad_(), bias)], LINEAR)
        out.backward(torch.cat([errors, torch.zeros(more, 3)])[None])
        found.append(bias.grad)
    assert torch.equal(*found)
