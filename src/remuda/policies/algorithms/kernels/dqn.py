"""The loss of Q-learning and its gradient for multi-layer perceptrons, in one compiled step.

For small batches, the overhead of torch's calls is several times the arithmetic.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from remuda.config.policy_sections import QLearningConfig
from remuda.policies.algorithms.transition_algorithm import Transitions
from remuda.policies.networks.kernels import flat_layers as flat
from remuda.policies.networks.kernels.activations import KINDS, STRICT
from remuda.policies.networks.kernels.flat_layers import CHUNK, Scratch
from remuda.policies.networks.q_network import QNetwork
from remuda.policies.stack import ParameterStack, starts_of, whole_rows
from remuda.system.kernels import njit
from remuda.types import Array, Bools, Floats, Integers


class BatchArrays(NamedTuple):
    """The arrays of `Transitions`, for compiled steps."""

    s_tm1: Floats
    a_tm1: Integers
    r_t: Floats
    discount_t: Floats
    s_t: Floats
    allowed_t: Bools  # [G, B, A], or [G, B, 0] to allow all
    weights: Floats  # [G, B], or [G, 0] for equal weights


def arrays_of(batch: Transitions) -> BatchArrays:
    """Return the contiguous arrays of a batch on the CPU."""
    policies, samples = batch.a_tm1.shape
    allowed = batch.allowed_t if batch.allowed_t.numel() else torch.ones(policies, samples, 0) > 0
    weights = batch.weights if batch.weights.numel() else batch.weights.new_ones(policies, 0)
    start = (batch.s_tm1.float(), batch.a_tm1, batch.r_t.float(), batch.discount_t.float())
    parts = (*start, batch.s_t.float(), allowed, weights.float())
    return BatchArrays(*[part.contiguous().numpy() for part in parts])


class Head(NamedTuple):
    """The last layer, for compiled steps."""

    at: int  # start of the layer's weight in a policy's row; the bias follows
    width: int  # number of the layer's inputs
    actions: int
    dueling: bool
    # Start in scratch memory of:
    folded: int  # the folded weight and bias (`fold_head`)
    target: int  # the folded weight and bias of the target network
    gradients: int  # the gradients of the folded weight and bias
    transposed: int  # the transposed folded weight

    @classmethod
    def of(cls, network: QNetwork, scratch: Scratch) -> Head:
        width, actions = network.shapes["head.weight"][0], network.num_actions
        numbers = (width + 1) * actions
        return cls(
            at=starts_of(network.shapes)["head.weight"],
            width=width,
            actions=actions,
            dueling=network.config.dueling,
            folded=scratch.reserve(numbers),
            target=scratch.reserve(numbers),
            gradients=scratch.reserve(numbers),
            transposed=scratch.reserve(numbers),
        )


class FusedQ:
    """Loss and gradients of policies for batches of transitions."""

    supported: ClassVar[type[QNetwork]] = QNetwork

    def __init__(self, network: Any, settings: QLearningConfig) -> None:
        scratch, numbers = Scratch(), CHUNK * network.num_actions
        layers = flat.table_of(network.shapes, network.layers[:-1], scratch, CHUNK)
        head = Head.of(network, scratch)
        values: Integers = np.array([scratch.reserve(numbers) for _ in range(4)])
        kind, huber = KINDS[network.config.activation], np.float32(settings.huber)
        # the first arguments of the compiled step
        self._fixed: tuple[Any, ...] = (layers, head, values, kind, settings.double, huber)
        self._scratch: Floats = np.zeros(scratch.size, np.float32)

    @classmethod
    def suits(cls, network: QNetwork, device: torch.device) -> bool:
        """Return whether kernels support a network, on this device and with torch's threads."""
        return (
            type(network) is cls.supported
            and network.encoder is None
            and not network.memory
            and not network.config.noisy
            and network.input_scale == 1.0
            and not network.choices
            and device.type == "cpu"
            and torch.get_num_threads() == 1
        )

    def step(
        self, online: ParameterStack, target: ParameterStack, batch: Transitions, *drawn: Floats
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Write a batch's gradients to `online`; `drawn` are quantiles, if there are any.

        Returns mean losses and values, each [G], and errors [G, B] (losses if weights are equal).
        """
        arrays = arrays_of(batch)
        metrics: Floats = np.zeros((3, *arrays.a_tm1.shape), np.float32)
        means: Array = np.zeros((2, len(arrays.a_tm1)))
        rows = whole_rows(online.flat), whole_rows(target.flat), whole_rows(online.gradients)
        self._run(*rows, arrays, *drawn, self._scratch, metrics, means)
        losses, _, errors = torch.from_numpy(metrics)
        loss, value = torch.from_numpy(means.astype(np.float32))
        return loss, value, errors if batch.weights.numel() else losses

    def _run(self, *arguments: Any) -> None:
        step_q(*self._fixed, *arguments)


@njit(**STRICT)
def values_of(activated: Floats, scratch: Floats, head: int, actions: int, out: int) -> Floats:
    """Apply a folded head to the last hidden layer: [B, A]."""
    found = flat.part(scratch, out, activated.shape[0], actions)
    flat.linear(activated, scratch, head, head + activated.shape[1] * actions, found)
    return found


@njit(**STRICT)
def step_q(
    layers: Integers,
    head: Head,
    values: Integers,  # start of four arrays [CHUNK, A] in `scratch`
    kind: int,
    double: bool,
    huber: np.float32,
    online: Floats,  # [G, P]
    target: Floats,  # [G, P]
    gradients: Floats,  # [G, P], written
    batch: BatchArrays,
    scratch: Floats,
    metrics: Floats,  # [3, G, B], written: loss, value, error
    means: Array,  # [2, G], added to: means of loss and value
) -> None:
    """Compute gradients and metrics of a batch, policy by policy, in chunks of samples."""
    size, actions = head.width * head.actions, head.actions
    last = len(layers) - 1
    for k in range(online.shape[0]):
        for row in (online[k], target[k], gradients[k]):
            flat.bring_near(row, scratch)
        fold_heads(head, online[k], target[k], scratch)
        by_head = scratch[head.gradients : head.gradients + size + actions]
        flat.transpose_all(layers, online[k], scratch, 1)
        samples = batch.a_tm1.shape[1]
        for first in range(0, samples, CHUNK):
            end = min(first + CHUNK, samples)
            s_tm1, s_t = batch.s_tm1[k, first:end], batch.s_t[k, first:end]
            activated = flat.forward(layers, target[k], s_t, kind, scratch)
            q_t = values_of(activated, scratch, head.target, actions, values[0])
            select = q_t
            if double:
                activated = flat.forward(layers, online[k], s_t, kind, scratch)
                select = values_of(activated, scratch, head.folded, actions, values[1])
            activated = flat.forward(layers, online[k], s_tm1, kind, scratch)
            q_tm1 = values_of(activated, scratch, head.folded, actions, values[2])
            by_q = flat.part(scratch, values[3], end - first, actions)
            differentiate_q(k, first, q_t, select, q_tm1, batch, huber, by_q, metrics, means)
            weight, bias = 0, size
            flat.add_gradients(activated, by_q, by_head, weight, bias, first == 0)
            by_activated = flat.part(
                scratch, layers[last, flat.ERRORS], end - first, layers[last, flat.OUTPUTS]
            )
            flat.linear(by_q, scratch, head.transposed, -1, by_activated)
            no_inputs = scratch[:0].reshape(0, 0)
            flat.backward(layers, gradients[k], s_tm1, kind, scratch, first == 0, no_inputs)
        unfold_gradients(head, scratch, gradients[k])


@njit(**STRICT)
def fold_heads(head: Head, online: Floats, target: Floats, scratch: Floats) -> None:
    """Write the folded heads of two rows, and the transposed weight of the first."""
    size = head.width * head.actions
    for row, at in ((online, head.folded), (target, head.target)):
        out = scratch[at : at + size + head.actions]
        flat.fold_head(row, head.at, head.width, head.actions, head.dueling, out)
    out = scratch[head.transposed : head.transposed + size]
    flat.transpose(scratch, head.folded, head.width, head.actions, out)


@njit(**STRICT)
def unfold_gradients(head: Head, scratch: Floats, gradients: Floats) -> None:
    """Write a head's gradients to their row, from the gradients of the folded head."""
    by_head = scratch[head.gradients : head.gradients + (head.width + 1) * head.actions]
    flat.unfold_head(by_head, head.width, head.actions, head.dueling, gradients, head.at)


@njit(**STRICT)
def best_of(select: Floats, allowed: Bools) -> int:
    """Return the first argmax of the allowed values [A]; NaN counts as the largest."""
    best = -1
    for j in range(select.size):
        if allowed.size and not allowed[j]:
            continue
        if np.isnan(select[j]):
            return j
        if best < 0 or select[j] > select[best]:
            best = j
    return max(best, 0)


@njit(**STRICT)
def differentiate_q(
    k: int,  # the policy
    first: int,  # the first sample of the chunk
    q_t: Floats,  # [b, A] values by the target network
    select: Floats,  # [b, A] values to select actions by
    q_tm1: Floats,  # [b, A] values by the online network
    batch: BatchArrays,
    huber: np.float32,
    by_q: Floats,  # [b, A], written
    metrics: Floats,  # as in `step_q`
    means: Array,
) -> None:
    """Write the loss of Q-learning (`dqn.DQN.loss`) and its gradient w.r.t. `q_tm1`."""
    samples = batch.a_tm1.shape[1]
    share = np.float32(1.0 / samples)
    for i in range(q_t.shape[0]):
        b = first + i
        best = best_of(select[i], batch.allowed_t[k, b])
        action = batch.a_tm1[k, b]
        value = q_tm1[i, action]
        error = batch.r_t[k, b] + batch.discount_t[k, b] * q_t[i, best] - value
        size = abs(error)
        loss, slope = np.float32(0.5) * error * error, -error
        if size > huber:
            loss = huber * (size - np.float32(0.5) * huber)
            slope = -huber if error > np.float32(0.0) else huber
        weight = batch.weights[k, b] if batch.weights.shape[1] else np.float32(1.0)
        for j in range(q_t.shape[1]):
            by_q[i, j] = np.float32(0.0)
        by_q[i, action] = slope * weight * share
        metrics[0, k, b], metrics[1, k, b], metrics[2, k, b] = loss, value, error
        means[0, k] += loss * weight / samples
        means[1, k] += value / samples
