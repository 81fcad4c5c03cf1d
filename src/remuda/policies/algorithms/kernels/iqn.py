"""The loss of IQN and its gradient for multi-layer perceptrons, in one compiled step."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from remuda.config.policy_sections import QLearningConfig
from remuda.policies.algorithms.kernels.dqn import (
    BatchArrays,
    FusedQ,
    Head,
    best_of,
    fold_heads,
    unfold_gradients,
    values_of,
)
from remuda.policies.networks.iqn import IQNetwork
from remuda.policies.networks.kernels import flat_layers as flat
from remuda.policies.networks.kernels.activations import KINDS, RELU, STRICT, activate_in_place
from remuda.policies.networks.kernels.compiled_pass import average, combine
from remuda.policies.networks.kernels.flat_layers import CHUNK, Scratch
from remuda.system.kernels import njit
from remuda.types import Array, Floats, Integers


class Offsets(NamedTuple):
    """Start of each array in scratch memory, for a chunk of samples.

    Each sample has a row for each quantile. F is the feature width. *Errors* of a quantity are the
    gradients of the loss with respect to it, as in `flat_layers`.
    """

    basis: int  # [rows, cosines] cosines of quantiles
    products: int  # [rows, F] features times embeddings
    by_products: int  # [rows, F] errors of the products
    midpoints: int  # [N, F] embeddings of the fixed quantile midpoints
    select: int  # [samples, A] action values
    mean: int  # [samples, units] mean over quantiles of the last hidden layer
    z_t: int  # [rows, A] values of s_t by quantile
    z_tm1: int  # [rows, A] values of s_tm1 by quantile
    by_z: int  # [rows, A] errors of z_tm1


class Layers(NamedTuple):
    """The layers before the head, as tables of `flat_layers`."""

    state: Integers  # the first layer, of the observation
    quantile: Integers  # the layer of the quantiles' cosines
    hidden: Integers  # the layers after the product of the two layers' outputs


class Layout(NamedTuple):
    """A network's layers, and the offsets of its arrays in scratch memory."""

    layers: Layers
    head: Head
    offsets: Offsets
    kind: int  # activation, `RELU` or `TANH`


