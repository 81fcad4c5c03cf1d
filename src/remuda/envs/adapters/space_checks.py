"""Check that an observation is in its space before Gymnasium flattens it.

Flattening counts negative states from the end, casts numbers to the dtype of their part (-1 becomes
255), and takes parts of wrong shapes whose sizes add up. A number outside the bounds of a Box is no
error, since many environments pass them by a little: see `checks.BoundsCheck`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from remuda.envs.checks import BadValueError, fitting, short
from remuda.types import Array

Check = Callable[[Any], None]
"""Raises a `BadValueError` for a value outside its space, or another error if it cannot tell."""
FEW = 32
"""Numbers up to which a loop is faster than an array."""


def check_of(space: spaces.Space[Any], name: str = "the observation") -> Check | None:
    """Return what checks the values of a space; None: there is nothing to check."""
    check = _check_of_kind(space, name)
    if getattr(type(space).contains, "__module__", "").startswith("gymnasium."):
        return check
    # A user's own `contains` decides, but a Box may say no for a bound that is passed.
    otherwise = check if isinstance(space, spaces.Box) else None
    shown = short(space)

    def contained(value: Any) -> None:
        if space.contains(value):
            return
        if otherwise is None:
            raise BadValueError(f"{name} is {short(value)}, which is not in {shown}")
        otherwise(value)

    return contained


def _check_of_kind(space: spaces.Space[Any], name: str) -> Check | None:
    if isinstance(space, spaces.Discrete):
        return _check_of_discrete(space, name)
    if isinstance(space, spaces.MultiDiscrete):
        first = np.asarray(space.start)
        return _check_of_integers(space, first, first + space.nvec - 1, name)
    if isinstance(space, spaces.MultiBinary):
        zeros: Array = np.zeros(space.shape, np.int64)
        return _check_of_integers(space, zeros, zeros + 1, name)
    if isinstance(space, spaces.Box):
        return _check_of_box(space, name)
    if isinstance(space, spaces.OneOf):
        return _check_of_one(space, name)
    if isinstance(space, spaces.Dict):
        return _check_of_parts(dict(space.spaces), None, name)
    if isinstance(space, spaces.Tuple):
        return _check_of_parts(dict(enumerate(space.spaces)), len(space.spaces), name)
    return None


def _check_of_discrete(space: spaces.Discrete, name: str) -> Check:
    first, last = int(space.start), int(space.start + space.n) - 1

    def check(value: Any) -> None:
        if not first <= value <= last:
            raise BadValueError(f"{name} is {short(value)}, and may be {first} to {last}")

    return check


def _check_of_integers(space: spaces.Space[Any], first: Array, last: Array, name: str) -> Check:
    shape, shown = space.shape, short(space)
    bounds = list(zip(np.ravel(first).tolist(), np.ravel(last).tolist(), strict=True))

    def is_within(array: Array) -> bool:
        if array.dtype.kind not in "biu" and not (array == np.floor(array)).all():
            return False
        if len(bounds) > FEW:
            return bool(((first <= array) & (array <= last)).all())
        found = zip(array.ravel().tolist(), bounds, strict=True)
        return all(low <= each <= high for each, (low, high) in found)

    def check(value: Any) -> None:
        array = np.asarray(value)
        if array.shape != shape or not is_within(array):
            raise BadValueError(f"{name} is {short(value)}, which is not in {shown}")

    return check


def _check_of_box(space: spaces.Box, name: str) -> Check:
    shape, dtype = space.shape, np.dtype(space.dtype)
    # Kinds of numbers that no cast to this dtype changes.
    sound = "biuf" if dtype.kind == "f" else ""

    def check(value: Any) -> None:
        if (
            type(value) is not np.ndarray
            or value.shape != shape
            or not (value.dtype == dtype or value.dtype.kind in sound)
        ):
            fitting(name, value, shape, dtype)

    return check


def _check_of_one(space: spaces.OneOf[Any], name: str) -> Check:
    """Check a pair: the number of a space, and a value in it."""
    checks = [check_of(own, f"{name}, part {i}") for i, own in enumerate(space.spaces)]
    last = len(checks) - 1

    def check(value: Any) -> None:
        pair = isinstance(value, tuple | list | np.ndarray) and len(value) == 2
        if not (pair and 0 <= value[0] <= last and value[0] == int(value[0])):
            raise BadValueError(
                f"{name} is {short(value)}, and has to be a number 0 to {last} and a value of the "
                "space of that number"
            )
        own = checks[int(value[0])]
        if own is not None:
            own(value[1])

    return check


def _check_of_parts(own: dict[Any, spaces.Space[Any]], count: int | None, name: str) -> Check:
    found = {key: check_of(each, f"{name}, part {key}") for key, each in own.items()}
    parts = [(key, check) for key, check in found.items() if check is not None]

    def check(value: Any) -> None:
        if count is not None and len(value) != count:
            raise BadValueError(f"{name} is {short(value)}, not of {count} parts")
        for key, part in parts:
            part(value[key])

    return check
