"""New hyperparameters for newborn policies: perturbed, or drawn from the prior.

Jaderberg et al. 2017, "Population based training of neural networks", section 4. Every number draws
from the generator whatever the values are, so that equal seeds move all policies alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from remuda.errors import UsageError
from remuda.evolution.numbers import AtBounds, Evolvable, value_of

FACTORS = (0.8, 1.25)
"""Equally likely factors that undo each other."""


def perturb(
    values: Mapping[str, float],
    numbers: Sequence[Evolvable],
    rng: np.random.Generator,
    *,
    factors: Sequence[float] = FACTORS,
    at_bounds: AtBounds = "reflect",
) -> dict[str, float]:
    """Multiply each evolving number by a factor drawn for it; other values stay.

    On a linear scale a value moves by log(factor) times the distance of the bounds, so by 22% of it
    for 0.8 and 1.25: the same step everywhere, also at 0. An integer moves by at least 1.
    """
    _check_factors(factors)
    found = dict(values)
    for number in numbers:
        factor = factors[int(rng.integers(len(factors)))]
        found[number.name] = _moved(number, value_of(values, number), factor, at_bounds)
    return found


def resample(
    values: Mapping[str, float],
    numbers: Sequence[Evolvable],
    rng: np.random.Generator,
    *,
    probability: float = 1.0,
) -> dict[str, float]:
    """Redraw each evolving number from its prior with a probability; other values stay."""
    _check_probability(probability)
    found = dict(values)
    for number in numbers:
        anew, drawn = rng.random() < probability, number.draw(rng)
        if anew:
            found[number.name] = drawn
    return found


def explore(
    values: Mapping[str, float],
    numbers: Sequence[Evolvable],
    rng: np.random.Generator,
    *,
    resample_probability: float = 0.25,
    factors: Sequence[float] = FACTORS,
    at_bounds: AtBounds = "reflect",
) -> dict[str, float]:
    """Redraw each evolving number with a probability, and perturb it otherwise."""
    _check_probability(resample_probability)
    found = perturb(values, numbers, rng, factors=factors, at_bounds=at_bounds)
    return resample(found, numbers, rng, probability=resample_probability)


def _moved(number: Evolvable, value: float, factor: float, at_bounds: AtBounds) -> float:
    before = number.fitted(value)
    if factor == 1.0:
        return before
    if number.log:
        moved = before * factor
    else:
        moved = before + math.log(factor) * (number.high - number.low)
    after = number.fitted(moved, at_bounds)
    if number.whole and after == before:
        after = number.fitted(before + math.copysign(1.0, factor - 1.0), at_bounds)
    return after


def _check_factors(factors: Sequence[float]) -> None:
    if not len(factors) or not all(math.isfinite(f) and f > 0.0 for f in factors):
        raise UsageError(
            f"factors are {list(factors)}; they must be numbers above 0, such as {list(FACTORS)}"
        )


def _check_probability(probability: float) -> None:
    if not 0.0 <= probability <= 1.0:
        raise UsageError(f"probability is {probability}; it must be between 0 and 1")
