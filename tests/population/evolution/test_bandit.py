"""PB2's suggestions: within bounds, by seed, sensible where there is little to go by."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from evolving import NUMBERS, values_within
from remuda.population.evolution.bandit import MOST, Trial, standardised, suggest
from remuda.population.evolution.numbers import Evolvable, to_units

LINE = (Evolvable("a", 0.0, 1.0),)
PLANE = (Evolvable("a", 0.0, 1.0), Evolvable("b", 1e-4, 1.0, log=True))


def rng(seed=0):
    return np.random.default_rng(seed)


def trials(of, count, seed=0, numbers=LINE):
    """Trials of random values, with what a function says that they brought."""
    random = rng(seed)
    values = [{n.name: n.draw(random) for n in numbers} for _ in range(count)]
    return [Trial(v, float(i), of(v)) for i, v in enumerate(values)]


gains = some.one_of(
    some.floats(-1e30, 1e30), some.sampled_from([math.nan, math.inf, -math.inf, 0.0])
)


@settings(max_examples=25, deadline=None)
@given(
    tried=some.lists(some.tuples(values_within(), some.integers(0, 9), gains), max_size=12),
    pending=some.lists(values_within(), max_size=2),
    seed=some.integers(0, 1000),
)
def test_bounds_hold_and_a_seed_decides_all_whatever_was_tried(tried, pending, seed):
    known = [Trial(values, float(time), gain) for values, time, gain in tried]
    found = suggest(NUMBERS, known, 10.0, rng(seed), pending=pending)
    assert found == suggest(NUMBERS, known, 10.0, rng(seed), pending=pending)
    assert list(found) == [number.name for number in NUMBERS]
    for number in NUMBERS:
        assert number.low <= found[number.name] <= number.high


@given(some.lists(gains, min_size=1, max_size=20).filter(lambda x: any(map(math.isfinite, x))))
def test_gains_of_any_size_are_standardised(found):
    scaled = standardised(np.array(found))
    assert np.isfinite(scaled).all()
    assert scaled.mean() == pytest.approx(0.0, abs=1e-6)
    assert scaled.std() == pytest.approx(1.0, abs=1e-6) or not scaled.any()
    broken = ~np.isfinite(found)
    assert (scaled[broken] == scaled.min()).all()


@pytest.mark.parametrize("known", [[], [Trial({"a": 0.5}, 0.0, math.nan)]])
def test_without_any_gain_suggestions_are_drawn_from_the_prior(known):
    random = rng()
    found = [suggest(LINE, known, 1.0, random)["a"] for _ in range(400)]
    assert 0.0 <= min(found) <= max(found) <= 1.0
    assert abs(np.mean(found) - 0.5) < 5 / math.sqrt(12 * len(found))


def test_after_one_trial_what_is_far_from_it_is_tried():
    found = suggest(LINE, [Trial({"a": 0.0}, 0.0, 3.0)], 1.0, rng())
    assert found["a"] > 0.7


def test_where_all_gains_are_equal_what_least_is_known_about_is_tried():
    known = [Trial({"a": x}, 0.0, 2.5) for x in (0.0, 0.1, 0.2, 0.9, 1.0)]
    found = suggest(LINE, known, 0.0, rng())
    assert 0.4 < found["a"] < 0.7


def test_what_brought_most_is_found():
    """A peak at a = 0.3, b = 0.01; where nothing unknown draws, it is suggested."""

    def gain(values):
        away = to_units(PLANE, [values])[0] - (0.3, 0.5)
        return float(np.exp(-6.0 * (away**2).sum()))

    known = trials(gain, 40, numbers=PLANE)
    found = suggest(PLANE, known, 40.0, rng(), kappa=0.0)
    point = to_units(PLANE, [found])[0]
    assert np.abs(point - (0.3, 0.5)).max() < 0.1
    assert gain(found) > max(trial.gain for trial in known[-5:])


def test_a_bandit_gains_more_than_drawing_at_random():
    def gain(values):
        return -((values["a"] - 0.7) ** 2)

    known = [Trial({"a": 0.1}, 0.0, gain({"a": 0.1}))]
    random = rng()
    for time in range(1, 20):
        values = suggest(LINE, known, float(time), random)
        known.append(Trial(values, float(time), gain(values)))
    assert np.mean([trial.gain for trial in known[10:]]) > -0.02
    # Drawn at random, -(1/12 + 0.2^2) is expected.


def test_what_is_pending_is_not_suggested_again():
    known = trials(lambda values: -abs(values["a"] - 0.5), 4)
    first = suggest(LINE, known, 4.0, rng(), kappa=3.0)["a"]
    other = suggest(LINE, known, 4.0, rng(), pending=[{"a": first}], kappa=3.0)
    assert abs(other["a"] - first) > 0.1


def test_hyperparameters_that_break_a_policy_are_left():
    known = [Trial({"a": x}, 0.0, 1.0 - x if x < 0.5 else math.nan) for x in np.linspace(0, 1, 21)]
    found = [suggest(LINE, known, 0.0, rng(seed), kappa=0.5)["a"] for seed in range(4)]
    assert max(found) < 0.5


def test_what_was_best_long_ago_counts_less_than_what_is_best_now():
    old = [Trial({"a": x}, 0.0, -abs(x - 0.1)) for x in np.linspace(0, 1, 12)]
    new = [Trial({"a": x}, 400.0, -abs(x - 0.9)) for x in np.linspace(0, 1, 12)]
    found = suggest(LINE, old + new, 400.0, rng(), kappa=0.0)
    assert abs(found["a"] - 0.9) < 0.12


def test_of_very_many_trials_the_newest_count():
    old = [Trial({"a": 0.0}, 0.0, math.nan)] * 5
    new = [Trial({"a": (i % 10) / 9.0}, 1.0, 0.0) for i in range(MOST)]
    assert suggest(LINE, old + new, 2.0, rng()) == suggest(LINE, new, 2.0, rng())
