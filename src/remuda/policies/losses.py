"""Losses as pure functions, for K policies and B samples at once.

Names follow the time index: an action at t - 1 leads to a reward and a discount at t.
"""

import torch
from torch import Tensor

LEAST_LOG = -1e4  # replaces log-probabilities of impossible actions before products with 0


def huber(error: Tensor, threshold: float) -> Tensor:
    """Return the Huber loss, elementwise: quadratic up to `threshold`, linear beyond."""
    size = error.abs()
    return torch.where(
        size <= threshold, 0.5 * error.square(), threshold * (size - 0.5 * threshold)
    )


def among_allowed(values: Tensor, allowed: Tensor) -> Tensor:
    """Set values [K, B, A] of forbidden actions to minus infinity; an empty mask allows all."""
    return values.masked_fill(~allowed, -torch.inf) if allowed.numel() else values


def q_learning_loss(taken_tm1: Tensor, target: Tensor, threshold: float) -> Tensor:
    """Return the Huber loss of the taken actions' values: [K, B]."""
    return huber(target - taken_tm1, threshold)


def quantile_loss(values: Tensor, quantiles: Tensor, targets: Tensor, threshold: float) -> Tensor:
    """Return the quantile Huber loss (Dabney et al. 2018, equations 2 and 3): [K, B].

    Values and quantiles are [K, B, N], targets [K, B, N'] without a gradient; `threshold` is kappa.
    """
    error = targets.unsqueeze(-2) - values.unsqueeze(-1)  # [K, B, N, N']
    weight = (quantiles.unsqueeze(-1) - (error.detach() < 0).to(error.dtype)).abs()
    return (weight * huber(error, threshold) / threshold).mean(-1).sum(-1)


def clipped_surrogate_loss(
    log_pi: Tensor, log_mu: Tensor, advantages: Tensor, clip: Tensor
) -> Tensor:
    """Return PPO's negative clipped surrogate (Schulman et al. 2017, equation 7): [K, B].

    `log_mu` are log-probabilities when the action was taken; `clip` (epsilon) is [] or [K, 1].
    """
    ratio = (log_pi - log_mu).exp()
    bounded = ratio.clamp(1.0 - clip, 1.0 + clip)
    return -torch.minimum(ratio * advantages, bounded * advantages)


def value_loss(v: Tensor, v_before: Tensor, target: Tensor, clip: Tensor | None = None) -> Tensor:
    """Return half the squared error of values: [K, B].

    A value that moved further than `clip`, [] or [K, 1], from `v_before` gets the larger of the
    clipped and unclipped errors.
    """
    loss = 0.5 * (v - target).square()
    if clip is None:
        return loss
    bounded = v_before + (v - v_before).clamp(-clip, clip)
    return torch.maximum(loss, 0.5 * (bounded - target).square())


def log_probabilities(logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return log-probabilities [K, B, A] of a categorical distribution.

    Masked actions get the lowest finite logit, so that neither they nor gradients become infinite.
    """
    if mask is not None:
        logits = logits.masked_fill(~mask, torch.finfo(logits.dtype).min)
    return logits.log_softmax(-1)


def entropy(log_pi: Tensor) -> Tensor:
    """Return the entropy in nats, [K, B], from log-probabilities [K, B, A]."""
    return -(log_pi.exp() * log_pi.clamp(min=LEAST_LOG)).sum(-1)


def kl_estimate(log_pi: Tensor, log_mu: Tensor) -> Tensor:
    """Return a low-variance estimate of KL(mu, pi) from actions of mu: [K, B].

    It is unbiased and never negative (Schulman 2020, "Approximating KL divergence").
    """
    log_ratio = log_pi - log_mu
    return log_ratio.exp() - 1.0 - log_ratio


def mean_of(x: Tensor, valid: Tensor | None = None) -> Tensor:
    """Return means [K] of x [K, B] where `valid` is 1; other entries may be infinite."""
    if valid is None:
        return x.mean(-1)
    return torch.where(valid > 0, x, 0.0).sum(-1) / valid.sum(-1)


def normalised(advantages: Tensor, valid: Tensor | None = None) -> Tensor:
    """Normalise advantages [K, B] to mean 0 and deviation 1 by policy; 0 if they are equal."""
    centred = advantages - mean_of(advantages, valid).unsqueeze(-1)
    deviation = mean_of(centred.square(), valid).sqrt().unsqueeze(-1)
    return torch.where(deviation > 1e-8, centred / deviation.clamp(min=1e-8), 0.0)
