"""Payoffs carry their uncertainty: covariances, counts, and what may be drawn from them."""

import numpy as np
import pytest

from refusals import refuses
from remuda.analysis.payoffs.payoffs import Payoffs, exact, from_sums
from remuda.analysis.payoffs.sums import ROWS, add_up
from remuda.errors import UsageError


def sums_of(places, returns, count, symmetric=True):
    sums = np.zeros((ROWS, count, count))
    sides = np.arange(len(places[0]))
    add_up(np.array(places), np.array(returns, np.float64), sides, symmetric, False, sums)
    return sums


def played(means, deviation, matches, rng, zero_sum=True):
    """A symmetric population whose true payoffs are `means`: [matches] a pair."""
    count = len(means)
    places, returns = [], []
    for i in range(count):
        for j in range(i, count):
            a = rng.normal(means[i, j], deviation, matches)
            b = -a if zero_sum else rng.normal(means[j, i], deviation, matches)
            places += [(i, j)] * matches
            returns += list(zip(a, b, strict=True))
    names = [f"p{i}" for i in range(count)]
    return from_sums(names, sums_of(places, returns, count), True)


def test_means_and_covariances_are_those_of_numpy():
    rng = np.random.default_rng(3)
    returns = rng.normal(size=(200, 2))
    places = [(0, 1) if i % 3 else (1, 0) for i in range(200)]
    found = from_sums(["a", "b"], sums_of(places, returns, 2), True)
    of_a = np.where([p == (0, 1) for p in places], returns[:, 0], returns[:, 1])
    of_b = returns.sum(1) - of_a
    assert found.counts.tolist() == [[0, 200], [200, 0]]
    assert found.means[0, 0, 1] == pytest.approx(of_a.mean())
    assert found.means[0, 1, 0] == pytest.approx(of_b.mean())
    assert found.covariances[:, :, 0, 1] == pytest.approx(np.cov(of_a, of_b))
    assert np.isnan(found.means[0, 0, 0])


def test_two_roles_are_kept_apart_where_seats_are_unlike():
    places, returns = [(0, 1), (0, 1), (1, 0)], [(1.0, 5.0), (3.0, 7.0), (10.0, 20.0)]
    found = from_sums(["a", "b"], sums_of(places, returns, 2, symmetric=False), False)
    assert found.means[:, 0, 1].tolist() == [2.0, 6.0]
    assert found.means[:, 1, 0].tolist() == [10.0, 20.0]
    assert found.counts.tolist() == [[0, 2], [1, 0]]


def test_every_two_seats_of_a_match_meet_and_a_policy_meets_itself_once():
    found = from_sums("abc", sums_of([(0, 1, 0)], [(1.0, 2.0, 5.0)], 3), True)
    assert found.counts.tolist() == [[0.5, 1, 0], [1, 0, 0], [0, 0, 0]]
    assert found.met.tolist() == [[1, 1, 0], [1, 0, 0], [0, 0, 0]]
    assert found.means[0, 0, 0] == 3.0
    assert found.means[0, 0, 1] == 3.0
    assert found.means[0, 1, 0] == 2.0


def test_a_return_against_three_is_one_observation():
    """The mean over opponents is as sure as so many matches make it, not three times as many."""
    rng = np.random.default_rng(0)
    returns = rng.normal(size=(300, 4))
    found = from_sums("abcd", sums_of([(0, 1, 2, 3)] * 300, returns, 4), True)
    assert found.counts[0].tolist() == [0, 100, 100, 100]
    assert found.errors[0, 0, 1] == pytest.approx(1.0 / 10.0, rel=0.15)
    drawn = found.completed().part([0, 1, 2, 3])
    over = np.sqrt((drawn.errors[0, 0, 1:] ** 2).sum()) / 3.0
    assert over == pytest.approx(1.0 / np.sqrt(300.0), rel=0.15)


