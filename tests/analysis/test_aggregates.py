"""Interquartile means and bootstrap intervals, against hand-worked numbers."""

import numpy as np
import pytest

from refusals import refuses
from remuda.analysis.aggregates import bootstrap_interval, interquartile_mean
from remuda.errors import UsageError


def test_an_interquartile_mean_is_that_of_the_middle_half():
    assert interquartile_mean([8.0, 1.0, 2.0, 100.0]) == 5.0  # of 2 and 8
    assert interquartile_mean([0.0, 9.0, 3.0]) == 4.0  # nothing is trimmed
    assert interquartile_mean([7.0]) == 7.0


def test_an_interval_covers_the_mean_as_often_as_its_level():
    rng = np.random.default_rng(0)
    samples = rng.normal(3.0, 1.0, (300, 20))
    found = [bootstrap_interval(each, np.mean, 0.9, resamples=300) for each in samples]
    assert np.mean([low <= 3.0 <= high for low, high in found]) == pytest.approx(0.88, abs=0.06)


def test_equal_scores_have_an_interval_of_no_width():
    assert bootstrap_interval([2.0, 2.0]) == (2.0, 2.0)


def test_too_few_values_are_refused():
    with refuses(UsageError, "bootstrap_interval"):
        bootstrap_interval([1.0])
    with refuses(UsageError, "interquartile_mean"):
        interquartile_mean([])
    with refuses(UsageError, "level"):
        bootstrap_interval([1.0, 2.0], level=1.5)
