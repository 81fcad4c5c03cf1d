"""How hyperparameters of a newborn differ from its parent's: perturbed, or drawn from the prior.

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
"""What numbers are multiplied by, each as likely; the one undoes the other."""


def perturb(
    values: Mapping[str, float],
    numbers: Sequence[Evolvable],
    rng: np.random.Generator,
    *,
    factors: Sequence[float] = FACTORS,
    at_bounds: AtBounds = "reflect",
) -> dict[str, float]:
    """Move each number by a factor, drawn for each alone; all other values stay as they are.

    On a logarithmic scale a value is multiplied by the factor f. On a linear scale it moves by
    log(f) times the distance of the bounds, so by 22% of it for 0.8 and 1.25: the same step
    wherever the value is, 0 among others, where a product would never leave. An integer moves by 1
    at least. A factor of 1 changes nothing that is within the bounds.

    Args:
        values: by name.
        numbers: which of them evolve.
        rng: draws a factor for each number.
        factors: as above, each as likely.
        at_bounds: what becomes of a value beyond a bound.

    Raises:
        UsageError: a factor is not above 0, or a number has no finite value.
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
    """Draw each number anew from its prior with a probability; all others stay as they are.

    Raises:
        UsageError: the probability is none.
    """
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
    """Draw each number anew with a probability, and perturb it otherwise.

    Raises:
        UsageError: as for `perturb` and `resample`.
    """
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
