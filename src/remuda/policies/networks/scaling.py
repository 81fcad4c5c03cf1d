"""What observations are multiplied by before a network: pixels are brought to 0 to 1."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

Scale = float | tuple[tuple[int, float], ...]
"""One factor for all numbers of an observation, or runs of (how many numbers, their factor)."""


def scaled(inputs: Tensor, scale: Scale) -> Tensor:
    """Inputs [..., n_frames * size], each number by its factor."""
    if isinstance(scale, float):
        return inputs if scale == 1.0 else inputs * scale
    return inputs * _factors(scale, inputs.shape[-1], inputs.device)


@lru_cache
def _factors(scale: tuple[tuple[int, float], ...], size: int, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        once = torch.cat([torch.full((count,), factor) for count, factor in scale])
        return once.repeat(size // len(once)).to(device)
