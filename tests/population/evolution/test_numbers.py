"""Numbers that evolve: bounds hold, scales are what they say, what cannot be used is refused."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as some

from refusals import refuses
from remuda.config import PolicyConfig
from remuda.errors import ConfigError
from remuda.population.evolution.numbers import Evolvable, check_numbers, from_units, to_units

RATE = Evolvable("learning_rate", 1e-5, 1e-1, log=True)
CLIP = Evolvable("ppo.clip", 0.05, 0.5)
PPO = PolicyConfig(algorithm="ppo")


@some.composite
def numbers(draw):
    """Any number that may evolve: its scale and its bounds."""
    log = draw(some.booleans())
    ends = some.floats(1e-6 if log else -1e6, 1e6, allow_nan=False, allow_subnormal=False)
    low, high = sorted((draw(ends), draw(ends)))
    assume(high - low > 1e-6 * max(abs(low), abs(high)))
    return Evolvable("a", low, high, log)


finite = some.floats(-1e9, 1e9, allow_nan=False)


@given(numbers(), finite, some.booleans())
def test_what_is_fitted_is_within_the_bounds(number, value, reflect):
    found = number.fitted(value, reflect)
    assert number.low <= found <= number.high
    assert number.fitted(found, reflect) == found


@given(numbers(), some.floats(0.0, 1.0))
def test_a_value_within_the_bounds_stays_the_same_bit_for_bit(number, share):
    value = float(number.from_unit(share))
    for reflect in (True, False):
        assert number.fitted(value, reflect) == value


@given(numbers(), some.integers(0, 100))
def test_what_is_drawn_is_within_the_bounds_and_the_same_by_seed(number, seed):
    drawn = number.draw(np.random.default_rng(seed))
    assert number.low <= drawn <= number.high
    assert drawn == number.draw(np.random.default_rng(seed))


@given(numbers(), some.lists(some.floats(0.0, 1.0), max_size=5))
def test_units_and_values_are_each_others_inverse(number, units):
    values = number.from_unit(np.array(units))
    assert ((values >= number.low) & (values <= number.high)).all()
    again = number.from_unit(number.to_unit(values))
    np.testing.assert_allclose(again, values, rtol=1e-6, atol=1e-6 * (number.high - number.low))


def test_scales_worked_out_by_hand():
    assert RATE.to_unit(1e-3) == pytest.approx(0.5)
    assert RATE.from_unit(0.75) == pytest.approx(1e-2)
    assert CLIP.to_unit(0.14) == pytest.approx(0.2)
    assert CLIP.to_unit([0.0, 1.0]).tolist() == [0.0, 1.0]


def test_reflection_worked_out_by_hand():
    assert CLIP.fitted(0.6, reflect=True) == pytest.approx(0.4)
    assert CLIP.fitted(0.02, reflect=True) == pytest.approx(0.08)
    assert CLIP.fitted(0.5 + 0.45 + 0.1, reflect=True) == pytest.approx(0.15)
    assert RATE.fitted(1.0, reflect=True) == pytest.approx(1e-2)
    assert RATE.fitted(-1.0, reflect=True) == 1e-5
    assert CLIP.fitted(0.6) == 0.5


def test_draws_are_uniform_on_the_scale():
    rng = np.random.default_rng(0)
    drawn = np.array([RATE.draw(rng) for _ in range(4000)])
    below = (drawn < 1e-3).mean()
    assert abs(below - 0.5) < 5 * 0.5 / math.sqrt(len(drawn))


@pytest.mark.parametrize(
    "wanted",
    [
        [Evolvable("learning_rat", 0.1, 0.2)],
        [Evolvable("discount", 0.9, 1.1)],
        [Evolvable("batch_size", 1, 2)],
    ],
)
def test_numbers_that_a_policy_cannot_take_are_refused(wanted):
    with refuses(ConfigError) as found:
        check_numbers(wanted, PPO)
    assert "\n" not in str(found.value)


def test_numbers_of_its_own_algorithm_alone_are_a_policys():
    check_numbers([RATE, CLIP, Evolvable("discount", 0.9, 1.0)], PPO)
    with refuses(ConfigError):
        check_numbers([CLIP], PolicyConfig(algorithm="dqn"))


def test_policies_as_points_of_the_unit_cube():
    points = to_units([RATE, CLIP], [{"learning_rate": 1e-3, "ppo.clip": 0.5, "discount": 0.9}])
    np.testing.assert_allclose(points, [[0.5, 1.0]])
    (values,) = from_units([RATE, CLIP], points)
    assert values == pytest.approx({"learning_rate": 1e-3, "ppo.clip": 0.5})
    assert to_units([RATE], []).shape == (0, 1)
