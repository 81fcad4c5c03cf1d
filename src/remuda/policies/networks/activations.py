"""What follows a hidden layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from remuda.kernels import njit
from remuda.types import Floats

FAST: dict[str, Any] = {
    "cache": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "arcp", "nsz"},
}
"""For compiled loops that read many arrays and write none, or read and write only one: sums in any
order, products and sums fused, and what is no number stays no number.

Not for a loop that writes one array and reads another. LLVM compiles such a loop twice, for arrays
that lie far from each other in memory and for others, and decides by their addresses when it runs.
Where the order of a sum is free, the two differ in the last bits, so a run would not repeat itself.
"""
STRICT: dict[str, Any] = {"cache": True, "error_model": "numpy"}
"""For all other compiled loops: the same numbers wherever the arrays lie."""
RELU, TANH = 0, 1
KINDS = {"relu": RELU, "tanh": TANH}


@njit(**FAST)
def activate_in_place(x: Floats, kind: int) -> None:
    """The rectifier, or tanh as a quotient of polynomials, to within 4 units in the last place.

    Coefficients as in Eigen's generic_fast_tanh; beyond 7.9 it is one such unit below 1.
    """
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
    """Errors by activations become errors by pre-activations, in place; add them up by policy.

    Args:
        errors: [G, B, F].
        hidden: [G, B, F] activations.
        kind: `RELU`, or `TANH`.
        sums: [G, F], written.
    """
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
    """Add up rows one after another, so that what there is beside them makes no difference.

    Args:
        errors: [G, B, F].
        sums: [G, F], written.
    """
    for k in range(errors.shape[0]):
        total = np.zeros(errors.shape[2], np.float32)
        for b in range(errors.shape[1]):
            for j in range(errors.shape[2]):
                total[j] += errors[k, b, j]
        sums[k] = total
