"""Activation functions as compiled loops."""

from __future__ import annotations

from typing import Any

import numpy as np

from remuda.system.kernels import njit
from remuda.types import Floats

FAST: dict[str, Any] = {
    "cache": True,
    "error_model": "numpy",
    "nogil": True,
    "fastmath": {"reassoc", "contract", "arcp", "nsz"},
}
"""Options of compiled loops that only read arrays, or use a single array.

Sums run in any order, products and sums are fused, and NaN stays NaN. Do not use them for a loop
that writes one array and reads another: LLVM compiles it for overlapping and for separate arrays,
and selects by address at run time. These versions differ in the last bits, so a run would not be
reproducible.
"""
# for all other compiled loops: results do not depend on addresses
STRICT: dict[str, Any] = {"cache": True, "error_model": "numpy", "nogil": True}
RELU, TANH = 0, 1
KINDS = {"relu": RELU, "tanh": TANH}


@njit(**FAST)
def activate_in_place(x: Floats, kind: int) -> None:
    """Apply ReLU, or tanh to within 4 units in the last place (Eigen's generic_fast_tanh)."""
    limit, one = np.float32(7.90531110763549805), np.float32(1.0)
    if kind == RELU:
        for i in range(x.size):
            x[i] = max(x[i], np.float32(0.0))
        return
    for i in range(x.size):
        v = min(max(x[i], -limit), limit)
        u = v * v
        p = np.float32(-2.76076847742355e-16)
        p = p * u + np.float32(2.00018790482477e-13)
        p = p * u + np.float32(-8.60467152213735e-11)
        p = p * u + np.float32(5.12229709037114e-08)
        p = p * u + np.float32(1.48572235717979e-05)
        p = p * u + np.float32(6.37261928875436e-04)
        p = p * u + np.float32(4.89352455891786e-03)
        q = np.float32(1.19825839466702e-06)
        q = q * u + np.float32(1.18534705686654e-04)
        q = q * u + np.float32(2.26843463243900e-03)
        q = q * u + np.float32(4.89352518554385e-03)
        x[i] = min(max(v * p / q, -one), one)


@njit(**STRICT)
def derive(errors: Floats, hidden: Floats, kind: int, sums: Floats) -> None:
    """Convert gradients [G, B, F] of activations to those of pre-activations; sum them: [G, F]."""
    zero, one = np.float32(0.0), np.float32(1.0)
    for k in range(errors.shape[0]):
        total = np.zeros(errors.shape[2], np.float32)
        for b in range(errors.shape[1]):
            for j in range(errors.shape[2]):
                h = hidden[k, b, j]
                slope = (one if h > zero else zero) if kind == RELU else one - h * h
                errors[k, b, j] *= slope
            for j in range(errors.shape[2]):
                total[j] += errors[k, b, j]
        for j in range(total.size):
            sums[k, j] = total[j]


@njit(**STRICT)
def add_up(errors: Floats, sums: Floats) -> None:
    """Sum errors [G, B, F] over B to [G, F], in order: results do not depend on other rows."""
    for k in range(errors.shape[0]):
        total = np.zeros(errors.shape[2], np.float32)
        for b in range(errors.shape[1]):
            for j in range(errors.shape[2]):
                total[j] += errors[k, b, j]
        sums[k] = total
