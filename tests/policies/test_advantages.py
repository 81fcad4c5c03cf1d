"""Advantages against numbers worked by hand."""

import numpy as np
import pytest

from remuda.policies.advantages import generalised_advantages, normalise


def floats(*values):
    return np.array(values, np.float32)


def test_errors_are_summed_to_the_end_of_a_segment_and_no_further():
    # Two segments of two steps; the first goes on (its last value counts), the second terminated.
    r, v_tm1 = floats(1, 2, 3, 4), floats(0.5, 1.0, 2.0, 1.0)
    v_t, discount = floats(1.0, 3.0, 1.0, 9.0), floats(0.5, 0.5, 0.5, 0.0)
    ends = np.array([False, True, False, True])
    # errors: 1 + 0.5 - 0.5 = 1; 2 + 1.5 - 1 = 2.5; 3 + 0.5 - 2 = 1.5; 4 + 0 - 1 = 3
    # with lambda 0.8: 1 + 0.5 * 0.8 * 2.5 = 2; 2.5; 1.5 + 0.4 * 3 = 2.7; 3
    found = generalised_advantages(r, discount, v_tm1, v_t, ends, 0.8)
    assert found == pytest.approx([2.0, 2.5, 2.7, 3.0])
    assert generalised_advantages(r, discount, v_tm1, v_t, ends, 0.0) == pytest.approx(
        [1.0, 2.5, 1.5, 3.0]
    )


def test_with_lambda_one_it_is_the_return_minus_the_value():
    rng = np.random.default_rng(0)
    r, v = rng.random(6, np.float32), rng.random(7, np.float32)
    discount = np.full(6, 0.9, np.float32)
    ends = np.arange(6) == 5
    returns = v[6]
    for i in range(5, -1, -1):
        returns = r[i] + 0.9 * returns
        found = generalised_advantages(r, discount, v[:-1], v[1:], ends, 1.0)
        assert found[i] + v[i] == pytest.approx(returns, abs=1e-6)


def test_normalised_advantages():
    advantages = floats(1, 2, 3, 4)
    normalise(advantages)
    assert advantages.mean() == pytest.approx(0.0, abs=1e-6)
    assert advantages.std() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("values", [[5.0], [2.0, 2.0, 2.0]])
def test_nothing_to_divide_by_is_no_nan(values):
    advantages = floats(*values)
    normalise(advantages)
    assert advantages.tolist() == [0.0] * len(values)
