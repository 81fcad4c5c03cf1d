"""Exponentials and logarithms that compiled loops use."""

import numpy as np
import pytest
from numba import njit

from remuda.policies.networks.kernels import vector_math


@njit
def exponentials(x, out):
    for i in range(x.size):
        out[i] = vector_math.exp(x[i])


@njit
def logarithms(x, out):
    for i in range(x.size):
        out[i] = vector_math.log(x[i])


def of(kernel, x):
    x = np.asarray(x, np.float32)
    out = np.empty_like(x)
    kernel(x, out)
    return out


UNIT = 2.0**-23


def test_exponentials_are_within_two_units_in_the_last_place():
    x = np.linspace(-87.0, 88.3, 1_000_001, dtype=np.float32)
    exact = np.exp(x.astype(np.float64))
    assert (np.abs(of(exponentials, x) - exact) <= 2 * UNIT * exact).all()
    assert of(exponentials, [0.0]) == 1.0


def test_logarithms_are_within_two_units_in_the_last_place():
    random = np.random.default_rng(0)
    x = np.exp(random.uniform(-80.0, 80.0, 1_000_000)).astype(np.float32)
    x = np.concatenate((x, random.uniform(0.5, 2.0, 1_000_000).astype(np.float32)))
    exact = np.log(x.astype(np.float64))
    assert (np.abs(of(logarithms, x) - exact) <= 2 * UNIT * np.abs(exact)).all()
    assert of(logarithms, [1.0]) == 0.0


@pytest.mark.parametrize("x", [-87.0, -88.0, -1e30, -np.inf])
def test_what_is_too_small_is_as_good_as_nothing(x):
    assert 0.0 <= of(exponentials, [x])[0] < 2e-38


@pytest.mark.parametrize("x", [89.0, 1e30, np.inf])
def test_what_is_too_large_is_infinite(x):
    assert of(exponentials, [x])[0] == np.inf


def test_what_is_no_number_stays_none():
    assert np.isnan(of(exponentials, [np.nan])[0])


def test_a_number_is_the_same_wherever_it_stands_in_a_loop():
    """In a vector, or in what is left over."""
    x = np.random.default_rng(0).uniform(-20.0, 20.0, 99).astype(np.float32)
    alone = [of(exponentials, [number])[0] for number in x]
    assert (of(exponentials, x) == alone).all()
    alone = [of(logarithms, [number])[0] for number in np.abs(x)]
    assert (of(logarithms, np.abs(x)) == alone).all()
