"""Forward passes for acting on the CPU: one call for all layers of all policies.

A stream is one seat in one environment copy. With few streams, most of a pass would be call
overhead. With many, a layer's outputs should stay in the cache until the next layer reads them, so
a pass runs policy by policy, in chunks of streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from torch import Tensor

from remuda.policies.networks.encoder import Weights
from remuda.policies.networks.kernels.activations import KINDS, STRICT, activate_in_place
from remuda.policies.networks.kernels.flat_layers import CHUNK, linear_at, part
from remuda.system.kernels import njit
from remuda.system.memory.shared import aligned_zeros
from remuda.types import Array, Floats, Integers

# columns of a layer table: addresses of the first policy's weight and bias, each followed by the
# byte distance to the next policy's, and the layer's sizes
WEIGHT, WEIGHT_NEXT, BIAS, BIAS_NEXT, INPUTS, OUTPUTS = range(6)


class PlainLayers:
    """Perceptrons of K policies, in one compiled call: hidden layers first, the head last."""

    def __init__(self, weights: Weights, layers: Sequence[str], activation: str) -> None:
        """Read the weights [K, I, O] in place: they may change between passes."""
        self._kind = KINDS[activation]
        self._weights = dict(weights)  # keeps the memory behind the table's addresses alive
        self.table = table_of(weights, layers)
        widest = int(self.table[:-1, OUTPUTS].max(initial=1))
        self._scratch: Floats = aligned_zeros((2, CHUNK * widest))

    @property
    def sizes(self) -> tuple[int, int]:
        return int(self.table[0, INPUTS]), int(self.table[-1, OUTPUTS])

    def write_outputs(self, inputs: Floats, begins: Integers, out: Floats) -> None:
        """Write outputs for inputs [M, num_inputs]; policy k's rows start at `begins[k]`."""
        go_through(self.table, inputs, begins, self._kind, self._scratch, out)


class CompiledPass:
    """A forward pass of inputs [K, N, num_inputs] through networks of K policies."""

    def __init__(self, layers: PlainLayers, inputs: Tensor) -> None:
        """Read the inputs in place: they may change between passes."""
        policies, streams, numbers = inputs.shape
        self._layers, self._inputs = layers, inputs.view(-1, numbers).numpy()
        self._begins: Integers = np.arange(policies + 1) * streams
        self._outputs: Floats = aligned_zeros((policies, streams, layers.sizes[1]))
        self._rows = self._outputs.reshape(policies * streams, -1)

    def __call__(self) -> Floats:
        """Return outputs [K, N, outputs], overwritten by the next pass."""
        self._layers.write_outputs(self._inputs, self._begins, self._rows)
        return self._outputs


class GatheredPass:
    """A forward pass of streams gathered by policy, without padding."""

    def __init__(self, layers: PlainLayers) -> None:
        self._layers = layers
        self._inputs, self._outputs = (np.zeros((0, size), np.float32) for size in layers.sizes)

    def __call__(self, inputs: Floats, begins: Integers, streams: Integers) -> Floats:
        """Return outputs of `streams`, overwritten by the next pass; see `write_outputs`."""
        count = len(streams)
        if count > len(self._inputs):
            self._inputs, self._outputs = (
                aligned_zeros((2 * count, size)) for size in self._layers.sizes
            )
        x, out = self._inputs[:count], self._outputs[:count]
        gather_rows(inputs, streams, x)
        self._layers.write_outputs(x, begins, out)
        return out

    @property
    def nbytes(self) -> int:
        return self._inputs.nbytes + self._outputs.nbytes


def table_of(weights: Weights, layers: Iterable[str]) -> Integers:
    """Build the table of layers with weights [K, I, O] and biases [K, 1, O]."""
    pairs = [(weights[f"{name}.weight"], weights[f"{name}.bias"]) for name in layers]
    found: Integers = np.array(
        [
            (w.data_ptr(), 4 * w.stride(0), b.data_ptr(), 4 * b.stride(0), *w.shape[1:])
            for w, b in pairs
        ],
        np.int64,
    )
    return found


