"""Losses against numbers worked by hand."""

import pytest
import torch

from remuda.policies.losses import (
    clipped_surrogate_loss,
    entropy,
    huber,
    kl_estimate,
    log_probabilities,
    mean_of,
    q_learning_loss,
    quantile_loss,
    value_loss,
)


def test_huber():
    error = torch.tensor([0.0, 0.5, -1.0, 2.0, -3.0])
    assert huber(error, 1.0).tolist() == [0.0, 0.125, 0.5, 1.5, 2.5]
    assert huber(error, 2.0).tolist() == [0.0, 0.125, 0.5, 2.0, 4.0]


def test_q_learning_loss():
    q = torch.tensor([[[1.0, 2.0], [0.0, 4.0]]])
    taken = q.gather(-1, torch.tensor([[[1], [0]]])).squeeze(-1)
    assert taken.tolist() == [[2.0, 0.0]]
    loss = q_learning_loss(taken, torch.tensor([[2.5, 3.0]]), 1.0)
    assert loss.tolist() == [[0.125, 2.5]]


def test_quantile_loss():
    values = torch.tensor([[[0.0, 1.0]]])
    quantiles = torch.tensor([[[0.25, 0.75]]])
    targets = torch.tensor([[[0.5, 3.0]]])
    # errors: value 0: 0.5, 3.0; value 1: -0.5, 2.0. Huber: 0.125, 2.5; 0.125, 1.5.
    # weights: 0.25, 0.25; |0.75 - 1| = 0.25, 0.75. Means over targets, summed over values.
    expected = (0.25 * 0.125 + 0.25 * 2.5) / 2 + (0.25 * 0.125 + 0.75 * 1.5) / 2
    assert quantile_loss(values, quantiles, targets, 1.0).item() == pytest.approx(expected)


def test_quantile_loss_divides_by_its_threshold():
    values, quantiles = torch.tensor([[[0.0]]]), torch.tensor([[[0.5]]])
    loss = quantile_loss(values, quantiles, torch.tensor([[[6.0]]]), 2.0)
    assert loss.item() == pytest.approx(0.5 * (2.0 * (6.0 - 1.0)) / 2.0)


def test_quantile_loss_is_least_at_the_quantiles():
    """The minimiser over samples 0..99 of the quantile 0.8 lies near 80."""
    samples = torch.arange(100.0).view(1, 1, 100)
    candidates = torch.arange(0.0, 100.0).view(1, 100, 1)
    quantiles = torch.full((1, 100, 1), 0.8)
    loss = quantile_loss(candidates, quantiles, samples.expand(1, 100, 100), 1e-3)
    assert abs(loss.argmin().item() - 80) <= 1


def test_clipped_surrogate():
    # ratios 1.5, 1.5, 0.5, 0.5 with advantages 2, -2, 2, -2 and epsilon 0.2
    log_pi = torch.tensor([[1.5, 1.5, 0.5, 0.5]]).log()
    advantages = torch.tensor([[2.0, -2.0, 2.0, -2.0]])
    loss = clipped_surrogate_loss(log_pi, torch.zeros(1, 4), advantages, torch.tensor(0.2))
    # min(3, 2.4), min(-3, -2.4), min(1, 1.6), min(-1, -1.6)
    assert loss[0].tolist() == pytest.approx([-2.4, 3.0, -1.0, 1.6])
    each = clipped_surrogate_loss(
        log_pi.expand(2, 4),
        torch.zeros(2, 4),
        advantages.expand(2, 4),
        torch.tensor([[0.2], [1.0]]),
    )
    assert each[:, 0].tolist() == pytest.approx([-2.4, -3.0])


def test_a_clipped_ratio_has_no_gradient():
    log_pi = torch.tensor([[1.5, 1.1]]).log().requires_grad_()
    clipped_surrogate_loss(
        log_pi, torch.zeros(1, 2), torch.ones(1, 2), torch.tensor(0.2)
    ).sum().backward()
    assert log_pi.grad[0].tolist() == pytest.approx([0.0, -1.1])


def test_value_loss():
    v, before, target = torch.tensor([[2.0]]), torch.tensor([[1.0]]), torch.tensor([[4.0]])
    assert value_loss(v, before, target).item() == 2.0
    assert (
        value_loss(v, before, target, torch.tensor(0.5)).item() == 0.5 * 2.5**2
    )  # as if it were 1.5
    assert value_loss(v, before, torch.tensor([[0.0]]), torch.tensor(0.5)).item() == 2.0


def test_masked_actions_are_never_taken_and_have_no_gradient():
    logits = torch.tensor([[[1.0, 5.0, 1.0]]], requires_grad=True)
    log_pi = log_probabilities(logits, torch.tensor([[[True, False, True]]]))
    assert log_pi.exp()[0, 0].tolist() == pytest.approx([0.5, 0.0, 0.5])
    assert entropy(log_pi).item() == pytest.approx(0.6931472)
    (entropy(log_pi).sum() + log_pi[0, 0, 0]).backward()
    assert torch.isfinite(logits.grad).all()
    assert logits.grad[0, 0, 1] == 0.0


def test_kl_estimate_has_the_right_mean():
    pi, mu = torch.tensor([0.2, 0.3, 0.5]), torch.tensor([0.4, 0.4, 0.2])
    estimate = kl_estimate(pi.log(), mu.log())
    assert (estimate >= 0).all()
    assert (mu * estimate).sum().item() == pytest.approx((mu * (mu / pi).log()).sum().item())


def test_what_does_not_count_may_be_infinite():
    x = torch.tensor([[1.0, 3.0, float("inf")], [2.0, float("nan"), 4.0]], requires_grad=True)
    means = mean_of(x, torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]]))
    assert means.tolist() == [2.0, 3.0]
    means.sum().backward()
    assert x.grad.tolist() == [[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]]
