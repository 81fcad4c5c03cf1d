"""A forward pass of implicit quantile networks for acting on the processor, in one compiled call.

It goes through one policy after another, and through a chunk of its streams at a time, so that
what each layer says is still in the cache when the next wants it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from remuda.kernels import njit
from remuda.memory.aligned import aligned_zeros
from remuda.policies.networks.activations import KINDS, STRICT, activate_in_place
from remuda.policies.networks.encoder import Weights
from remuda.policies.networks.flat_layers import CHUNK, linear_at, part
from remuda.policies.networks.gathered_pass import gather
from remuda.policies.networks.products import ALL
from remuda.types import Floats, Integers

WEIGHT, WEIGHT_NEXT, BIAS, BIAS_NEXT, INPUTS, OUTPUTS = range(6)
"""Of each layer: the address of the first policy's weight, how many bytes on the next one's is, the
same of the bias, and its sizes."""


class QuantileLayers:
    """The layers of K policies, and room to go through them."""

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
        names = ("state", *hidden, "head")
        pairs = [(weights[f"{name}.weight"], weights[f"{name}.bias"]) for name in names]
        self._table: Integers = np.array(
            [
                (w.data_ptr(), 4 * w.stride(0), b.data_ptr(), 4 * b.stride(0), *w.shape[1:])
                for w, b in pairs
            ],
            np.int64,
        )
        self._midpoints: Floats = weights["midpoints"].numpy()
        count = self._midpoints.shape[1]
        self._streams = max(CHUNK // count, 1)
        widest = int(self._table[:, OUTPUTS].max())
        self._rooms: Floats = aligned_zeros((3, self._streams * count * widest))

    @property
    def sizes(self) -> tuple[int, int]:
        """Of an input and of what is said to it."""
        return int(self._table[0, INPUTS]), int(self._table[-1, OUTPUTS])

    def values(self, inputs: Floats, begins: Integers, out: Floats) -> None:
        """Write values of actions, [M, A], of inputs [M, num_inputs] by where each policy's begin.

        `begins` is [K + 1].
        """
        table, middle, rooms = self._table, self._midpoints, self._rooms
        value_actions(ALL, table, inputs, begins, middle, self._kind, self._streams, rooms, out)


class QuantilePass:
    """Inputs [K, N, num_inputs] through quantile networks of K policies: values of actions."""

    def __init__(self, layers: QuantileLayers, inputs: Tensor) -> None:
        """Look at the inputs where they are: they may change between two passes."""
        policies, streams, numbers = inputs.shape
        self._layers, self._inputs = layers, inputs.view(-1, numbers).numpy()
        self._begins: Integers = np.arange(policies + 1) * streams
        self._outputs: Floats = aligned_zeros((policies, streams, layers.sizes[1]))
        self._rows = self._outputs.reshape(policies * streams, -1)

    def __call__(self) -> Floats:
        """The values of actions, [K, N, A]; written anew by the next pass."""
        self._layers.values(self._inputs, self._begins, self._rows)
        return self._outputs


class GatheredQuantilePass:
    """Streams gathered by policy through quantile networks: each once, and nothing padded."""

    def __init__(self, layers: QuantileLayers) -> None:
        self._layers = layers
        self._inputs, self._outputs = (np.zeros((0, size), np.float32) for size in layers.sizes)

    def __call__(self, inputs: Floats, begins: Integers, streams: Integers) -> Floats:
        """The values of actions, [M, A]; the arguments are those of `GatheredPass`."""
        count = len(streams)
        if count > len(self._inputs):
            self._inputs, self._outputs = (
                aligned_zeros((2 * count, size)) for size in self._layers.sizes
            )
        x, out = self._inputs[:count], self._outputs[:count]
        gather(inputs, streams, x)
        self._layers.values(x, begins, out)
        return out

    @property
    def nbytes(self) -> int:
        """Of what streams are gathered into."""
        return self._inputs.nbytes + self._outputs.nbytes


@njit(**STRICT)
def value_actions(
    begins: Integers,
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
        begins: `products.ALL`.
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
            _layer(begins, inputs[first:end], layers, 0, k, x)
            activate_in_place(x.reshape(-1), kind)
            said = part(rooms[0], 0, (end - first) * count, x.shape[1])
            combine(x, midpoints[k], said)
            for i in range(1, last):
                out = part(rooms[i % 2], 0, said.shape[0], layers[i, OUTPUTS])
                _layer(begins, said, layers, i, k, out)
                activate_in_place(out.reshape(-1), kind)
                said = out
            mean = part(rooms[2], 0, end - first, said.shape[1])
            average(said, mean)
            _layer(begins, mean, layers, last, k, outputs[first:end])


@njit(**STRICT)
def _layer(begins: Integers, x: Floats, layers: Integers, i: int, k: int, out: Floats) -> None:
    weight = layers[i, WEIGHT] + k * layers[i, WEIGHT_NEXT]
    linear_at(begins, x, weight, layers[i, BIAS] + k * layers[i, BIAS_NEXT], out)


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
