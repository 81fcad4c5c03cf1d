"""The layout of a policy's tensors in its weight vector [P]."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from remuda.errors import UsageError
from remuda.policies.networks.network import GATES, Network
from remuda.policies.stack import Shapes, layout_size
from remuda.types import Array, Bools, Floats

Outputs = Callable[[Tensor, Tensor], Tensor]
"""A function from weights [P] and states [B, ...] to outputs [B, O], differentiable in the weights.
"""


@dataclass(frozen=True)
class WeightLayout:
    """The tensors of one policy, one after another in a vector [P] of float32.

    Attributes:
        shapes: of the named tensors, in order.
        buffers: names of tensors that are published and not learned, such as moments of
            observations.
    """

    shapes: Shapes
    buffers: frozenset[str] = frozenset()

    @classmethod
    def of(cls, network: Network) -> WeightLayout:
        """Return the layout of a policy's network."""
        return cls(dict(network.shapes), network.buffers)

    @property
    def size(self) -> int:
        """P."""
        return layout_size(self.shapes)

    @cached_property
    def slices(self) -> Mapping[str, slice]:
        """The slice of each tensor in the vector."""
        ends = list(accumulate((math.prod(s) for s in self.shapes.values()), initial=0))
        return {name: slice(*ends[i : i + 2]) for i, name in enumerate(self.shapes)}

    @cached_property
    def learned(self) -> Bools:
        """[P]: whether a number is learned; else it is of a buffer."""
        found = np.ones(self.size, np.bool_)
        for name in self.buffers:
            found[self.slices[name]] = False
        return found

    @cached_property
    def layers(self) -> Mapping[str, tuple[str, ...]]:
        """The tensor names of each layer: those with its prefix.

        Buffers without a learned layer belong to the first layer, whose inputs they normalise.
        """
        found: dict[str, list[str]] = {}
        for name in self.shapes:
            found.setdefault(name.rpartition(".")[0] or name, []).append(name)
        first = next((n for n, own in found.items() if not self.buffers.issuperset(own)), None)
        for layer in [layer for layer, own in found.items() if self.buffers.issuperset(own)]:
            if first is not None:
                found[first] += found.pop(layer)
        return {layer: tuple(own) for layer, own in found.items()}

    def tensors(self, weights: Floats) -> dict[str, Floats]:
        """Return views into a vector [P] of weights."""
        return {name: weights[self.slices[name]].reshape(s) for name, s in self.shapes.items()}

    def blocks(self, name: str) -> int:
        """Return the number of equal blocks in a tensor's last axis: gates of a recurrent layer.

        Layers of different widths are compared block by block.
        """
        return 3 if name.rpartition(".")[0] in GATES else 1

    def checked(self, weights: Array, what: str = "weights") -> Floats:
        """Return a vector as float32, a copy."""
        if weights.shape != (self.size,):
            raise UsageError(f"{what} are {weights.shape}; this layout has ({self.size},)")
        return np.array(weights, np.float32)


def outputs_of(network: Network) -> Outputs:
    """Return the function from weights to what a policy's actions are chosen by.

    A recurrent network sees every state as the first of an episode. Noisy layers use their means.
    """
    layout = WeightLayout.of(network)

    def outputs(weights: Tensor, states: Tensor) -> Tensor:
        parameters = {
            name: weights[layout.slices[name]].reshape(1, *shape)
            for name, shape in network.shapes.items()
        }
        plain = network.acting(parameters, None)
        inputs = states.float().flatten(1)[None]
        if not network.memory:
            return network.outputs(plain, inputs)[0]
        begin = torch.zeros(1, inputs.shape[1], network.memory)
        return network.step(plain, inputs, begin)[0][0]

    return outputs
