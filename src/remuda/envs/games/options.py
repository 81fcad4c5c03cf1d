"""Check the options of a game; a ValueError states the option, its value and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np


def require_whole(name: str, value: int, minimum: int, maximum: int | None = None) -> None:
    """Refuse anything but a whole number within these bounds."""
    allowed = f"at least {minimum}" if maximum is None else f"{minimum} to {maximum}"
    fits = isinstance(value, int | np.integer) and value >= minimum
    if not fits or (maximum is not None and value > maximum):
        raise ValueError(f"{name} is {value!r}; allowed is a whole number, {allowed}")


def require_number(
    name: str, value: float, minimum: float = -math.inf, maximum: float = math.inf
) -> None:
    """Refuse anything but a finite number within these bounds."""
    allowed = "" if math.isinf(maximum) else f", {minimum:g} to {maximum:g}"
    is_number = isinstance(value, int | float | np.number)
    if not is_number or not math.isfinite(value) or not minimum <= value <= maximum:
        raise ValueError(f"{name} is {value!r}; allowed is a finite number{allowed}")


def require_one_of(name: str, value: str, allowed: Iterable[str]) -> None:
    """Refuse anything but one of these values."""
    allowed = tuple(allowed)
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; allowed are {', '.join(allowed)}")


def whole_numbers(**options: tuple[int, ...]) -> dict[str, int]:
    """Return the options, each checked against its minimum and optional maximum."""
    for name, (value, *bounds) in options.items():
        require_whole(name, value, *bounds)
    return {name: value for name, (value, *_) in options.items()}


def numbers(**options: tuple[float, ...]) -> dict[str, float]:
    """Return the options, each checked against its optional bounds."""
    for name, (value, *bounds) in options.items():
        require_number(name, value, *bounds)
    return {name: value for name, (value, *_) in options.items()}
