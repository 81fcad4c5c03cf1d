"""Scaling of observations before a network: pixels to 0 to 1."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

# one factor for all numbers of an observation, or (count, factor) of consecutive numbers
Scale = float | tuple[tuple[int, float], ...]


def scaled(inputs: Tensor, scale: Scale) -> Tensor:
    """Scale inputs [..., n_frames * size]."""
    if isinstance(scale, float):
        return inputs if scale == 1.0 else inputs * scale
    return inputs * _factors(scale, inputs.shape[-1], inputs.device)


@lru_cache
def _factors(scale: tuple[tuple[int, float], ...], size: int, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        once = torch.cat([torch.full((count,), factor) for count, factor in scale])
        return once.repeat(size // len(once)).to(device)
