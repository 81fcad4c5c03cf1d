"""Crossover of two parents: hyperparameters and layers; and warm starts of other layouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from remuda.errors import UsageError
from remuda.evolution.layout import WeightLayout
from remuda.types import Array, Floats


def cross_hyperparameters(
    one: Mapping[str, float],
    other: Mapping[str, float],
    rng: np.random.Generator,
    *,
    share: float = 0.5,
) -> dict[str, float]:
    """Draw each hyperparameter that both parents have from either of them.

    The child has the algorithm and the names of the first parent. `share`: the probability of the
    second parent's value.
    """
    _check_share(share)
    return {
        name: other[name] if rng.random() < share and name in other else value
        for name, value in one.items()
    }


@dataclass(frozen=True)
class Crossed:
    """The weights of a child of two parents of one layout.

    Attributes:
        weights: [P].
        layers: the names of those that are the second parent's.
    """

    weights: Floats
    layers: tuple[str, ...]


def cross_layers(
    one: Array, other: Array, layout: WeightLayout, rng: np.random.Generator, *, share: float = 0.5
) -> Crossed:
    """Take each layer whole, with weights, biases and buffers, from either of two parents.

    `one`, `other`: [P] weights of the parents; `share`: the probability of the second parent's
    layer.
    """
    _check_share(share)
    child = layout.checked(one, "weights of the first parent")
    theirs = layout.checked(other, "weights of the second parent")
    taken = tuple(layer for layer in layout.layers if rng.random() < share)
    for layer in taken:
        for name in layout.layers[layer]:
            child[layout.slices[name]] = theirs[layout.slices[name]]
    return Crossed(child, taken)


@dataclass(frozen=True)
class WarmStart:
    """Weights for a layout that were taken from another one, as far as tensors fit.

    Attributes:
        weights: [P] of the new layout.
        copied: names of tensors of one shape in both.
        overlapping: names of those whose overlapping block was copied.
        fresh: names of newly drawn ones.
        taken: number of the P weights that were copied.
    """

    weights: Floats
    copied: tuple[str, ...]
    overlapping: tuple[str, ...]
    fresh: tuple[str, ...]
    taken: int

    def in_words(self) -> str:
        """Return one sentence."""
        return (
            f"{self.taken:,} of {len(self.weights):,} weights were taken: "
            f"{len(self.copied)} tensors whole, {len(self.overlapping)} in part; "
            f"{len(self.fresh)} are fresh"
        )


def warm_start(weights: Array, layout: WeightLayout, fresh: Array, new: WeightLayout) -> WarmStart:
    """Start a policy of another width with trained weights.

    A tensor of the same name and shape is copied; of one with as many axes the common block, from
    the first row and column on, gate by gate for recurrent layers; all others are newly drawn. So a
    wider policy does not act like the old one at once: its new units add to the outputs of the old
    ones.

    `weights`: [P_old]; `fresh`: [P] newly drawn weights.
    """
    old = layout.tensors(layout.checked(weights, "weights of the parent"))
    found = new.checked(fresh, "fresh weights")
    kinds: dict[str, list[str]] = {"copied": [], "overlapping": [], "fresh": []}
    taken = 0
    for name, tensor in new.tensors(found).items():
        theirs = old.get(name)
        if theirs is None or theirs.ndim != tensor.ndim:
            kinds["fresh"].append(name)
            continue
        parts = new.blocks(name)
        block = tuple(map(min, tensor.shape, theirs.shape))
        if theirs.shape == tensor.shape:
            tensor[...] = theirs
        else:
            kept, source = (each.reshape(*each.shape[:-1], parts, -1) for each in (tensor, theirs))
            inner = (*map(slice, block[:-1]), slice(None), slice(block[-1] // parts))
            kept[inner] = source[inner]
        size = int(np.prod(block))
        kinds["copied" if theirs.shape == tensor.shape else "overlapping"].append(name)
        taken += size
    return WarmStart(
        found, tuple(kinds["copied"]), tuple(kinds["overlapping"]), tuple(kinds["fresh"]), taken
    )


def _check_share(share: float) -> None:
    if not 0.0 <= share <= 1.0:
        raise UsageError(f"share is {share}; it must be between 0 and 1")
