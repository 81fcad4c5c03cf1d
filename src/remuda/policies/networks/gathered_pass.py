"""A forward pass of perceptrons for streams gathered by policy: each once, and nothing padded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from remuda.kernels import njit
from remuda.memory.aligned import aligned_zeros
from remuda.policies.networks.activations import KINDS, activate_in_place
from remuda.policies.networks.encoder import Weights
from remuda.policies.networks.products import multiply_gathered
from remuda.types import Floats, Integers


class Gathered(Protocol):
    """Passes of streams gathered by policy."""

    def __call__(self, inputs: Floats, begins: Integers, streams: Integers) -> Floats:
        """What networks say to these streams, [M, outputs]: see `GatheredPass`."""

    @property
    def nbytes(self) -> int:
        """Of what streams are gathered into."""


class GatheredPass:
    """Streams of inputs through the layers of K policies, hidden ones first, the head last."""

    def __init__(self, weights: Weights, layers: Sequence[str], activation: str) -> None:
        """Look at the weights [K, I, O] where they are: they may change between two passes."""
        self._kind = KINDS[activation]
        self._layers = [(weights[f"{name}.weight"], weights[f"{name}.bias"]) for name in layers]
        self._inputs: Floats = np.zeros((0, self._layers[0][0].shape[1]), np.float32)
        self._between: list[Floats] = []

    def __call__(self, inputs: Floats, begins: Integers, streams: Integers) -> Floats:
        """What the head says to these streams, [M, outputs]; written anew by the next pass.

        Args:
            inputs: [N, num_inputs] of all streams.
            begins: [K + 1] where each policy's streams begin...
            streams: [M] ...in this list of stream numbers.
        """
        count = len(streams)
        if count > len(self._inputs) or not self._between:
            self._make_room(2 * count)
        x = self._inputs[:count]
        gather(inputs, streams, x)
        last = len(self._layers) - 1
        for i, ((weight, bias), room) in enumerate(zip(self._layers, self._between, strict=True)):
            out = room[:count]
            multiply_gathered(torch.from_numpy(x), begins, weight, bias, torch.from_numpy(out))
            if i < last:
                activate_in_place(out.reshape(-1), self._kind)
            x = out
        return x

    @property
    def nbytes(self) -> int:
        """Of what streams are gathered into."""
        return self._inputs.nbytes + sum(room.nbytes for room in self._between)

    def _make_room(self, count: int) -> None:
        self._inputs = aligned_zeros((count, self._inputs.shape[1]))
        self._between = [aligned_zeros((count, weight.shape[2])) for weight, _ in self._layers]


@njit(cache=True)
def gather(source: Floats, streams: Integers, to: Floats) -> None:
    """Copy these rows of [N, F] to [M, F]."""
    for i in range(streams.size):
        for j in range(source.shape[1]):
            to[i, j] = source[streams[i], j]
