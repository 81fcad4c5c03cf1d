"""The towers of perceptrons of policy and value, trained in chunks of rows, in compiled functions.

A policy's rows run through all layers and back in chunks that stay in the cache of a core. Arrays
of activations and their errors are in scratch memory, one for each thread.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from remuda.policies.algorithms.kernels.ppo_heads import gather
from remuda.policies.networks.actor_critic import ActorCritic
from remuda.policies.networks.kernels import flat_layers as flat
from remuda.policies.networks.kernels.activations import KINDS, STRICT
from remuda.policies.networks.kernels.flat_layers import Scratch
from remuda.policies.networks.kernels.gemm import gemm
from remuda.policies.stack import layout_size, starts_of
from remuda.system.kernels import njit
from remuda.types import Array, Floats, Integers

# bytes of the rows that run through all layers together, so that they stay in the cache of a core
# (measured), and bounds of their number; if the weights do not fit, either, more rows share them
PIECE, LEAST_ROWS, MOST_ROWS = 512 << 10, 64, 256
LARGE = 1 << 18  # parameters of a network that no core's cache holds


class Tower(NamedTuple):
    """The layers of a tower, and its heads, which are joined to one linear layer."""

    layers: Integers  # table of the hidden layers (`flat_layers`)
    # each head's first column in the joined layer, start of weight and bias in a policy's row, and
    # number of outputs
    heads: Integers
    numbers: int  # of an input row
    width: int  # number of the heads' inputs
    first: int  # the joined layer's first column of the outputs
    size: int  # number of its columns
    # Start in scratch memory of:
    inputs: int  # [rows, numbers]
    joined: int  # the weight [width, size] and bias [size]
    transposed: int  # the transposed weight [size, width]
    gradients: int  # their gradients: [size, width], then [size]


class Towers(NamedTuple):
    """The towers of a network. If the heads share one, `value` is not used."""

    policy: Tower
    value: Tower
    number: int  # of towers: 1 or 2
    rows: int  # maximum number of rows that run through all layers together
    columns: int  # of the outputs: logits or means, then the value
    outputs: int  # start in scratch memory of the outputs [rows, columns]
    kind: int  # of activation


class Memory:
    """The towers of a network, and the memory in which each thread trains them."""

    def __init__(self, network: ActorCritic) -> None:
        scratch, columns = Scratch(), network.actions.num_logits + 1
        rows = _rows_at_once(network)
        names = (("policy", "value"),) if len(network.towers) == 1 else (("policy",), ("value",))
        sizes = [network.num_inputs] if network.critic is None else list(network.input_sizes)
        inputs = [scratch.reserve(rows * size) for size in sizes]
        towers = [
            _tower_of(network, number, own, sizes[min(number, len(sizes) - 1)], scratch, rows)
            for number, own in enumerate(names)
        ]
        towers = [
            tower._replace(inputs=inputs[min(number, len(inputs) - 1)])
            for number, tower in enumerate(towers)
        ]
        self.towers = Towers(
            towers[0],
            towers[-1],
            len(towers),
            rows,
            columns,
            scratch.reserve(rows * columns),
            KINDS[network.config.activation],
        )
        self._size = scratch.size
        self._arrays: list[Floats] = []
        self._gradients: dict[int, Floats] = {}

    def of(self, thread: int) -> Floats:
        """Return the scratch memory of a thread."""
        while thread >= len(self._arrays):
            self._arrays.append(np.zeros(self._size, np.float32))
        return self._arrays[thread]

    def gradients(self, thread: int, like: Floats) -> Floats:
        """Return an array for the gradients of a thread after the first; `like` is [G, P]."""
        found = self._gradients.get(thread)
        if found is None or len(found) < len(like):
            found = self._gradients[thread] = np.zeros_like(like)
        return found[: len(like)]


def _rows_at_once(network: ActorCritic) -> int:
    widths = [network.shapes[f"{name}.weight"][1] for tower in network.towers for name in tower]
    if layout_size(network.shapes) > LARGE:
        return MOST_ROWS
    numbers = sum(network.input_sizes) + 2 * sum(widths)  # activations and their errors
    return min(max(PIECE // (4 * numbers), LEAST_ROWS), MOST_ROWS)


def _tower_of(
    network: ActorCritic,
    number: int,
    names: tuple[str, ...],
    numbers: int,
    scratch: Scratch,
    rows: int,
) -> Tower:
    starts, shapes = starts_of(network.shapes), network.shapes
    heads, size = [], 0
    for name in names:
        outputs = shapes[f"{name}.weight"][1]
        heads.append((size, starts[f"{name}.weight"], starts[f"{name}.bias"], outputs))
        size += outputs
    width = shapes[f"{names[0]}.weight"][0]
    return Tower(
        layers=flat.table_of(shapes, network.towers[number], scratch, rows),
        heads=np.array(heads, np.int64),
        numbers=numbers,
        width=width,
        first=0 if number == 0 else network.actions.num_logits,
        size=size,
        inputs=0,
        joined=scratch.reserve((width + 1) * size),
        transposed=scratch.reserve(width * size),
        gradients=scratch.reserve((width + 1) * size),
    )


class Inputs(NamedTuple):
    """Weights of G policies, and how their observations become inputs."""

    weights: Floats  # [G, P]
    observations: Array  # [K, R, W]
    mean: Floats  # [G, W], or [G, 0] without normalisation
    scale: Floats  # [G, W], or [G, 1]


@njit(**STRICT)
def join_heads(tower: Tower, row: Floats, scratch: Floats) -> None:
    """Write the joined weight, its transpose and the bias; set their gradients to 0."""
    size, width = tower.size, tower.width
    for h in range(len(tower.heads)):
        column, weight, bias, outputs = tower.heads[h]
        for j in range(outputs):
            scratch[tower.joined + width * size + column + j] = row[bias + j]
            for i in range(width):
                number = row[weight + i * outputs + j]
                scratch[tower.joined + i * size + column + j] = number
                scratch[tower.transposed + (column + j) * width + i] = number
    for i in range((width + 1) * size):
        scratch[tower.gradients + i] = np.float32(0.0)


@njit(**STRICT)
def store_heads(tower: Tower, scratch: Floats, gradients: Floats) -> None:
    """Write the gradients of the heads to a policy's row."""
    size, width = tower.size, tower.width
    for h in range(len(tower.heads)):
        column, weight, bias, outputs = tower.heads[h]
        for j in range(outputs):
            gradients[bias + j] = scratch[tower.gradients + width * size + column + j]
            for i in range(width):
                gradients[weight + i * outputs + j] = scratch[
                    tower.gradients + (column + j) * width + i
                ]


