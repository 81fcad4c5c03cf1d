"""The Gaussian process of PB2 against its formulas, by hand and by finite differences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from remuda.population.evolution.bandit import (
    GaussianProcess,
    Kernel,
    cholesky,
    fit_kernel,
    loss_and_gradient,
    solve_lower,
)


def observed(seed, count=12, dimensions=2):
    """Noisy observations of a bump that fades with time."""
    rng = np.random.default_rng(seed)
    points, times = rng.random((count, dimensions)), np.sort(rng.integers(0, 6, count)) * 1.0
    values = np.exp(-4.0 * ((points - 0.5) ** 2).sum(1)) * 0.95**times
    values = values + 0.05 * rng.standard_normal(count)
    return points, times, (values - values.mean()) / values.std()


def test_the_kernel_is_that_of_the_paper():
    kernel = Kernel(variance=2.0, length=0.5, epsilon=0.1, noise=0.1)
    found = kernel.between(
        np.array([[0.0, 0.0]]), np.array([1.0]), np.array([[0.3, 0.4]]), np.array([4.0])
    )
    assert found[0, 0] == pytest.approx(2.0 * np.exp(-0.5 * 0.25 / 0.25) * 0.9**1.5)


def test_one_observation_worked_out_by_hand():
    kernel = Kernel(variance=2.0, length=0.5, epsilon=0.0, noise=0.5)
    process = GaussianProcess(kernel, np.array([[0.0]]), np.zeros(1), np.array([3.0]))
    mean, deviation = process.predict(np.array([[0.0], [0.5]]), 7.0)
    apart = 2.0 * np.exp(-0.5)
    assert mean == pytest.approx([2.0 / 2.5 * 3.0, apart / 2.5 * 3.0])
    assert deviation**2 == pytest.approx([2.0 - 4.0 / 2.5, 2.0 - apart**2 / 2.5])


def test_what_is_long_ago_is_forgotten():
    kernel = Kernel(epsilon=0.2)
    process = GaussianProcess(kernel, np.array([[0.5]]), np.zeros(1), np.array([1.0]))
    means, deviations = zip(
        *(process.predict(np.array([[0.5]]), time) for time in (0.0, 5.0, 500.0)), strict=True
    )
    assert means[0] > means[1] > means[2] == pytest.approx(0.0, abs=1e-12)
    assert deviations[0] < deviations[1] < deviations[2] == pytest.approx(1.0)


def test_without_observations_nothing_is_known():
    process = GaussianProcess(Kernel(variance=4.0), np.zeros((0, 2)), np.zeros(0), np.zeros(0))
    mean, deviation = process.predict(np.random.default_rng(0).random((5, 2)), 3.0)
    assert mean.tolist() == [0.0] * 5
    assert deviation.tolist() == [2.0] * 5


@settings(deadline=None, max_examples=30)
@given(seed=some.integers(0, 1000), count=some.integers(1, 6))
def test_hallucinated_observations_keep_means_and_shrink_deviations(seed, count):
    points, times, values = observed(seed)
    rng = np.random.default_rng(seed)
    process = GaussianProcess(fit_kernel(points, times, values), points, times, values)
    pending, there = rng.random((count, 2)), rng.random((20, 2))
    mean, deviation = process.predict(there, 7.0)
    mean_then, deviation_then = process.with_pending(pending, 7.0).predict(there, 7.0)
    np.testing.assert_allclose(mean_then, mean, atol=1e-8)
    assert (deviation_then <= deviation + 1e-8).all()
    at_pending = process.with_pending(pending, 7.0).predict(pending, 7.0)[1]
    assert (at_pending < process.predict(pending, 7.0)[1]).all()


@given(seed=some.integers(0, 100))
@settings(deadline=None, max_examples=20)
def test_the_gradient_is_that_of_finite_differences(seed):
    points, times, values = observed(seed)
    square = ((points[:, None] - points) ** 2).sum(-1)
    apart = np.abs(times[:, None] - times)
    at = np.log([1.0, 0.3, 0.05, 0.2]) + 0.3 * np.random.default_rng(seed).standard_normal(4)
    _, gradient = loss_and_gradient(at, square, apart, values)
    for i, step in enumerate(np.eye(4) * 1e-5):
        above, _ = loss_and_gradient(at + step, square, apart, values)
        below, _ = loss_and_gradient(at - step, square, apart, values)
        assert gradient[i] == pytest.approx((above - below) / 2e-5, rel=1e-4, abs=1e-5)


def test_the_kernel_that_is_found_is_no_worse_than_any_drawn():
    points, times, values = observed(3, count=30)
    square, apart = (
        ((points[:, None] - points) ** 2).sum(-1),
        np.abs(times[:, None] - times),
    )
    found = fit_kernel(points, times, values)
    rate = -0.5 * np.log(1.0 - found.epsilon)
    logs = np.log([found.variance, found.length, rate, found.noise])
    least, gradient = loss_and_gradient(logs, square, apart, values)
    assert np.abs(gradient).max() < 1e-2
    rng = np.random.default_rng(0)
    others = [logs + 0.5 * rng.standard_normal(4) for _ in range(50)]
    assert all(loss_and_gradient(at, square, apart, values)[0] >= least for at in others)


@pytest.mark.parametrize("count", [0, 1])
def test_of_one_observation_no_kernel_can_be_found(count):
    points, times, values = np.full((count, 2), 0.5), np.zeros(count), np.zeros(count)
    assert fit_kernel(points, times, values) == Kernel()


def test_equal_points_and_equal_values_break_nothing():
    points, times, values = np.full((20, 3), 0.5), np.zeros(20), np.zeros(20)
    process = GaussianProcess(fit_kernel(points, times, values), points, times, values)
    mean, deviation = process.predict(np.full((1, 3), 0.5), 0.0)
    assert mean[0] == 0.0
    assert 0.0 < deviation[0] < 1.0


@given(seed=some.integers(0, 1000), count=some.integers(0, 12), columns=some.integers(0, 4))
def test_factors_are_those_of_linear_algebra(seed, count, columns):
    rng = np.random.default_rng(seed)
    root, right = rng.standard_normal((count, count)), rng.standard_normal((count, columns))
    matrix = root @ root.T + np.eye(count)
    factor = cholesky(matrix)
    np.testing.assert_allclose(factor @ factor.T, matrix, atol=1e-9)
    assert not np.triu(factor, 1).any()
    np.testing.assert_allclose(factor @ solve_lower(factor, right), right, atol=1e-9)
