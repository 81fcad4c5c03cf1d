"""Random numbers in kernels: uniform, apart from each other, and repeatable."""

import numpy as np
from numba import njit

from remuda.envs.games.randomness import below, misses, seed_stream, uniform


@njit
def _uniforms(streams, env, count):
    return np.array([uniform(streams, env) for _ in range(count)])


@njit
def _below(streams, env, n, count):
    return np.array([below(streams, env, n) for _ in range(count)])


@njit
def _misses(streams, env, log_miss, count):
    return np.array([misses(streams, env, log_miss) for _ in range(count)])


def make(seeds):
    streams = np.zeros(len(seeds), np.uint64)
    for env, seed in enumerate(seeds):
        seed_stream(streams, env, seed)
    return streams


def test_uniform_is_uniform():
    drawn = _uniforms(make([1]), 0, 100_000)
    assert drawn.min() >= 0
    assert drawn.max() < 1
    counts = np.histogram(drawn, 20, (0, 1))[0]
    assert ((counts - 5000) ** 2 / 5000).sum() < 43.8  # chi-square, 19 degrees, p = 0.001
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.02


def test_streams_are_apart_and_repeatable():
    streams, again = make([1, 2, 1]), make([5, 2, 1])
    a, b, c = (_uniforms(streams, env, 1000) for env in range(3))
    assert (a == c).all()
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.15
    assert (_uniforms(again, 1, 1000) == b).all()


def test_below_has_every_number_alike():
    counts = np.bincount(_below(make([3]), 0, 7, 70_000), minlength=7)
    assert counts.size == 7
    assert (abs(counts - 10_000) < 500).all()


def test_misses_are_geometric():
    hit = 0.1
    drawn = _misses(make([4]), 0, np.log1p(-hit), 50_000)
    assert abs(drawn.mean() - 9.0) < 0.2
    assert abs((drawn == 0).mean() - hit) < 0.01
    assert np.isinf(_misses(make([4]), 0, 0.0, 3)).all()
