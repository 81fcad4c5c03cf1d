"""Convolutions in tiles, held to torch's."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from remuda.policies.networks import encoders
from remuda.policies.networks.encoders import Convolutions
from remuda.policies.networks.images import Image
from remuda.policies.networks.kernels.convolution import as_groups, by_torch, convolve
from support import drawn

pytestmark = pytest.mark.usefixtures("one_thread")

CASES = {
    "small images": (3, 5, 11, 11, 16, 3, 1),
    "unlike sides": (2, 3, 9, 14, 33, 4, 2),
    "pixels": (1, 4, 84, 84, 32, 8, 4),
    "one number": (4, 1, 6, 5, 1, 1, 1),
    "as large as the image": (3, 2, 7, 7, 40, 7, 3),
    "between places lies something": (2, 3, 10, 10, 5, 2, 3),
    "many channels": (2, 17, 5, 20, 130, 2, 1),
}
"""Samples, channels, height, width, outputs, kernel and stride."""


def of_torch(x, weight, bias, stride, activation):
    """By torch, in double precision, and its gradients for errors that are drawn."""
    x, weight, bias = (each.double().requires_grad_() for each in (x, weight, bias))
    out = torch.stack(
        [
            functional.conv2d(x[k].movedim(3, 1), weight[k], bias[k, 0], stride=stride)
            for k in range(len(x))
        ]
    ).movedim(2, 4)
    out = getattr(out, activation)()
    errors = drawn(*out.shape, seed=9)
    return [out, *torch.autograd.grad((out * errors).sum(), [x, weight, bias])], errors


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("case", CASES)
def test_convolutions_and_their_gradients_are_those_of_torch(case, activation):
    samples, channels, height, width, outputs, kernel, stride = CASES[case]
    x = drawn(2, samples, height, width, channels)
    weight = drawn(2, outputs, channels, kernel, kernel, seed=1) / np.sqrt(channels * kernel**2)
    bias = drawn(2, 1, outputs, seed=2)
    exact, errors = of_torch(x, weight, bias, stride, activation)
    tensors = [each.clone().requires_grad_() for each in (x, weight, bias)]
    out = convolve(*tensors, stride, activation)
    found = [out, *torch.autograd.grad((out * errors).sum(), tensors)]
    for ours, theirs in zip(found, exact, strict=True):
        assert ours.shape == theirs.shape
        theirs = theirs.detach()
        scale = float(theirs.abs().max())
        assert float((ours.detach().double() - theirs).abs().max()) < 1e-5 * max(scale, 1.0)
    with torch.no_grad():
        assert torch.equal(convolve(*tensors, stride, activation), out)


def test_only_what_learns_is_given_gradients():
    x, weight, bias = drawn(1, 2, 5, 5, 3), drawn(1, 4, 3, 2, 2), drawn(1, 1, 4)
    assert not convolve(x, weight, bias, 1, "relu").requires_grad
    weight.requires_grad_()
    convolve(x, weight, bias, 1, "relu").sum().backward()
    assert weight.grad.abs().max() > 0.0
    assert x.grad is bias.grad is None


def test_gradients_can_be_differentiated_again():
    found = []

    def grouped(x, weight, bias, stride, activation):
        out = by_torch(as_groups(x), weight, bias, stride, activation)
        return out.unflatten(1, (2, -1)).transpose(0, 1).movedim(2, 4)

    for way in (convolve, grouped):
        x, weight, bias = (
            drawn(*shape, seed=i).requires_grad_()
            for i, shape in enumerate([(2, 3, 6, 6, 2), (2, 4, 2, 3, 3), (2, 1, 4)])
        )
        out = way(x, weight, bias, 1, "tanh")
        (by_x,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(by_x.square().sum(), [x, weight, bias]))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-2)


def test_a_sample_is_told_the_same_whatever_stands_beside_it():
    """To the bit; and so is a policy."""
    x, weight, bias = drawn(3, 9, 8, 8, 5), drawn(3, 20, 5, 3, 3, seed=1), drawn(3, 1, 20, seed=2)
    together = convolve(x, weight, bias, 1, "relu")
    for k in range(3):
        for first in range(9):
            part = convolve(x[k : k + 1, first:], weight[k : k + 1], bias[k : k + 1], 1, "relu")
            assert torch.equal(part[0], together[k, first:])


@pytest.mark.parametrize("image", [Image(3, 8, 9), Image(3, 8, 9, True), Image(2, 8, 9, True, 3)])
def test_features_are_those_of_torchs_convolutions(image, monkeypatch):
    """In the order of channels, rows and columns, however images lie."""
    encoder = Convolutions(((6, 3, 1), (4, 2, 2)), "relu", image)
    shapes = encoder.shapes("tower")
    weights = {
        name: drawn(2, *shape, seed=i).requires_grad_()
        for i, (name, shape) in enumerate(shapes.items())
    }
    inputs = drawn(2, 5, image.channels * image.frames * image.height * image.width, seed=9)
    errors, found = drawn(2, 5, encoder.width, seed=10), []
    for suits in (True, False):
        if not suits:
            monkeypatch.setattr(encoders, "suits", lambda *_: False)
        features = encoder.features("tower", weights, inputs)
        gradients = torch.autograd.grad((features * errors).sum(), list(weights.values()))
        found.append([features, *gradients])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("by_kernels", [True, False])
@pytest.mark.parametrize(("height", "width"), [(4, 5), (3, 3), (7, 6)])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_same_padding_keeps_small_boards(by_kernels, height, width, stride, monkeypatch):
    """Against torch's own convolution of an image padded by hand."""
    if not by_kernels:
        monkeypatch.setattr(encoders, "suits", lambda *_: False)
    layers = ((6, 5, stride), (4, 2, 1))
    encoder = Convolutions(layers, "relu", Image(3, height, width), "same")
    high, wide = -(-height // stride), -(-width // stride)
    assert encoder.width == 4 * high * wide
    weights = {
        name: drawn(2, *shape, seed=i)
        for i, (name, shape) in enumerate(encoder.shapes("tower").items())
    }
    inputs = drawn(2, 5, 3 * height * width, seed=9)
    found = encoder.features("tower", weights, inputs)
    for k in range(2):
        x = inputs[k].view(5, 3, height, width)
        for i, (_, kernel, step) in enumerate(layers):
            outputs = [-(-size // step) for size in x.shape[2:]]
            more = [
                max((o - 1) * step + kernel - size, 0)
                for o, size in zip(outputs, x.shape[2:], strict=True)
            ]
            top, left = more[0] // 2, more[1] // 2
            x = torch.nn.functional.pad(x, (left, more[1] - left, top, more[0] - top))
            weight, bias = (weights[f"tower_conv{i}.{part}"][k] for part in ("weight", "bias"))
            x = torch.nn.functional.conv2d(x, weight, bias.flatten(), stride=step).relu()
        torch.testing.assert_close(found[k], x.flatten(1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("times", [1, 2])
def test_images_lie_anyhow_where_gradients_are_differentiated_again(times):
    """Red before: where their channels came first; and what was used twice counted three times."""
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        seen = drawn(2, 3, 4, 7, 7).requires_grad_()
        weight, bias = drawn(2, 4, 4, 2, 2).requires_grad_(), drawn(2, 1, 4).requires_grad_()
        x = seen.movedim(2, 4)
        for _ in range(times):
            x = of_any(x, weight, bias)
        tensors = [seen, weight, bias]
        first = torch.autograd.grad(x.square().sum(), tensors, create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first), tensors)
        found.append([*first, *second])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-2)


def of_any(x, weight, bias):
    """As encoders do: by tiles with one thread."""
    if torch.get_num_threads() == 1:
        return convolve(x, weight, bias, 1, "tanh")
    out = by_torch(as_groups(x), weight, bias, 1, "tanh")
    return out.unflatten(1, (2, -1)).transpose(0, 1).movedim(2, 4)
