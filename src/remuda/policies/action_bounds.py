"""The affine map from a policy's continuous actions to the bounds of the environment."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from remuda.types import Array, Bools

LIMIT = 1e30  # larger bounds count as infinite: libraries write the largest float for "no bound"


class ActionBounds:
    """The bounds of a `Box` and the map to them from normalised actions.

    1. Between two finite bounds, [-1, 1] is mapped to [low, high].
    2. With a single finite bound, the action is shifted: -1 is the lower bound, or 1 the upper one.
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
        self.is_bounded: Bools = both  # [size] which numbers have two finite bounds
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

    def scale(self, actions: Array) -> Array:
        """Scale normalised actions [N, size] to the bounds."""
        scaled = actions
        if not self._is_identity:
            scaled = self._centre + self._half * np.where(
                self.is_bounded, np.clip(actions, -1, 1), actions
            )
            scaled = scaled.astype(self.dtype)
        clipped: Array = np.clip(scaled, self.low, self.high)
        return clipped

    def scale_tensor(self, actions: Tensor) -> Tensor:
        """Do the same in torch."""
        unit = torch.where(torch.from_numpy(self.is_bounded), actions.clamp(-1, 1), actions)
        scaled = torch.from_numpy(self._centre) + torch.from_numpy(self._half) * unit.double()
        low, high = (torch.from_numpy(bound.astype(np.float64)) for bound in (self.low, self.high))
        return scaled.maximum(low).minimum(high).to(torch.from_numpy(self.low).dtype)