def test_results_that_are_all_alike_are_not_certain():
    places = [(0, 1)] * 3 + [(0, 2)] * 3 + [(1, 2)] * 3
    returns = [(1.0, -1.0)] * 9
    found = from_sums("abc", sums_of(places, returns, 3), True)
    assert (found.errors[0][~np.eye(3, dtype=bool)] > 0.2).all()


def test_roles_that_cannot_be_pooled_are_told():
    once = from_sums("ab", sums_of([(0, 1), (1, 0)], [(1.0, 2.0)] * 2, 2, symmetric=False), False)
    with refuses(UsageError):
        once.pooled_roles()
    one_way = sums_of([(0, 1)] * 5, np.arange(10.0).reshape(5, 2), 2, symmetric=False)
    with refuses(UsageError):
        from_sums("ab", one_way, False).pooled_roles()


def test_a_match_against_itself_counts_once_in_pooled_roles():
    rng = np.random.default_rng(0)
    sums = sums_of([(0, 0)] * 400, rng.normal(size=(400, 2)), 1, symmetric=False)
    pooled = from_sums("a", sums, False).pooled_roles()
    assert pooled.counts.tolist() == [[400]]
    assert pooled.errors[0, 0, 0] == pytest.approx(np.sqrt(0.5 / 400.0), rel=0.1)


def test_one_that_is_left_out_is_not_counted():
    sums = sums_of([(0, -1), (-1, 1), (0, 1)], [(9.0, 9.0), (9.0, 9.0), (1.0, 2.0)], 2)
    assert sums[0].tolist() == [[0, 1], [1, 0]]


def test_equal_results_are_not_certain():
    """Three wins of three are no proof: the variance of all cells has a say in each."""
    rng = np.random.default_rng(0)
    places = [(0, 1)] * 3 + [(0, 2)] * 50
    won = np.concatenate([np.ones(3), rng.choice([-1.0, 1.0], 50)])
    found = from_sums("abc", sums_of(places, np.stack([won, -won], 1), 3), True)
    assert found.covariances[0, 0, 0, 1] == 0.0
    assert 0.3 < found.errors[0, 0, 1] < 0.7
    low, high = found.intervals(0.95)[:, 0, 0, 1]
    assert low < 0.0
    assert high > 1.0


@pytest.mark.parametrize("matches", [4, 30])
@pytest.mark.parametrize("unlike", [False, True], ids=["alike", "unlike variances"])
def test_intervals_hold_the_truth_as_often_as_they_say(matches, unlike):
    rng = np.random.default_rng(7)
    held = []
    for _ in range(200):
        truth = rng.normal(size=(5, 5))
        truth -= truth.T
        spread = np.exp(rng.normal(0.0, 0.4, (5, 5))) if unlike else np.ones((5, 5))
        places, returns = [], []
        for i in range(5):
            for j in range(i + 1, 5):
                a = rng.normal(truth[i, j], spread[i, j], matches)
                places += [(i, j)] * matches
                returns += list(zip(a, -a, strict=True))
        found = from_sums("abcde", sums_of(places, returns, 5), True)
        low, high = found.intervals(0.95)[:, 0]
        upper = np.triu_indices(5, 1)
        held += list(((low <= truth) & (truth <= high))[upper])
    assert 0.92 <= np.mean(held) <= 0.98


def test_draws_spread_as_the_errors_say():
    rng = np.random.default_rng(1)
    found = played(np.zeros((3, 3)), 1.0, 40, rng, zero_sum=False)
    drawn = found.sample(20_000, rng)
    assert drawn.shape == (20_000, 2, 3, 3)
    apart = ~np.eye(3, dtype=bool)
    assert drawn.mean(0)[0] == pytest.approx(found.means[0], abs=0.01)
    freedom = found.freedom / (found.freedom - 2.0)
    expected = found.errors[0] * np.sqrt(freedom)
    assert drawn.std(0)[0][apart] == pytest.approx(expected[apart], rel=0.05)


