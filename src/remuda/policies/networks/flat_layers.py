"""Layers of one policy at a time, found in the row of its parameters: for use in compiled code.

What networks do to a small batch takes less time than Python takes to ask for it. So whole steps
are compiled, and these are what they are made of. A policy after another is also what a processor
likes best: the weights of one stay in its cache while a batch goes forward and back through them.

A stretch of layers is described by a table, with a row for each: see the columns below. All arrays
are of single precision, and the numbers of a row of theirs lie side by side.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from remuda.kernels import njit
from remuda.policies.networks.activations import FAST, RELU, STRICT, activate_in_place
from remuda.policies.networks.products import gemm
from remuda.policies.stack import LINE, Shapes
from remuda.types import Floats, Integers

INPUTS, OUTPUTS = 0, 1
"""Columns of a table: the sizes of a layer..."""
WEIGHT, BIAS = 2, 3
"""...where its parameters begin in a policy's row..."""
ACTIVATIONS, ERRORS, TRANSPOSED = 4, 5, 6
"""...and in the scratch, where there is room for what it says, for its errors and for the transpose
of its weight."""
NUMBER = 4
"""Bytes of one."""
CHUNK = 192
"""Rows that go through a network together: what each layer says of so many stays in a core's cache
beside the weights. Measured."""


