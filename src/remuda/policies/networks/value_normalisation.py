"""PopArt (van Hasselt et al. 2016): values are normalised by the moments of their targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from remuda.policies.stack import Parameters, ParameterStack
from remuda.system.kernels import njit
from remuda.types import Bools, Floats

# buffers [1, 1], published with weights: moments of targets, and the number of updates
VALUE_MEAN, VALUE_VARIANCE, VALUE_COUNT = "value.mean", "value.variance", "value.count"
NEWEST = 0.3  # minimum weight of an update's targets in the moments; first updates weigh equally
LEAST = 1e-4  # minimum variance


@dataclass(frozen=True)
class ValueNormalisation:
    """The value normalisation of G policies."""

    means: np.ndarray  # [G, 1] float64
    variances: np.ndarray  # [G, 1]
    counts: np.ndarray  # [G, 1] updates; 0: outputs are untrained

    @classmethod
    def of(cls, stack: ParameterStack, members: Sequence[int]) -> ValueNormalisation:
        at = torch.tensor(members, device=stack.flat.device)
        names = (VALUE_MEAN, VALUE_VARIANCE, VALUE_COUNT)
        found = (stack.parameters[name].index_select(0, at).cpu() for name in names)
        return cls(*(values[:, 0].double().numpy() for values in found))

    @property
    def deviations(self) -> np.ndarray:
        """Return the standard deviations [G, 1]; 0 for fresh networks, whose outputs are noise.

        Bootstrapping from that noise would distort the first targets and the first scale. So
        `credit_of` uses one value for all states of a fresh policy, computed from its rewards.
        """
        return np.where(self.counts > 0, np.sqrt(np.maximum(self.variances, LEAST)), 0.0)

    def real(self, values: Floats) -> Floats:
        """Convert network outputs [G, R] to values."""
        found: Floats = (values * self.deviations + self.means).astype(np.float32)
        return found

    def normalised(self, values: Floats) -> Floats:
        """Convert values [G, R] to network outputs."""
        found: Floats = ((values - self.means) / self.deviations).astype(np.float32)
        return found

    def counting(self, targets: Floats, counts: Bools) -> ValueNormalisation:
        """Return the normalisation after adding the targets [G, R] selected by `counts` [G, R]."""
        means, variances = np.zeros_like(self.means), np.zeros_like(self.means)
        _moments(targets, counts, means[:, 0], variances[:, 0])
        share = np.maximum(1.0 / (self.counts + 1.0), NEWEST)
        difference = means - self.means
        return ValueNormalisation(
            self.means + share * difference,
            (1.0 - share) * (self.variances + share * difference * difference) + share * variances,
            self.counts + 1.0,
        )

    def put(
        self,
        stack: ParameterStack,
        members: Sequence[int],
        before: ValueNormalisation,
        outputs: Floats,
    ) -> Floats:
        """Write this normalisation and adjust the heads so that values stay the same.

        A fresh network's outputs stay unchanged. Returns `outputs` [G, R] in this normalisation.
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


def real_values(parameters: Parameters, values: Tensor) -> Tensor:
    """Convert outputs [K, B] to values, with gradients only through outputs; 0 if fresh."""
    mean, variance, count = (
        parameters[name].detach()[:, 0] for name in (VALUE_MEAN, VALUE_VARIANCE, VALUE_COUNT)
    )
    deviation = torch.where(count > 0, variance.clamp(min=LEAST).sqrt(), 0.0)
    return values * deviation + mean


@njit(cache=True)
def _moments(targets: Floats, counts: Bools, means: np.ndarray, variances: np.ndarray) -> None:
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
