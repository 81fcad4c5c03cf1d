"""Losses as pure functions, for K policies and B samples at once.

Names follow the time index: an action at t - 1 leads to a reward and a discount at t.
"""

import torch
from torch import Tensor


def huber(error: Tensor, threshold: float) -> Tensor:
    """Quadratic up to `threshold`, linear beyond: the Huber loss, elementwise."""
    size = error.abs()
    return torch.where(
        size <= threshold, 0.5 * error.square(), threshold * (size - 0.5 * threshold)
    )


def q_learning_target(r_t: Tensor, discount_t: Tensor, q_select: Tensor, q_t: Tensor) -> Tensor:
    """What an action's value should be: r + discount * q_t[argmax q_select]; [K, B].

    With `q_select` from the online network and `q_t` from the target network this is double
    Q-learning (van Hasselt et al. 2016, equation 4).

    Args:
        r_t: [K, B] rewards, summed over the steps in between.
        discount_t: [K, B] what the value at t counts; 0 after a termination.
        q_select: [K, B, A] values that choose the next action.
        q_t: [K, B, A] values of that action.
    """
    best = q_select.argmax(-1, keepdim=True)
    return r_t + discount_t * q_t.gather(-1, best).squeeze(-1)


def q_learning_loss(q_tm1: Tensor, a_tm1: Tensor, target: Tensor, threshold: float) -> Tensor:
    """The Huber loss of the taken actions' values: [K, B] from values [K, B, A]."""
    taken = q_tm1.gather(-1, a_tm1.unsqueeze(-1)).squeeze(-1)
    return huber(target - taken, threshold)


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
