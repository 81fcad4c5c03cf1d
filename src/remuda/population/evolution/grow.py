"""Convert trained weights to a network of another width or depth.

A wider or deeper network computes the same outputs and has more capacity (Net2Net: Chen et al.
2016, "Net2Net: accelerating learning via knowledge transfer"). Net2Net copies units and adds noise,
so that copies diverge. Here new units are initialised at random, and old units read them with zero
weights: outputs stay exactly the same, and the first update already trains the new units.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from remuda.policies.compatibility import stream_shape
from remuda.policies.networks.network import GATES
from remuda.policies.spec import PolicySpec
from remuda.population.evolution.weights import WeightLayout, warm_start
from remuda.types import Array, Floats

HIDDEN = re.compile(r"((?:.*_)?hidden)(\d+)\.weight")  # tower (stack of layers), layer number


def network_family(spec: PolicySpec) -> tuple[object, ...]:
    """Return a key that is equal for networks that differ only in widths and numbers of layers.

    Hidden layers, a recurrent layer and convolutions may differ in width. Networks may differ in
    the number of hidden layers if both have at least one.
    """
    network, config = spec.config.network, spec.config
    rest: dict[str, Any] = network.model_dump(
        mode="json", exclude={"hidden", "recurrent", "convolutions", "shared"}
    )
    # The features of all images are concatenated: more channels of one image shift the others.
    several = bool(network.convolutions) and len(spec.pictures) > 1
    kernels = tuple(each if several else each[1:] for each in network.convolutions)
    return (
        config.algorithm,
        repr(rest),
        bool(network.hidden),
        bool(network.recurrent),
        config.shares_network,
        spec.critic,
        kernels,
        (config.iqn.quantiles, config.iqn.cosines) if config.entry.quantiles else (),
        (config.ppo.normalise_observations, config.ppo.normalise_values)
        if config.entry.takes == "rollouts"
        else (),
        replace(stream_shape(spec), memory=0),
        repr(spec.actions),
    )


def grow(weights: Array, parent: WeightLayout, fresh: Array, child: WeightLayout) -> Floats:
    """Initialise a network from the weights [P_parent] of another of the same `network_family`.

    All other weights are taken from `fresh` [P]. Wider layers, including gated recurrent layers,
    keep their outputs. Additional hidden layers start as the identity: exactly with ReLU,
    approximately with tanh. A narrower network keeps the first units. With fewer hidden layers, the
    layers that read the last hidden layer are initialised at random.
    """
    found = warm_start(weights, parent, fresh, child)
    tensors, parent_shapes = child.tensors(found), parent.shapes
    drawn = child.tensors(child.checked(fresh, "fresh weights"))
    for name, tensor in tensors.items():
        shape = parent_shapes.get(name, ())
        resized = len(shape) == tensor.ndim and shape != tensor.shape
        if resized and name.rpartition(".")[2] in ("weight", "weight_sigma"):
            _silence(tensor, shape, child.blocks(name))
    for tower, (before, after) in _depths(parent, child).items():
        if before < after:
            # If an IQN parent has no hidden layer, a new one reads the product with the embedding.
            width = parent_shapes[f"{tower}{before - 1}.weight" if before else "quantile.weight"][1]
            for i in range(before, after):
                width = _pass_on(tensors, f"{tower}{i}", width)
        elif before > after:
            for name in _read_by(tower, child):
                tensors[name][...] = drawn[name]
    return found


def _silence(tensor: Floats, old: tuple[int, ...], blocks: int) -> None:
    """Zero the weights from new inputs to old units: linear [in, out], conv [out, in, ..]."""
    if tensor.ndim == 4:
        tensor[: old[0], old[1] :] = 0.0
    else:
        parts = tensor.reshape(tensor.shape[0], blocks, -1)
        parts[old[0] :, :, : old[1] // blocks] = 0.0


def _pass_on(tensors: dict[str, Floats], layer: str, width: int) -> int:
    """Make a new layer the identity on its first `width` inputs; return how many it can pass on."""
    weight, bias = tensors[f"{layer}.weight"], tensors[f"{layer}.bias"]
    passed: int = min(width, *weight.shape)
    weight[:, :passed] = np.eye(len(weight), passed, dtype=np.float32)
    bias[:, :passed] = 0.0
    for part in ("weight_sigma", "bias_sigma"):
        if f"{layer}.{part}" in tensors:
            tensors[f"{layer}.{part}"][:, :passed] = 0.0
    return passed


def _depths(parent: WeightLayout, child: WeightLayout) -> dict[str, tuple[int, int]]:
    """Return the numbers of hidden layers of the parent and the child, by tower."""
    counts = []
    for layout in (parent, child):
        towers = [match.group(1) for match in map(HIDDEN.fullmatch, layout.shapes) if match]
        counts.append({tower: towers.count(tower) for tower in towers})
    return {
        tower: (counts[0].get(tower, 0), counts[1].get(tower, 0))
        for tower in dict.fromkeys((*counts[0], *counts[1]))
    }


def _read_by(tower: str, layout: WeightLayout) -> Iterator[str]:
    """Return the tensors of the layers that read the last hidden layer of a tower."""
    own = tower.removesuffix("hidden").removesuffix("_")
    gated = f"{GATES[0]}.weight" in layout.shapes and "quantile.weight" not in layout.shapes
    heads = ("policy", "value", "head")
    layers = (own,) if own else (GATES[0],) if gated else heads
    return (name for name in layout.shapes if name.rpartition(".")[0] in layers)
