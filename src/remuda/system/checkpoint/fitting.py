"""Checks of a saved state before it is used.

A checkpoint file may be damaged, mixed up or crafted. Compiled code does not check its indices, so
an index of 2**40 in a kernel ends the process without an error. Therefore each `restore` reads its
values through these functions. They check type, dtype, shape and range, and raise a
`CheckpointError` that names the file, the value and the allowed range.

A state of several arrays declares them in one table, `{name: (like, range)}`, for `fitting_all`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from remuda.errors import CheckpointError, RemudaError
from remuda.types import Array, State


class Range(NamedTuple):
    """The allowed values of a number, both ends included; NaN is never allowed."""

    low: float
    high: float

    def __str__(self) -> str:
        if self.high == MOST:
            return f"{self.low} or more, below 2**53"
        if self in (FINITE, FINITE_64):
            return "finite numbers"
        return f"{self.low} to {self.high}"


MOST = 2**53  # larger than any count of a run; exact in float64, and int64 sums do not overflow
COUNT = Range(0, MOST)
FINITE = Range(-float(np.finfo(np.float32).max), float(np.finfo(np.float32).max))
FINITE_64 = Range(-float(np.finfo(np.float64).max), float(np.finfo(np.float64).max))
SQUARES = Range(0.0, FINITE.high)
SHARE = Range(0.0, 1.0)

Table = Mapping[str, tuple[Array, Range | None]]  # expected shape, dtype and range (None for any)


class Branch(dict[str, Any]):
    """A part of a state that was read from a file; errors about missing names include its path."""

    where = ""  # the file, and the path of this branch in it

    def __missing__(self, name: str) -> Any:
        raise CheckpointError(f"{where_is(self, name)} is missing")


def rooted(state: State, source: str, path: str = "") -> Branch:
    """Return a state whose branches know their file and path."""
    root = Branch()
    root.where = f"{source}: {path}"
    for name, value in state.items():
        is_branch = isinstance(value, dict)
        root[name] = rooted(value, source, f"{path}{name}/") if is_branch else value
    return root


def where_is(state: Mapping[str, Any], name: str) -> str:
    """Return the file and the path of a value in a state, for errors."""
    return f"{getattr(state, 'where', 'the checkpoint does not fit: ')}{name}"


def branch(state: Mapping[str, Any], name: str) -> Branch:
    """Return the branch `name` of a state."""
    found = _value(state, name)
    if not isinstance(found, Mapping):
        raise CheckpointError(f"{where_is(state, name)} should hold names and values")
    return found if isinstance(found, Branch) else rooted(dict(found), where_is(state, name), "")


def fitting(
    state: Mapping[str, Any],
    name: str,
    like: Array,
    allowed: Range | None = None,
    columns: Sequence[int] | None = None,
) -> Array:
    """Return the array `name` if it has `like`'s shape and dtype, and `columns` are in range."""
    array = _value(state, name)
    if not isinstance(array, np.ndarray):
        raise CheckpointError(f"{where_is(state, name)} should be an array")
    if array.shape != like.shape or array.dtype != like.dtype:
        raise CheckpointError(
            f"the checkpoint does not fit: {where_is(state, name)} should be {like.shape} "
            f"{like.dtype} and is {array.shape} {array.dtype}"
        )
    if array.dtype == np.bool_:  # a file may hold bytes other than 0 and 1
        _check_range(state, name, array.view(np.uint8), Range(0, 1))
    elif allowed is not None:
        _check_range(state, name, array if columns is None else array[..., columns], allowed)
    return array


def fitting_all(state: Mapping[str, Any], table: Table) -> dict[str, Array]:
    """Return the arrays of a table, each `fitting`."""
    return {name: fitting(state, name, like, allowed) for name, (like, allowed) in table.items()}


def whole(state: Mapping[str, Any], name: str, allowed: Range = COUNT) -> int:
    """Return the whole number `name` of a state."""
    return whole_number(_value(state, name), where_is(state, name), allowed)


def whole_number(value: object, where: str, allowed: Range = COUNT) -> int:
    """Return `value` if it is a whole number in a range; `where` names it in errors."""
    if not isinstance(value, int):
        raise CheckpointError(f"{where} should be a whole number and is {str(value)[:40]!r}")
    real_number(value, where, allowed)
    return value


def real(state: Mapping[str, Any], name: str, allowed: Range = FINITE_64) -> float:
    """Return the number `name` of a state."""
    return real_number(_value(state, name), where_is(state, name), allowed)


def real_number(value: object, where: str, allowed: Range = FINITE_64) -> float:
    """Return `value` if it is a number in a range; `where` names it in errors."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise CheckpointError(f"{where} should be a number and is {str(value)[:40]!r}")
    if not allowed.low <= value <= allowed.high:
        raise CheckpointError(f"{where} is {str(value)[:40]}; allowed: {allowed}")
    return float(value)


def require(state: Mapping[str, Any], name: str, fits: bool, allowed: str) -> None:
    """Raise CheckpointError unless `fits`; `allowed` describes the requirement."""
    if not fits:
        raise CheckpointError(f"{where_is(state, name)} does not fit the other values: {allowed}")


@contextmanager
def refusing(where: str, advice: str) -> Iterator[None]:
    """Turn errors inside the `with`, except other Remuda errors, into a CheckpointError."""
    try:
        yield
    except CheckpointError as error:
        raise CheckpointError(f"{error}; {advice}") from None
    except RemudaError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        cause = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        raise CheckpointError(f"{where} cannot be restored ({cause}); {advice}") from error


def _value(state: Mapping[str, Any], name: str) -> Any:
    if not isinstance(state, Mapping) or name not in state:
        raise CheckpointError(f"{where_is(state, name)} is missing")
    return state[name]


def _check_range(state: Mapping[str, Any], name: str, array: Array, allowed: Range) -> None:
    low, high = allowed
    if not array.size or (array.min() >= low and array.max() <= high):
        return
    wrong: Sequence[int] = np.argwhere(~((array >= low) & (array <= high)))[0].tolist()
    value = array[tuple(wrong)].item()
    at = f"[{', '.join(map(str, wrong))}]" if wrong else ""
    raise CheckpointError(f"{where_is(state, name)}{at} is {value}; allowed: {allowed}")
