"""Runs of one game stand side by side: what each says, and what is common to them."""

import json
import math

import numpy as np
import pytest

from refusals import refuses
from remuda.analysis.payoffs.game_of_meetings import game_of_meetings
from remuda.analysis.payoffs.payoffs import exact, from_sums
from remuda.analysis.payoffs.sums import add_up
from remuda.analysis.population_report import analyse
from remuda.analysis.several_runs import Several, spread
from remuda.errors import UsageError


def analysed(payoffs):
    return analyse(game_of_meetings(payoffs), np.random.default_rng(0), 60)


def played(truth, matches, seed):
    """A zero-sum population after so many matches of each pair, with noise."""
    one, other = (np.repeat(axis, matches) for axis in np.triu_indices(len(truth), 1))
    first = np.random.default_rng(seed).normal(truth[one, other], 1.0)
    sums = np.zeros((6, len(truth), len(truth)))
    add_up(np.stack([one, other], 1), np.stack([first, -first], 1), np.arange(2), True, False, sums)
    return from_sums([f"p{place}" for place in range(len(truth))], sums, True)


def test_a_spread_is_that_of_students_t():
    found = spread([1.0, 2.0, 3.0, math.nan])
    assert (found.mean, found.deviation) == (2.0, 1.0)
    # 2 +- 4.3027 / sqrt(3), by the table of t with two degrees of freedom.
    np.testing.assert_allclose(found.interval, (2 - 2.48414, 2 + 2.48414), atol=1e-4)
    one = spread([math.nan, 5.0])
    assert one.mean == 5.0
    assert math.isnan(one.deviation)
    assert one.as_summary()["values"] == [None, 5.0]
    assert math.isnan(spread([math.nan]).mean)
    with refuses(UsageError):
        spread([1.0], level=2.0)


def runs():
    skill = np.array([1.0, 0.0, -1.0])
    return [analysed(played(skill[:, None] - skill[None], 60, seed)) for seed in range(3)]


def test_what_is_common_is_told_of_each_measure_and_policy():
    found = Several(("a", "b", "c"), tuple(runs()))
    assert found.members[:4] == ("a/p0", "a/p1", "a/p2", "b/p0")
    share = found.common["share of skill"]
    assert share.values == tuple(each.structure.transitive for each in found.analyses)
    assert found.by_policy["p0"].mean == pytest.approx(1.5, abs=0.2)
    assert found.by_policy["p0"].deviation > 0.0
    told = found.in_words()
    assert "never met" in told["runs"]
    assert told["share of skill"].startswith(f"{share.mean:.3g} on average over 3 runs")
    json.dumps(found.as_summary(), allow_nan=False)


def test_policies_of_other_names_are_not_compared():
    one, other, _ = runs()
    renamed = analysed(
        exact(one.payoffs.matrix, -one.payoffs.matrix, names=(("x", "y", "z"),) * 2, symmetric=True)
    )
    assert Several(("a", "b"), (one, other)).by_policy
    assert Several(("a", "b"), (one, renamed)).by_policy == {}
