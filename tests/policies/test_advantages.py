"""Advantages against numbers worked by hand."""

import numpy as np
import pytest
import torch

from remuda.policies.advantages import (
    RunningMoments,
    effective_share,
    explained_variance,
    generalised_advantages,
    vtrace,
)
from remuda.policies.losses import normalised


def floats(*values):
    return np.array(values, np.float32)


def advantages_of(r, discount, values, after, trace_decay):
    found = np.full(len(r), 7.0, np.float32)
    generalised_advantages(r, discount, values, np.array(after), trace_decay, found)
    return found.tolist()


def test_errors_are_summed_to_the_end_of_a_segment_and_no_further():
    # Two segments of two steps, each with a row for what was seen after: the first goes on, so
    # that its last value counts; the second terminated.
    r, values = floats(1, 2, 0, 3, 4, 0), floats(0.5, 1.0, 3.0, 2.0, 1.0, 9.0)
    discount = floats(0.5, 0.5, 0.0, 0.5, 0.0, 0.0)
    after = [False, False, True, False, False, True]
    # errors: 1 + 0.5 - 0.5 = 1; 2 + 1.5 - 1 = 2.5; 3 + 0.5 - 2 = 1.5; 4 + 0 - 1 = 3
    # with lambda 0.8: 1 + 0.5 * 0.8 * 2.5 = 2; 2.5; 1.5 + 0.4 * 3 = 2.7; 3
    assert advantages_of(r, discount, values, after, 0.8) == pytest.approx(
        [2.0, 2.5, 0.0, 2.7, 3.0, 0.0]
    )
    assert advantages_of(r, discount, values, after, 0.0) == pytest.approx(
        [1.0, 2.5, 0.0, 1.5, 3.0, 0.0]
    )


def test_with_lambda_one_it_is_the_return_minus_the_value():
    rng = np.random.default_rng(0)
    r, v = rng.random(7, np.float32), rng.random(7, np.float32)
    discount = np.full(7, 0.9, np.float32)
    found = advantages_of(r, discount, v, [False] * 6 + [True], 1.0)
    returns = v[6]
    for i in range(5, -1, -1):
        returns = r[i] + 0.9 * returns
        assert found[i] + v[i] == pytest.approx(returns, abs=1e-6)


def traced(r, discount, values, after, ratios, trace_decay=1.0, most=1.0):
    found = np.full((2, len(r)), 7.0, np.float32)
    vtrace(r, discount, values, np.array(after), ratios, trace_decay, most, *found)
    return found[0].tolist(), found[1].tolist()


def test_vtrace_by_hand():
    # Two segments; the first is cut off, the second terminated after a step.
    r, values = floats(1, 2, 0, 3, 0), floats(0.5, 1.0, 3.0, 2.0, 9.0)
    discount, after = floats(0.5, 0.5, 0.0, 0.0, 0.0), [False, False, True, False, True]
    ratios = floats(0.5, 4.0, 1.0, 0.25, 1.0)
    # errors: 1 + 0.5 - 0.5 = 1; 2 + 1.5 - 1 = 2.5; 3 - 2 = 1
    # second row: weight min(4, 1) = 1: target 1 + 2.5 = 3.5; credited 2.5
    # first: weight 0.5, cut 0.5: target 0.5 + 0.5 * 1 + 0.5 * 0.5 * 2.5 = 1.625
    #        credited 1 + 0.5 * 3.5 - 0.5 = 2.25
    # last: target 2 + 0.25 * 1, credited 1
    advantages, targets = traced(r, discount, values, after, ratios)
    assert advantages == pytest.approx([2.25, 2.5, 0.0, 1.0, 0.0])
    assert targets == pytest.approx([1.625, 3.5, 3.0, 2.25, 9.0])
    # An error may count up to rho-bar 2, a trace never more than 1.
    advantages, targets = traced(r, discount, values, after, floats(3, 4, 1, 1, 1), most=2.0)
    # second: 1 + 2 * 2.5 = 6; first: 0.5 + 2 * 1 + 0.5 * 1 * 5 = 5, credited 1 + 0.5 * 6 - 0.5
    assert targets[:2] == pytest.approx([5.0, 6.0])
    assert advantages[:2] == pytest.approx([3.5, 2.5])
    # Lambda 0.5 cuts what follows: first target 0.5 + 0.5 + 0.5 * 0.5 * 0.5 * 2.5
    advantages, targets = traced(r, discount, values, after, ratios, trace_decay=0.5)
    assert targets[0] == pytest.approx(1.3125)
    assert advantages[0] == pytest.approx(1.0 + 0.5 * 0.5 * 2.5)


