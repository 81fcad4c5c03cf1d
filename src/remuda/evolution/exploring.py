"""With which hyperparameters a newborn begins, as it is configured."""

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
"""Hyperparameters by name."""


class Explorer:
    """Chooses the numbers that evolve for each newborn; all others are its parent's."""

    def __init__(self, config: EvolutionConfig, numbers: Sequence[Evolvable]) -> None:
        """Choose as configured; `numbers`: those that evolve."""
        self._config, self._numbers = config, tuple(numbers)
        self._trials: list[Trial] = []
        """What came of which numbers, for a bandit; the newest come last."""

    @property
    def crosses(self) -> bool:
        """Whether numbers of a second parent are taken: what is drawn anew has no parent."""
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
        """The numbers of a newborn.

        Args:
            parent: hyperparameters of its parent.
            others: those of all others that play now.
            time: of the decision, as in `note`.
            rng: draws.
            second: hyperparameters of its second parent; None: it has one parent.
        """
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
        """Learn by how much the fitness of a policy rose with these hyperparameters."""
        if self._config.explore == "pb2" and self._numbers:
            own = {number.name: values[number.name] for number in self._numbers}
            self._trials = [*self._trials, Trial(own, time, gain)][-MOST:]

    def state(self) -> State:
        """What came of which numbers."""
        return {"trials": [[dict(each.values), each.time, each.gain] for each in self._trials]}

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""
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
