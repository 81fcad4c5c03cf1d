"""PPO's loss and its gradient for multi-layer perceptrons on the CPU, in one compiled step.

A policy's rows run through all layers, the loss and back in chunks that stay in the cache. With
`parts_at_once`, each thread computes a share of a minibatch, and adds up gradients apart from the
others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

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
    gather,
)
from remuda.policies.algorithms.samples import Pick
from remuda.policies.networks.actor_critic import MEAN, VARIANCE, ActorCritic, scale_of
from remuda.policies.networks.kernels import flat_layers as flat
from remuda.policies.networks.kernels.activations import KINDS, STRICT
from remuda.policies.networks.kernels.flat_layers import Scratch
from remuda.policies.networks.kernels.gemm import gemm
from remuda.policies.parallel_parts import count_at_once, each
from remuda.policies.stack import ParameterStack, layout_size, starts_of, whole_rows
from remuda.system.kernels import njit
from remuda.types import Array, Bools, Floats, Integers

# bytes of the rows that run through all layers together, so that they stay in the cache of a core
# (measured), and bounds of their number; if the weights do not fit, either, more rows share them
PIECE, LEAST_ROWS, MOST_ROWS = 512 << 10, 64, 256
LARGE = 1 << 18  # parameters of a network that no core's cache holds
SHARE_WORK = 8e6  # multiplications of a share that are worth the start of a thread


class Tower(NamedTuple):
    """The layers of a tower, and its heads, which are joined to one linear layer."""

    layers: Integers  # table of the hidden layers (`flat_layers`)
    # each head's first column in the joined layer, start of weight and bias in a policy's row, and
    # number of outputs
    heads: Integers
    numbers: int  # of an input row
    width: int  # number of the heads' inputs
    first: int  # the joined layer's first column of the outputs
    size: int  # number of its columns
    # Start in scratch memory of:
    inputs: int  # [rows, numbers]
    joined: int  # the weight [width, size] and bias [size]
    transposed: int  # the transposed weight [size, width]
    gradients: int  # their gradients: [size, width], then [size]


class Towers(NamedTuple):
    """The towers of a network. If the heads share one, `value` is not used."""

    policy: Tower
    value: Tower
    number: int  # of towers: 1 or 2
    rows: int  # maximum number of rows that run through all layers together
    columns: int  # of the outputs: logits or means, then the value
    outputs: int  # start in scratch memory of the outputs [rows, columns]
    kind: int  # of activation


class Memory:
    """The towers of a network, and the memory in which each thread trains them."""

    def __init__(self, network: ActorCritic) -> None:
        scratch, columns = Scratch(), network.actions.num_logits + 1
        rows = _rows_at_once(network)
        names = (("policy", "value"),) if len(network.towers) == 1 else (("policy",), ("value",))
        sizes = [network.num_inputs] if network.critic is None else list(network.input_sizes)
        inputs = [scratch.reserve(rows * size) for size in sizes]
        towers = [
            _tower_of(network, number, own, sizes[min(number, len(sizes) - 1)], scratch, rows)
            for number, own in enumerate(names)
        ]
        towers = [
            tower._replace(inputs=inputs[min(number, len(inputs) - 1)])
            for number, tower in enumerate(towers)
        ]
        self.towers = Towers(
            towers[0],
            towers[-1],
            len(towers),
            rows,
            columns,
            scratch.reserve(rows * columns),
            KINDS[network.config.activation],
        )
        self._size = scratch.size
        self._arrays: list[Floats] = []
        self._gradients: dict[int, Floats] = {}

    def of(self, thread: int) -> Floats:
        """Return the scratch memory of a thread."""
        while thread >= len(self._arrays):
            self._arrays.append(np.zeros(self._size, np.float32))
        return self._arrays[thread]

    def gradients(self, thread: int, like: Floats) -> Floats:
        """Return an array for the gradients of a thread after the first; `like` is [G, P]."""
        found = self._gradients.get(thread)
        if found is None or len(found) < len(like):
            found = self._gradients[thread] = np.zeros_like(like)
        return found[: len(like)]


def _rows_at_once(network: ActorCritic) -> int:
    widths = [network.shapes[f"{name}.weight"][1] for tower in network.towers for name in tower]
    if layout_size(network.shapes) > LARGE:
        return MOST_ROWS
    numbers = sum(network.input_sizes) + 2 * sum(widths)  # activations and their errors
    return min(max(PIECE // (4 * numbers), LEAST_ROWS), MOST_ROWS)


def _tower_of(
    network: ActorCritic,
    number: int,
    names: tuple[str, ...],
    numbers: int,
    scratch: Scratch,
    rows: int,
) -> Tower:
    starts, shapes = starts_of(network.shapes), network.shapes
    heads, size = [], 0
    for name in names:
        outputs = shapes[f"{name}.weight"][1]
        heads.append((size, starts[f"{name}.weight"], starts[f"{name}.bias"], outputs))
        size += outputs
    width = shapes[f"{names[0]}.weight"][0]
    return Tower(
        layers=flat.table_of(shapes, network.towers[number], scratch, rows),
        heads=np.array(heads, np.int64),
        numbers=numbers,
        width=width,
        first=0 if number == 0 else network.actions.num_logits,
        size=size,
        inputs=0,
        joined=scratch.reserve((width + 1) * size),
        transposed=scratch.reserve(width * size),
        gradients=scratch.reserve((width + 1) * size),
    )


class Inputs(NamedTuple):
    """Weights of G policies, and how their observations become inputs."""

    weights: Floats  # [G, P]
    observations: Array  # [K, R, W]
    mean: Floats  # [G, W], or [G, 0] without normalisation
    scale: Floats  # [G, W], or [G, 1]


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
def join_heads(tower: Tower, row: Floats, scratch: Floats) -> None:
    """Write the joined weight, its transpose and the bias; set their gradients to 0."""
    size, width = tower.size, tower.width
    for h in range(len(tower.heads)):
        column, weight, bias, outputs = tower.heads[h]
        for j in range(outputs):
            scratch[tower.joined + width * size + column + j] = row[bias + j]
            for i in range(width):
                number = row[weight + i * outputs + j]
                scratch[tower.joined + i * size + column + j] = number
                scratch[tower.transposed + (column + j) * width + i] = number
    for i in range((width + 1) * size):
        scratch[tower.gradients + i] = np.float32(0.0)


@njit(**STRICT)
def store_heads(tower: Tower, scratch: Floats, gradients: Floats) -> None:
    """Write the gradients of the heads to a policy's row."""
    size, width = tower.size, tower.width
    for h in range(len(tower.heads)):
        column, weight, bias, outputs = tower.heads[h]
        for j in range(outputs):
            gradients[bias + j] = scratch[tower.gradients + width * size + column + j]
            for i in range(width):
                gradients[weight + i * outputs + j] = scratch[
                    tower.gradients + (column + j) * width + i
                ]


