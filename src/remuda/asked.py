"""What a policy is asked with, checked: arrays, masks, switches, rates and random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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


def rows_of(
    observation: npt.ArrayLike, shape: tuple[int, ...], dtype: npt.DTypeLike, policy: str
) -> tuple[Array, bool]:
    """Return one observation, or a batch, as [N, size] of `dtype`, and whether it is one alone.

    Raises:
        UsageError: it has another shape, or holds what the dtype does not have.
    """
    given = array_of(observation, "observation", policy)
    single = given.shape == shape
    if not single and given.shape[1:] != shape:
        raise UsageError(
            f"{policy} sees observations of shape {shape}, or a batch of them; "
            f"this is of shape {given.shape}"
        )
    if given.dtype.kind not in "buif":
        raise UsageError(f"{policy} sees numbers; this is of {given.dtype}")
    wanted, size = np.dtype(dtype), int(np.prod(shape, dtype=np.int64))
    with np.errstate(invalid="ignore"):  # what comes of numbers that are none is seen below
        found = np.ascontiguousarray(given, wanted)
    exact = wanted.kind == "f" or (found == given).all()
    if not exact:
        raise UsageError(
            f"{policy} sees observations of {wanted}; this is of {given.dtype}, and holds "
            f"numbers that {wanted} does not have"
        )
    if wanted.kind == "f" and not np.isfinite(found).all():
        finite = np.isfinite(found).reshape(-1, size).all(1)
        raise UsageError(f"{policy}: observation {int(finite.argmin())} is not finite")
    return found.reshape(1 if single else len(found), size), single


@contextmanager
def told_of(policy: str) -> Iterator[None]:
    """Inside the `with`, put the policy's name before the message of a `UsageError`."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{policy}: {error}") from None


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


def rate_of(
    deterministic: bool, epsilon: float | None, policy: str, algorithm: str, samples: bool
) -> float | None:
    """Return the exploration rate to choose with; None: the policy's own at the end of training.

    Raises:
        UsageError: one of them is no value, or they do not go together, or with a policy that
            `samples` its distribution.
    """
    check_switch(deterministic, "deterministic")
    if epsilon is not None:
        check_rate(epsilon)
    if epsilon is not None and samples:
        raise UsageError(
            f"{policy}: {algorithm} explores by drawing from its distribution, and has "
            "no exploration rate; leave epsilon out"
        )
    if not deterministic:
        return epsilon
    if epsilon is not None:
        raise UsageError(
            f"{policy}: epsilon is {epsilon}, and deterministic play does not explore; "
            "give deterministic=False too, or leave epsilon out"
        )
    return 0.0


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
