"""The units in which values are learned: less the mean of their targets, by their deviation.

So neither the size of rewards nor what all states have in common is left to the network's weights
(PopArt, van Hasselt et al. 2016). The moments are buffers of the value's head, so they go wherever
its weights go.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from remuda.kernels import njit
from remuda.policies.stack import Parameters, ParameterStack
from remuda.types import Bools, Floats

if TYPE_CHECKING:
    from remuda.policies.networks.network import Network

VALUE_MEAN, VALUE_VARIANCE, VALUE_COUNT = "value.mean", "value.variance", "value.count"
"""Buffers [1, 1]: the moments of targets, and the updates that they were counted in."""
NEWEST = 0.3
"""What an update's targets count in the moments at least, since returns grow while it learns; the
first ones count all alike."""
LEAST = 1e-4
"""The least variance, in rewards as they are trained on: of no rewards there is none."""


@dataclass(frozen=True)
class ValueUnits:
    """The units of G policies."""

    means: np.ndarray
    """[G, 1] float64."""
    variances: np.ndarray
    """[G, 1]."""
    counts: np.ndarray
    """[G, 1]: updates; 0: outputs stand for nothing yet."""

    @classmethod
    def of(cls, stack: ParameterStack, members: Sequence[int]) -> ValueUnits:
        """Those of some policies of a stack."""
        at = torch.tensor(members, device=stack.flat.device)
        names = (VALUE_MEAN, VALUE_VARIANCE, VALUE_COUNT)
        found = (stack.parameters[name].index_select(0, at).cpu() for name in names)
        return cls(*(values[:, 0].double().numpy() for values in found))

    @property
    def deviations(self) -> np.ndarray:
        """[G, 1]; 0 for fresh networks, whose outputs are noise and stand for nothing.

        Else they would be in the first targets, by way of what is expected after a step, and the
        first units those of the noise: where rewards are small beside it, they would not count for
        many updates, in which a value learns to say the same of all states. So `credit_of` values
        all states of a fresh policy by one number, which its own rewards decide.
        """
        return np.where(self.counts > 0, np.sqrt(np.maximum(self.variances, LEAST)), 0.0)

    def real(self, values: Floats) -> Floats:
        """What the outputs [G, R] of networks stand for."""
        found: Floats = (values * self.deviations + self.means).astype(np.float32)
        return found

    def normalised(self, values: Floats) -> Floats:
        """What networks are to say for these values [G, R]."""
        found: Floats = ((values - self.means) / self.deviations).astype(np.float32)
        return found

    def counting(self, targets: Floats, counts: Bools) -> ValueUnits:
        """The units once an update's targets are counted in.

        Args:
            targets: [G, R].
            counts: [G, R], which of them are of steps.
        """
        means, variances = np.zeros_like(self.means), np.zeros_like(self.means)
        _moments(targets, counts, means[:, 0], variances[:, 0])
        share = np.maximum(1.0 / (self.counts + 1.0), NEWEST)
        apart = means - self.means
        return ValueUnits(
            self.means + share * apart,
            (1.0 - share) * (self.variances + share * apart * apart) + share * variances,
            self.counts + 1.0,
        )

    def put(
        self, stack: ParameterStack, members: Sequence[int], before: ValueUnits, outputs: Floats
    ) -> Floats:
        """Let policies speak in these units from now on, and mean what they did before.

        What fresh networks say means nothing: in the first units it stays as it is, so that they
        begin with the mean, and need not learn how far that is from 0.

        Args:
            stack: of all policies.
            members: whose units these are.
            before: those that they had.
            outputs: [G, R], of their value heads in these.

        Returns:
            [G, R], what these put out now.
        """
        fresh = before.counts == 0
        scale = np.where(fresh, 1.0, before.deviations / self.deviations)
        shift = np.where(fresh, 0.0, (before.means - self.means) / self.deviations)
        device, named = stack.flat.device, stack.parameters
        at = torch.tensor(members, device=device)

        def column(values: np.ndarray) -> Tensor:
            return torch.from_numpy(values[:, :, None].astype(np.float32)).to(device)

        with torch.no_grad():
            weight, bias = named["value.weight"], named["value.bias"]
            weight.index_copy_(0, at, weight.index_select(0, at) * column(scale))
            bias.index_copy_(0, at, bias.index_select(0, at) * column(scale) + column(shift))
            for name, values in (
                (VALUE_MEAN, self.means),
                (VALUE_VARIANCE, self.variances),
                (VALUE_COUNT, self.counts),
            ):
                named[name].index_copy_(0, at, column(values))
        found: Floats = (outputs * scale + shift).astype(np.float32)
        return found


def meant(network: Network, weights: Floats, values: Floats) -> Floats:
    """Weights [P] of a network that is taught, in units of what it is taught, if it was fresh.

    It begins to mean something, and its first update must not take that for what a fresh one says.
    Where nobody who teaches it knows values, it stays fresh.

    Args:
        network: that is taught.
        weights: that it begins with.
        values: [N] that it is taught.
    """
    if VALUE_COUNT not in network.shapes:
        return weights
    ends = list(accumulate((math.prod(shape) for shape in network.shapes.values()), initial=0))
    at = dict(zip(network.shapes, ends, strict=False))
    if weights[at[VALUE_COUNT]] > 0 or not values.any():
        return weights
    found: Floats = weights.copy()
    found[at[VALUE_MEAN]], found[at[VALUE_VARIANCE]], found[at[VALUE_COUNT]] = (
        values.mean(),
        max(float(values.var()), LEAST),
        1.0,
    )
    return found


def real_values(parameters: Parameters, values: Tensor) -> Tensor:
    """What the outputs [K, B] of networks stand for; gradients go through the outputs alone.

    What fresh networks say stands for 0.
    """
    mean, variance, count = (
        parameters[name].detach()[:, 0] for name in (VALUE_MEAN, VALUE_VARIANCE, VALUE_COUNT)
    )
    deviation = torch.where(count > 0, variance.clamp(min=LEAST).sqrt(), 0.0)
    return values * deviation + mean


@njit(cache=True)
def _moments(targets: Floats, counts: Bools, means: np.ndarray, variances: np.ndarray) -> None:
    """The mean and the variance of each row, over those of its numbers that count."""
    for i in range(targets.shape[0]):
        count, total = 0, 0.0
        for j in range(targets.shape[1]):
            if counts[i, j]:
                count += 1
                total += targets[i, j]
        means[i] = total / max(count, 1)
        squares = 0.0
        for j in range(targets.shape[1]):
            if counts[i, j]:
                squares += (targets[i, j] - means[i]) ** 2
        variances[i] = squares / max(count, 1)
