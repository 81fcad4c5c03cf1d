"""Exploration: what it may change, by how much, and that a seed decides it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from evolving import HYPERPARAMETERS, NUMBERS, values_within
from remuda.population.evolution.explore import perturb, resample
from remuda.population.evolution.numbers import Evolvable

seeds = some.integers(0, 2**32)
OPERATORS = [perturb, resample]


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("operator", OPERATORS)
@given(values=values_within(), seed=seeds)
def test_bounds_hold_and_a_seed_decides_all(operator, values, seed):
    found = operator(values, NUMBERS, rng(seed))
    assert found == operator(values, NUMBERS, rng(seed))
    assert list(found) == list(values)
    for number in NUMBERS:
        assert number.low <= found[number.name] <= number.high
    assert found["discount"] == values["discount"]


@given(values=values_within(), seed=seeds)
def test_strength_0_is_the_identity(values, seed):
    kept = dict(values)
    assert perturb(values, NUMBERS, rng(seed), factors=(1.0, 1.0)) == values
    assert resample(values, NUMBERS, rng(seed), probability=0.0) == values
    assert values == kept


@given(values=values_within(), seed=seeds)
def test_a_perturbed_number_always_moves_where_bounds_reflect(values, seed):
    found = perturb(values, NUMBERS, rng(seed))
    for number in NUMBERS:
        assert found[number.name] != values[number.name]


@pytest.mark.parametrize(("start", "ends"), [(1e-2, (0.8e-2, 1.25e-2)), (0.1, (0.08, 0.08))])
def test_a_logarithmic_number_is_multiplied(start, ends):
    number = Evolvable("a", 1e-5, 0.1, log=True)
    found = {round(perturb({"a": start}, [number], rng(seed))["a"], 9) for seed in range(30)}
    assert found == set(ends)


def test_a_linear_number_moves_by_a_share_of_its_bounds():
    number, step = Evolvable("a", 0.0, 2.0), 2.0 * math.log(1.25)
    found = {perturb({"a": 1.0}, [number], rng(seed))["a"] for seed in range(30)}
    assert sorted(found) == pytest.approx([1.0 - step, 1.0 + step])
    found = {perturb({"a": 0.0}, [number], rng(seed))["a"] for seed in range(30)}
    assert sorted(found)[0] == pytest.approx(step)


def test_factors_are_equally_likely_and_independent():
    numbers = [Evolvable("a", 1e-9, 1e9, log=True), Evolvable("b", 1e-9, 1e9, log=True)]
    random, count = rng(), 4000
    up = np.array(
        [
            [x > 1.0 for x in perturb({"a": 1.0, "b": 1.0}, numbers, random).values()]
            for _ in range(count)
        ]
    )
    assert (abs(up.mean(0) - 0.5) < 5 * 0.5 / math.sqrt(count)).all()
    assert abs((up[:, 0] == up[:, 1]).mean() - 0.5) < 5 * 0.5 / math.sqrt(count)


def test_as_many_are_drawn_anew_as_was_asked_for():
    number, random, count = Evolvable("a", 0.0, 1.0), rng(), 4000
    drawn = np.array(
        [resample({"a": 0.5}, [number], random, probability=0.3)["a"] for _ in range(count)]
    )
    anew = drawn != 0.5
    assert abs(anew.mean() - 0.3) < 5 * math.sqrt(0.3 * 0.7 / count)
    spread = math.sqrt(1.0 / 12.0 / anew.sum())
    assert abs(drawn[anew].mean() - 0.5) < 5 * spread


def test_policies_of_one_seed_move_alike_wherever_they_are():
    number = Evolvable("a", 1e-9, 1e9, log=True)
    for seed in range(20):
        one, other = (perturb({"a": at}, [number], rng(seed))["a"] / at for at in (1e-3, 1e3))
        assert one == pytest.approx(other)


def test_nothing_evolves_where_no_number_may():
    assert perturb(HYPERPARAMETERS, [], rng()) == HYPERPARAMETERS