class Scratch:
    """Shares out a piece of memory that is worked in."""

    def __init__(self) -> None:
        self.size = LINE
        """Numbers that were given away; the first line belongs to `bring_near`."""

    def reserve(self, numbers: int) -> int:
        """Where so many numbers have room."""
        start = self.size
        self.size += -(-numbers // LINE) * LINE
        return start


def table_of(shapes: Shapes, layers: Iterable[str], scratch: Scratch, rows: int) -> Integers:
    """The table of some layers, each on top of the one before it.

    Args:
        shapes: of all parameters, in their order in a policy's row.
        layers: by name.
        scratch: where there is to be room for passes...
        rows: ...of at most so many.
    """
    begin_of, at = {}, 0
    for name, shape in shapes.items():
        begin_of[name] = at
        at += int(np.prod(shape))
    table: list[tuple[int, ...]] = []
    for layer in layers:
        inputs, outputs = shapes[f"{layer}.weight"]
        parameters = begin_of[f"{layer}.weight"], begin_of[f"{layer}.bias"]
        rooms = [scratch.reserve(n) for n in (rows * outputs, rows * outputs, inputs * outputs)]
        table.append((inputs, outputs, *parameters, *rooms))
    found: Integers = np.array(table, np.int64).reshape(len(table), 7)
    return found


@njit(**FAST)
def bring_near(row: Floats, scratch: Floats) -> None:
    """Read through a policy's row in its order, so that it is in the cache.

    Products read it in an order that a processor does not foresee: where there are policies enough
    that each is cold when its turn comes, this saves a sixth of the time. Measured.
    """
    total = np.float32(0.0)
    for i in range(row.size):
        total += row[i]
    scratch[0] = total  # or the loop would be left out


@njit(**STRICT)
def part(scratch: Floats, begin: int, rows: int, columns: int) -> Floats:
    """A matrix in the scratch."""
    return scratch[begin : begin + rows * columns].reshape(rows, columns)


@njit(**STRICT)
def linear(x: Floats, row: Floats, weight: int, bias: int, out: Floats) -> None:
    """Write a layer: out = x @ weight + bias.

    Args:
        x: [B, I].
        row: where the weight [I, O] and the bias [O] lie.
        weight: its first number.
        bias: likewise; negative: nothing is added.
        out: [B, O].
    """
    at = row.ctypes.data
    linear_at(x, at + NUMBER * weight, at + NUMBER * bias if bias >= 0 else 0, out)


@njit(**STRICT)
def linear_at(x: Floats, weight: int, bias: int, out: Floats) -> None:
    """As `linear`, with the addresses of weight and bias; 0: nothing is added."""
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
    """Add a layer's gradients up over the rows of a batch, in their order.

    Args:
        x: [B, I] what it saw.
        errors: [B, O] of what it said.
        row: where the gradients are added to those that lie there.
        weight: as in `linear`.
        bias: as in `linear`.
        fresh: whether what lies there is forgotten.
    """
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
    """Write the transpose [O, I] of a weight [I, O], in one line after another."""
    for first in range(0, inputs, 16):
        last = min(first + 16, inputs)
        for o in range(outputs):
            for i in range(first, last):
                transposed[o * inputs + i] = row[weight + i * outputs + o]


@njit(**STRICT)
def transpose_all(layers: Integers, row: Floats, scratch: Floats, lowest: int) -> None:
    """The same for layers from number `lowest` on, each to its room."""
    for i in range(lowest, len(layers)):
        inputs, outputs = layers[i, INPUTS], layers[i, OUTPUTS]
        at = layers[i, TRANSPOSED]
        room = scratch[at : at + inputs * outputs]
        transpose(row, layers[i, WEIGHT], inputs, outputs, room)


@njit(**STRICT)
def forward(layers: Integers, row: Floats, x: Floats, kind: int, scratch: Floats) -> Floats:
    """Go through layers, each with an activation after it; returns what the last says: [B, O]."""
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
    gradients: Floats,
    x: Floats,
    kind: int,
    scratch: Floats,
    fresh: bool,
    by_inputs: Floats,
) -> None:
    """Back through layers that `forward` was called for last, with these inputs.

    The errors of what the last said stand in its room, and the transposed weights in theirs.

    Args:
        layers: as in `forward`.
        gradients: a policy's row of them, which are added to.
        x: [B, I] the inputs.
        kind: of activation.
        scratch: as in `forward`.
        fresh: whether what lies in the row is forgotten.
        by_inputs: [B, I], written: the errors of the inputs; [B, 0]: nobody asks for them.
    """
    rows = x.shape[0]
    for i in range(len(layers) - 1, -1, -1):
        outputs = layers[i, OUTPUTS]
        errors = part(scratch, layers[i, ERRORS], rows, outputs)
        slopes(errors, part(scratch, layers[i, ACTIVATIONS], rows, outputs), kind)
        before = x if i == 0 else part(scratch, layers[i - 1, ACTIVATIONS], rows, layers[i, INPUTS])
        weight, bias = layers[i, WEIGHT], layers[i, BIAS]
        add_gradients(before, errors, gradients, weight, bias, fresh)
        if i > 0:
            below = part(scratch, layers[i - 1, ERRORS], rows, layers[i, INPUTS])
            linear(errors, scratch, layers[i, TRANSPOSED], -1, below)
        elif by_inputs.shape[1]:
            linear(errors, scratch, layers[i, TRANSPOSED], -1, by_inputs)


@njit(**STRICT)
def slopes(errors: Floats, activations: Floats, kind: int) -> None:
    """Errors by activations become errors by what was activated, in place: [B, O]."""
    zero, one = np.float32(0.0), np.float32(1.0)
    for b in range(errors.shape[0]):
        for j in range(errors.shape[1]):
            h = activations[b, j]
            errors[b, j] *= (one if h > zero else zero) if kind == RELU else one - h * h


@njit(**STRICT)
def fold_head(row: Floats, at: int, width: int, actions: int, dueling: bool, head: Floats) -> None:
    """A policy's head as it is used: a weight [width, A], then a bias [A].

    Args:
        row: of the policy's parameters.
        at: where its head begins there: a weight, and the bias behind it.
        width: of what it sees.
        actions: A.
        dueling: whether it has a value and A advantages: see `layers.fold_dueling`.
        head: [(width + 1) * A], written.
    """
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
    """Write the gradients of a head from those of what `fold_head` made of it."""
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
