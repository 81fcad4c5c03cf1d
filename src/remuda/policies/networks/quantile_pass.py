"""Passes of implicit quantile networks for acting on the processor, in one compiled call."""

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
    """Quantile networks, which say the mean over fixed quantiles of the values of actions."""

    def __init__(self, weights: Weights, hidden: Sequence[str], activation: str) -> None:
        """Look at weights where they are: they may change between two passes.

        Args:
            weights: from `IQN.acting`.
            hidden: the layers between the product of features and quantiles, and the head.
            activation: what follows the first layer, and the hidden ones.
        """
        self._kind = KINDS[activation]
        self._kept = dict(weights)
        """Whose memory the table names: they stay as long as this."""
        self.table = table_of(weights, ("state", *hidden, "head"))
        self._midpoints: Floats = weights["midpoints"].numpy()
        count = self._midpoints.shape[1]
        self._streams = max(CHUNK // count, 1)
        widest = int(self.table[:, OUTPUTS].max())
        self._rooms: Floats = aligned_zeros((3, self._streams * count * widest))

    def write_outputs(self, inputs: Floats, begins: Integers, out: Floats) -> None:
        """See `CompiledLayers`."""
        middle, rooms = self._midpoints, self._rooms
        value_actions(self.table, inputs, begins, middle, self._kind, self._streams, rooms, out)


@njit(**STRICT)
def value_actions(
    layers: Integers,
    inputs: Floats,
    policies: Integers,
    midpoints: Floats,
    kind: int,
    most: int,
    rooms: Floats,
    outputs: Floats,
) -> None:
    """Write the mean over quantiles of the values of actions.

    Args:
        layers: see above: the state's, the hidden ones, the head.
        inputs: [M, I].
        policies: [K + 1] where each policy's rows of inputs begin.
        midpoints: [K, Q, F] the embeddings of fixed quantiles.
        kind: of activation.
        most: streams of a chunk.
        rooms: [3, most * Q * the widest layer] to work in.
        outputs: [M, A], written.
    """
    count, last = midpoints.shape[1], len(layers) - 1
    for k in range(policies.size - 1):
        for first in range(policies[k], policies[k + 1], most):
            end = min(first + most, policies[k + 1])
            x = part(rooms[2], 0, end - first, layers[0, OUTPUTS])
            layer_of(inputs[first:end], layers, 0, k, x)
            activate_in_place(x.reshape(-1), kind)
            said = part(rooms[0], 0, (end - first) * count, x.shape[1])
            combine(x, midpoints[k], said)
            for i in range(1, last):
                out = part(rooms[i % 2], 0, said.shape[0], layers[i, OUTPUTS])
                layer_of(said, layers, i, k, out)
                activate_in_place(out.reshape(-1), kind)
                said = out
            mean = part(rooms[2], 0, end - first, said.shape[1])
            average(said, mean)
            layer_of(mean, layers, last, k, outputs[first:end])


@njit(**STRICT)
def combine(features: Floats, embedded: Floats, products: Floats) -> None:
    """Features [b, F] times embeddings [b * Q, F], or [Q, F] for all: [b * Q, F]."""
    batch = features.shape[0]
    count, shared = products.shape[0] // batch, embedded.shape[0] < products.shape[0]
    for b in range(batch):
        for n in range(count):
            row = b * count + n
            other = n if shared else row
            for j in range(features.shape[1]):
                products[row, j] = features[b, j] * embedded[other, j]


@njit(**STRICT)
def average(said: Floats, mean: Floats) -> None:
    """The mean over the quantiles of each sample: [b * Q, F] to [b, F]."""
    batch = mean.shape[0]
    count = said.shape[0] // batch
    share = np.float32(1.0 / count)
    for b in range(batch):
        for j in range(mean.shape[1]):
            mean[b, j] = said[b * count, j]
        for n in range(1, count):
            for j in range(mean.shape[1]):
                mean[b, j] += said[b * count + n, j]
        for j in range(mean.shape[1]):
            mean[b, j] *= share