@njit(**STRICT)
def layer_of(x: Floats, layers: Integers, i: int, policy: int, out: Floats) -> None:
    """Apply one policy's layer `i` of a table: [B, I] to [B, O]."""
    weight = layers[i, WEIGHT] + policy * layers[i, WEIGHT_NEXT]
    linear_at(x, weight, layers[i, BIAS] + policy * layers[i, BIAS_NEXT], out)


@njit(**STRICT)
def go_through(
    layers: Integers,
    inputs: Floats,  # [M, I], sorted by policy
    policies: Integers,  # [K + 1] start of each policy's rows
    kind: int,  # activation, `RELU` or `TANH`
    scratch: Floats,  # [2, CHUNK * widest hidden layer]
    outputs: Floats,  # [M, O], written
) -> None:
    """Write the outputs of perceptrons."""
    last = len(layers) - 1
    for k in range(policies.size - 1):
        for first in range(policies[k], policies[k + 1], CHUNK):
            end = min(first + CHUNK, policies[k + 1])
            x = inputs[first:end]
            for i in range(last):
                out = part(scratch[i % 2], 0, end - first, layers[i, OUTPUTS])
                layer_of(x, layers, i, k, out)
                activate_in_place(out.reshape(-1), kind)
                x = out
            layer_of(x, layers, last, k, outputs[first:end])


@njit(cache=True)
def gather_rows(source: Array, streams: Integers, to: Array) -> None:
    """Copy the rows of these streams."""
    for i in range(streams.size):
        row, copy = source[streams[i]], to[i]  # the compiler sees that rows do not overlap
        for j in range(row.size):
            copy[j] = row[j]


class QuantileLayers(PlainLayers):
    """Quantile networks, whose action values are means over fixed quantiles."""

    def __init__(self, weights: Weights, hidden: Sequence[str], activation: str) -> None:
        """Read `IQNetwork.acting` weights in place; `hidden` are the layers after the product."""
        super().__init__(weights, ("state", *hidden, "head"), activation)
        self._midpoints: Floats = weights["midpoints"].numpy()
        count = self._midpoints.shape[1]
        self._streams = max(CHUNK // count, 1)
        widest = int(self.table[:, OUTPUTS].max())
        self._scratch = aligned_zeros((3, self._streams * count * widest))

    def write_outputs(self, inputs: Floats, begins: Integers, out: Floats) -> None:
        fixed = self._midpoints, self._kind, self._streams, self._scratch
        value_actions(self.table, inputs, begins, *fixed, out)


@njit(**STRICT)
def value_actions(
    layers: Integers,  # table of the state layer, the hidden layers and the head
    inputs: Floats,  # [M, I], sorted by policy
    policies: Integers,  # [K + 1] start of each policy's rows
    midpoints: Floats,  # [K, Q, F] embedded quantiles
    kind: int,  # activation, `RELU` or `TANH`
    most: int,  # streams of a chunk
    scratch: Floats,  # [3, most * Q * widest layer]
    outputs: Floats,  # [M, A], written
) -> None:
    """Write the action values of quantile networks."""
    count, last = midpoints.shape[1], len(layers) - 1
    for k in range(policies.size - 1):
        for first in range(policies[k], policies[k + 1], most):
            end = min(first + most, policies[k + 1])
            x = part(scratch[2], 0, end - first, layers[0, OUTPUTS])
            layer_of(inputs[first:end], layers, 0, k, x)
            activate_in_place(x.reshape(-1), kind)
            activated = part(scratch[0], 0, (end - first) * count, x.shape[1])
            combine(x, midpoints[k], activated)
            for i in range(1, last):
                out = part(scratch[i % 2], 0, activated.shape[0], layers[i, OUTPUTS])
                layer_of(activated, layers, i, k, out)
                activate_in_place(out.reshape(-1), kind)
                activated = out
            mean = part(scratch[2], 0, end - first, activated.shape[1])
            average(activated, mean)
            layer_of(mean, layers, last, k, outputs[first:end])


@njit(**STRICT)
def combine(features: Floats, embedded: Floats, products: Floats) -> None:
    """Write products [b * Q, F] of features [b, F] and embeddings [b * Q, F], or shared [Q, F]."""
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
