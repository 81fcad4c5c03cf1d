"""Exponential and logarithm of 32-bit floats, as polynomials that compilers vectorise."""

# mypy: disallow-untyped-calls=False

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

ONE, HALF = np.float32(1.0), np.float32(0.5)
# inputs of `exp` are clamped to these bounds; above 88.37 the result is infinity
LEAST, MOST = np.float32(-87.0), np.float32(89.0)
LOG2_E = np.float32(1.44269504088896341)
# log(2) in two parts, the first with few digits, so that its multiples are exact
LOG_2, LOG_2_REST = np.float32(0.693359375), np.float32(-2.12194440e-4)
ROOT = np.float32(0.707106781186547524)


def _float_of(context: Any, bits: Any) -> Any:  # noqa: ARG001
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), code


def _bits_of(context: Any, number: Any) -> Any:  # noqa: ARG001
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), code


float_of: Callable[..., Any] = intrinsic(_float_of)
bits_of: Callable[..., Any] = intrinsic(_bits_of)


@njit(inline="always")
def exp(x: np.float32) -> Any:
    """Return the exponential, to within 2 units in the last place (Cephes' expf)."""
    v = LEAST if x < LEAST else x  # NaN stays NaN
    v = MOST if v > MOST else v
    n = np.floor(v * LOG2_E + HALF)
    r = (v - n * LOG_2) - n * LOG_2_REST
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    p = (p * (r * r) + r) + ONE
    return p * float_of((np.int32(n) + np.int32(127)) << np.int32(23))


@njit(inline="always")
def log(x: np.float32) -> Any:
    """Return the log of a normal positive number, to 2 units in the last place (Cephes' logf)."""
    bits = bits_of(x)
    n = np.float32((bits >> np.int32(23)) - np.int32(126))
    m = float_of((bits & np.int32(0x007FFFFF)) | np.int32(0x3F000000))
    small = m < ROOT
    n = n - ONE if small else n
    r = m + m - ONE if small else m - ONE
    p = np.float32(7.0376836292e-2)
    p = p * r + np.float32(-1.1514610310e-1)
    p = p * r + np.float32(1.1676998740e-1)
    p = p * r + np.float32(-1.2420140846e-1)
    p = p * r + np.float32(1.4249322787e-1)
    p = p * r + np.float32(-1.6668057665e-1)
    p = p * r + np.float32(2.0000714765e-1)
    p = p * r + np.float32(-2.4999993993e-1)
    p = p * r + np.float32(3.3333331174e-1)
    square = r * r
    p = p * r * square + n * LOG_2_REST - HALF * square
    return (r + p) + n * LOG_2
