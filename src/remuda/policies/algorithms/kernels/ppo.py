"""PPO's loss and its gradient for multi-layer perceptrons on the CPU, in one compiled step.

A policy's rows run through all layers, the loss and back in chunks that stay in the cache. With
`parts_at_once`, each thread computes a share of a minibatch, and adds up gradients apart from the
others.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from remuda.policies.algorithms.kernels.objective import (
    LossCosts,
    MinibatchObjective,
    Objective,
    RolloutBatch,
    log_scales_of,
    masks_of,
)
from remuda.policies.algorithms.kernels.ppo_heads import (
    RowsOf,
    Terms,
    differentiate_policy,
    differentiate_policy_normal,
    evaluate_policy,
    evaluate_policy_normal,
)
from remuda.policies.algorithms.kernels.towers import (
    Inputs,
    Memory,
    Towers,
    backward,
    begin,
    end,
    forward,
)
from remuda.policies.algorithms.samples import Pick
from remuda.policies.networks.actor_critic import MEAN, VARIANCE, ActorCritic, scale_of
from remuda.policies.networks.kernels.activations import STRICT
from remuda.policies.parallel_parts import count_at_once, each
from remuda.policies.stack import ParameterStack, whole_rows
from remuda.system.kernels import njit
from remuda.types import Array, Bools, Floats, Integers

SHARE_WORK = 8e6  # multiplications of a share that are worth the start of a thread


class Fused:
    """Evaluation and gradients of G policies of one layout."""

    rows_at_once = 1 << 20  # maximum number of rows of a policy per evaluation

    def __init__(
        self,
        network: ActorCritic,
        part: ParameterStack,
        costs: LossCosts,
        memory: Memory,
        normalises: bool = False,
    ) -> None:
        self._network, self._part, self._memory = network, part, memory
        self._objective = Objective(network.actions, costs, normalises)

    @staticmethod
    def suits(network: ActorCritic, device: torch.device) -> bool:
        config = network.config
        return (
            device.type == "cpu"
            and type(network) is ActorCritic
            and Objective.suits(network.actions)
            and network.encoder is None
            and network.packing is None
            and network.value_encoder is None
            and (network.critic is None or network.critic.is_plain)
            and isinstance(network.input_scale, float)
            and not config.recurrent
        )

    def evaluate(self, batch: RolloutBatch, picks: Iterable[Pick]) -> None:
        """Write log-probabilities and values of the picked rows to the batch."""
        inputs, scales, sizes = self._inputs(batch), self._log_scales, self._objective.sizes
        actions, masks = batch.actions.numpy(), masks_of(batch)
        results = batch.log_prox.numpy(), batch.values.numpy()

        def work(share: tuple[int, RowsOf]) -> None:
            thread, rows = share
            start = (self._memory.towers, inputs, rows, self._memory.of(thread))
            if sizes.size:
                evaluate_choices(*start, actions, masks, sizes, *results)
            else:
                evaluate_numbers(*start, scales, actions, *results)

        for pick in picks:
            for _ in each(work, enumerate(self._shares(pick))):
                pass

    def step(self, batch: RolloutBatch, pick: Pick) -> Tensor:
        """Write the gradients of the picked rows' loss; return the means [len(Means), G]."""
        inputs, shares = self._inputs(batch), self._shares(pick)
        rows = RowsOf(pick.members, pick.rows, pick.counts)
        objective = MinibatchObjective(self._objective, batch, rows, self._log_scales)
        objectives = [objective, *(objective.another() for _ in shares[1:])]
        first = whole_rows(self._part.gradients)
        gradients = [first, *(self._memory.gradients(i, first) for i in range(1, len(shares)))]

        def work(share: tuple[int, RowsOf]) -> None:
            thread, rows = share
            own, memory = objectives[thread], self._memory
            start = (memory.towers, inputs, rows, memory.of(thread), gradients[thread])
            if own.sizes.size:
                end = own.actions, own.masks, own.sizes, own.terms, own.means
                differentiate_choices(*start, *end)
            else:
                scales = own.log_scales, own.by_scales
                differentiate_numbers(*start, *scales, own.actions, own.terms, own.means)

        for _ in each(work, enumerate(shares)):
            pass
        for thread in range(1, len(shares)):  # in order, whichever thread ended first
            first += gradients[thread]
            objective.add(objectives[thread])
        if self._network.actions.num_scales:
            scales = self._part.gradient_views["log_scale"]
            scales[:, 0].copy_(torch.from_numpy(objective.by_scales))
        return torch.from_numpy(objective.means.astype(np.float32))

    def _inputs(self, batch: RolloutBatch) -> Inputs:
        network, weights = self._network, whole_rows(self._part.flat)
        if network.normalised:
            views = self._part.parameters
            mean = np.ascontiguousarray(views[MEAN].detach()[:, 0].numpy())
            scale = np.ascontiguousarray(scale_of(views[VARIANCE].detach()[:, 0]).numpy())
        else:
            scale = np.full((len(weights), 1), network.input_scale, np.float32)
            mean = scale[:, :0]
        return Inputs(weights, batch.observations.numpy(), mean, scale)

    def _shares(self, pick: Pick) -> list[RowsOf]:
        """Divide each policy's rows into shares of similar size, at most one per thread.

        The shares of a policy do not depend on other policies.
        """
        rows, counts = pick.rows, pick.counts
        worth = counts * (self._part.flat.shape[1] / SHARE_WORK)
        numbers = np.clip(worth, 1, count_at_once()).astype(np.int64)
        if numbers.max() == 1:
            return [RowsOf(pick.members, rows, counts)]
        sizes, shares = -(-counts // numbers), []
        for i in range(int(numbers.max())):
            own = np.clip(counts - i * sizes, 0, sizes)
            columns = (i * sizes)[:, None] + np.arange(own.max())
            found = np.take_along_axis(rows, np.minimum(columns, rows.shape[1] - 1), 1)
            shares.append(RowsOf(pick.members, found, own))
        return shares

    @property
    def _log_scales(self) -> Floats:
        return log_scales_of(self._part, self._network.actions.num_scales)


@njit(**STRICT)
def evaluate_choices(
    towers: Towers,
    inputs: Inputs,
    picked: RowsOf,
    scratch: Floats,
    actions: Integers,
    masks: Bools,
    sizes: Integers,
    log_probs: Floats,
    values: Floats,
) -> None:
    """Write log-probabilities of discrete actions, and values: [K, R]."""
    for k in range(picked.members.size):
        member = picked.members[k]
        begin(towers, inputs.weights[k], scratch, False)
        for first in range(0, picked.counts[k], towers.rows):
            rows = picked.rows[k, first : min(first + towers.rows, picked.counts[k])]
            outputs = forward(towers, inputs, k, inputs.observations[member], rows, scratch)
            own = log_probs[member], values[member]
            evaluate_policy(outputs, rows, actions[member], masks[member], sizes, own[0], own[1])


@njit(**STRICT)
def evaluate_numbers(
    towers: Towers,
    inputs: Inputs,
    picked: RowsOf,
    scratch: Floats,
    log_scales: Floats,
    actions: Floats,
    log_probs: Floats,
    values: Floats,
) -> None:
    """Do the same for continuous actions."""
    for k in range(picked.members.size):
        member = picked.members[k]
        begin(towers, inputs.weights[k], scratch, False)
        for first in range(0, picked.counts[k], towers.rows):
            rows = picked.rows[k, first : min(first + towers.rows, picked.counts[k])]
            outputs = forward(towers, inputs, k, inputs.observations[member], rows, scratch)
            own = log_probs[member], values[member]
            evaluate_policy_normal(outputs, log_scales[k], rows, actions[member], own[0], own[1])


@njit(**STRICT)
def differentiate_choices(
    towers: Towers,
    inputs: Inputs,
    picked: RowsOf,
    scratch: Floats,
    gradients: Floats,
    actions: Integers,
    masks: Bools,
    sizes: Integers,
    terms: Terms,
    means: Array,
) -> None:
    """Write the gradients [G, P] of the loss, and add to its means; for discrete actions."""
    for k in range(picked.members.size):
        member, row = picked.members[k], gradients[k]
        row[:] = np.float32(0.0)
        begin(towers, inputs.weights[k], scratch, True)
        for first in range(0, picked.counts[k], towers.rows):
            rows = picked.rows[k, first : min(first + towers.rows, picked.counts[k])]
            outputs = forward(towers, inputs, k, inputs.observations[member], rows, scratch)
            own = actions[member], masks[member]
            differentiate_policy(
                outputs, rows, own[0], own[1], sizes, terms, k, member, means[:, k]
            )
            backward(towers, outputs, row, scratch)
        end(towers, scratch, row)


@njit(**STRICT)
def differentiate_numbers(
    towers: Towers,
    inputs: Inputs,
    picked: RowsOf,
    scratch: Floats,
    gradients: Floats,
    log_scales: Floats,
    by_scales: Floats,
    actions: Floats,
    terms: Terms,
    means: Array,
) -> None:
    """Do the same for continuous actions."""
    for k in range(picked.members.size):
        member, row = picked.members[k], gradients[k]
        row[:] = np.float32(0.0)
        begin(towers, inputs.weights[k], scratch, True)
        for first in range(0, picked.counts[k], towers.rows):
            rows = picked.rows[k, first : min(first + towers.rows, picked.counts[k])]
            outputs = forward(towers, inputs, k, inputs.observations[member], rows, scratch)
            scales = log_scales[k], by_scales[k]
            differentiate_policy_normal(
                outputs, scales[0], scales[1], rows, actions[member], terms, k, member, means[:, k]
            )
            backward(towers, outputs, row, scratch)
        end(towers, scratch, row)
