"""Compiled training steps of layers, which process one policy's row of parameters at a time.

Processing policy by policy keeps weights in the cache. A table describes consecutive layers, one in
each row; its columns are below. All other arrays are 32-bit floats with contiguous rows. *Errors*
of a quantity are the gradients of the loss with respect to it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from remuda.policies.networks.kernels.activations import FAST, RELU, STRICT, activate_in_place
from remuda.policies.networks.kernels.gemm import gemm
from remuda.policies.stack import LINE, Shapes, starts_of
from remuda.system.kernels import njit
from remuda.types import Floats, Integers

# Columns of a table:
INPUTS, OUTPUTS = 0, 1  # the sizes of a layer
WEIGHT, BIAS = 2, 3  # the start of the layer's parameters in a policy's row
# the start of the layer's outputs, their errors and the transposed weight in scratch memory
ACTIVATIONS, ERRORS, TRANSPOSED = 4, 5, 6
NUMBER = 4  # bytes of a number
# maximum rows of a pass, so that activations and weights fit in the cache (measured)
CHUNK = 192


class Scratch:
    """An allocator of scratch memory."""

    def __init__(self) -> None:
        self.size = LINE  # `bring_near` uses the first cache line

    def reserve(self, numbers: int) -> int:
        start = self.size
        self.size += -(-numbers // LINE) * LINE
        return start


def table_of(shapes: Shapes, layers: Iterable[str], scratch: Scratch, rows: int) -> Integers:
    """Build the table of consecutive layers, with scratch space for passes of `rows` rows."""
    begin_of = starts_of(shapes)
    table: list[tuple[int, ...]] = []
    for layer in layers:
        inputs, outputs = shapes[f"{layer}.weight"]
        parameters = begin_of[f"{layer}.weight"], begin_of[f"{layer}.bias"]
        starts = [scratch.reserve(n) for n in (rows * outputs, rows * outputs, inputs * outputs)]
        table.append((inputs, outputs, *parameters, *starts))
    found: Integers = np.array(table, np.int64).reshape(len(table), 7)
    return found


@njit(**FAST)
def bring_near(row: Floats, scratch: Floats) -> None:
    """Bring a policy's row into the cache, which saves a sixth of the time (measured)."""
    total = np.float32(0.0)
    for i in range(row.size):
        total += row[i]
    scratch[0] = total  # or the compiler would remove the loop


@njit(**STRICT)
def part(scratch: Floats, begin: int, rows: int, columns: int) -> Floats:
    """Return a matrix [rows, columns] in the scratch, from index `begin` on."""
    return scratch[begin : begin + rows * columns].reshape(rows, columns)


@njit(**STRICT)
def linear(x: Floats, row: Floats, weight: int, bias: int, out: Floats) -> None:
    """Write a layer: out [B, O] = x [B, I] @ weight + bias.

    `weight` and `bias` are indices of `row`; a negative `bias` means that there is none.
    """
    at = row.ctypes.data
    linear_at(x, at + NUMBER * weight, at + NUMBER * bias if bias >= 0 else 0, out)


@njit(**STRICT)
def linear_at(x: Floats, weight: int, bias: int, out: Floats) -> None:
    """Do the same as `linear`, with addresses of weight and bias; a bias of 0 means none."""
    rows, terms = x.shape
    columns = out.shape[1]
    gemm(
        1,
        rows,
        columns,
        terms,
        x.ctypes.data,
        0,
        terms,
        1,
        weight,
        0,
        columns,
        bias,
        0,
        0,
        out.ctypes.data,
        0,
        columns,
    )


@njit(**STRICT)
def add_gradients(
    x: Floats, errors: Floats, row: Floats, weight: int, bias: int, fresh: bool
) -> None:
    """Add a layer's gradients to `row`, or write them if `fresh`; x is [B, I], errors [B, O]."""
    rows, outputs = errors.shape
    inputs = x.shape[1]
    at = row.ctypes.data + NUMBER * weight
    gemm(
        1,
        inputs,
        outputs,
        rows,
        x.ctypes.data,
        0,
        1,
        inputs,
        errors.ctypes.data,
        0,
        outputs,
        0 if fresh else at,
        0,
        outputs,
        at,
        0,
        outputs,
    )
    if fresh:
        for j in range(outputs):
            row[bias + j] = np.float32(0.0)
    for b in range(rows):
        for j in range(outputs):
            row[bias + j] += errors[b, j]


