"""Forward passes of implicit quantile networks for acting on the CPU, in one compiled call."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from remuda.kernels import njit
from remuda.memory.aligned import aligned_zeros
from remuda.policies.networks.activations import KINDS, STRICT, activate_in_place
from remuda.policies.networks.compiled_pass import OUTPUTS, CompiledLayers, layer_of, table_of
from remuda.policies.networks.encoder import Weights
from remuda.policies.networks.flat_layers import CHUNK, part
from remuda.types import Floats, Integers


class QuantileLayers(CompiledLayers):
    """Quantile networks, whose outputs are means over fixed quantiles of action values."""

    def __init__(self, weights: Weights, hidden: Sequence[str], activation: str) -> None:
        """Read weights of `IQN.acting` in place; `hidden` are the layers after the product."""
        self._kind = KINDS[activation]
        self._kept = dict(weights)  # keeps the memory alive whose addresses the table holds
        self.table = table_of(weights, ("state", *hidden, "head"))
        self._midpoints: Floats = weights["midpoints"].numpy()
        count = self._midpoints.shape[1]
        self._streams = max(CHUNK // count, 1)
        widest = int(self.table[:, OUTPUTS].max())
        self._rooms: Floats = aligned_zeros((3, self._streams * count * widest))

    def write_outputs(self, inputs: Floats, begins: Integers, out: Floats) -> None:
        """Run the networks."""
        middle, rooms = self._midpoints, self._rooms
        value_actions(self.table, inputs, begins, middle, self._kind, self._streams, rooms, out)


@njit(**STRICT)
def value_actions(
    layers: Integers,  # table of the state layer, the hidden ones, the head
    inputs: Floats,  # [M, I], sorted by policy
    policies: Integers,  # [K + 1] start of each policy's rows
    midpoints: Floats,  # [K, Q, F] embedded quantiles
    kind: int,  # of activation
    most: int,  # streams of a chunk
    rooms: Floats,  # [3, most * Q * widest layer] scratch
    outputs: Floats,  # [M, A], written
) -> None:
    """Write means over quantiles of action values."""
    count, last = midpoints.shape[1], len(layers) - 1
    for k in range(policies.size - 1):
        for first in range(policies[k], policies[k + 1], most):
            end = min(first + most, policies[k + 1])
            x = part(rooms[2], 0, end - first, layers[0, OUTPUTS])
            layer_of(inputs[first:end], layers, 0, k, x)
            activate_in_place(x.reshape(-1), kind)
            activated = part(rooms[0], 0, (end - first) * count, x.shape[1])
            combine(x, midpoints[k], activated)
            for i in range(1, last):
                out = part(rooms[i % 2], 0, activated.shape[0], layers[i, OUTPUTS])
                layer_of(activated, layers, i, k, out)
                activate_in_place(out.reshape(-1), kind)
                activated = out
            mean = part(rooms[2], 0, end - first, activated.shape[1])
            average(activated, mean)
            layer_of(mean, layers, last, k, outputs[first:end])


@njit(**STRICT)
def combine(features: Floats, embedded: Floats, products: Floats) -> None:
    """Multiply features [b, F] with embeddings [b * Q, F], or [Q, F] for all: [b * Q, F]."""
    batch = features.shape[0]
    count, shared = products.shape[0] // batch, embedded.shape[0] < products.shape[0]
    for b in range(batch):
        for n in range(count):
            row = b * count + n
            other = n if shared else row
            for j in range(features.shape[1]):
                products[row, j] = features[b, j] * embedded[other, j]


@njit(**STRICT)
def average(activated: Floats, mean: Floats) -> None:
    """Average over the quantiles of each sample: [b * Q, F] to [b, F]."""
    batch = mean.shape[0]
    count = activated.shape[0] // batch
    share = np.float32(1.0 / count)
    for b in range(batch):
        for j in range(mean.shape[1]):
            mean[b, j] = activated[b * count, j]
        for n in range(1, count):
            for j in range(mean.shape[1]):
                mean[b, j] += activated[b * count + n, j]
        for j in range(mean.shape[1]):
            mean[b, j] *= share
