"""Choose a newborn's hyperparameters as configured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from remuda.checkpoint.fitting import real_number, where_is
from remuda.config import EvolutionConfig
from remuda.evolution.bandit import MOST, Trial, suggest
from remuda.evolution.crossover import cross_hyperparameters
from remuda.evolution.explore import explore, resample
from remuda.evolution.numbers import Evolvable
from remuda.types import State

Values = Mapping[str, float]
"""Named hyperparameters."""


class Explorer:
    """Chooses the evolving numbers of each newborn; all others are its parent's."""

    def __init__(self, config: EvolutionConfig, numbers: Sequence[Evolvable]) -> None:
        """Use a configuration; `numbers`: those that evolve."""
        self._config, self._numbers = config, tuple(numbers)
        self._trials: list[Trial] = []
        """Trials for a bandit, the newest last."""

    @property
    def crosses(self) -> bool:
        """True if numbers of a second parent are taken: redrawn ones have no parent."""
        config = self._config
        return bool(self._numbers and config.crossover_numbers and config.explore == "perturb")

    def choose(
        self,
        parent: Values,
        others: Sequence[Values],
        time: float,
        rng: np.random.Generator,
        second: Values | None = None,
    ) -> dict[str, float]:
        """Return the numbers of a newborn."""
        config, numbers = self._config, self._numbers
        if not numbers:
            return {}
        if second is not None:
            parent = cross_hyperparameters(parent, second, rng, share=config.crossover_numbers)
        if config.explore == "pb2":
            return suggest(numbers, self._trials, time, rng, pending=others)[0]
        if config.explore == "resample":
            found = resample(parent, numbers, rng)
        else:
            found = explore(
                parent,
                numbers,
                rng,
                resample_probability=config.resample,
                factors=config.factors,
            )
        return {number.name: found[number.name] for number in numbers}

    def note(self, values: Values, time: float, gain: float) -> None:
        """Record the gain of a policy's fitness with these hyperparameters."""
        if self._config.explore == "pb2" and self._numbers:
            own = {number.name: values[number.name] for number in self._numbers}
            self._trials = [*self._trials, Trial(own, time, gain)][-MOST:]

    def state(self) -> State:
        """Return the trials."""
        return {"trials": [[dict(each.values), each.time, each.gain] for each in self._trials]}

    def restore(self, state: State) -> None:
        """Restore from `state`."""
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
