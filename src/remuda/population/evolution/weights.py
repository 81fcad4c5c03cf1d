"""Operators on weights: crossover of two parents, mutation, warm starts in other layouts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.random import Generator

from remuda.errors import UsageError
from remuda.policies.networks.network import GATES, Network
from remuda.policies.stack import Shapes, layout_size
from remuda.types import Array, Bools, Floats


@dataclass(frozen=True)
class WeightLayout:
    """The layout of one policy's tensors in a vector [P] of float32."""

    shapes: Shapes  # of the named tensors, in order
    buffers: frozenset[str] = frozenset()  # published but not learned, such as input statistics

    @classmethod
    def of(cls, network: Network) -> WeightLayout:
        return cls(dict(network.shapes), network.buffers)

    @property
    def size(self) -> int:
        return layout_size(self.shapes)

    @cached_property
    def slices(self) -> Mapping[str, slice]:
        ends = list(accumulate((math.prod(s) for s in self.shapes.values()), initial=0))
        return {name: slice(*ends[i : i + 2]) for i, name in enumerate(self.shapes)}

    @cached_property
    def learned(self) -> Bools:
        """[P]: whether an element is learned; false for buffers."""
        found = np.ones(self.size, np.bool_)
        for name in self.buffers:
            found[self.slices[name]] = False
        return found

    @cached_property
    def layers(self) -> Mapping[str, tuple[str, ...]]:
        """Tensor names by layer; layers of only buffers are merged into the first learned layer."""
        found: dict[str, list[str]] = {}
        for name in self.shapes:
            found.setdefault(name.rpartition(".")[0] or name, []).append(name)
        first = next((n for n, own in found.items() if not self.buffers.issuperset(own)), None)
        for layer in [layer for layer, own in found.items() if self.buffers.issuperset(own)]:
            if first is not None:
                found[first] += found.pop(layer)
        return {layer: tuple(own) for layer, own in found.items()}

    def tensors(self, weights: Floats) -> dict[str, Floats]:
        return {name: weights[self.slices[name]].reshape(s) for name, s in self.shapes.items()}

    def blocks(self, name: str) -> int:
        """Return the number of equal blocks in a tensor's last axis: 3 for gates, else 1."""
        return 3 if name.rpartition(".")[0] in GATES else 1

    def checked(self, weights: Array, what: str = "weights") -> Floats:
        """Return a float32 copy of a vector, after checking its size."""
        if weights.shape != (self.size,):
            raise UsageError(f"{what} are {weights.shape}; this layout has ({self.size},)")
        return np.array(weights, np.float32)


def cross_hyperparameters(
    one: Mapping[str, float], other: Mapping[str, float], rng: Generator, *, share: float = 0.5
) -> dict[str, float]:
    """Take each hyperparameter from `one`, or with probability `share` from `other`."""
    return {
        name: other[name] if rng.random() < share and name in other else value
        for name, value in one.items()
    }


def cross_layers(
    one: Array, other: Array, layout: WeightLayout, rng: Generator, *, share: float = 0.5
) -> Floats:
    """Take each layer from `one` [P], or with probability `share` from `other` [P]."""
    child = layout.checked(one, "weights of the first parent")
    second = layout.checked(other, "weights of the second parent")
    for names in layout.layers.values():
        if rng.random() < share:
            for name in names:
                child[layout.slices[name]] = second[layout.slices[name]]
    return child


def warm_start(weights: Array, layout: WeightLayout, fresh: Array, new: WeightLayout) -> Floats:
    """Initialise a policy of another width from trained weights [P_old].

    Tensors of the same name and shape are copied. If only the number of axes is equal, the common
    leading block is copied, gate by gate for recurrent layers. All other weights are taken from
    `fresh` [P].
    """
    old = layout.tensors(layout.checked(weights, "weights of the parent"))
    found = new.checked(fresh, "fresh weights")
    for name, tensor in new.tensors(found).items():
        source = old.get(name)
        if source is None or source.ndim != tensor.ndim:
            continue
        if source.shape == tensor.shape:
            tensor[...] = source
            continue
        parts = new.blocks(name)
        block = tuple(map(min, tensor.shape, source.shape))
        target, source = (each.reshape(*each.shape[:-1], parts, -1) for each in (tensor, source))
        inner = (*map(slice, block[:-1]), slice(None), slice(block[-1] // parts))
        target[inner] = source[inner]
    return found


def add_noise_by_layer(
    weights: Array, layout: WeightLayout, strength: float, rng: Generator
) -> Floats:
    """Return weights [P] with Gaussian noise, scaled by each tensor's standard deviation.

    Buffers and constant tensors, such as initial biases of 0, do not change.
    """
    found = layout.checked(weights)
    if strength == 0.0:
        return found
    scales = np.zeros(layout.size)
    for name, tensor in layout.tensors(found).items():
        scales[layout.slices[name]] = tensor.std(dtype=np.float64) if tensor.size else 0.0
    noise = rng.standard_normal(layout.size)
    moved = layout.learned & (scales > 0.0)
    found[moved] += (strength * scales[moved] * noise[moved]).astype(np.float32)
    return found
