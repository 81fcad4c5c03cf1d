"""Convolutions of K policies on the CPU, in tiles of `llvm_tiles.py`, without im2col copies.

With channels last, a row of outputs is a product of matrices already in memory, summed over the
kernel's rows. torch would use K groups for K policies, which is slower.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from remuda.policies.networks.kernels.activations import KINDS, activate_in_place, derive
from remuda.policies.networks.kernels.gemm import vectors_of
from remuda.policies.networks.kernels.llvm_tiles import LANES, ROWS, tile
from remuda.policies.networks.kernels.perceptron import gradients_of
from remuda.system.kernels import njit
from remuda.types import Integers


def convolve(x: Tensor, weight: Tensor, bias: Tensor, stride: int, activation: str) -> Tensor:
    """Convolve images [K, B, height, width, channels] and apply an activation (relu or tanh).

    `weight` is [K, outputs, channels, kernel, kernel], `bias` [K, 1, outputs], and the result is
    [K, B, height, width, outputs]. `gemm.suits` must accept the tensors.
    """
    x = x.contiguous()  # outside the function, so that torch can differentiate it twice
    tensors = (x, weight, bias)
    if torch.is_grad_enabled() and any(each.requires_grad for each in tensors):
        found: Tensor = _Convolve.apply(activation, stride, *tensors)  # type: ignore[no-untyped-call]
        return found
    return _forward(x, _last(weight), bias.contiguous(), stride, activation)


def by_torch(x: Tensor, weight: Tensor, bias: Tensor, stride: int, activation: str) -> Tensor:
    """Convolve [B, K * channels, ...] to [B, K * outputs, ...] by torch, in K groups."""
    weights, groups = weight.flatten(0, 1), len(weight)
    out = functional.conv2d(x, weights, bias.flatten(), stride=stride, groups=groups)
    return out.tanh_() if activation == "tanh" else out.relu_()


def as_groups(x: Tensor) -> Tensor:
    """Convert images [K, B, height, width, channels] to [B, K * channels, height, width]."""
    return x.movedim(4, 2).transpose(0, 1).flatten(1, 2)


def _last(weight: Tensor) -> Tensor:
    """Reorder weights to [K, kernel, kernel, channels, outputs]."""
    return weight.detach().permute(0, 3, 4, 2, 1).contiguous()


class _Sizes(NamedTuple):
    samples: int
    row: int  # numbers in a row of an image
    image: int  # numbers in an image
    kernel: int
    channels: int
    # A position is a place of the kernel in the image, which yields one vector of outputs.
    step: int  # distance in numbers from one position to the next
    down: int  # distance in numbers from one row of positions to the next
    high: int  # rows of positions
    wide: int  # positions in a row
    outputs: int

    @property
    def run(self) -> int:
        return self.kernel * self.channels


def _sizes(x: Tensor, weights: Tensor, stride: int) -> _Sizes:
    _, samples, height, width, channels = x.shape
    kernel, outputs = weights.shape[1], weights.shape[4]
    row = width * channels
    high, wide = ((length - kernel) // stride + 1 for length in (height, width))
    step, down = stride * channels, stride * row
    return _Sizes(samples, row, height * row, kernel, channels, step, down, high, wide, outputs)


def _forward(x: Tensor, weights: Tensor, bias: Tensor, stride: int, activation: str) -> Tensor:
    n = _sizes(x, weights, stride)
    out = x.new_empty(len(x), n.samples, n.high, n.wide, n.outputs)
    for k in range(len(x)):
        tiles_of(
            _counts(n.samples, n.high),
            n.wide,
            n.outputs,
            *(x[k].data_ptr(), n.step, 1, _steps(n.image, n.down)),
            *(weights[k].data_ptr(), n.outputs, _steps()),
            bias[k].data_ptr(),
            *(
                out[k].data_ptr(),
                n.outputs,
                _steps(n.high * n.wide * n.outputs, n.wide * n.outputs),
            ),
            *(n.run, n.kernel, n.row, n.run * n.outputs),
        )
    activate_in_place(out.view(-1).numpy(), KINDS[activation])
    return out


def _by_weights(x: Tensor, errors: Tensor, out: Tensor, n: _Sizes) -> None:
    """Add the gradient of one policy's weights from errors [B, high, wide, outputs]."""
    tiles_of(
        _counts(n.samples, n.kernel),
        n.run,
        n.outputs,
        *(x.data_ptr(), 1, n.step, _steps(n.image, n.row)),
        *(errors.data_ptr(), n.outputs, _steps(n.high * n.wide * n.outputs)),
        0,
        *(out.data_ptr(), n.outputs, _steps(0, n.run * n.outputs)),
        *(n.wide, n.high, n.down, n.wide * n.outputs),
    )


