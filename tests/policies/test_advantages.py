"""Advantages against numbers worked by hand."""

import numpy as np
import pytest
import torch

from remuda.policies.advantages import RunningMoments, generalised_advantages
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
