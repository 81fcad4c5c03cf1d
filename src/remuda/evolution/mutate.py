"""Mutations of weights: noise that is equal, proportional to each tensor, or safe for outputs.

All take a vector [P] of weights, leave buffers unchanged, and return a new one. A strength of 0
changes nothing, bit for bit.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch

from remuda.analysis.payoff import Numbers
from remuda.errors import UsageError
from remuda.evolution.layout import Layout, Outputs
from remuda.types import Array, Floats

LEAST = 0.01
"""Least sensitivity, in units of output to a unit of weight, so that weights without effect on
these states do not move out of proportion.
"""


def add_noise(weights: Array, layout: Layout, strength: float, rng: np.random.Generator) -> Floats:
    """Add Gaussian noise of one standard deviation to all learned weights [P]."""
    return _moved(weights, layout, strength, np.ones(layout.size), rng)


def add_noise_by_layer(
    weights: Array, layout: Layout, strength: float, rng: np.random.Generator
) -> Floats:
    """Add Gaussian noise to each tensor in proportion to its standard deviation.

    Constant tensors, such as initial biases of 0, do not change. `weights`: [P].
    """
    scales = np.zeros(layout.size)
    for name, tensor in layout.tensors(layout.checked(weights)).items():
        scales[layout.slices[name]] = tensor.std(dtype=np.float64) if tensor.size else 0.0
    return _moved(weights, layout, strength, scales, rng)


def add_safe_noise(
    weights: Array,
    layout: Layout,
    strength: float,
    rng: np.random.Generator,
    outputs: Outputs,
    states: npt.ArrayLike,
) -> Floats:
    """Add Gaussian noise to each weight in inverse proportion to its effect on outputs.

    Safe mutation by output gradients, SM-G-ABS (Lehman et al. 2018, "Safe mutations for deep and
    recurrent neural networks through output gradients", section 4). To first order the output
    vector of a state moves by `strength`, root mean square over noise and, where gradients of
    states agree, over states. Weights without effect at these states stay: their effect elsewhere
    is unknown.

    `weights`: [P]; `states`: [B, ...]; B * O passes are made.
    """
    if strength == 0.0:
        return layout.checked(weights)
    sensitive = sensitivity(layout.checked(weights), outputs, states)
    moved = layout.learned & np.isfinite(sensitive) & (sensitive > 0.0)
    scales = np.zeros(layout.size)
    scales[moved] = 1.0 / (np.maximum(sensitive[moved], LEAST) * math.sqrt(max(moved.sum(), 1)))
    return _moved(weights, layout, strength, scales, rng)


def sensitivity(weights: Floats, outputs: Outputs, states: npt.ArrayLike) -> Numbers:
    """Return how far outputs move with each weight: [P], in units of output to a unit of weight.

    sqrt(sum over outputs k of (mean over states of |d output_k / d weight|)^2), as in SM-G-ABS:
    gradients of different states do not cancel. `weights`: [P]; `states`: [B, ...].
    """
    inputs = torch.from_numpy(np.asarray(states, np.float32))
    if not len(inputs):
        raise UsageError("sensitivities need at least one state; there is none")
    vector = torch.from_numpy(np.array(weights, np.float32)).requires_grad_()
    sums: Numbers = np.zeros(0)
    for place in range(len(inputs)):
        found = outputs(vector, inputs[place : place + 1])[0]
        if not sums.size:
            sums = np.zeros((len(found), len(weights)))
        for k, output in enumerate(found):
            (slope,) = torch.autograd.grad(output, vector, retain_graph=True)
            sums[k] += slope.abs().numpy()
    total: Numbers = np.sqrt(((sums / len(inputs)) ** 2).sum(0))
    return total


def _moved(
    weights: Array, layout: Layout, strength: float, scales: Numbers, rng: np.random.Generator
) -> Floats:
    """Return weights with noise of these standard deviations [P] times the strength."""
    if not 0.0 <= strength < math.inf:
        raise UsageError(f"strength is {strength}; it must be a number of 0 or more")
    found = layout.checked(weights)
    if strength == 0.0:
        return found
    noise = rng.standard_normal(layout.size)
    moved = layout.learned & (scales > 0.0)
    found[moved] += (strength * scales[moved] * noise[moved]).astype(np.float32)
    return found