@njit(**STRICT)
def begin(towers: Towers, row: Floats, scratch: Floats, has_errors: bool) -> None:
    """Prepare the scratch memory for a policy, also for passes back if `has_errors`."""
    for t in range(towers.number):
        tower = towers.policy if t == 0 else towers.value
        join_heads(tower, row, scratch)
        if has_errors:
            flat.transpose_all(tower.layers, row, scratch, 1)


@njit(**STRICT)
def forward(
    towers: Towers, inputs: Inputs, k: int, observations: Array, rows: Integers, scratch: Floats
) -> Floats:
    """Return the outputs [B, columns] of policy `k` for the rows of its observations."""
    count, row = rows.size, inputs.weights[k]
    outputs = flat.part(scratch, towers.outputs, count, towers.columns)
    for t in range(towers.number):
        tower = towers.policy if t == 0 else towers.value
        x = flat.part(scratch, tower.inputs, count, tower.numbers)
        if t == 0 or tower.inputs != towers.policy.inputs:
            # The policy's inputs are the first columns of the observations.
            gather(observations, rows, inputs.mean[k], inputs.scale[k], x)
        x = flat.forward(tower.layers, row, x, towers.kind, scratch)
        at = scratch.ctypes.data + flat.NUMBER * tower.joined
        gemm(
            1,
            count,
            tower.size,
            tower.width,
            x.ctypes.data,
            0,
            tower.width,
            1,
            at,
            0,
            tower.size,
            at + flat.NUMBER * tower.width * tower.size,
            0,
            0,
            outputs.ctypes.data + flat.NUMBER * tower.first,
            0,
            towers.columns,
        )
    return outputs


@njit(**STRICT)
def backward(towers: Towers, errors: Floats, gradients: Floats, scratch: Floats) -> None:
    """Add the gradients of a policy to its row, from the errors of the last `forward` call."""
    count = errors.shape[0]
    for t in range(towers.number):
        tower = towers.policy if t == 0 else towers.value
        layers, width, size = tower.layers, tower.width, tower.size
        x = flat.part(scratch, tower.inputs, count, tower.numbers)
        last = len(layers) - 1
        top = flat.part(scratch, layers[last, flat.ACTIVATIONS], count, width)
        own = errors.ctypes.data + flat.NUMBER * tower.first
        at = scratch.ctypes.data + flat.NUMBER * tower.gradients
        gemm(
            1,
            size,
            width,
            count,
            own,
            0,
            1,
            towers.columns,
            top.ctypes.data,
            0,
            width,
            at,
            0,
            width,
            at,
            0,
            width,
        )
        for b in range(count):
            for j in range(size):
                scratch[tower.gradients + width * size + j] += errors[b, tower.first + j]
        gemm(
            1,
            count,
            width,
            size,
            own,
            0,
            towers.columns,
            1,
            scratch.ctypes.data + flat.NUMBER * tower.transposed,
            0,
            width,
            0,
            0,
            0,
            scratch.ctypes.data + flat.NUMBER * layers[last, flat.ERRORS],
            0,
            width,
        )
        flat.backward(layers, gradients, x, towers.kind, scratch, False, x[:, :0])


@njit(**STRICT)
def end(towers: Towers, scratch: Floats, gradients: Floats) -> None:
    """Complete a policy's gradients."""
    for t in range(towers.number):
        store_heads(towers.policy if t == 0 else towers.value, scratch, gradients)


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
