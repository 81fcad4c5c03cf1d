"""New hyperparameters for newborn policies: perturbed, resampled, or suggested by a bandit.

Jaderberg et al. 2017, "Population based training of neural networks", section 4. The number of
random draws does not depend on the values, so that equal seeds make equal choices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.random import Generator

from remuda.config import EvolutionConfig
from remuda.population.evolution.bandit import MOST, Trial, suggest
from remuda.population.evolution.numbers import Evolvable
from remuda.population.evolution.weights import cross_hyperparameters
from remuda.system.checkpoint.fitting import real_number, where_is
from remuda.types import State

Values = Mapping[str, float]  # named hyperparameters
FACTORS = (0.8, 1.25)  # equally likely, and each other's inverse


def perturb(
    values: Values, numbers: Sequence[Evolvable], rng: Generator, factors: Sequence[float] = FACTORS
) -> dict[str, float]:
    """Multiply each evolving hyperparameter by a random factor; other values stay.

    On a linear scale a value instead moves by log(factor) times the distance between the bounds, so
    that steps are equal everywhere, also at 0.
    """
    found = dict(values)
    for number in numbers:
        factor = factors[int(rng.integers(len(factors)))]
        before = number.fitted(values[number.name])
        if number.log:
            moved = before * factor
        else:
            moved = before + math.log(factor) * (number.high - number.low)
        found[number.name] = number.fitted(moved, reflect=True)
    return found


def resample(
    values: Values, numbers: Sequence[Evolvable], rng: Generator, probability: float = 1.0
) -> dict[str, float]:
    """Resample each evolving hyperparameter with this probability; other values stay."""
    found = dict(values)
    for number in numbers:
        is_drawn, drawn = rng.random() < probability, number.draw(rng)
        if is_drawn:
            found[number.name] = drawn
    return found


class Explorer:
    """The chooser of a newborn's evolving hyperparameters; the rest come from its parent."""

    def __init__(self, config: EvolutionConfig, numbers: Sequence[Evolvable]) -> None:
        self._config, self._numbers = config, tuple(numbers)
        self._trials: list[Trial] = []  # trials for a bandit, the newest last

    @property
    def crosses(self) -> bool:
        """True if hyperparameters may come from a second parent (only with `explore: perturb`)."""
        config = self._config
        return bool(self._numbers and config.crossover_numbers and config.explore == "perturb")

    def choose(
        self,
        parent: Values,
        others: Sequence[Values],
        time: float,
        rng: Generator,
        second: Values | None = None,
    ) -> dict[str, float]:
        config, numbers = self._config, self._numbers
        if not numbers:
            return {}
        if second is not None:
            parent = cross_hyperparameters(parent, second, rng, share=config.crossover_numbers)
        if config.explore == "pb2":
            return suggest(numbers, self._trials, time, rng, pending=others)
        if config.explore == "resample":
            found = resample(parent, numbers, rng)
        else:
            found = perturb(parent, numbers, rng, config.factors)
            found = resample(found, numbers, rng, config.resample)
        return {number.name: found[number.name] for number in numbers}

    def note(self, values: Values, time: float, gain: float) -> None:
        """Record a policy's gain in fitness with these hyperparameters."""
        if self._config.explore == "pb2" and self._numbers:
            own = {number.name: values[number.name] for number in self._numbers}
            self._trials = [*self._trials, Trial(own, time, gain)][-MOST:]

    def state(self) -> State:
        return {"trials": [[dict(each.values), each.time, each.gain] for each in self._trials]}

    def restore(self, state: State) -> None:
        where = where_is(state, "trials")
        trials: list[Any] = state["trials"]
        self._trials = [
            Trial(
                {n.name: real_number(values[n.name], where) for n in self._numbers},
                real_number(time, where),
                real_number(gain, where),
            )
            for values, time, gain in trials
        ]
