"""Whether what a library lets an agent see is in its space, looked at before it is flattened.

Flattening numbers states from 0 on, and counts them from the end where they are negative, so that
one beyond its space becomes another one; it casts numbers to the dtype of their part, by which -1
becomes 255; and parts of wrong shapes may add up to the right length.
The bounds of a Box are no error here, since many games pass them by a little: `checks.BoundsCheck`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from remuda.envs.checks import BadValueError, fitting, short
from remuda.types import Array

Refusal = Callable[[Any], None]
"""Raises a `BadValueError` where a value is not in its space; another error where it cannot be
looked at."""
FEW = 32
"""Numbers that are looked at one by one, which is faster than an array of them."""


def refusal_of(space: spaces.Space[Any], what: str = "the observation") -> Refusal | None:
    """What looks at the values of a space.

    Args:
        space: that they are to be in.
        what: they are, in messages.

    Returns:
        None where there is nothing to look at.
    """
    refuse = _of_kind(space, what)
    if getattr(type(space).contains, "__module__", "").startswith("gymnasium."):
        return refuse
    return _of_own(space, refuse if isinstance(space, spaces.Box) else None, what)


def _of_own(space: spaces.Space[Any], otherwise: Refusal | None, what: str) -> Refusal:
    """Refuse what a space with a `contains` of its own does not contain.

    Args:
        space: that decides.
        otherwise: what decides where it says no. A Box may say no for a bound that is passed.
        what: the values are, in messages.
    """
    told = short(space)

    def refuse(value: Any) -> None:
        if space.contains(value):
            return
        if otherwise is None:
            raise BadValueError(f"{what} is {short(value)}, which is not in {told}")
        otherwise(value)

    return refuse


def _of_kind(space: spaces.Space[Any], what: str) -> Refusal | None:
    """Return what looks at the values of one of Gymnasium's own spaces, as `refusal_of` does."""
    if isinstance(space, spaces.Discrete):
        return _of_choice(space, what)
    if isinstance(space, spaces.MultiDiscrete):
        first = np.asarray(space.start)
        return _of_several(space, first, first + space.nvec - 1, what)
    if isinstance(space, spaces.MultiBinary):
        zeros: Array = np.zeros(space.shape, np.int64)
        return _of_several(space, zeros, zeros + 1, what)
    if isinstance(space, spaces.Box):
        return _of_numbers(space, what)
    if isinstance(space, spaces.OneOf):
        return _of_either(space, what)
    if isinstance(space, spaces.Dict):
        return _of_parts(dict(space.spaces), None, what)
    if isinstance(space, spaces.Tuple):
        return _of_parts(dict(enumerate(space.spaces)), len(space.spaces), what)
    return None


def _of_choice(space: spaces.Discrete, what: str) -> Refusal:
    first, last = int(space.start), int(space.start + space.n) - 1

    def refuse(value: Any) -> None:
        if not first <= value <= last:
            raise BadValueError(f"{what} is {short(value)}, and may be {first} to {last}")

    return refuse


def _of_several(space: spaces.Space[Any], first: Array, last: Array, what: str) -> Refusal:
    shape, told = space.shape, short(space)
    bounds = list(zip(np.ravel(first).tolist(), np.ravel(last).tolist(), strict=True))

    def lies_within(array: Array) -> bool:
        if array.dtype.kind not in "biu" and not (array == np.floor(array)).all():
            return False
        if len(bounds) > FEW:
            return bool(((first <= array) & (array <= last)).all())
        found = zip(array.ravel().tolist(), bounds, strict=True)
        return all(low <= each <= high for each, (low, high) in found)

    def refuse(value: Any) -> None:
        array = np.asarray(value)
        if array.shape != shape or not lies_within(array):
            raise BadValueError(f"{what} is {short(value)}, which is not in {told}")

    return refuse


def _of_numbers(space: spaces.Box, what: str) -> Refusal:
    shape, dtype = space.shape, np.dtype(space.dtype)
    # Numbers that become others by no cast to this dtype: those of its own, or any for floats.
    sound = "biuf" if dtype.kind == "f" else ""

    def refuse(value: Any) -> None:
        if (
            type(value) is not np.ndarray
            or value.shape != shape
            or not (value.dtype == dtype or value.dtype.kind in sound)
        ):
            fitting(what, value, shape, dtype)

    return refuse


def _of_either(space: spaces.OneOf[Any], what: str) -> Refusal:
    """Of one of several spaces, whose number comes first."""
    refusals = [refusal_of(own, f"{what}, part {i}") for i, own in enumerate(space.spaces)]
    last = len(refusals) - 1

    def refuse(value: Any) -> None:
        pair = isinstance(value, tuple | list | np.ndarray) and len(value) == 2
        if not (pair and 0 <= value[0] <= last and value[0] == int(value[0])):
            raise BadValueError(
                f"{what} is {short(value)}, and has to be a number 0 to {last} and a value of the "
                "space of that number"
            )
        refusal = refusals[int(value[0])]
        if refusal is not None:
            refusal(value[1])

    return refuse


def _of_parts(own: dict[Any, spaces.Space[Any]], count: int | None, what: str) -> Refusal:
    """Of a Tuple of so many, or of a Dict."""
    found = {key: refusal_of(each, f"{what}, part {key}") for key, each in own.items()}
    parts = [(key, refusal) for key, refusal in found.items() if refusal is not None]

    def refuse(value: Any) -> None:
        if count is not None and len(value) != count:
            raise BadValueError(f"{what} is {short(value)}, not of {count} parts")
        for key, refusal in parts:
            refusal(value[key])

    return refuse
