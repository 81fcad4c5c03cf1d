"""Products of a few streams with the weights of many policies.

A library of linear algebra copies a matrix before it multiplies, which pays for hundreds of rows.
Where a policy plays a handful of streams, that copy is most of the work, and a call for each policy
is the rest. Here each weight is read once for four streams, where it lies, and all policies are one
call. Sums run over the inputs in their order, one fused multiplication and addition each, however
many streams there are: a stream's outputs do not depend on what stands beside it.
"""

from __future__ import annotations

from typing import Any

from remuda.kernels import njit
from remuda.policies.networks.activations import STRICT, activate_in_place
from remuda.types import Floats, Integers

LINEAR = -1
"""The kind of a layer with nothing after it."""
LARGEST = 1 << 16
"""Weights of the largest layer that is worth reading again for every four streams: 256 kB, which
stay in a core's cache."""

IN_ORDER: dict[str, Any] = {
    "cache": True,
    "error_model": "numpy",
    "fastmath": {"contract"},
}
"""Products and sums fused, in the order that is written: a loop over another number of outputs at
once gives the same numbers, wherever the arrays lie."""


@njit(**IN_ORDER)
def multiply(x: Floats, begins: Integers, weight: Floats, out: Floats) -> None:
    """Multiply each policy's streams [M, I], gathered by policy, by its weights [K, I, O].

    Args:
        x: [M, I] inputs.
        begins: [K + 1] where each policy's streams begin.
        weight: [K, I, O].
        out: [M, O] is written.
    """
    num_inputs, num_outputs = weight.shape[1], weight.shape[2]
    whole = num_inputs - num_inputs % 4
    for k in range(weight.shape[0]):
        begin, end = begins[k], begins[k + 1]
        fours = end - (end - begin) % 4
        for i in range(begin, end):
            for o in range(num_outputs):
                out[i, o] = 0.0
        for i in range(begin, fours, 4):
            for j in range(0, whole, 4):
                a0, a1, a2, a3 = x[i, j], x[i, j + 1], x[i, j + 2], x[i, j + 3]
                b0, b1, b2, b3 = x[i + 1, j], x[i + 1, j + 1], x[i + 1, j + 2], x[i + 1, j + 3]
                c0, c1, c2, c3 = x[i + 2, j], x[i + 2, j + 1], x[i + 2, j + 2], x[i + 2, j + 3]
                d0, d1, d2, d3 = x[i + 3, j], x[i + 3, j + 1], x[i + 3, j + 2], x[i + 3, j + 3]
                for o in range(num_outputs):
                    w0, w1 = weight[k, j, o], weight[k, j + 1, o]
                    w2, w3 = weight[k, j + 2, o], weight[k, j + 3, o]
                    out[i, o] = (((out[i, o] + a0 * w0) + a1 * w1) + a2 * w2) + a3 * w3
                    out[i + 1, o] = (((out[i + 1, o] + b0 * w0) + b1 * w1) + b2 * w2) + b3 * w3
                    out[i + 2, o] = (((out[i + 2, o] + c0 * w0) + c1 * w1) + c2 * w2) + c3 * w3
                    out[i + 3, o] = (((out[i + 3, o] + d0 * w0) + d1 * w1) + d2 * w2) + d3 * w3
        for i in range(fours, end):
            for j in range(0, whole, 4):
                a0, a1, a2, a3 = x[i, j], x[i, j + 1], x[i, j + 2], x[i, j + 3]
                for o in range(num_outputs):
                    w0, w1 = weight[k, j, o], weight[k, j + 1, o]
                    w2, w3 = weight[k, j + 2, o], weight[k, j + 3, o]
                    out[i, o] = (((out[i, o] + a0 * w0) + a1 * w1) + a2 * w2) + a3 * w3
        for i in range(begin, end):
            for j in range(whole, num_inputs):
                for o in range(num_outputs):
                    out[i, o] += x[i, j] * weight[k, j, o]


@njit(**STRICT)
def finish(x: Floats, begins: Integers, bias: Floats, kind: int) -> None:
    """Add to streams [M, O], gathered by policy, its biases [K, O], and activate, in place."""
    for k in range(bias.shape[0]):
        for i in range(begins[k], begins[k + 1]):
            for o in range(x.shape[1]):
                x[i, o] += bias[k, o]
    if kind != LINEAR:
        activate_in_place(x.reshape(-1), kind)


@njit(cache=True)
def layer(
    x: Floats, begins: Integers, weight: Floats, bias: Floats, kind: int, out: Floats
) -> None:
    """`multiply`, then `finish`: a layer in one call, of which there are many in a turn."""
    multiply(x, begins, weight, out)
    finish(out, begins, bias, kind)