class FusedIQN(FusedQ):
    """`FusedQ` for quantile networks; quantiles [G, 2, B, N] are for s_t and s_tm1."""

    supported = IQNetwork

    def __init__(self, network: IQNetwork, settings: QLearningConfig) -> None:
        self._quantiles = network.own.quantiles
        self.samples = max(CHUNK // self._quantiles, 1)
        rows, actions = self.samples * self._quantiles, network.num_actions
        scratch, shapes = Scratch(), network.shapes
        layers = Layers(
            flat.table_of(shapes, ("state",), scratch, self.samples),
            flat.table_of(shapes, ("quantile",), scratch, rows),
            flat.table_of(shapes, network.hidden, scratch, rows),
        )
        head, width = Head.of(network, scratch), int(layers.state[0, flat.OUTPUTS])
        offsets = Offsets(
            basis=scratch.reserve(rows * network.own.cosines),
            products=scratch.reserve(rows * width),
            by_products=scratch.reserve(rows * width),
            midpoints=scratch.reserve(self._quantiles * width),
            select=scratch.reserve(self.samples * actions),
            mean=scratch.reserve(self.samples * head.width),
            z_t=scratch.reserve(rows * actions),
            z_tm1=scratch.reserve(rows * actions),
            by_z=scratch.reserve(rows * actions),
        )
        layout = Layout(layers, head, offsets, KINDS[network.config.activation])
        self._fixed = (layout, settings.double, np.float32(settings.huber))
        self._scratch: Floats = np.zeros(scratch.size, np.float32)
        midpoints = (np.arange(self._quantiles) + 0.5) / self._quantiles
        self._midpoints: Floats = midpoints.astype(np.float32)

    def _run(self, *arguments: Any) -> None:
        *arrays, scratch, metrics, means = arguments
        chunks = self._midpoints, self.samples
        every = [*self._fixed, *arrays, *chunks, scratch, metrics, means]
        step_iqn(*every)


@njit(**STRICT)
def step_iqn(
    layout: Layout,
    double: bool,
    huber: np.float32,
    online: Floats,  # [G, P]
    target: Floats,  # [G, P]
    gradients: Floats,  # [G, P], written
    batch: BatchArrays,
    quantiles: Floats,  # [G, 2, B, N] for s_t and s_tm1
    midpoints: Floats,  # [N] for action selection
    most: int,  # samples of a chunk
    scratch: Floats,
    metrics: Floats,  # [3, G, B], written: loss, mean value, mean absolute error
    means: Array,  # [2, G], added to: means of loss and value
) -> None:
    """Compute gradients and metrics of a batch, policy by policy, in chunks of samples."""
    layers, head, offsets, kind = layout
    actions, count = head.actions, quantiles.shape[3]
    for k in range(online.shape[0]):
        for row in (online[k], target[k], gradients[k]):
            flat.bring_near(row, scratch)
        fold_heads(head, online[k], target[k], scratch)
        flat.transpose_all(layers.hidden, online[k], scratch, 0)
        chooser, by = (online[k], head.folded) if double else (target[k], head.target)
        middle = flat.part(scratch, offsets.midpoints, count, layers.quantile[0, flat.OUTPUTS])
        embed(layers.quantile, chooser, midpoints, offsets.basis, scratch, middle)
        for first in range(0, quantiles.shape[2], most):
            end = min(first + most, quantiles.shape[2])
            s_tm1, s_t = batch.s_tm1[k, first:end], batch.s_t[k, first:end]
            features = flat.forward(layers.state, chooser, s_t, kind, scratch)
            activated = mix(layout, chooser, features, middle, count, scratch)
            mean = flat.part(scratch, offsets.mean, end - first, head.width)
            average(activated, mean)
            select = values_of(mean, scratch, by, actions, offsets.select)
            if double:
                features = flat.forward(layers.state, target[k], s_t, kind, scratch)
            at, rows = layers.quantile[0, flat.ACTIVATIONS], (end - first) * count
            here = flat.part(scratch, at, rows, middle.shape[1])
            taus = quantiles[k, 0, first:end].reshape(-1)
            embed(layers.quantile, target[k], taus, offsets.basis, scratch, here)
            activated = mix(layout, target[k], features, here, count, scratch)
            z_t = values_of(activated, scratch, head.target, actions, offsets.z_t)
            features = flat.forward(layers.state, online[k], s_tm1, kind, scratch)
            taus = quantiles[k, 1, first:end].reshape(-1)
            embed(layers.quantile, online[k], taus, offsets.basis, scratch, here)
            activated = mix(layout, online[k], features, here, count, scratch)
            z_tm1 = values_of(activated, scratch, head.folded, actions, offsets.z_tm1)
            by_z = flat.part(scratch, offsets.by_z, len(activated), actions)
            differentiate_quantiles(
                k, first, z_t, select, z_tm1, quantiles[k, 1], batch, huber, by_z, metrics, means
            )
            back(layout, gradients[k], s_tm1, activated, scratch, first == 0)
        unfold_gradients(head, scratch, gradients[k])


@njit(**STRICT)
def embed(
    quantile: Integers, row: Floats, taus: Floats, basis: int, scratch: Floats, out: Floats
) -> None:
    """Write embeddings [rows, F] of quantiles [rows] to `out`, and their cosines to `basis`."""
    cosines = flat.part(scratch, basis, taus.size, quantile[0, flat.INPUTS])
    write_cosines(taus, cosines)
    flat.linear(cosines, row, quantile[0, flat.WEIGHT], quantile[0, flat.BIAS], out)
    activate_in_place(out.reshape(-1), RELU)


@njit(**STRICT)
def mix(
    layout: Layout, row: Floats, features: Floats, embedded: Floats, count: int, scratch: Floats
) -> Floats:
    """Return the last hidden layer's outputs [b * N, units] for features [b, F] and embeddings."""
    products = flat.part(
        scratch, layout.offsets.products, features.shape[0] * count, features.shape[1]
    )
    combine(features, embedded, products)
    return flat.forward(layout.layers.hidden, row, products, layout.kind, scratch)


@njit(**STRICT)
def back(
    layout: Layout,
    gradients: Floats,
    s_tm1: Floats,
    activated: Floats,
    scratch: Floats,
    fresh: bool,
) -> None:
    """Backpropagate the errors of the quantile values to the gradients of all layers."""
    layers, head, offsets, kind = layout
    hidden, rows, width = layers.hidden, activated.shape[0], layers.state[0, flat.OUTPUTS]
    by_z = flat.part(scratch, offsets.by_z, rows, head.actions)
    by_head = scratch[head.gradients : head.gradients + (head.width + 1) * head.actions]
    flat.add_gradients(activated, by_z, by_head, 0, head.width * head.actions, fresh)
    by_products = flat.part(scratch, offsets.by_products, rows, width)
    if len(hidden):
        by_activated = flat.part(scratch, hidden[len(hidden) - 1, flat.ERRORS], rows, head.width)
        flat.linear(by_z, scratch, head.transposed, -1, by_activated)
        products = flat.part(scratch, offsets.products, rows, width)
        flat.backward(hidden, gradients, products, kind, scratch, fresh, by_products)
    else:
        flat.linear(by_z, scratch, head.transposed, -1, by_products)
    features = flat.part(scratch, layers.state[0, flat.ACTIVATIONS], s_tm1.shape[0], width)
    by_features = flat.part(scratch, layers.state[0, flat.ERRORS], s_tm1.shape[0], width)
    embedded = flat.part(scratch, layers.quantile[0, flat.ACTIVATIONS], rows, width)
    by_embedded = flat.part(scratch, layers.quantile[0, flat.ERRORS], rows, width)
    take_apart(features, embedded, by_products, by_features, by_embedded)
    basis = flat.part(scratch, offsets.basis, rows, layers.quantile[0, flat.INPUTS])
    weight, bias = layers.quantile[0, flat.WEIGHT], layers.quantile[0, flat.BIAS]
    flat.add_gradients(basis, by_embedded, gradients, weight, bias, fresh)
    no_inputs = scratch[:0].reshape(0, 0)
    flat.backward(layers.state, gradients, s_tm1, kind, scratch, fresh, no_inputs)


SERIES = tuple(
    np.float32((-1) ** n * math.pi ** (2 * n + 1) / math.factorial(2 * n + 1)) for n in range(6)
)  # Taylor series of sin(pi x): up to |x| = 1/2 the next term is below 6e-8


@njit(**STRICT)
def write_cosines(quantiles: Floats, out: Floats) -> None:
    """Write cos(pi i tau), [rows, cosines], for quantiles tau [rows] in (0, 1) and i = 0, 1, ..."""
    for r in range(quantiles.size):
        tau = np.float64(quantiles[r])
        for i in range(out.shape[1]):
            turns = tau * np.float64(i)  # in half turns
            turns -= 2.0 * np.floor(0.5 * turns + 0.5)
            x = np.float32(0.5 - abs(turns))  # cos(pi t) = sin(pi (1/2 - |t|))
            u = x * x
            total = SERIES[5]
            total = total * u + SERIES[4]
            total = total * u + SERIES[3]
            total = total * u + SERIES[2]
            total = total * u + SERIES[1]
            out[r, i] = x * (total * u + SERIES[0])


@njit(**STRICT)
def take_apart(
    features: Floats,
    embedded: Floats,
    by_products: Floats,
    by_features: Floats,
    by_embedded: Floats,
) -> None:
    """Convert errors of products to errors of features [b, F] and of ReLU's inputs [b * N, F]."""
    batch, zero = features.shape[0], np.float32(0.0)
    count = embedded.shape[0] // batch
    for b in range(batch):
        for j in range(features.shape[1]):
            by_features[b, j] = zero
        for n in range(count):
            row = b * count + n
            for j in range(features.shape[1]):
                error, embedding = by_products[row, j], embedded[row, j]
                by_features[b, j] += error * embedding
                by_embedded[row, j] = error * features[b, j] if embedding > zero else zero


@njit(**STRICT)
def differentiate_quantiles(
    k: int,  # the policy
    first: int,  # the first sample of the chunk
    z_t: Floats,  # [b * N, A] values by the target network
    select: Floats,  # [b, A] values to select actions by
    z_tm1: Floats,  # [b * N, A] values by the online network
    quantiles: Floats,  # [B, N] of `z_tm1`
    batch: BatchArrays,
    huber: np.float32,
    by_z: Floats,  # [b * N, A], written
    metrics: Floats,  # as in `step_iqn`
    means: Array,
) -> None:
    """Write the quantile Huber loss (`losses.quantile_loss`) and its gradient w.r.t. `z_tm1`."""
    samples, count = quantiles.shape
    zero, one, half = np.float32(0.0), np.float32(1.0), np.float32(0.5)
    each = np.float32(1.0 / count)
    share = np.float32(1.0 / samples)
    targets = np.empty(count, np.float32)
    for i in range(select.shape[0]):
        b = first + i
        best = best_of(select[i], batch.allowed_t[k, b])
        action = batch.a_tm1[k, b]
        for n in range(count):
            targets[n] = batch.r_t[k, b] + batch.discount_t[k, b] * z_t[i * count + n, best]
        weight = batch.weights[k, b] if batch.weights.shape[1] else one
        loss = value = mean_error = zero
        for n in range(count):
            predicted, tau = z_tm1[i * count + n, action], quantiles[b, n]
            penalty = slope = distances = zero
            for m in range(count):
                error = targets[m] - predicted
                distance = abs(error)
                is_linear = distance > huber
                share_of = abs(tau - (one if error < zero else zero))
                penalty += share_of * (
                    huber * (distance - half * huber) if is_linear else half * error * error
                )
                derivative = (huber if error > zero else -huber) if is_linear else error
                slope -= share_of * derivative
                distances += distance
            for j in range(by_z.shape[1]):
                by_z[i * count + n, j] = zero
            by_z[i * count + n, action] = slope / huber * each * weight * share
            loss += penalty / huber * each
            value += predicted * each
            mean_error += distances * each * each
        metrics[0, k, b], metrics[1, k, b], metrics[2, k, b] = loss, value, mean_error
        means[0, k] += loss * weight / samples
        means[1, k] += value / samples