@njit(**STRICT)
def begin(towers: Towers, row: Floats, scratch: Floats, has_errors: bool) -> None:
    """Prepare the scratch memory for a policy, also for passes back if `has_errors`."""
    for t in range(towers.number):
        tower = towers.policy if t == 0 else towers.value
        join_heads(tower, row, scratch)
        if has_errors:
            flat.transpose_all(tower.layers, row, scratch, 1)


@njit(**STRICT)
def forward(
    towers: Towers, inputs: Inputs, k: int, observations: Array, rows: Integers, scratch: Floats
) -> Floats:
    """Return the outputs [B, columns] of policy `k` for the rows of its observations."""
    count, row = rows.size, inputs.weights[k]
    outputs = flat.part(scratch, towers.outputs, count, towers.columns)
    for t in range(towers.number):
        tower = towers.policy if t == 0 else towers.value
        x = flat.part(scratch, tower.inputs, count, tower.numbers)
        if t == 0 or tower.inputs != towers.policy.inputs:
            # The policy's inputs are the first columns of the observations.
            gather(observations, rows, inputs.mean[k], inputs.scale[k], x)
        x = flat.forward(tower.layers, row, x, towers.kind, scratch)
        at = scratch.ctypes.data + flat.NUMBER * tower.joined
        gemm(
            1,
            count,
            tower.size,
            tower.width,
            x.ctypes.data,
            0,
            tower.width,
            1,
            at,
            0,
            tower.size,
            at + flat.NUMBER * tower.width * tower.size,
            0,
            0,
            outputs.ctypes.data + flat.NUMBER * tower.first,
            0,
            towers.columns,
        )
    return outputs


@njit(**STRICT)
def backward(towers: Towers, errors: Floats, gradients: Floats, scratch: Floats) -> None:
    """Add the gradients of a policy to its row, from the errors of the last `forward` call."""
    count = errors.shape[0]
    for t in range(towers.number):
        tower = towers.policy if t == 0 else towers.value
        layers, width, size = tower.layers, tower.width, tower.size
        x = flat.part(scratch, tower.inputs, count, tower.numbers)
        last = len(layers) - 1
        top = flat.part(scratch, layers[last, flat.ACTIVATIONS], count, width)
        own = errors.ctypes.data + flat.NUMBER * tower.first
        at = scratch.ctypes.data + flat.NUMBER * tower.gradients
        gemm(
            1,
            size,
            width,
            count,
            own,
            0,
            1,
            towers.columns,
            top.ctypes.data,
            0,
            width,
            at,
            0,
            width,
            at,
            0,
            width,
        )
        for b in range(count):
            for j in range(size):
                scratch[tower.gradients + width * size + j] += errors[b, tower.first + j]
        gemm(
            1,
            count,
            width,
            size,
            own,
            0,
            towers.columns,
            1,
            scratch.ctypes.data + flat.NUMBER * tower.transposed,
            0,
            width,
            0,
            0,
            0,
            scratch.ctypes.data + flat.NUMBER * layers[last, flat.ERRORS],
            0,
            width,
        )
        flat.backward(layers, gradients, x, towers.kind, scratch, False, x[:, :0])


@njit(**STRICT)
def end(towers: Towers, scratch: Floats, gradients: Floats) -> None:
    """Complete a policy's gradients."""
    for t in range(towers.number):
        store_heads(towers.policy if t == 0 else towers.value, scratch, gradients)