def _by_images(errors: Tensor, transposed: Tensor, out: Tensor, n: _Sizes) -> None:
    """Add the gradient of one policy's images; `transposed` is [kernel, kernel, O, channels]."""
    part = n.outputs * n.channels
    tiles_of(
        _counts(n.samples, n.high, n.kernel, n.kernel),
        n.wide,
        n.channels,
        *(errors.data_ptr(), n.outputs, 1),
        _steps(n.high * n.wide * n.outputs, n.wide * n.outputs),
        *(transposed.data_ptr(), n.channels, _steps(0, 0, n.kernel * part, part)),
        0,
        *(out.data_ptr(), n.step, _steps(n.image, n.down, n.row, n.channels)),
        *(n.outputs, 1, 0, 0),
    )


class _Convolve(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, activation: str, stride: int, x: Tensor, weight: Tensor, bias: Tensor
    ) -> Tensor:
        weights = _last(weight)
        ctx.activation, ctx.stride = activation, stride
        out = _forward(x, weights, bias.contiguous(), stride, activation)
        ctx.save_for_backward(x, weight, bias, weights, out)
        return out

    @staticmethod
    def backward(ctx: Any, *by_outputs: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, weights, out = ctx.saved_tensors
        n = _sizes(x, weights, ctx.stride)
        if torch.is_grad_enabled():  # this gradient will be differentiated again
            own = [part.view_as(part) for part in (x, weight, bias)]  # see `perceptron._Through`
            again = by_torch(as_groups(own[0]), own[1], own[2], ctx.stride, ctx.activation)
            again = again.view(n.samples, len(x), n.outputs, n.high, n.wide)
            again = again.transpose(0, 1).movedim(2, 4)
            needed = ctx.needs_input_grad[2:]
            return None, None, *gradients_of(again, own, needed, by_outputs[0])
        errors = by_outputs[0].clone(memory_format=torch.contiguous_format)
        by_bias = x.new_empty(len(x), n.outputs)
        flat = errors.view(len(x), -1, n.outputs).numpy()
        before = out.view(len(x), -1, n.outputs).numpy()
        derive(flat, before, KINDS[ctx.activation], by_bias.numpy())
        by_weights = torch.zeros_like(weights)
        by_x = torch.zeros_like(x) if ctx.needs_input_grad[2] else None
        transposed = weights.mT.contiguous() if by_x is not None else weights
        for k in range(len(x)):
            _by_weights(x[k], errors[k], by_weights[k], n)
            if by_x is not None:
                _by_images(errors[k], transposed[k], by_x[k], n)
        return None, None, by_x, by_weights.permute(0, 4, 3, 1, 2), by_bias[:, None]


LEVELS = 4  # number of nested loops around a product


def _counts(*counts: int) -> Integers:
    return np.array([*counts, *[1] * (LEVELS - len(counts))], np.int64)


def _steps(*steps: int) -> Integers:
    """Return the distance from one product to the next, by level."""
    return np.array([*steps, *[0] * (LEVELS - len(steps))], np.int64)


@njit(cache=True, error_model="numpy", nogil=True)
def tiles_of(
    counts: Integers,  # [LEVELS] length of each loop, the outermost first
    rows: int,
    columns: int,
    a: int,
    a_row: int,
    a_sum: int,
    a_steps: Integers,  # [LEVELS] distances between products
    b: int,
    b_sum: int,
    b_steps: Integers,  # [LEVELS]
    bias: int,  # [columns]; 0: add to `out`
    out: int,
    out_row: int,
    out_steps: Integers,  # [LEVELS]
    terms: int,  # number of terms in each run
    runs: int,  # number of runs in each sum
    a_run: int,
    b_run: int,
) -> None:
    """Write many products of the same sizes, at regular distances, in four nested loops.

    Arguments are as in `llvm_tiles.tile`, but a product may need several tiles.
    """
    # Use tiles of similar heights: in a tile of one row, additions would wait for each other.
    tallest = -(-rows // -(-rows // ROWS))
    for i in range(counts[0]):
        for j in range(counts[1]):
            for k in range(counts[2]):
                for m in range(counts[3]):
                    at_a = a + 4 * (
                        i * a_steps[0] + j * a_steps[1] + k * a_steps[2] + m * a_steps[3]
                    )
                    at_b = b + 4 * (
                        i * b_steps[0] + j * b_steps[1] + k * b_steps[2] + m * b_steps[3]
                    )
                    at = out + 4 * (
                        i * out_steps[0] + j * out_steps[1] + k * out_steps[2] + m * out_steps[3]
                    )
                    for row in range(0, rows, tallest):
                        height, column = min(tallest, rows - row), 0
                        while column < columns:
                            vectors = vectors_of(height, columns - column)
                            width = min(vectors * LANES, columns - column)
                            here = at + 4 * (row * out_row + column)
                            tile(
                                height,
                                vectors,
                                at_a + 4 * row * a_row,
                                a_row,
                                a_sum,
                                at_b + 4 * column,
                                b_sum,
                                bias + 4 * column if bias else here,
                                0 if bias else out_row,
                                0,
                                here,
                                out_row,
                                terms,
                                width - (vectors - 1) * LANES,
                                runs,
                                a_run,
                                b_run,
                            )
                            column += width
