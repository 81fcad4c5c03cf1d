"""Quantities of one population are drawn together as far as their noise asks for."""

import numpy as np
import pytest

from refusals import refuses
from remuda.analysis.payoffs.sampling import shrink
from remuda.errors import UsageError


def noisy(estimates, noise, samples, rng):
    return estimates + noise * rng.standard_normal((samples, len(estimates)))


def test_what_is_far_apart_stays_where_it_is():
    rng = np.random.default_rng(0)
    estimates = np.array([0.0, 10.0, 20.0, 30.0, 40.0])
    drawn = noisy(estimates, 0.1, 4000, rng)
    found = shrink(estimates, drawn, rng)
    assert found.mean(0) == pytest.approx(estimates, abs=0.02)
    assert found.std(0) == pytest.approx(np.full(5, 0.1), rel=0.1)


@pytest.mark.slow
def test_a_known_spread_is_the_posterior_of_two_normals():
    """Many quantities tell their spread: their mean moves to the middle by noise / (noise + it)."""
    rng = np.random.default_rng(1)
    truth = rng.normal(5.0, 1.0, 400)
    estimates = truth + rng.normal(0.0, 1.0, 400)
    found = shrink(estimates, noisy(estimates, 1.0, 20_000, rng), rng)
    expected = 5.0 + 0.5 * (estimates - 5.0)
    assert np.abs(found.mean(0) - expected).mean() < 0.15
    assert found.std(0).mean() == pytest.approx(np.sqrt(0.5), rel=0.1)


def test_the_truth_lies_in_the_draws_as_often_as_they_say():
    """Also where the noise of all is one, and where hardly anything but noise is seen."""
    rng = np.random.default_rng(2)
    for spread in (0.1, 1.0):
        places = []
        for _ in range(120):
            truth = spread * rng.standard_normal(6)
            turn = rng.standard_normal((6, 6)) / np.sqrt(6.0)
            estimates = truth + turn @ rng.standard_normal(6)
            drawn = estimates + rng.standard_normal((200, 6)) @ turn.T
            low, high = np.quantile(shrink(estimates, drawn, rng), (0.025, 0.975), axis=0)
            places.append((low <= truth) & (truth <= high))
        assert 0.93 <= np.mean(places) <= 1.0


def test_too_few_and_exact_quantities_are_left_alone():
    rng = np.random.default_rng(4)
    two = noisy(np.array([0.0, 1.0]), 1.0, 50, rng)
    assert shrink(np.array([0.0, 1.0]), two, rng) is two
    exact = np.tile([1.0, 2.0, 3.0], (9, 1))
    assert (shrink(exact[0], exact, rng) == exact).all()
    part = exact.copy()
    part[:, 0] += rng.standard_normal(9)
    assert shrink(exact[0], part, rng)[:, 1:] == pytest.approx(exact[:, 1:], abs=1e-6)


def test_draws_that_do_not_fit_are_refused():
    with refuses(UsageError):
        shrink(np.zeros(3), np.zeros((5, 2)), np.random.default_rng(0))
    with refuses(UsageError):
        shrink(np.zeros(3), np.zeros((1, 3)), np.random.default_rng(0))
