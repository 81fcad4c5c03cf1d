"""The loss of implicit quantile networks and its gradient, in one compiled step.

It is what `iqn.py` has torch derive, and a test holds the two together. See `fused_q.py`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from remuda.kernels import njit
from remuda.policies.algorithms.fused_q import (
    Head,
    Seen,
    Settings,
    Told,
    best_of,
    by_kernels,
    seen_of,
    values_of,
)
from remuda.policies.algorithms.transition_algorithm import Transitions
from remuda.policies.networks.activations import KINDS, STRICT
from remuda.policies.networks.flat_layers import (
    BIAS,
    CHUNK,
    ERRORS,
    INPUTS,
    OUTPUTS,
    SAID,
    WEIGHT,
    Scratch,
    add_gradients,
    backward,
    bring_near,
    fold_head,
    forward,
    linear,
    part,
    table_of,
    transpose,
    transpose_all,
    unfold_head,
)
from remuda.policies.networks.iqn import IQN
from remuda.policies.networks.products import ALL
from remuda.policies.networks.quantile_pass import average, combine
from remuda.policies.stack import ParameterStack, whole_rows
from remuda.types import Array, Floats, Integers


class Rooms(NamedTuple):
    """Where in the scratch there is room, for the rows of a chunk; F is the width of features."""

    basis: int
    """Cosines of quantiles, [rows, cosines]."""
    products: int
    """Features times embeddings, [rows, F]..."""
    by_products: int
    """...and their errors."""
    midpoints: int
    """Embeddings of the fixed midpoints of quantiles, [N, F]."""
    select: int
    """Action values, [samples, A]."""
    mean: int
    """The mean over quantiles of what the last hidden layer says, [samples, its units]."""
    z_t: int
    """Values by quantile, [rows, A], of s_t..."""
    z_tm1: int
    """...of s_tm1..."""
    by_z: int
    """...and the errors of the latter."""


class FusedIQN:
    """Works out loss and gradients of policies on batches of samples of each."""

    def __init__(self, network: IQN, settings: Settings) -> None:
        """Lay out what is worked in.

        Args:
            network: of all policies.
            settings: of the loss.
        """
        self._kind, self._settings = KINDS[network.config.activation], settings
        self._quantiles = network.own.quantiles
        self._samples = max(CHUNK // self._quantiles, 1)
        rows, actions = self._samples * self._quantiles, network.num_actions
        scratch, shapes = Scratch(), network.shapes
        self._state = table_of(shapes, ("state",), scratch, self._samples)
        self._quantile = table_of(shapes, ("quantile",), scratch, rows)
        hidden = [name for name in network.layers if name.startswith("hidden")]
        self._hidden = table_of(shapes, hidden, scratch, rows)
        self._head = Head.of(network, scratch)
        width = int(self._state[0, OUTPUTS])
        self._rooms = Rooms(
            basis=scratch.room(rows * network.own.cosines),
            products=scratch.room(rows * width),
            by_products=scratch.room(rows * width),
            midpoints=scratch.room(self._quantiles * width),
            select=scratch.room(self._samples * actions),
            mean=scratch.room(self._samples * self._head.width),
            z_t=scratch.room(rows * actions),
            z_tm1=scratch.room(rows * actions),
            by_z=scratch.room(rows * actions),
        )
        self._scratch: Floats = np.zeros(scratch.size, np.float32)
        midpoints = (np.arange(self._quantiles) + 0.5) / self._quantiles
        self._midpoints: Floats = midpoints.astype(np.float32)

    @staticmethod
    def suits(network: Any, device: torch.device) -> bool:
        """Whether these networks are of the kind that is written out here."""
        return type(network) is IQN and by_kernels(network, device)

    def step(
        self, online: ParameterStack, target: ParameterStack, batch: Transitions, quantiles: Tensor
    ) -> Told:
        """Write the gradients of a batch of G policies to those of `online`.

        Args:
            online: the policies' parameters.
            target: those of their target networks.
            batch: B samples of each.
            quantiles: [G, 2, B, N] at which s_t and s_tm1 are valued.
        """
        seen = seen_of(batch)
        told: Floats = np.zeros((3, *seen.a_tm1.shape), np.float32)
        means: Array = np.zeros((2, len(seen.a_tm1)))
        step_iqn(
            ALL,
            self._state,
            self._quantile,
            self._hidden,
            self._head,
            self._rooms,
            self._kind,
            self._settings.double,
            np.float32(self._settings.huber),
            whole_rows(online.flat),
            whole_rows(target.flat),
            whole_rows(online.gradients),
            seen,
            quantiles.numpy(),
            self._midpoints,
            self._samples,
            self._scratch,
            told,
            means,
        )
        losses, _, errors = torch.from_numpy(told)
        loss, value = torch.from_numpy(means.astype(np.float32))
        return Told(loss, value, losses, errors)


@njit(**STRICT)
def step_iqn(
    begins: Integers,
    state: Integers,
    quantile: Integers,
    hidden: Integers,
    head: Head,
    rooms: Rooms,
    kind: int,
    double: bool,
    huber: np.float32,
    online: Floats,
    target: Floats,
    gradients: Floats,
    seen: Seen,
    quantiles: Floats,
    midpoints: Floats,
    most: int,
    scratch: Floats,
    told: Floats,
    means: Array,
) -> None:
    """Work out a batch, policy by policy, each in chunks of samples.

    Args:
        begins: `products.ALL`.
        state: the layer that sees the state, as in `flat_layers`...
        quantile: ...the one that sees the cosines of quantiles...
        hidden: ...and those that see the product of both.
        head: the last.
        rooms: where to work.
        kind: of activation.
        double: as in `Settings`.
        huber: likewise.
        online: [G, P] parameters.
        target: likewise.
        gradients: likewise, written.
        seen: the batch.
        quantiles: [G, 2, B, N] at which s_t and s_tm1 are valued.
        midpoints: [N] at which actions are chosen.
        most: samples of a chunk.
        scratch: what is worked in.
        told: [3, G, B], written: loss, mean value and mean error of each sample.
        means: [2, G], zeros: the means of the first two are added.
    """
    size, actions = head.width * head.actions, head.actions
    samples, count = quantiles.shape[2], quantiles.shape[3]
    width, cosines = quantile[0, OUTPUTS], quantile[0, INPUTS]
    for k in range(online.shape[0]):
        for row in (online[k], target[k], gradients[k]):
            bring_near(row, scratch)
        for side, at in ((online, head.folded), (target, head.target)):
            room = scratch[at : at + size + actions]
            fold_head(side[k], head.at, head.width, actions, head.dueling, room)
        by_head = scratch[head.gradients : head.gradients + size + actions]
        transpose_all(hidden, online[k], scratch, 0)
        room = scratch[head.transposed : head.transposed + size]
        transpose(scratch, head.folded, head.width, actions, room)
        chooser, chooses = (online[k], head.folded) if double else (target[k], head.target)
        middle = part(scratch, rooms.midpoints, count, width)
        basis = part(scratch, rooms.basis, count, cosines)
        write_cosines(midpoints, basis)
        linear(begins, basis, chooser, quantile[0, WEIGHT], quantile[0, BIAS], middle)
        rectify(middle)
        for first in range(0, samples, most):
            end = min(first + most, samples)
            batch, fresh = end - first, first == 0
            s_tm1, s_t = seen.s_tm1[k, first:end], seen.s_t[k, first:end]
            basis = part(scratch, rooms.basis, batch * count, cosines)
            embedded = part(scratch, quantile[0, SAID], batch * count, width)
            products = part(scratch, rooms.products, batch * count, width)
            # Which action the chooser takes in s_t...
            features = forward(begins, state, chooser, s_t, kind, scratch)
            combine(features, middle, products)
            said = forward(begins, hidden, chooser, products, kind, scratch)
            mean = part(scratch, rooms.mean, batch, head.width)
            average(said, mean)
            select = values_of(begins, mean, scratch, chooses, actions, rooms.select)
            # ...what the target network thinks of all there...
            if double:
                features = forward(begins, state, target[k], s_t, kind, scratch)
            write_cosines(quantiles[k, 0, first:end].reshape(-1), basis)
            weight, bias = quantile[0, WEIGHT], quantile[0, BIAS]
            linear(begins, basis, target[k], weight, bias, embedded)
            rectify(embedded)
            combine(features, embedded, products)
            said = forward(begins, hidden, target[k], products, kind, scratch)
            z_t = values_of(begins, said, scratch, head.target, actions, rooms.z_t)
            # ...and the online network of s_tm1.
            features = forward(begins, state, online[k], s_tm1, kind, scratch)
            write_cosines(quantiles[k, 1, first:end].reshape(-1), basis)
            linear(begins, basis, online[k], weight, bias, embedded)
            rectify(embedded)
            combine(features, embedded, products)
            said = forward(begins, hidden, online[k], products, kind, scratch)
            z_tm1 = values_of(begins, said, scratch, head.folded, actions, rooms.z_tm1)
            by_z = part(scratch, rooms.by_z, batch * count, actions)
            differentiate_quantiles(
                k, first, z_t, select, z_tm1, quantiles[k, 1], seen, huber, by_z, told, means
            )
            # And back.
            add_gradients(begins, said, by_z, by_head, 0, size, fresh)
            by_products = part(scratch, rooms.by_products, batch * count, width)
            if len(hidden):
                last = len(hidden) - 1
                by_said = part(scratch, hidden[last, ERRORS], batch * count, head.width)
                linear(begins, by_z, scratch, head.transposed, -1, by_said)
                backward(begins, hidden, gradients[k], products, kind, scratch, fresh, by_products)
            else:
                linear(begins, by_z, scratch, head.transposed, -1, by_products)
            by_features = part(scratch, state[0, ERRORS], batch, width)
            by_embedded = part(scratch, quantile[0, ERRORS], batch * count, width)
            take_apart(features, embedded, by_products, by_features, by_embedded)
            add_gradients(begins, basis, by_embedded, gradients[k], weight, bias, fresh)
            nobody = scratch[:0].reshape(0, 0)
            backward(begins, state, gradients[k], s_tm1, kind, scratch, fresh, nobody)
        unfold_head(by_head, head.width, actions, head.dueling, gradients[k], head.at)


SERIES = tuple(
    np.float32((-1) ** n * math.pi ** (2 * n + 1) / math.factorial(2 * n + 1)) for n in range(6)
)
"""Of the Taylor series of sin(pi x): up to |x| = 1/2 the next is below 6e-8."""


@njit(**STRICT)
def write_cosines(quantiles: Floats, out: Floats) -> None:
    """Write cos(pi i tau) for quantiles tau [rows] in (0, 1) and i from 0 on: [rows, cosines]."""
    for r in range(quantiles.size):
        tau = np.float64(quantiles[r])
        for i in range(out.shape[1]):
            turns = tau * np.float64(i)  # half ones
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
def rectify(x: Floats) -> None:
    """Let what is negative be 0."""
    for r in range(x.shape[0]):
        for j in range(x.shape[1]):
            x[r, j] = max(x[r, j], np.float32(0.0))


@njit(**STRICT)
def take_apart(
    features: Floats,
    embedded: Floats,
    by_products: Floats,
    by_features: Floats,
    by_embedded: Floats,
) -> None:
    """Errors of products become those of features [b, F], and of embeddings before `rectify`."""
    batch, zero = features.shape[0], np.float32(0.0)
    count = embedded.shape[0] // batch
    for b in range(batch):
        for j in range(features.shape[1]):
            by_features[b, j] = zero
        for n in range(count):
            row = b * count + n
            for j in range(features.shape[1]):
                error, there = by_products[row, j], embedded[row, j]
                by_features[b, j] += error * there
                by_embedded[row, j] = error * features[b, j] if there > zero else zero


@njit(**STRICT)
def differentiate_quantiles(
    k: int,
    first: int,
    z_t: Floats,
    select: Floats,
    z_tm1: Floats,
    quantiles: Floats,
    seen: Seen,
    huber: np.float32,
    by_z: Floats,
    told: Floats,
    means: Array,
) -> None:
    """From values at quantiles to the quantile Huber loss, and back to their errors.

    See `losses.quantile_loss`.

    Args:
        k: the policy.
        first: of the samples of its batch that are looked at.
        z_t: [b * N, A] values by the target network.
        select: [b, A] by which actions are chosen.
        z_tm1: [b * N, A] values by the online network...
        quantiles: [B, N] at which these are.
        seen: the batch.
        huber: as in `Settings`.
        by_z: ...and [b * N, A], written, their errors.
        told: as in `step_iqn`.
        means: as in `step_iqn`.
    """
    samples, count = quantiles.shape
    zero, one, half = np.float32(0.0), np.float32(1.0), np.float32(0.5)
    each = np.float32(1.0 / count)
    share = np.float32(1.0 / samples)
    targets = np.empty(count, np.float32)
    for i in range(select.shape[0]):
        b = first + i
        best = best_of(select[i], seen.allowed_t[k, b])
        action = seen.a_tm1[k, b]
        for n in range(count):
            targets[n] = seen.r_t[k, b] + seen.discount_t[k, b] * z_t[i * count + n, best]
        weight = seen.weights[k, b] if seen.weights.shape[1] else one
        loss = value = off = zero
        for n in range(count):
            here, tau = z_tm1[i * count + n, action], quantiles[b, n]
            own = slope = apart = zero
            for m in range(count):
                error = targets[m] - here
                distance = abs(error)
                bent = distance > huber
                share_of = abs(tau - (one if error < zero else zero))
                own += share_of * (
                    huber * (distance - half * huber) if bent else half * error * error
                )
                steep = (huber if error > zero else -huber) if bent else error
                slope -= share_of * steep
                apart += distance
            for j in range(by_z.shape[1]):
                by_z[i * count + n, j] = zero
            by_z[i * count + n, action] = slope / huber * each * weight * share
            loss += own / huber * each
            value += here * each
            off += apart * each * each
        told[0, k, b], told[1, k, b], told[2, k, b] = loss, value, off
        means[0, k] += loss * weight / samples
        means[1, k] += value / samples
