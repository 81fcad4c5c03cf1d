"""Numbers as JSON values and as short text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt


def as_json(values: npt.ArrayLike) -> Any:
    """Convert an array to nested lists, or one number to a float; None replaces NaN and inf."""
    array = np.asarray(values, np.float64)
    if array.ndim:
        return [as_json(each) for each in array]
    return float(array) if np.isfinite(array) else None


def figures(value: float, digits: int = 3) -> str:
    """Format a number with `digits` significant digits; larger numbers as integers: `12,346`."""
    if 10.0**digits - 0.5 <= abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


class Summary:
    """A base class for dataclasses that converts their fields to JSON values."""

    def as_summary(self) -> dict[str, Any]:
        """Return the fields as JSON values; None replaces NaN and inf."""
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        return {name: tree_as_json(getattr(self, name)) for name in names}


def tree_as_json(value: Any) -> Any:
    """Convert a value and its contents to JSON values; None replaces NaN and inf."""
    if isinstance(value, np.ndarray) and value.dtype.kind != "f":
        return value.tolist()
    if isinstance(value, np.ndarray | float):
        return as_json(value)
    if isinstance(value, Mapping):
        return {name: tree_as_json(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [tree_as_json(each) for each in value]
    return value.as_summary() if hasattr(value, "as_summary") else value