def test_vtrace_without_lag_is_n_step_returns():
    rng = np.random.default_rng(0)
    r, v = rng.random(7, np.float32), rng.random(7, np.float32)
    discount, after, ones = np.full(7, 0.9, np.float32), [False] * 6 + [True], np.ones(7, "f4")
    advantages, targets = traced(r, discount, v, after, ones)
    returns = v[6]
    for i in range(5, -1, -1):
        returns = r[i] + 0.9 * returns
        assert targets[i] == pytest.approx(returns, abs=1e-5)
        assert advantages[i] == pytest.approx(returns - v[i], abs=1e-5)
    # With any lambda it is generalised advantage estimation.
    advantages, targets = traced(r, discount, v, after, ones, trace_decay=0.7)
    expected = advantages_of(r, discount, v, after, 0.7)
    assert advantages == pytest.approx(expected, abs=1e-5)
    assert targets[:6] == pytest.approx((np.array(expected) + v)[:6].tolist(), abs=1e-5)


def test_the_effective_share_of_weighted_samples():
    assert effective_share(floats(1, 1, 1, 1)) == 1.0
    assert effective_share(floats(2, 0, 0, 0)) == 0.25
    assert effective_share(floats(1, 3)) == pytest.approx(16 / 20)
    assert effective_share(floats(0, 0)) == 0.0


def test_normalised_advantages():
    advantages = normalised(torch.tensor([[1.0, 2.0, 3.0, 4.0], [5.0, 5.0, 5.0, 9.0]]))
    assert advantages.mean(-1).tolist() == pytest.approx([0.0, 0.0], abs=1e-6)
    assert advantages.std(-1, correction=0).tolist() == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("values", [[5.0], [2.0, 2.0, 2.0]])
def test_nothing_to_divide_by_is_no_nan(values):
    assert normalised(torch.tensor([values])).tolist() == [[0.0] * len(values)]


def test_running_moments_are_those_of_everything_seen():
    seen = np.random.default_rng(0).normal(3.0, 2.0, (1000, 4))
    moments = RunningMoments(np.zeros(4), np.ones(4), 0.0)
    for batch in np.split(seen, [1, 7, 300, 300]):
        moments.add(batch)
    assert moments.mean == pytest.approx(seen.mean(0))
    assert moments.variance == pytest.approx(seen.var(0))
    assert moments.count == 1000


@pytest.mark.parametrize(
    ("values", "share"),
    [
        ((1, 2, 3, 6), 1.0),
        ((11, 12, 13, 16), 1.0),  # a constant beside the targets is no variance of the errors
        ((5, 5, 5, 5), 0.0),
        ((3, 3, 3, 5), 1.0 - 1.25 / 3.5),  # errors -2, -1, 0, 1: mean -0.5, variance 1.25
        ((-1, -2, -3, -6), -3.0),  # errors are twice the targets
    ],
)
def test_the_variance_that_values_explain(values, share):
    """Targets 1, 2, 3, 6 have mean 3 and variance 3.5."""
    after = np.array([False, False, True, False, False])
    with_after = floats(*values[:2], 1e6, *values[2:])
    targets = floats(1, 2, -1e6, 3, 6)
    assert explained_variance(with_after, targets, after) == pytest.approx(share, abs=1e-6)


def test_there_is_nothing_to_explain_where_all_targets_are_equal():
    never, always = np.zeros(3, np.bool_), np.ones(3, np.bool_)
    assert np.isnan(explained_variance(floats(1, 2, 3), floats(4, 4, 4), never))
    assert np.isnan(explained_variance(floats(1, 2, 3), floats(4, 5, 6), always))
    assert np.isnan(explained_variance(floats(1), floats(4), never[:1]))


def test_large_targets_lose_no_digits():
    targets = floats(0, 1, 2, 3) + np.float32(2**20)
    values = floats(0, 0, 0, 0)
    shares = [explained_variance(v, targets, np.zeros(4, np.bool_)) for v in (values, targets)]
    assert shares == pytest.approx([0.0, 1.0])
