"""Plain and noisy linear layers, the dueling head, and input scaling, for K policies.

*Plain weights* are parameters with noise added and the dueling head folded into one linear layer.
They are computed once per pass, or once per version if a policy only acts.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from remuda.policies.stack import Parameters

NOISE_SCALE = 0.5  # sigma_0 of Fortunato et al. 2018, section 3.2

# one factor for a whole observation, or a (count, factor) for each group of consecutive values
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


def simplified(scale: tuple[tuple[int, float], ...]) -> Scale:
    """Return one factor if all are equal."""
    factors = {factor for _, factor in scale}
    return factors.pop() if len(factors) == 1 else scale


def linear_shapes(
    name: str, inputs: int, outputs: int, noisy: bool = False
) -> dict[str, tuple[int, ...]]:
    """Return the parameter shapes of a linear layer; biases are rows, to be added to a batch."""
    shapes: dict[str, tuple[int, ...]] = {
        f"{name}.weight": (inputs, outputs),
        f"{name}.bias": (1, outputs),
    }
    if noisy:
        shapes |= {f"{name}.weight_sigma": (inputs, outputs), f"{name}.bias_sigma": (1, outputs)}
    return shapes


def initialise_layer(parameters: Parameters, name: str, generator: torch.Generator) -> None:
    """Draw weights and biases uniformly within 1/sqrt(fan-in), as torch does.

    Noisy layers start as in Fortunato et al. 2018. A linear weight is [1, I, O], a convolution's
    [1, O, channels, kernel, kernel].
    """
    weight = parameters[f"{name}.weight"]
    bound = 1.0 / math.sqrt(weight.shape[1] if weight.dim() == 3 else weight[0, 0].numel())
    with torch.no_grad():
        for part in ("weight", "bias"):
            view = parameters[f"{name}.{part}"]
            drawn = torch.empty(view.shape, dtype=view.dtype, device="cpu")
            view.copy_(drawn.uniform_(-bound, bound, generator=generator))
            if f"{name}.{part}_sigma" in parameters:
                parameters[f"{name}.{part}_sigma"].fill_(NOISE_SCALE * bound)


def plain_linear(
    parameters: Parameters, name: str, noise: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Return weight [K, inputs, outputs] and bias [K, 1, outputs]; noisy layers draw their noise.

    The noise is factorised (Fortunato et al. 2018, equations 10 and 11). Without a generator there
    is no noise.
    """
    weight, bias = parameters[f"{name}.weight"], parameters[f"{name}.bias"]
    if noise is None or f"{name}.weight_sigma" not in parameters:
        return weight, bias
    policies, inputs, outputs = weight.shape
    before = _signed_root(torch.randn(policies, inputs, 1, generator=noise)).to(weight.device)
    after = _signed_root(torch.randn(policies, 1, outputs, generator=noise)).to(weight.device)
    return (
        weight + parameters[f"{name}.weight_sigma"] * (before * after),
        bias + parameters[f"{name}.bias_sigma"] * after,
    )


def fold_dueling(part: Tensor) -> Tensor:
    """Fold a head's weight or bias for one value and A advantages into one for A action values.

    Q = V + A - mean(A) (Wang et al. 2016, equation 9) is linear, so it applies to the weights.
    """
    value, advantages = part[..., :1], part[..., 1:]
    return value + advantages - advantages.mean(-1, keepdim=True)


def _signed_root(x: Tensor) -> Tensor:
    return x.sign() * x.abs().sqrt()
