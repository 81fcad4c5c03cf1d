"""Losses as pure functions, for K policies and B samples at once.

Names follow the time index: an action at t - 1 leads to a reward and a discount at t.
"""

import torch
from torch import Tensor

LEAST_LOG = -1e4
"""Stands for the log-probability of the impossible, where it is multiplied with 0."""


def huber(error: Tensor, threshold: float) -> Tensor:
    """Quadratic up to `threshold`, linear beyond: the Huber loss, elementwise."""
    size = error.abs()
    return torch.where(
        size <= threshold, 0.5 * error.square(), threshold * (size - 0.5 * threshold)
    )


def among_allowed(values: Tensor, allowed: Tensor) -> Tensor:
    """Values [K, B, A] with those at minus infinity that `allowed` [K, B, A] forbids.

    Where `allowed` is of size 0, anything is allowed.
    """
    return values.masked_fill(~allowed, -torch.inf) if allowed.numel() else values


def q_learning_loss(taken_tm1: Tensor, target: Tensor, threshold: float) -> Tensor:
    """The Huber loss of the taken actions' values: [K, B]."""
    return huber(target - taken_tm1, threshold)


def quantile_loss(values: Tensor, quantiles: Tensor, targets: Tensor, threshold: float) -> Tensor:
    """The quantile Huber loss (Dabney et al. 2018, equations 2 and 3): [K, B].

    Sums over the N quantiles of the value and averages over the N' samples of the target.

    Args:
        values: [K, B, N] values of the taken actions.
        quantiles: [K, B, N] the quantiles they were asked at.
        targets: [K, B, N'] samples of the return's distribution, without a gradient.
        threshold: kappa of the Huber loss.
    """
    error = targets.unsqueeze(-2) - values.unsqueeze(-1)  # [K, B, N, N']
    weight = (quantiles.unsqueeze(-1) - (error.detach() < 0).to(error.dtype)).abs()
    return (weight * huber(error, threshold) / threshold).mean(-1).sum(-1)


def clipped_surrogate_loss(
    log_pi: Tensor, log_mu: Tensor, advantages: Tensor, clip: Tensor
) -> Tensor:
    """The negative clipped surrogate objective of PPO (Schulman et al. 2017, equation 7): [K, B].

    Args:
        log_pi: [K, B] log-probabilities of the taken actions now.
        log_mu: [K, B] the same when they were taken.
        advantages: [K, B], without a gradient.
        clip: epsilon, [] or [K, 1].
    """
    ratio = (log_pi - log_mu).exp()
    bounded = ratio.clamp(1.0 - clip, 1.0 + clip)
    return -torch.minimum(ratio * advantages, bounded * advantages)


def value_loss(v: Tensor, v_before: Tensor, target: Tensor, clip: Tensor | None = None) -> Tensor:
    """Half the squared error of values: [K, B].

    With `clip`, [] or [K, 1], a value that moved further than that from `v_before`, its value
    before the update, counts with the larger error of the two, so that there is nothing to gain by
    moving on.
    """
    loss = 0.5 * (v - target).square()
    if clip is None:
        return loss
    bounded = v_before + (v - v_before).clamp(-clip, clip)
    return torch.maximum(loss, 0.5 * (bounded - target).square())


def log_probabilities(logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """Log-probabilities [K, B, A] of a categorical distribution.

    Actions that `mask` [K, B, A] forbids (False) get probability 0, as the lowest finite logit, so
    that neither they nor their gradients can become infinite or no number.
    """
    if mask is not None:
        logits = logits.masked_fill(~mask, torch.finfo(logits.dtype).min)
    return logits.log_softmax(-1)


def entropy(log_pi: Tensor) -> Tensor:
    """The entropy of distributions in nats: [K, B] from log-probabilities [K, B, A]."""
    return -(log_pi.exp() * log_pi.clamp(min=LEAST_LOG)).sum(-1)


def kl_estimate(log_pi: Tensor, log_mu: Tensor) -> Tensor:
    """A low-variance estimate of KL(mu, pi) from actions of mu: [K, B].

    (r - 1) - log r with r = pi / mu is never negative and has the right mean (Schulman 2020,
    "Approximating KL divergence").
    """
    log_ratio = log_pi - log_mu
    return log_ratio.exp() - 1.0 - log_ratio


def mean_of(x: Tensor, valid: Tensor | None = None) -> Tensor:
    """Means [K] of x [K, B], over the entries that `valid` [K, B] counts with 1, or over all.

    The others, with 0, may be anything: infinity times 0 would be no number.
    """
    if valid is None:
        return x.mean(-1)
    return torch.where(valid > 0, x, 0.0).sum(-1) / valid.sum(-1)


def normalised(advantages: Tensor, valid: Tensor | None = None) -> Tensor:
    """Advantages [K, B] with mean 0 and standard deviation 1 for each policy.

    A batch of one, or of equal advantages, has no deviation to divide by: it is all 0.
    """
    centred = advantages - mean_of(advantages, valid).unsqueeze(-1)
    deviation = mean_of(centred.square(), valid).sqrt().unsqueeze(-1)
    return torch.where(deviation > 1e-8, centred / deviation.clamp(min=1e-8), 0.0)
