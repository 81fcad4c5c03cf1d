"""What a policy is asked with, checked: arrays, masks, switches, rates and random numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from remuda.errors import UsageError
from remuda.types import Array, Bools


def array_of(values: npt.ArrayLike, name: str, policy: str) -> Array:
    """What was given as an array.

    Raises:
        UsageError: its rows are of unlike lengths, or it is no array for another reason.
    """
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise UsageError(f"{policy}: {name} is no array: {error}") from None


def switches_of(mask: Array, policy: str) -> Bools:
    """A mask of booleans, or of numbers that are 0 or 1, as booleans.

    Raises:
        UsageError: it holds something else.
    """
    if mask.dtype == np.bool_:
        return mask
    flat = mask.ravel()
    if mask.dtype.kind in "buif":
        odd = flat[~((flat == 0) | (flat == 1))].tolist()
    else:
        odd = [each for each in flat.tolist() if not isinstance(each, bool)]
    if odd:
        raise UsageError(
            f"{policy}: mask holds {odd[0]!r}; give True or 1 for what is allowed, and False or 0 "
            "for what is not"
        )
    return mask.astype(np.bool_)


def check_switch(value: object, name: str) -> None:
    """Raise a `UsageError` for what is neither True nor False."""
    if not isinstance(value, bool | np.bool_):
        raise UsageError(f"{name}: True or False; this is {value!r}")


def check_rate(epsilon: object) -> None:
    """Raise a `UsageError` for what is no exploration rate."""
    number = isinstance(epsilon, int | float | np.number) and not isinstance(epsilon, bool)
    if not number or not 0.0 <= epsilon <= 1.0:  # type: ignore[operator]
        raise UsageError(f"epsilon is a share, 0 to 1; this is {epsilon!r}")


def generator_of(rng: np.random.Generator | int) -> np.random.Generator:
    """Random numbers, given as such or by a seed.

    Raises:
        UsageError: they are neither.
    """
    try:
        return np.random.default_rng(rng)
    except (ValueError, TypeError):
        raise UsageError(
            "rng: a numpy Generator, a seed, which is a whole number of 0 or more, or None; this "
            f"is {rng!r}"
        ) from None
