"""Values as JSON, and numbers as short text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np


def as_json(value: Any) -> Any:
    """Convert a value and its contents to JSON values; None replaces NaN and inf."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: as_json(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(each) for each in value]
    return value.as_summary() if hasattr(value, "as_summary") else value


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
        return {name: as_json(getattr(self, name)) for name in names}
