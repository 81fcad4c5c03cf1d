"""Numbers as JSON values and as short text."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def plain(values: npt.ArrayLike) -> Any:
    """Return numbers as nested lists, a single one as a float; None: not finite."""
    array = np.asarray(values, np.float64)
    if array.ndim:
        return [plain(each) for each in array]
    return float(array) if np.isfinite(array) else None


def figures(value: float, digits: int = 3) -> str:
    """Return a number with so many significant digits, and large ones whole: `12,346`."""
    if 10.0**digits - 0.5 <= abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"
