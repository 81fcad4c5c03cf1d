"""Fronts of named points, by objectives that are asked for by name."""

import json

import numpy as np
import pytest

from remuda.analysis.trade_off import Objective, trade_off
from remuda.analysis.welfare import Measure
from remuda.errors import UsageError


def known(value, error=0.0):
    return Measure(value, error, value, 1)


POINTS = {
    "good": {"return": known(5.0), "length": known(8.0)},
    "quick": {"return": known(2.0), "length": known(1.0)},
    "bad": {"return": known(1.0), "length": known(9.0)},
    "unknown": {"return": known(np.nan), "length": known(1.0)},
}


def asked(*words, tables=(POINTS,), reference=()):
    objectives = [Objective.parse(word) for word in words]
    return trade_off(tables, objectives, np.random.default_rng(0), reference)


def test_the_front_is_that_of_the_points_by_hand():
    found = asked("return:max", "length:min", reference=(0.0, 10.0))
    assert found.on_front == ("good", "quick")
    assert found.left_out == ("unknown",)
    # good: 5 by 2; quick: 2 by 9; both: 2 by 2.
    pytest.importorskip("moocore")
    assert found.hypervolume.value == pytest.approx(5 * 2 + 2 * 9 - 2 * 2)
    assert found.in_words().startswith(
        "Of 3 2 cannot be bettered in all of return (max), length (min): good (100% of draws)"
    )
    json.dumps(found.as_summary(), allow_nan=False)


def test_what_is_uncertain_is_on_the_front_in_some_draws():
    points = {
        "sure": {"return": known(1.0), "length": known(1.0)},
        "near": {"return": known(0.9, 0.1), "length": known(1.0)},
    }
    chances = asked("return:max", "length:min", tables=(points,)).front.probabilities
    assert chances[1] == pytest.approx(0.1587, abs=0.04)  # 0.1 is one standard error


def test_the_first_kind_of_points_that_knows_all_objectives_is_taken():
    runs = {"run": {"equality": known(0.5), "efficiency": known(2.0)}}
    assert asked("equality:max", "efficiency:max", tables=(POINTS, runs)).names == ("run",)
    with pytest.raises(UsageError, match="not all of policies, nor all of runs"):
        asked("return:max", "equality:max", tables=(POINTS, runs))
    with pytest.raises(UsageError, match="no metric speed; there are efficiency, equality, length"):
        asked("speed:max", "return:max", tables=(POINTS, runs))


@pytest.mark.parametrize("word", ["return", "return:most", ":max", ""])
def test_what_is_no_objective_is_told(word):
    with pytest.raises(UsageError, match="is no objective; give METRIC:max or METRIC:min"):
        Objective.parse(word)


def test_one_objective_is_none():
    with pytest.raises(UsageError, match="two objectives"):
        asked("return:max")
