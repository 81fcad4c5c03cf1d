"""Losses against numbers worked by hand."""

import pytest
import torch

from remuda.policies.losses import huber, q_learning_loss, q_learning_target, quantile_loss


def test_huber():
    error = torch.tensor([0.0, 0.5, -1.0, 2.0, -3.0])
    assert huber(error, 1.0).tolist() == [0.0, 0.125, 0.5, 1.5, 2.5]
    assert huber(error, 2.0).tolist() == [0.0, 0.125, 0.5, 2.0, 4.0]


def test_double_q_learning_target():
    select = torch.tensor([[[1.0, 3.0, 2.0], [5.0, 0.0, 0.0]]])  # chooses 1, then 0
    value = torch.tensor([[[9.0, 4.0, 7.0], [2.0, 8.0, 8.0]]])  # worth 4, then 2
    reward, discount = torch.tensor([[1.0, -1.0]]), torch.tensor([[0.5, 0.0]])
    assert q_learning_target(reward, discount, select, value).tolist() == [[3.0, -1.0]]


def test_q_learning_loss():
    q = torch.tensor([[[1.0, 2.0], [0.0, 4.0]]])
    loss = q_learning_loss(q, torch.tensor([[1, 0]]), torch.tensor([[2.5, 3.0]]), 1.0)
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
