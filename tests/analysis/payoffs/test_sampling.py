"""Draws of a symmetric game are those of `Payoffs.sample`, each two strategies drawn once."""

import numpy as np
import pytest

from remuda.analysis.payoffs.payoffs import KNOWN, Payoffs, exact
from remuda.analysis.payoffs.sampling import draws, symmetric_draws


def played(between):
    """Three policies; the covariance of both returns of a match is `between`."""
    rng = np.random.default_rng(0)
    means = rng.normal(size=(3, 3))
    counts = np.array([[9, 5, 40], [5, 7, 12], [40, 12, 30]])
    covariances = np.multiply.outer([[1.0, between], [between, 1.0]], np.ones((3, 3)))
    spread = np.array([[1.0, 2.0, 0.5], [2.0, 1.0, 3.0], [0.5, 3.0, 1.0]])
    return Payoffs(
        (tuple("abc"),) * 2, np.stack([means, means.T]), covariances * spread, counts, True
    )


@pytest.mark.parametrize("between", [-1.0, 0.4, 1.0])
def test_they_have_the_means_and_covariances_of_samples(between):
    payoffs = played(between)
    count = 40_000
    found = symmetric_draws(payoffs, count, np.random.default_rng(1)).reshape(count, -1)
    sampled = payoffs.sample(count, np.random.default_rng(2))[:, 0].reshape(count, -1)
    assert found.mean(0) == pytest.approx(payoffs.matrix.reshape(-1), abs=0.05)
    assert np.cov(found.T) == pytest.approx(np.cov(sampled.T), rel=0.2, abs=0.03)


def test_both_roles_are_one_and_any_number_is_drawn(monkeypatch):
    monkeypatch.setattr("remuda.analysis.payoffs.sampling.PIECE", 40)
    drawn = list(draws(played(0.4), 7, np.random.default_rng(0)))
    assert len(drawn) == 7
    assert all((each[0] == each[1].T).all() for each in drawn)
    assert not np.array_equal(drawn[0], drawn[6])


def test_what_is_known_is_drawn_as_it_is():
    known = exact([[0.0, 1.0], [-1.0, 0.0]], [[0.0, -1.0], [1.0, 0.0]], symmetric=True)
    assert (known.counts == KNOWN).all()
    assert (symmetric_draws(known, 3, np.random.default_rng(0)) == known.matrix).all()
