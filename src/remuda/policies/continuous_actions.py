"""Continuous actions: Gaussian, and squashed by tanh."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from remuda.policies.actions import Actions, Rngs
from remuda.system.kernels import njit
from remuda.types import Array, Bools, Floats

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
LOG_SCALES = -20.0, 2.0  # range of the logarithms of squashed actions' standard deviations
LIMIT = 1e30  # larger bounds count as infinite: some libraries use the largest float for "no bound"


class ActionBounds:
    """The bounds of a `Box`, and the map from normalised actions into them.

    1. Between two finite bounds, [-1, 1] is mapped to [low, high].
    2. With one finite bound, the action is shifted, so that -1 is the lower or 1 the upper bound.
    3. Without bounds the action is used unchanged.
    4. Results have the dtype of the bounds and are always within them.
    """

    def __init__(self, low: Array, high: Array) -> None:
        self.low, self.high = low.ravel(), high.ravel()
        self.dtype = self.low.dtype
        lowest, highest = self.low.astype(np.float64), self.high.astype(np.float64)
        from_below: Bools = lowest > -LIMIT
        from_above: Bools = highest < LIMIT
        both = from_below & from_above
        self.is_bounded: Bools = both  # [size] dimensions with two finite bounds
        with np.errstate(invalid="ignore"):
            self._half = np.where(both, highest / 2 - lowest / 2, 1.0)
            centre = np.where(from_below, lowest + 1, np.where(from_above, highest - 1, 0.0))
            self._centre = np.where(both, lowest / 2 + highest / 2, centre)
        self._is_identity = bool(
            self.dtype == np.float32
            and both.all()
            and (lowest == -1).all()
            and (highest == 1).all()
        )

    def equals(self, other: ActionBounds) -> bool:
        return np.array_equal(self.low, other.low) and np.array_equal(self.high, other.high)

    def scale(self, actions: Array) -> Array:
        scaled = actions
        if not self._is_identity:
            scaled = self._centre + self._half * np.where(
                self.is_bounded, np.clip(actions, -1, 1), actions
            )
            scaled = scaled.astype(self.dtype)
        clipped: Array = np.clip(scaled, self.low, self.high)
        return clipped

    def normalise(self, actions: Array) -> Floats:
        """Return the normalised actions that `scale` maps to these: the inverse within bounds."""
        half = np.where(self._half > 0, self._half, 1.0)  # equal bounds allow one action
        normal: Floats = ((actions - self._centre) / half).astype(np.float32)
        return normal

    def scale_tensor(self, actions: Tensor) -> Tensor:
        unit = torch.where(torch.from_numpy(self.is_bounded), actions.clamp(-1, 1), actions)
        scaled = torch.from_numpy(self._centre) + torch.from_numpy(self._half) * unit.double()
        low, high = (torch.from_numpy(bound.astype(np.float64)) for bound in (self.low, self.high))
        return scaled.maximum(low).minimum(high).to(torch.from_numpy(self.low).dtype)


class ContinuousActions(Actions):
    """Independent normal distributions with scales that do not depend on the observation.

    The ring buffer stores the sampled, normalised actions; the environment gets scaled ones.
    """

    meaning = "means, then logarithms of standard deviations"

    def __init__(self, low: Array, high: Array) -> None:
        self.bounds = ActionBounds(low, high)
        self.size = self.num_logits = self.num_scales = low.size
        self.dtype = np.float32

    def __repr__(self) -> str:
        low, high = self.bounds.low, self.bounds.high
        return f"ContinuousActions({low.tolist()}, {high.tolist()}, {low.dtype})"

    @property
    def unbounded(self) -> int:
        return int(np.count_nonzero(~self.bounds.is_bounded))

    def choose_for_all(
        self,
        outputs: Floats,
        masks: Bools,  # noqa: ARG002
        rngs: Rngs,
        actions: Array,
        log_probs: Floats,
    ) -> None:
        normals = _draw_normals(actions.shape, rngs)
        _choose_continuous(outputs, normals, actions, log_probs)

    def greedy(self, outputs: Tensor, masks: Tensor | None) -> Tensor:  # noqa: ARG002
        return self.bounds.scale_tensor(outputs[..., : self.size])

    def log_probs_and_entropy(
        self,
        outputs: Tensor,
        actions: Tensor,
        masks: Tensor | None,  # noqa: ARG002
    ) -> tuple[Tensor, Tensor]:
        means, log_scales = outputs.chunk(2, -1)
        z = (actions - means) * (-log_scales).exp()
        log_probs = (-0.5 * z.square() - log_scales - HALF_LOG_TWO_PI).sum(-1)
        return log_probs, (log_scales + 0.5 + HALF_LOG_TWO_PI).sum(-1)

    def divergence(self, outputs: Tensor, others: Tensor, masks: Tensor | None) -> Tensor:  # noqa: ARG002
        means, log_scales = outputs.chunk(2, -1)
        other_means, other_scales = others.chunk(2, -1)
        ratio = (2.0 * (log_scales - other_scales)).exp()
        difference = (means - other_means).square() * (-2.0 * other_scales).exp()
        return (other_scales - log_scales + 0.5 * (ratio + difference - 1.0)).sum(-1)

    def within_bounds(self, actions: Array) -> Array:
        return self.bounds.scale(actions)


class SquashedActions(ContinuousActions):
    """Normal distributions squashed by tanh, with scales that depend on the observation.

    The ring buffer stores the squashed actions, which are in [-1, 1].
    """

    meaning = "means, then logarithms of standard deviations, before tanh"

    def __init__(self, low: Array, high: Array) -> None:
        super().__init__(low, high)
        self.num_logits, self.num_scales = 2 * self.size, 0

    def __repr__(self) -> str:
        return super().__repr__().replace("Continuous", "Squashed")

    def choose_for_all(
        self,
        outputs: Floats,
        masks: Bools,  # noqa: ARG002
        rngs: Rngs,
        actions: Array,
        log_probs: Floats,
    ) -> None:
        normals = _draw_normals(actions.shape, rngs)
        for k, own in enumerate(normals):
            sample_squashed(outputs[k], own, actions[k], log_probs[k])

    def greedy(self, outputs: Tensor, masks: Tensor | None) -> Tensor:
        return super().greedy(outputs.tanh(), masks)

    def sample(self, outputs: Tensor, normals: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions [K, B, size] and their log-probabilities [K, B], with gradients.

        `normals` [K, B, size] are standard normal. The change of variables is equation 21 of
        Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications".
        """
        means, log_scales = outputs.chunk(2, -1)
        log_scales = log_scales.clamp(*LOG_SCALES)
        before = means + log_scales.exp() * normals
        log_normal = -0.5 * normals.square() - log_scales - HALF_LOG_TWO_PI
        return before.tanh(), (log_normal - log_slopes(before)).sum(-1)

    def log_probs_and_entropy(
        self, outputs: Tensor, actions: Tensor, masks: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        raise NotImplementedError("a squashed normal distribution has no entropy in closed form")

    def divergence(self, outputs: Tensor, others: Tensor, masks: Tensor | None) -> Tensor:
        """Return the divergence before tanh, which does not change it."""
        return super().divergence(self._limited(outputs), self._limited(others), masks)

    def _limited(self, outputs: Tensor) -> Tensor:
        means, log_scales = outputs.chunk(2, -1)
        return torch.cat((means, log_scales.clamp(*LOG_SCALES)), -1)


LEAST_SCALE, MOST_SCALE = (np.float32(limit) for limit in LOG_SCALES)
LOG_TWO = math.log(2.0)


@njit(cache=True, error_model="numpy")
def sample_squashed(outputs: Floats, normals: Array, actions: Floats, log_probs: Floats) -> None:
    """Write actions [B, size] and log-probabilities [B], as `SquashedActions.sample` has them."""
    size = actions.shape[1]
    for b in range(actions.shape[0]):
        total = 0.0
        for i in range(size):
            log_scale = min(max(outputs[b, size + i], LEAST_SCALE), MOST_SCALE)
            before = outputs[b, i] + math.exp(log_scale) * normals[b, i]
            twice = -2.0 * before
            softplus = twice if twice > 20.0 else math.log1p(math.exp(twice))
            log_slope = 2.0 * (LOG_TWO - before - softplus)
            total += -0.5 * normals[b, i] ** 2 - log_scale - HALF_LOG_TWO_PI - log_slope
            actions[b, i] = math.tanh(before)
        log_probs[b] = total


def log_slopes(before: Tensor) -> Tensor:
    """Return log(1 - tanh(x)^2), the logarithm of the slope of tanh, without cancellation."""
    return 2.0 * (math.log(2.0) - before - torch.nn.functional.softplus(-2.0 * before))


def _draw_normals(shape: tuple[int, ...], rngs: Rngs) -> Array:
    """Draw standard normal numbers [K, ...], each policy's from its own generator; else zeros."""
    normals = np.zeros(shape)
    for k, rng in enumerate(rngs or ()):
        rng.standard_normal(out=normals[k])
    return normals


@njit(cache=True)
def _choose_continuous(
    outputs: Floats, normals: np.ndarray, actions: Floats, log_probs: Floats
) -> None:
    size = actions.shape[2]
    for k in range(outputs.shape[0]):
        for stream in range(outputs.shape[1]):
            log_prob = 0.0
            for i in range(size):
                log_scale = outputs[k, stream, size + i]
                z = normals[k, stream, i]
                actions[k, stream, i] = outputs[k, stream, i] + math.exp(log_scale) * z
                log_prob += -0.5 * z * z - log_scale - HALF_LOG_TWO_PI
            log_probs[k, stream] = log_prob
