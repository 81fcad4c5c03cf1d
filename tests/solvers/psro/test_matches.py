"""What pairs earned: sums of fresh matches, and which pairs to play again."""

import numpy as np
import pytest

from exploited_policies import always, mixed
from remuda.envs.description import EnvSpec
from remuda.solvers.psro.matches import PairSums, play_pairs, share_out

GAME = "rock_paper_scissors"


def test_pairs_are_played_with_each_policy_on_its_seat():
    rows = {0: always(0, GAME), 3: always(1, GAME)}
    found = play_pairs(EnvSpec.of(GAME, {}), rows, (2, always(0, GAME)), 20, 7)
    assert [each["pair"] for each in found] == [[0, 2], [3, 2]]
    assert found[0]["sums"] == [20.0, 0.0, 0.0, 0.0, 0.0]
    assert found[1]["sums"] == [20.0, 20.0, -20.0, 20.0, 20.0]


def test_sums_of_several_rounds_are_one_mean():
    sums = PairSums()
    returns = np.array([[1.0, -1.0], [3.0, -2.0], [2.0, 0.0], [-1.0, 4.0]])
    for part in (returns[:1], returns[1:]):
        sums.add((0, 1), [len(part), *part.sum(0), *(part**2).sum(0)])
    counts = (1, 2)
    assert sums.payoffs(counts)[:, 0, 1] == pytest.approx(returns.mean(0))
    assert np.isnan(sums.payoffs(counts)[:, 0, 0]).all()
    assert sums.variances(counts)[:, 0, 1] == pytest.approx(returns.var(0))
    assert sums.matches(counts).tolist() == [[0, 4]]
    assert sums.has((0, 1))
    assert not sums.has((0, 0))
    # Pairs of policies that came later are no part of the first ones' game.
    assert np.isnan(sums.payoffs((1, 1))).all()


def test_a_few_matches_that_ended_alike_are_no_certainty():
    sums = PairSums()
    for pair, returns in (
        ((0, 0), [1.0, 1.0]),
        ((0, 1), [1.0, -1.0] * 500),
        ((1, 1), [1.0] * 1000),
    ):
        own = np.array(returns)
        sums.add(pair, [len(own), own.sum(), -own.sum(), (own**2).sum(), (own**2).sum()])
    errors = sums.errors((2, 2))
    assert errors.shape == (2, 2, 2)
    assert np.isnan(errors[:, 1, 0]).all()
    assert errors[0] == pytest.approx(errors[1], nan_ok=True)
    assert np.sqrt(errors[0, 0, 0]) > 0.3  # of a mean of two
    assert np.sqrt(errors[0, 0, 1]) == pytest.approx(np.sqrt(1.0 / 1000), rel=1e-3)
    assert 0.0 < np.sqrt(errors[0, 1, 1]) < 1e-3
    assert np.isnan(PairSums().errors((1, 1))).all()


def test_matches_are_as_those_that_play_say():
    drawn = mixed([0.5, 0.3, 0.2])
    found = play_pairs(EnvSpec.of(GAME, {}), {0: drawn}, (0, always(1, GAME)), 4000, 1)
    count, earned, *_ = found[0]["sums"]
    assert count == 4000
    # Against paper: rock loses, paper draws, scissors win.
    assert earned / count == pytest.approx(0.2 - 0.5, abs=5 * np.sqrt(0.7 / 4000))


def test_more_matches_go_where_the_mixtures_hang():
    mixtures = [np.array([0.5, 0.5, 0.0]), np.array([1.0, 0.0])]
    played = np.full((3, 2), 100)
    more = share_out(mixtures, np.ones((2, 3, 2)), played, 600, 100)
    assert more.sum() <= 600
    assert more[0, 0] == more[1, 0] > more[2, 0]
    assert (more[:, 0] > more[:, 1]).all()
    # A pair that always ends alike needs none.
    variances = np.ones((2, 3, 2))
    variances[:, 0, 0] = 0.0
    assert share_out(mixtures, variances, played, 600, 100)[0, 0] == 0
    assert share_out(mixtures, np.zeros((2, 3, 2)), played, 600, 100).sum() == 0
