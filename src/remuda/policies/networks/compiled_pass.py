"""Forward passes for acting on the processor: a call for all layers of all policies.

With few streams most of a pass is the cost of calling. With many, what each layer says should still
be in the cache when the next wants it: so a pass goes through one policy after another, and through
a chunk of its streams at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

import numpy as np
from torch import Tensor

from remuda.kernels import njit
from remuda.memory.aligned import aligned_zeros
from remuda.policies.networks.activations import KINDS, STRICT, activate_in_place
from remuda.policies.networks.encoder import Weights
from remuda.policies.networks.flat_layers import CHUNK, linear_at, part
from remuda.types import Floats, Integers

WEIGHT, WEIGHT_NEXT, BIAS, BIAS_NEXT, INPUTS, OUTPUTS = range(6)
"""Of each layer: the address of the first policy's weight, how many bytes on the next one's is, the
same of the bias, and its sizes."""


class CompiledLayers(ABC):
    """Networks of K policies that go through their layers in one compiled call."""

    table: Integers
    """By layer, first to last: see above."""

    @property
    def sizes(self) -> tuple[int, int]:
        """Of an input and of what is said to it."""
        return int(self.table[0, INPUTS]), int(self.table[-1, OUTPUTS])

    @abstractmethod
    def write_outputs(self, inputs: Floats, begins: Integers, out: Floats) -> None:
        """Write what the networks say.

        Args:
            inputs: [M, num_inputs] of all policies, one after another.
            begins: [K + 1] where those of each begin.
            out: [M, outputs], written.
        """


class PlainLayers(CompiledLayers):
    """Perceptrons: hidden layers first, the head last."""

    def __init__(self, weights: Weights, layers: Sequence[str], activation: str) -> None:
        """Look at the weights [K, I, O] where they are: they may change between two passes."""
        self._kind = KINDS[activation]
        self._kept = dict(weights)
        """Whose memory the table names: they stay as long as this."""
        self.table = table_of(weights, layers)
        widest = int(self.table[:-1, OUTPUTS].max(initial=1))
        self._rooms: Floats = aligned_zeros((2, CHUNK * widest))

    def write_outputs(self, inputs: Floats, begins: Integers, out: Floats) -> None:
        """See `CompiledLayers`."""
        go_through(self.table, inputs, begins, self._kind, self._rooms, out)


class CompiledPass:
    """Inputs [K, N, num_inputs] through networks of K policies."""

    def __init__(self, layers: CompiledLayers, inputs: Tensor) -> None:
        """Look at the inputs where they are: they may change between two passes."""
        policies, streams, numbers = inputs.shape
        self._layers, self._inputs = layers, inputs.view(-1, numbers).numpy()
        self._begins: Integers = np.arange(policies + 1) * streams
        self._outputs: Floats = aligned_zeros((policies, streams, layers.sizes[1]))
        self._rows = self._outputs.reshape(policies * streams, -1)

    def __call__(self) -> Floats:
        """What they say, [K, N, outputs]; written anew by the next pass."""
        self._layers.write_outputs(self._inputs, self._begins, self._rows)
        return self._outputs


class GatheredPass:
    """Streams gathered by policy through networks of K policies: each once, and nothing padded."""

    def __init__(self, layers: CompiledLayers) -> None:
        self._layers = layers
        self._inputs, self._outputs = (np.zeros((0, size), np.float32) for size in layers.sizes)

    def __call__(self, inputs: Floats, begins: Integers, streams: Integers) -> Floats:
        """What they say to these streams, [M, outputs]; written anew by the next pass.

        Args:
            inputs: [N, num_inputs] of all streams.
            begins: [K + 1] where each policy's streams begin...
            streams: [M] ...in this list of stream numbers.
        """
        count = len(streams)
        if count > len(self._inputs):
            self._inputs, self._outputs = (
                aligned_zeros((2 * count, size)) for size in self._layers.sizes
            )
        x, out = self._inputs[:count], self._outputs[:count]
        _gather(inputs, streams, x)
        self._layers.write_outputs(x, begins, out)
        return out

    @property
    def nbytes(self) -> int:
        """Of what streams are gathered into."""
        return self._inputs.nbytes + self._outputs.nbytes


def table_of(weights: Weights, layers: Iterable[str]) -> Integers:
    """The table of some layers, whose weights are [K, I, O] and biases [K, 1, O]."""
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
    """Write layer `i` of a table, of one policy: [B, I] to [B, O]."""
    weight = layers[i, WEIGHT] + policy * layers[i, WEIGHT_NEXT]
    linear_at(x, weight, layers[i, BIAS] + policy * layers[i, BIAS_NEXT], out)


@njit(**STRICT)
def go_through(
    layers: Integers,
    inputs: Floats,
    policies: Integers,
    kind: int,
    rooms: Floats,
    outputs: Floats,
) -> None:
    """Go through perceptrons.

    Args:
        layers: see above.
        inputs: [M, I].
        policies: [K + 1] where each policy's rows of inputs begin.
        kind: of activation.
        rooms: [2, CHUNK * the widest hidden layer] to work in.
        outputs: [M, O], written.
    """
    last = len(layers) - 1
    for k in range(policies.size - 1):
        for first in range(policies[k], policies[k + 1], CHUNK):
            end = min(first + CHUNK, policies[k + 1])
            x = inputs[first:end]
            for i in range(last):
                out = part(rooms[i % 2], 0, end - first, layers[i, OUTPUTS])
                layer_of(x, layers, i, k, out)
                activate_in_place(out.reshape(-1), kind)
                x = out
            layer_of(x, layers, last, k, outputs[first:end])


@njit(cache=True)
def _gather(source: Floats, streams: Integers, to: Floats) -> None:
    for i in range(streams.size):
        row, copy = source[streams[i]], to[i]  # of rows it is plain that they do not overlap
        for j in range(row.size):
            copy[j] = row[j]