@njit(**STRICT)
def transpose(row: Floats, weight: int, inputs: int, outputs: int, transposed: Floats) -> None:
    """Write the transpose [O, I] of a weight [I, O] contiguously."""
    for first in range(0, inputs, 16):
        last = min(first + 16, inputs)
        for o in range(outputs):
            for i in range(first, last):
                transposed[o * inputs + i] = row[weight + i * outputs + o]


@njit(**STRICT)
def transpose_all(layers: Integers, row: Floats, scratch: Floats, lowest: int) -> None:
    """Transpose the weights of all layers from `lowest` on."""
    for i in range(lowest, len(layers)):
        inputs, outputs = layers[i, INPUTS], layers[i, OUTPUTS]
        at = layers[i, TRANSPOSED]
        transposed = scratch[at : at + inputs * outputs]
        transpose(row, layers[i, WEIGHT], inputs, outputs, transposed)


@njit(**STRICT)
def forward(layers: Integers, row: Floats, x: Floats, kind: int, scratch: Floats) -> Floats:
    """Apply layers, each with an activation; return the last layer's outputs [B, O]."""
    rows = x.shape[0]
    for i in range(len(layers)):
        out = part(scratch, layers[i, ACTIVATIONS], rows, layers[i, OUTPUTS])
        linear(x, row, layers[i, WEIGHT], layers[i, BIAS], out)
        activate_in_place(out.reshape(-1), kind)
        x = out
    return x


@njit(**STRICT)
def backward(
    layers: Integers,
    gradients: Floats,  # the policy's row of gradients, added to; empty: not needed
    x: Floats,  # [B, I]
    kind: int,  # activation, `RELU` or `TANH`
    scratch: Floats,
    fresh: bool,  # overwrite the gradients
    by_inputs: Floats,  # [B, I] errors, written; [B, 0]: not needed
) -> None:
    """Backpropagate the errors in the scratch through the layers of the last `forward` call."""
    rows = x.shape[0]
    for i in range(len(layers) - 1, -1, -1):
        outputs = layers[i, OUTPUTS]
        errors = part(scratch, layers[i, ERRORS], rows, outputs)
        slopes(errors, part(scratch, layers[i, ACTIVATIONS], rows, outputs), kind)
        before = x if i == 0 else part(scratch, layers[i - 1, ACTIVATIONS], rows, layers[i, INPUTS])
        weight, bias = layers[i, WEIGHT], layers[i, BIAS]
        if gradients.size:
            add_gradients(before, errors, gradients, weight, bias, fresh)
        if i > 0:
            below = part(scratch, layers[i - 1, ERRORS], rows, layers[i, INPUTS])
            linear(errors, scratch, layers[i, TRANSPOSED], -1, below)
        elif by_inputs.shape[1]:
            linear(errors, scratch, layers[i, TRANSPOSED], -1, by_inputs)


@njit(**STRICT)
def slopes(errors: Floats, activations: Floats, kind: int) -> None:
    """Convert errors [B, O] of activations to errors of pre-activations, in place."""
    zero, one = np.float32(0.0), np.float32(1.0)
    for b in range(errors.shape[0]):
        for j in range(errors.shape[1]):
            h = activations[b, j]
            errors[b, j] *= (one if h > zero else zero) if kind == RELU else one - h * h


@njit(**STRICT)
def fold_head(row: Floats, at: int, width: int, actions: int, dueling: bool, head: Floats) -> None:
    """Write a head as weight [width, A] and bias [A]; fold a dueling head (`fold_dueling`)."""
    if not dueling:
        for i in range((width + 1) * actions):
            head[i] = row[at + i]
        return
    for i in range(width + 1):
        first = at + i * (actions + 1)
        total = np.float32(0.0)
        for j in range(actions):
            total += row[first + 1 + j]
        mean = total / np.float32(actions)
        for j in range(actions):
            head[i * actions + j] = row[first] + row[first + 1 + j] - mean


@njit(**STRICT)
def unfold_head(
    by_head: Floats, width: int, actions: int, dueling: bool, row: Floats, at: int
) -> None:
    """Write the gradients of a head from the gradients of its folded head."""
    if not dueling:
        for i in range((width + 1) * actions):
            row[at + i] = by_head[i]
        return
    for i in range(width + 1):
        first = at + i * (actions + 1)
        total = np.float32(0.0)
        for j in range(actions):
            total += by_head[i * actions + j]
        row[first] = total
        mean = total / np.float32(actions)
        for j in range(actions):
            row[first + 1 + j] = by_head[i * actions + j] - mean
