"""Check and batch the inputs of `Policy.act`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from remuda.config import PolicyConfig
from remuda.errors import UsageError
from remuda.types import Array, Bools


def as_array(values: npt.ArrayLike, name: str) -> Array:
    """Convert an argument to an array, or raise a `UsageError` with the argument's name."""
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise UsageError(f"{name} is no array: {error}") from None


def as_rows(
    observation: npt.ArrayLike, shape: tuple[int, ...], dtype: npt.DTypeLike
) -> tuple[Array, bool]:
    """Return one observation, or a batch, as [N, size], and whether it is a single one."""
    array = as_array(observation, "observation")
    single = array.shape == shape
    if not single and array.shape[1:] != shape:
        raise UsageError(
            f"it expects observations of shape {shape}, or a batch of them; this is of shape "
            f"{array.shape}"
        )
    if array.dtype.kind not in "buif":
        raise UsageError(f"it expects numbers; this is of {array.dtype}")
    wanted, size = np.dtype(dtype), int(np.prod(shape, dtype=np.int64))
    with np.errstate(invalid="ignore"):  # checked below
        cast = np.ascontiguousarray(array, wanted)
    exact = wanted.kind == "f" or (cast == array).all()
    if not exact:
        raise UsageError(
            f"it expects observations of {wanted}; this is of {array.dtype}, and holds numbers "
            f"that do not fit into {wanted}"
        )
    if wanted.kind == "f" and not np.isfinite(cast).all():
        finite = np.isfinite(cast).reshape(-1, size).all(1)
        raise UsageError(f"observation {int(finite.argmin())} is not finite")
    return cast.reshape(1 if single else len(cast), size), single


@contextmanager
def naming_policy(policy: str) -> Iterator[None]:
    """Prefix the message of a `UsageError` with the policy's name."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{policy}: {error}") from None


def as_boolean_mask(mask: Array) -> Bools:
    """Convert a mask of booleans, zeros and ones, or raise a `UsageError`."""
    if mask.dtype == np.bool_:
        return mask
    flat = mask.ravel()
    if mask.dtype.kind in "buif":
        odd = flat[~((flat == 0) | (flat == 1))].tolist()
    else:
        odd = [each for each in flat.tolist() if not isinstance(each, bool)]
    if odd:
        raise UsageError(
            f"mask holds {odd[0]!r}; use True or 1 for allowed actions, and False or 0 for others"
        )
    return mask.astype(np.bool_)


def exploration_rate(deterministic: bool, epsilon: float | None, config: PolicyConfig) -> float:
    """Return the exploration rate of a call, or raise a `UsageError`."""
    if not isinstance(deterministic, bool | np.bool_):
        raise UsageError(f"deterministic must be True or False; this is {deterministic!r}")
    if epsilon is None:
        return 0.0 if deterministic else config.last_epsilon
    number = isinstance(epsilon, int | float | np.number) and not isinstance(epsilon, bool)
    if not number or not 0.0 <= epsilon <= 1.0:
        raise UsageError(f"epsilon is a share, 0 to 1; this is {epsilon!r}")
    if config.entry.samples:
        raise UsageError(
            f"{config.algorithm} explores by drawing from its distribution, and has no "
            "exploration rate; leave epsilon out"
        )
    if deterministic:
        raise UsageError(
            f"epsilon is {epsilon}, and deterministic play does not explore; pass "
            "deterministic=False too, or leave epsilon out"
        )
    return epsilon


def as_rng(rng: np.random.Generator | int) -> np.random.Generator:
    """Return a generator, or make one from a seed."""
    try:
        return np.random.default_rng(rng)
    except (ValueError, TypeError):
        raise UsageError(
            "rng: a numpy Generator, a seed, which is a whole number of 0 or more, or None; this "
            f"is {rng!r}"
        ) from None
