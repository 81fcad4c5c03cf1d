"""Teaching a newborn what its parents do, piece by piece, before it is published and plays."""

from __future__ import annotations

import logging
import time
from dataclasses import replace

import numpy as np
import torch

from remuda.errors import UsageError
from remuda.evolution.distil import Distillation
from remuda.evolution.layout import Layout
from remuda.evolution.teach import taught_loss, taught_outputs
from remuda.policies.spec import PolicySpec, training_layout
from remuda.policies.value_units import meant
from remuda.population.learner_births import Newborn

log = logging.getLogger(__name__)

PIECE_SECONDS = 0.05
"""Seconds that a piece takes, or a step where that takes longer: so long the other policies of the
process wait, and what it is asked for, such as a checkpoint."""


class Teaching:
    """The distillation of one newborn, as far as it has come (`remuda.evolution.distil`)."""

    def __init__(self, spec: PolicySpec, newborn: Newborn, rng: np.random.Generator) -> None:
        """Begin with what was ordered.

        Args:
            spec: of the newborn's place.
            newborn: with lessons.
            rng: draws batches.
        """
        assert newborn.lessons is not None
        network, lessons = spec.network(), newborn.lessons.of_parents
        values = np.concatenate([each.targets[:, -1] for each in lessons])
        self._spec = spec
        self._work = Distillation(
            meant(network, newborn.weights, values),
            Layout.of(network),
            taught_outputs(network),
            [(torch.from_numpy(each.states), torch.from_numpy(each.targets)) for each in lessons],
            taught_loss(spec, lessons),
            rng,
            steps=newborn.lessons.steps,
        )

    @property
    def done(self) -> bool:
        """Whether all steps were taken."""
        return self._work.done

    def piece(self) -> None:
        """Go on for a while: one step at least. How many makes no difference to what comes out."""
        end = time.perf_counter() + PIECE_SECONDS
        while not self._work.done:
            self._work.step()
            if time.perf_counter() >= end:
                return

    def taught(self, newborn: Newborn) -> Newborn:
        """The newborn with what it has learned; as it was, where the teaching diverged."""
        untaught = replace(newborn, lessons=None)
        try:
            found = self._work.result()
        except UsageError as error:
            log.warning("%s begins untaught: %s", self._spec.name, error)
            return untaught
        log.info(
            "%s was taught by its parents: the loss went from %.4g to %.4g",
            self._spec.name,
            found.before,
            found.after,
        )
        training = newborn.training
        if training is not None:  # copies of weights are of those that it begins with
            layout = training_layout(self._spec)
            training = training.adapted(layout, found.weights, fits=False)
        return replace(untaught, weights=found.weights, training=training)
