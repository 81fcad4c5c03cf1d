"""Hyperparameters that may evolve: bounds, scale and prior."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from remuda.config import PolicyConfig
from remuda.errors import ConfigError, UsageError
from remuda.hyperparameters import values_of
from remuda.live_hyperparameters import checked_values
from remuda.types import Numbers

AtBounds = Literal["reflect", "clip"]
"""Treatment of values beyond a bound: `reflect` mirrors them, on the number's scale, so that none
sticks there; `clip` puts them on the bound.
"""


@dataclass(frozen=True)
class Evolvable:
    """A hyperparameter that may evolve.

    Attributes:
        name: one of `remuda.hyperparameters`.
        low, high: the bounds.
        log: whether it is moved and drawn on a logarithmic scale.
        whole: whether it is an integer, stored as a float.
        prior: (low, high) range of new values, uniform on the number's scale; None: the bounds.
    """

    name: str
    low: float
    high: float
    log: bool = False
    whole: bool = False
    prior: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        _check_range(f"{self.name}: the bounds are", self.low, self.high)
        if self.low == self.high:
            raise ConfigError(
                f"{self.name}: both bounds are {self.low:g}, so that nothing can evolve; set them "
                "apart, or leave the number out"
            )
        if self.log and self.low <= 0.0:
            raise ConfigError(
                f"{self.name}: the low bound is {self.low:g}, and a logarithmic scale is above 0; "
                "set a bound above 0, or leave log out"
            )
        if self.prior is not None:
            _check_range(f"{self.name}: the prior is", *self.prior)
            if self.prior[0] < self.low or self.prior[1] > self.high:
                raise ConfigError(
                    f"{self.name}: the prior is {self.prior[0]:g} to {self.prior[1]:g}; it must "
                    f"lie within the bounds, {self.low:g} to {self.high:g}"
                )
        for bound in (self.low, self.high, *(self.prior or ())):
            if self.whole and not float(bound).is_integer():
                raise ConfigError(
                    f"{self.name}: {bound:g} is a bound of an integer; it must be one too"
                )

    def fitted(self, value: float, at_bounds: AtBounds = "clip") -> float:
        """Return the value within the bounds, rounded if an integer.

        A value within them stays the same, bit for bit.
        """
        if not math.isfinite(value):
            raise UsageError(f"{self.name} is {value}; only a finite number can evolve")
        if at_bounds == "reflect" and not self.low <= value <= self.high:
            value = self._reflected(value)
        if self.whole:
            value = float(round(value))
        return float(min(max(value, self.low), self.high))

    def draw(self, rng: np.random.Generator) -> float:
        """Draw a value from the prior; all integers of a range are equally likely, if linear."""
        low, high = self.prior or (self.low, self.high)
        half = 0.5 if self.whole else 0.0
        ends = self._scaled(np.array([low - half, high + half]))
        drawn = float(self._unscaled(rng.uniform(ends[0], ends[1])))
        if self.whole:
            drawn = float(round(drawn))
        return float(min(max(drawn, low), high))

    def to_unit(self, values: npt.ArrayLike) -> Numbers:
        """Return where values lie between the bounds on the scale of the number, 0 to 1."""
        low, high = self._scaled(np.array([self.low, self.high]))
        within = np.clip(np.asarray(values, np.float64), self.low, self.high)
        found: Numbers = (self._scaled(within) - low) / (high - low)
        return np.clip(found, 0.0, 1.0)

    def from_unit(self, units: npt.ArrayLike) -> Numbers:
        """Return values by their position between the bounds, 0 to 1; integers are rounded."""
        low, high = self._scaled(np.array([self.low, self.high]))
        found = self._unscaled(low + np.asarray(units, np.float64) * (high - low))
        return np.clip(np.round(found) if self.whole else found, self.low, self.high)

    def _reflected(self, value: float) -> float:
        if self.log and value <= 0.0:
            return self.low
        low, high = self._scaled(np.array([self.low, self.high])).tolist()
        away = (float(self._scaled(np.float64(value))) - low) % (2.0 * (high - low))
        return float(self._unscaled(low + min(away, 2.0 * (high - low) - away)))

    def _scaled(self, values: npt.ArrayLike) -> Numbers:
        return np.log(values) if self.log else np.asarray(values, np.float64)

    def _unscaled(self, values: npt.ArrayLike) -> Numbers:
        return np.exp(values) if self.log else np.asarray(values, np.float64)


def _check_range(what: str, low: float, high: float) -> None:
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ConfigError(f"{what} {low} to {high}; both ends must be finite numbers")
    if low > high:
        raise ConfigError(f"{what} {low:g} to {high:g}, the wrong way round; swap them")


def check_numbers(numbers: Sequence[Evolvable], config: PolicyConfig) -> None:
    """Refuse numbers that a policy's learner cannot change while it trains."""
    known = values_of(config)
    names = [number.name for number in numbers]
    for number in numbers:
        if number.name not in known:
            raise ConfigError(
                f"{number.name} cannot evolve; of a policy of {config.algorithm} these can: "
                f"{', '.join(known)}"
            )
        if names.count(number.name) > 1:
            raise ConfigError(f"{number.name} is named twice among the numbers that evolve")
        for bound in (number.low, number.high):
            try:
                checked_values(config, {number.name: bound}, "")
            except UsageError as error:
                raise ConfigError(f"{number.name}: a bound is not allowed: {error}") from None


def value_of(values: Mapping[str, float], number: Evolvable) -> float:
    """Return the value of a number among the hyperparameters of a policy."""
    if number.name not in values:
        raise UsageError(
            f"{number.name} is to evolve, and the policy has no value of it; it has "
            f"{', '.join(values) or 'none'}"
        )
    return float(values[number.name])


def to_units(numbers: Sequence[Evolvable], values: Sequence[Mapping[str, float]]) -> Numbers:
    """Return hyperparameters of N policies as points in the unit cube: [N, D]."""
    columns = [number.to_unit([value_of(each, number) for each in values]) for number in numbers]
    return np.stack(columns, 1) if columns else np.zeros((len(values), 0))


def from_units(numbers: Sequence[Evolvable], units: Numbers) -> list[dict[str, float]]:
    """Return the hyperparameters at points of the unit cube, [N, D]: one mapping for each point."""
    columns = {n.name: n.from_unit(units[:, d]).tolist() for d, n in enumerate(numbers)}
    return [{name: column[i] for name, column in columns.items()} for i in range(len(units))]
