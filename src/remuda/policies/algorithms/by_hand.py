"""The gradient of PPO's loss for multi-layer perceptrons on the processor, worked out by hand.

It is what `surrogate.py` has torch derive, and a test holds the two together. Written out, a
minibatch goes through all layers in pieces that stay in the cache, the matrix products write into
arrays that are used again, and all that lies between the last hidden layer and its gradient is one
loop over rows. On one core that is about twice as fast.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numba import njit
from torch import Tensor

from remuda.memory.aligned import copied
from remuda.policies.actions import DiscreteActions
from remuda.policies.algorithms.samples import Pick
from remuda.policies.algorithms.surrogate import Batch, Costs
from remuda.policies.networks.activations import FAST, RELU, STRICT, TANH, activate_in_place
from remuda.policies.networks.actor_critic import MEAN, VARIANCE, ActorCritic, scale_of
from remuda.policies.stack import ParameterStack
from remuda.types import Array, Bools, Floats, Integers

ROWS_AT_ONCE = 2048
"""Rows that go through all layers together."""


class Heads(NamedTuple):
    """Weights [K, outputs, features] and biases [K, 1, outputs] of the two heads."""

    policy_weight: Floats
    policy_bias: Floats
    value_weight: Floats
    value_bias: Floats


@dataclass
class _Tower:
    """Some hidden layers, and the arrays of one piece: pre-activations become activations."""

    weights: list[Tensor]
    biases: list[Tensor]
    weight_gradients: list[Tensor]
    bias_gradients: list[Tensor]
    hidden: list[Tensor]
    errors: list[Tensor]
    """Gradients by pre-activations."""


class ByHand:
    """Evaluates and differentiates K policies of one layout, in pieces of some rows."""

    def __init__(self, network: ActorCritic, part: ParameterStack) -> None:
        self._network, self._part = network, part
        assert isinstance(network.actions, DiscreteActions)
        self._sizes = np.array(network.actions.sizes, np.int64)
        self._kind = TANH if network.config.activation == "tanh" else RELU
        self._policies, self._num_logits = len(part.flat), network.actions.num_logits
        self._views = {name: view.detach() for name, view in part.parameters.items()}
        self._gradients = part.gradient_views
        self._pieces: dict[tuple[int, int], tuple[Tensor, list[_Tower]]] = {}

    @staticmethod
    def suits(network: ActorCritic, device: torch.device) -> bool:
        """Whether these networks are of the kind that is written out here."""
        config = network.config
        return (
            device.type == "cpu"
            and isinstance(network.actions, DiscreteActions)
            and not (config.convolutions or config.recurrent)
        )

    def evaluate(
        self, observations: Tensor, actions: Tensor, masks: Tensor | None, picks: Iterable[Pick]
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the actions and values, each [K, R]; `picks` is for others."""
        del picks
        policies, rows = observations.shape[:2]
        log_pi, values = torch.empty(policies, rows), torch.empty(policies, rows)
        every = np.tile(np.arange(rows), (policies, 1))
        allowed = _masks_of(masks, policies, rows)
        for first, end, at in self._cut(rows):
            here = slice(first, end)
            _, towers = self._forward(observations, every, first, end, at)
            _evaluate(
                towers[0].hidden[-1].numpy(),
                towers[-1].hidden[-1].numpy(),
                *self._heads(first, end),
                actions[here, at].numpy(),
                allowed[here, at],
                self._sizes,
                log_pi[here, at].numpy(),
                values[here, at].numpy(),
            )
        return log_pi, values

    def step(self, batch: Batch, pick: Pick, advantages: Tensor, costs: Costs) -> Tensor:
        """Write the loss's gradients; returns loss, entropy, KL and clipped share, [4, K]."""
        policies = self._policies
        index = pick.flat.view(policies, -1).numpy() - _offsets(batch.values)
        rows = index.shape[1]
        allowed = _masks_of(batch.masks, policies, batch.values.shape[1])
        facts = np.zeros((4, policies))
        self._part.gradients.zero_()
        for first, end, at in self._cut(rows):
            here = slice(first, end)
            inputs, towers = self._forward(batch.observations, index[here, at], first, end, None)
            heads = self._heads(first, end)
            by_outputs = torch.empty(end - first, inputs.shape[1], self._num_logits + 1)
            _differentiate(
                towers[0].hidden[-1].numpy(),
                towers[-1].hidden[-1].numpy(),
                *heads,
                index[here, at],
                batch.actions[here].numpy(),
                allowed[here],
                self._sizes,
                batch.log_prox[here].numpy(),
                batch.weights[here].numpy(),
                advantages[here, at].numpy(),
                batch.values[here].numpy(),
                batch.targets[here].numpy(),
                *(part[here] for part in costs[:4]),  # it has no anchor
                1.0 / rows,
                by_outputs.numpy(),
                facts[:, here],
            )
            self._through_heads(towers, heads, by_outputs, first, end)
            for tower in towers:
                self._backward(tower, inputs)
        return torch.from_numpy(facts.astype(np.float32))

    def _through_heads(
        self, towers: list[_Tower], heads: Heads, by_outputs: Tensor, first: int, end: int
    ) -> None:
        """From errors of the outputs to gradients of the heads and errors of the last layers."""
        parts = [by_outputs[..., :-1], by_outputs[..., -1:]]
        weights = [copied(heads.policy_weight), copied(heads.value_weight)]
        ends = [towers[0], towers[-1]]
        for name, part, weight, tower in zip(
            ("policy", "value"), parts, weights, ends, strict=True
        ):
            products = np.zeros(weight.shape, np.float32)
            _add_products(tower.hidden[-1].numpy(), part.numpy(), products)
            self._gradients[f"{name}.weight"][first:end] += torch.from_numpy(products).mT
            self._gradients[f"{name}.bias"][first:end] += part.sum(1, keepdim=True)
        if len(towers) == 1:  # one trunk: both heads bring their errors to it
            parts, weights = [by_outputs], [torch.cat(weights, 1)]
        for part, weight, tower in zip(parts, weights, towers, strict=True):
            torch.bmm(part, weight, out=tower.errors[-1])
            errors, features = tower.errors[-1].numpy(), tower.hidden[-1].numpy()
            _derive(errors.reshape(-1), features.reshape(-1), self._kind)

    def _heads(self, first: int, end: int) -> Heads:
        """The two heads' weights with a row for each output, and their biases."""

        def of(name: str) -> Floats:
            part = self._views[name][first:end].numpy()
            return np.ascontiguousarray(part.swapaxes(1, 2)) if name in TURNED else part

        return Heads(*(of(name) for name in HEADS))

    def _cut(self, rows: int) -> list[tuple[int, int, slice]]:
        """Pieces of about `ROWS_AT_ONCE` rows: a few rows of several policies, or many of one."""
        together = max(min(ROWS_AT_ONCE // rows, self._policies), 1)
        return [
            (first, min(first + together, self._policies), slice(at, min(at + ROWS_AT_ONCE, rows)))
            for first in range(0, self._policies, together)
            for at in range(0, rows, ROWS_AT_ONCE)
        ]

    def _forward(
        self, observations: Tensor, index: Integers, first: int, end: int, at: slice | None
    ) -> tuple[Tensor, list[_Tower]]:
        """Bring rows `index` of policies `first` to `end - 1` through the hidden layers."""
        index = index[first:end, at] if at is not None else index
        inputs, towers = self._piece(first, end, index.shape[1])
        network = self._network
        if network.normalised:
            mean, variance = (self._views[name][first:end, 0] for name in (MEAN, VARIANCE))
            moments = mean.numpy(), scale_of(variance).numpy()
        else:
            unchanged: Floats = np.full((end - first, 1), network.input_scale, np.float32)
            moments = unchanged[:, :0], unchanged
        _gather(observations[first:end].numpy(), index, *moments, inputs.numpy())
        for tower in towers:
            x = inputs
            for i, hidden in enumerate(tower.hidden):
                torch.baddbmm(tower.biases[i], x, tower.weights[i], out=hidden)
                activate_in_place(hidden.numpy().reshape(-1), self._kind)
                x = hidden
        return inputs, towers

    def _backward(self, tower: _Tower, inputs: Tensor) -> None:
        """From the errors of the last hidden layer to the gradients of all of them."""
        for i in range(len(tower.hidden) - 1, -1, -1):
            errors = tower.errors[i]
            before = tower.hidden[i - 1] if i else inputs
            tower.weight_gradients[i].baddbmm_(before.transpose(1, 2), errors)
            tower.bias_gradients[i].add_(errors.sum(1, keepdim=True))
            if i:
                torch.bmm(errors, tower.weights[i].transpose(1, 2), out=tower.errors[i - 1])
                _derive(
                    tower.errors[i - 1].numpy().reshape(-1),
                    before.numpy().reshape(-1),
                    self._kind,
                )

    def _piece(self, first: int, end: int, rows: int) -> tuple[Tensor, list[_Tower]]:
        """Arrays of one piece: where its rows go, and its towers."""
        count = end - first
        found = self._pieces.get((first, end))
        if found is None or found[0].shape[1] != rows:
            inputs = torch.empty(count, rows, self._network.num_inputs)
            towers = [self._tower(names, first, end, rows) for names in self._network.towers]
            found = self._pieces[first, end] = inputs, towers
        return found

    def _tower(self, names: tuple[str, ...], first: int, end: int, rows: int) -> _Tower:
        def parts(views: dict[str, Tensor], kind: str) -> list[Tensor]:
            return [views[f"{name}.{kind}"][first:end] for name in names]

        weights = parts(self._views, "weight")
        shapes = [(end - first, rows, weight.shape[2]) for weight in weights]
        return _Tower(
            weights,
            parts(self._views, "bias"),
            parts(self._gradients, "weight"),
            parts(self._gradients, "bias"),
            [torch.empty(shape) for shape in shapes],
            [torch.empty(shape) for shape in shapes],
        )


HEADS = ("policy.weight", "policy.bias", "value.weight", "value.bias")
TURNED = ("policy.weight", "value.weight")


def _offsets(values: Tensor) -> Integers:
    policies, rows = values.shape
    found: Integers = np.arange(policies)[:, None] * rows
    return found


def _masks_of(masks: Tensor | None, policies: int, rows: int) -> Bools:
    found: Bools = masks.numpy() if masks is not None else np.zeros((policies, rows, 0), np.bool_)
    return found


# The loops below name rows by their numbers: a view of a row costs more than the row itself.


@njit(**STRICT)
def _gather(rows: Array, index: Integers, mean: Floats, scale: Floats, out: Floats) -> None:
    """Rows as inputs: scaled, or normalised within 10."""
    size = out.shape[2]
    for k in range(index.shape[0]):
        plain, factor = mean.shape[1] == 0, scale[k, 0]
        for b in range(index.shape[1]):
            row = index[k, b]
            if plain:
                for j in range(size):
                    out[k, b, j] = np.float32(rows[k, row, j]) * factor
            else:
                for j in range(size):
                    x = (np.float32(rows[k, row, j]) - mean[k, j]) * scale[k, j]
                    out[k, b, j] = min(max(x, np.float32(-10.0)), np.float32(10.0))


@njit(**STRICT)
def _derive(errors: Floats, hidden: Floats, kind: int) -> None:
    """Errors by activations become errors by pre-activations, in place."""
    if kind == RELU:
        for i in range(errors.size):
            errors[i] = errors[i] if hidden[i] > 0.0 else np.float32(0.0)
    else:
        for i in range(errors.size):
            errors[i] *= np.float32(1.0) - hidden[i] * hidden[i]


@njit(**FAST)
def _product(features: Floats, k: int, b: int, weight: Floats, o: int) -> np.float32:
    """The scalar product of a row and the weights of one output."""
    total = np.float32(0.0)
    for h in range(features.shape[2]):
        total += features[k, b, h] * weight[k, o, h]
    return total


@njit(**STRICT)
def _output(features: Floats, k: int, b: int, weight: Floats, bias: Floats, out: Floats) -> None:
    """One row through a head."""
    for o in range(out.size):
        out[o] = _product(features, k, b, weight, o) + bias[k, 0, o]


@njit(**STRICT)
def _softmax(
    logits: Floats,
    start: int,
    end: int,
    masks: Bools,
    k: int,
    row: int,
    pi: Floats,
    log_pi: Floats,
) -> np.float32:
    """Probabilities and their logarithms; what is forbidden has probability 0. The entropy."""
    masked = masks.shape[2] > 0
    top = np.float32(-np.inf)
    for j in range(start, end):
        if (not masked or masks[k, row, j]) and logits[j] > top:
            top = logits[j]
    total = np.float32(0.0)
    for j in range(start, end):
        if not masked or masks[k, row, j]:
            pi[j] = math.exp(logits[j] - top)
            total += pi[j]
    share, least = np.float32(1.0) / total, top + np.float32(math.log(total))
    entropy = np.float32(0.0)
    for j in range(start, end):
        if not masked or masks[k, row, j]:
            pi[j] *= share
            log_pi[j] = logits[j] - least
            entropy -= pi[j] * log_pi[j]
        else:
            pi[j] = 0.0
            log_pi[j] = -np.inf
    return entropy


@njit(**STRICT)
def _evaluate(
    policy_features: Floats,
    value_features: Floats,
    policy_weight: Floats,
    policy_bias: Floats,
    value_weight: Floats,
    value_bias: Floats,
    actions: Integers,
    masks: Bools,
    sizes: Integers,
    log_probs: Floats,
    values: Floats,
) -> None:
    num_logits = policy_weight.shape[1]
    logits = np.empty(num_logits, np.float32)
    pi = np.empty(num_logits, np.float32)
    log_pi = np.empty(num_logits, np.float32)
    value = np.empty(1, np.float32)
    for k in range(policy_features.shape[0]):
        for b in range(policy_features.shape[1]):
            _output(policy_features, k, b, policy_weight, policy_bias, logits)
            _output(value_features, k, b, value_weight, value_bias, value)
            values[k, b] = value[0]
            start, chance = 0, np.float32(0.0)
            for c in range(sizes.size):
                end = start + sizes[c]
                _softmax(logits, start, end, masks, k, b, pi, log_pi)
                chance += log_pi[start + actions[k, b, c]]
                start = end
            log_probs[k, b] = chance


@njit(**STRICT)
def _add_products(features: Floats, by_outputs: Floats, products: Floats) -> None:
    """Add up outer products: errors of outputs [K, B, O], features [K, B, H], to [K, O, H]."""
    for k in range(features.shape[0]):
        for b in range(features.shape[1]):
            for o in range(by_outputs.shape[2]):
                error = by_outputs[k, b, o]
                for h in range(features.shape[2]):
                    products[k, o, h] += error * features[k, b, h]


@njit(**STRICT)
def _differentiate(
    policy_features: Floats,
    value_features: Floats,
    policy_weight: Floats,
    policy_bias: Floats,
    value_weight: Floats,
    value_bias: Floats,
    index: Integers,
    actions: Integers,
    masks: Bools,
    sizes: Integers,
    log_prox: Floats,
    weights: Floats,
    advantages: Floats,
    values_before: Floats,
    targets: Floats,
    clip: Floats,
    value_cost: Floats,
    value_clip: Floats,
    entropy_cost: Floats,
    share: float,
    by_outputs: Floats,
    facts: Array,
) -> None:
    """From the last hidden layers to the loss, and back to the outputs of the heads.

    `index` says which row of actions, masks, log_prox, weights, values and targets each is.
    `by_outputs` [K, B, num_logits + 1] is written: the errors of the logits, then of the value.
    """
    num_logits = policy_weight.shape[1]
    logits = np.empty(num_logits, np.float32)
    pi = np.empty(num_logits, np.float32)
    log_pi = np.empty(num_logits, np.float32)
    value = np.empty(1, np.float32)
    entropies = np.empty(sizes.size, np.float32)
    part, one, zero = np.float32(share), np.float32(1.0), np.float32(0.0)
    for k in range(policy_features.shape[0]):
        bound, limit = clip[k, 0], value_clip[k, 0]
        for b in range(policy_features.shape[1]):
            row = index[k, b]
            _output(policy_features, k, b, policy_weight, policy_bias, logits)
            _output(value_features, k, b, value_weight, value_bias, value)
            start, chance, entropy = 0, zero, zero
            for c in range(sizes.size):
                end = start + sizes[c]
                entropies[c] = _softmax(logits, start, end, masks, k, row, pi, log_pi)
                chance += log_pi[start + actions[k, row, c]]
                entropy += entropies[c]
                start = end
            log_ratio = chance - log_prox[k, row]
            ratio = np.float32(math.exp(log_ratio))
            bounded = min(max(ratio, one - bound), one + bound)
            gain = ratio * advantages[k, b]
            least = min(gain, bounded * advantages[k, b])
            by_chance = -weights[k, row] * gain if gain <= least else zero
            start = 0
            for c in range(sizes.size):
                end = start + sizes[c]
                for j in range(start, end):
                    slope = -by_chance * pi[j]
                    if pi[j] > zero:
                        slope += entropy_cost[k, 0] * pi[j] * (log_pi[j] + entropies[c])
                    by_outputs[k, b, j] = part * slope
                by_outputs[k, b, start + actions[k, row, c]] += part * by_chance
                start = end
            error = value[0] - targets[k, row]
            moved = value[0] - values_before[k, row]
            held = values_before[k, row] + min(max(moved, -limit), limit) - targets[k, row]
            loss = np.float32(0.5) * error * error
            slope = part * value_cost[k, 0] * error
            if abs(held) > abs(error):
                loss = np.float32(0.5) * held * held
                slope = zero if abs(moved) > limit else slope
            by_outputs[k, b, num_logits] = slope
            facts[0, k] += part * (
                value_cost[k, 0] * loss - weights[k, row] * least - entropy_cost[k, 0] * entropy
            )
            facts[1, k] += part * entropy
            facts[2, k] += part * (ratio - one - log_ratio)
            facts[3, k] += part if abs(ratio - one) > bound else zero
