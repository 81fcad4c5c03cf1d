"""Hyperparameters that may evolve: their bounds and scale."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numpy.random import Generator

from remuda.config import PolicyConfig
from remuda.config.hyperparameters import checked_values, values_of
from remuda.errors import ConfigError, UsageError
from remuda.types import Numbers


@dataclass(frozen=True)
class Evolvable:
    """A hyperparameter that may evolve.

    New values are drawn uniformly between the bounds, on a logarithmic scale if `log` is set.
    """

    name: str  # one of `remuda.config.hyperparameters`
    low: float
    high: float
    log: bool = False

    def fitted(self, value: float, reflect: bool = False) -> float:
        """Return the value clipped to the bounds; with `reflect`, reflected at them instead."""
        if not math.isfinite(value):
            raise UsageError(f"{self.name} is {value}; only a finite number can evolve")
        if reflect and not self.low <= value <= self.high:
            value = self._reflected(value)
        return float(min(max(value, self.low), self.high))

    def draw(self, rng: Generator) -> float:
        """Draw a value between the bounds, uniformly on the hyperparameter's scale."""
        low, high = self._scaled(np.array([self.low, self.high]))
        drawn = float(self._unscaled(rng.uniform(low, high)))
        return float(min(max(drawn, self.low), self.high))

    def to_unit(self, values: npt.ArrayLike) -> Numbers:
        """Return values as positions between the bounds on the hyperparameter's scale, 0 to 1."""
        low, high = self._scaled(np.array([self.low, self.high]))
        within = np.clip(np.asarray(values, np.float64), self.low, self.high)
        found: Numbers = (self._scaled(within) - low) / (high - low)
        return np.clip(found, 0.0, 1.0)

    def from_unit(self, units: npt.ArrayLike) -> Numbers:
        """Return the values at positions between the bounds, 0 to 1."""
        low, high = self._scaled(np.array([self.low, self.high]))
        found = self._unscaled(low + np.asarray(units, np.float64) * (high - low))
        return np.clip(found, self.low, self.high)

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


def check_numbers(numbers: Sequence[Evolvable], config: PolicyConfig) -> None:
    """Refuse hyperparameters that a policy's learner cannot change during training."""
    known = values_of(config)
    for number in numbers:
        if number.name not in known:
            raise ConfigError(
                f"{number.name} cannot evolve; policies of {config.algorithm} can evolve "
                f"{', '.join(known)}"
            )
        for bound in (number.low, number.high):
            try:
                checked_values(config, {number.name: bound}, "")
            except UsageError as error:
                raise ConfigError(f"{number.name}: a bound is not allowed: {error}") from None


def to_units(numbers: Sequence[Evolvable], values: Sequence[Mapping[str, float]]) -> Numbers:
    """Return the hyperparameters of N policies as points in the unit cube: [N, D]."""
    return np.stack([n.to_unit([each[n.name] for each in values]) for n in numbers], 1)


def from_units(numbers: Sequence[Evolvable], units: Numbers) -> list[dict[str, float]]:
    """Return the hyperparameters at points [N, D] of the unit cube: one mapping per point."""
    columns = {n.name: n.from_unit(units[:, d]).tolist() for d, n in enumerate(numbers)}
    return [{name: column[i] for name, column in columns.items()} for i in range(len(units))]