def test_draws_of_a_zero_sum_game_are_zero_sum_and_symmetric():
    rng = np.random.default_rng(1)
    found = played(np.zeros((4, 4)), 1.0, 10, rng)
    assert found.is_zero_sum
    drawn = found.sample(100, rng)
    assert np.allclose(drawn[:, 0], -drawn[:, 1])
    assert np.allclose(drawn[:, 0], drawn[:, 1].swapaxes(1, 2))
    assert np.allclose(drawn[:, 0].diagonal(axis1=1, axis2=2), 0.0)
    assert not played(np.zeros((4, 4)), 1.0, 10, rng, zero_sum=False).is_zero_sum


def test_what_is_known_exactly_has_no_spread():
    game = exact([[0.0, -1.0], [1.0, 0.0]], names=[("rock", "paper")] * 2)
    assert game.errors.max() == 0.0
    assert game.is_zero_sum
    drawn = game.sample(3, np.random.default_rng(0))
    assert (drawn == game.means).all()
    with refuses(UsageError):
        exact(np.zeros((2, 3)), np.zeros((3, 2)))


def test_roles_are_pooled_where_both_are_played():
    places = [(0, 1), (0, 1), (1, 0), (1, 0)]
    returns = [(1.0, -1.0), (3.0, -3.0), (5.0, -5.0), (7.0, -7.0)]
    apart = from_sums("ab", sums_of(places, returns, 2, symmetric=False), False)
    pooled = apart.pooled_roles()
    assert pooled.symmetric
    assert pooled.means[0, 0, 1] == pytest.approx((2.0 - 6.0) / 2)
    assert pooled.means[0, 1, 0] == pytest.approx((6.0 - 2.0) / 2)
    assert pooled.counts.tolist() == [[0, 4], [4, 0]]


def test_cells_without_a_match_are_named_and_never_zero():
    found = from_sums("abc", sums_of([(0, 1), (0, 1)], [(1.0, 2.0), (2.0, 1.0)], 3), True)
    assert np.isnan(found.means[:, 0, 2]).all()
    assert found.missing_names(2) == "a and a, a and c, and 3 others"
    with refuses(UsageError):
        found.sample(1, np.random.default_rng(0))
    assert found.part([0, 1]).missing_names() == "a and a, b and b"


def test_one_match_each_is_refused_since_nothing_tells_how_sure_it_is():
    found = from_sums("ab", sums_of([(0, 1), (0, 0), (1, 1)], [(1.0, 2.0)] * 3, 2), True)
    with refuses(UsageError):
        found.check_whole()


def test_what_symmetry_tells_does_not_make_single_matches_sure():
    places, returns = [(0, 1), (0, 2), (1, 2)], [(1.0, -1.0), (2.0, -2.0), (3.0, -3.0)]
    found = from_sums("abc", sums_of(places, returns, 3), True).completed()
    assert np.isnan(found.errors[0, 0, 1])
    with refuses(UsageError):
        found.check_whole()
    whole = from_sums("abc", sums_of(places * 2, returns + [(0.0, 0.0)] * 3, 3), True).completed()
    whole.check_whole()
    assert whole.errors[0, 0, 1] > 0.0
    assert whole.means[0, 1, 1] == 0.0


@pytest.mark.parametrize(
    "change",
    [
        {"means": np.zeros((2, 2))},
        {"strategies": (("a", "a"), ("a", "b"))},
        {"means": np.full((2, 2, 2), np.inf)},
        {"means": np.full((2, 2, 2), np.nan)},
        {"strategies": (("a", "b"), ("c", "d")), "symmetric": True},
    ],
)
def test_arrays_that_do_not_fit_are_refused(change):
    values = {
        "strategies": (("a", "b"), ("a", "b")),
        "means": np.zeros((2, 2, 2)),
        "covariances": np.zeros((2, 2, 2, 2)),
        "counts": np.ones((2, 2), np.int64),
    }
    Payoffs(**values)
    with refuses(UsageError):
        Payoffs(**(values | change))


def test_a_level_is_a_probability():
    with refuses(UsageError):
        exact(np.zeros((2, 2))).intervals(95)
