"""Mutations of weights."""

from __future__ import annotations

import math

import numpy as np

from remuda.errors import UsageError
from remuda.evolution.layout import WeightLayout
from remuda.types import Array, Floats


def add_noise_by_layer(
    weights: Array, layout: WeightLayout, strength: float, rng: np.random.Generator
) -> Floats:
    """Return weights [P] with Gaussian noise in proportion to each tensor's standard deviation.

    Buffers and constant tensors, such as initial biases of 0, do not change. A strength of 0
    changes nothing, bit for bit.
    """
    if not 0.0 <= strength < math.inf:
        raise UsageError(f"strength is {strength}; it must be a number of 0 or more")
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
