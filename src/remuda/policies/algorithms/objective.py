"""PPO's objective for rows of network outputs, by compiled kernels.

It serves discrete actions (`fused_kernels.py`) and continuous ones (`normal_kernels.py`). `outputs`
[G, B, L + 1] are always the policy head's, then the value.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from remuda.policies.actions import Actions, ContinuousActions, DiscreteActions
from remuda.policies.algorithms.batch import LossCosts, Means, RolloutBatch
from remuda.policies.algorithms.fused_kernels import differentiate, evaluate, standardise
from remuda.policies.algorithms.normal_kernels import differentiate_normal, evaluate_normal
from remuda.policies.algorithms.samples import Pick
from remuda.policies.stack import ParameterStack
from remuda.types import Array, Bools, Floats, Integers


class RowsOf(NamedTuple):
    """The rows of a batch that outputs belong to."""

    members: Integers  # [G] policies of the batch
    rows: Integers  # [G, B] their rows
    counts: Integers  # [G] rows that count, the first ones; the others are padding


def rows_of(pick: Pick) -> tuple[RowsOf, Integers | None]:
    """Return a pick's rows, those that count first, and their order [G, B] if it changed."""
    if pick.valid is None or pick.memory is None:
        return RowsOf(pick.members, pick.rows, pick.counts), None
    order = np.argsort(pick.valid.numpy() <= 0.0, 1, kind="stable")
    return RowsOf(pick.members, np.take_along_axis(pick.rows, order, 1), pick.counts), order


class Objective:
    """The objective of G policies, and its gradient by each row's outputs."""

    def __init__(self, actions: Actions, costs: LossCosts, normalises: bool) -> None:
        """Work on policies with these costs; `normalises` normalises advantages by minibatch."""
        self._actions, self._costs, self._normalises = actions, costs, normalises
        self._sizes: Integers = np.array(getattr(actions, "sizes", ()), np.int64)

    @staticmethod
    def suits(actions: Actions) -> bool:
        """Return whether there are kernels for actions of this type."""
        return type(actions) in (DiscreteActions, ContinuousActions)

    def evaluate(
        self,
        outputs: Floats,
        log_scales: Floats,
        rows: RowsOf,
        actions: Array,
        masks: Tensor | None,
        log_pi: Floats,
        values: Floats,
    ) -> None:
        """Write log-probabilities of the actions and values, each [K, R], for some rows."""
        if len(self._sizes):
            allowed = _masks_of(masks, *values.shape)
            evaluate(outputs, *rows, actions, allowed, self._sizes, log_pi, values)
        else:
            evaluate_normal(outputs, log_scales, *rows, actions, log_pi, values)

    def of(self, batch: RolloutBatch, rows: RowsOf, log_scales: Floats) -> MinibatchObjective:
        """Return the objective of a minibatch; `log_scales` are [G, A], or [G, 0] if discrete."""
        return MinibatchObjective(
            self._costs, self._sizes, self._normalises, batch, rows, log_scales
        )


class MinibatchObjective:
    """The objective of one minibatch."""

    def __init__(
        self,
        costs: LossCosts,
        sizes: Integers,
        normalises: bool,
        batch: RolloutBatch,
        rows: RowsOf,
        log_scales: Floats,
    ) -> None:
        self._costs, self._sizes = costs, sizes
        # [len(Means), G] of the rows that were differentiated so far
        self.means: Array = np.zeros((len(Means._fields), len(rows.members)))
        self._log_scales = log_scales
        # [G, A] gradient by the log standard deviations so far
        self.by_scales: Floats = np.zeros_like(log_scales)
        self._shares = 1.0 / np.maximum(rows.counts, 1)
        self._actions, self._log_prox, self._weights, self._advantages = (
            part.numpy()
            for part in (batch.actions, batch.log_prox, batch.weights, batch.advantages)
        )
        self._values, self._targets = batch.values.numpy(), batch.targets.numpy()
        self._masks = _masks_of(batch.masks, *batch.values.shape)
        self._standard: Floats = np.zeros((len(rows.members), 2), np.float32)
        self._standard[:, 1] = 1.0
        if normalises:
            standardise(self._advantages, *rows, self._standard)

    def differentiate(self, outputs: Floats, here: slice, rows: RowsOf) -> None:
        """Overwrite outputs [g, B, L + 1] of the policies `here` by their errors."""
        costs = self._costs
        terms: tuple[Any, ...] = (
            self._log_prox,
            self._weights,
            self._advantages,
            self._standard[here],
            self._values,
            self._targets,
            costs.clip[here],
            costs.value_cost[here],
            costs.value_clip[here],
            costs.entropy_cost[here],
            self._shares[here],
            self.means[:, here],
        )
        if len(self._sizes):
            differentiate(outputs, *rows, self._actions, self._masks, self._sizes, *terms)
        else:
            scales = self._log_scales[here], self.by_scales[here]
            differentiate_normal(outputs, *scales, *rows, self._actions, *terms)


def log_scales_of(part: ParameterStack, count: int) -> Floats:
    """Return the log standard deviations: [G, count]."""
    if not count:
        return np.zeros((len(part.flat), 0), np.float32)
    return np.ascontiguousarray(part.parameters["log_scale"].detach()[:, 0].numpy())


def _masks_of(masks: Tensor | None, policies: int, rows: int) -> Bools:
    found: Bools = masks.numpy() if masks is not None else np.zeros((policies, rows, 0), np.bool_)
    return found
