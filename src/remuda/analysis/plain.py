"""Numbers as JSON can hold them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def plain(values: npt.ArrayLike) -> Any:
    """Return numbers as nested lists, a single one as a float; None stands for what is not finite.

    Args:
        values: of any shape.
    """
    array = np.asarray(values, np.float64)
    if array.ndim:
        return [plain(each) for each in array]
    return float(array) if np.isfinite(array) else None
