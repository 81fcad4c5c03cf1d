"""The price of anarchy of games that are known, and how its sign is read."""

import numpy as np
import pytest

from remuda.analysis.anarchy import price_of_anarchy, uncertain_price
from remuda.analysis.payoff import Payoffs, exact
from remuda.errors import UsageError

COOPERATE, DEFECT = [1.0, 0.0], [0.0, 1.0]
ONE = np.array([[3.0, 0.0], [5.0, 1.0]])
DILEMMA = np.stack([ONE, ONE.T])
STAG = np.stack([np.array([[4.0, 0.0], [3.0, 2.0]]), np.array([[4.0, 3.0], [0.0, 2.0]])])


def rng(seed=0):
    return np.random.default_rng(seed)


def test_of_the_prisoners_dilemma_a_third_is_left():
    found = price_of_anarchy(DILEMMA, [(DEFECT, DEFECT)])
    assert (found.optimum, found.worst, found.loss) == (6.0, 2.0, 4.0)
    assert found.price == pytest.approx(1 / 3)
    assert found.sign == "gains"
    assert found.regrets.tolist() == [0.0]
    assert found.as_summary()["regrets"] == [0.0]


def test_the_worst_equilibrium_counts_and_the_best_is_the_price_of_stability():
    found = price_of_anarchy(STAG, [(COOPERATE, COOPERATE), (DEFECT, DEFECT)])
    assert (found.price, found.stability) == (0.5, 1.0)


def test_costs_are_read_upwards():
    # Years in prison: 1 each together, 2 each at the equilibrium.
    one = np.array([[-1.0, -3.0], [0.0, -2.0]])
    found = price_of_anarchy(np.stack([one, one.T]), [(DEFECT, DEFECT)])
    assert (found.price, found.sign, found.loss) == (2.0, "costs", 2.0)


def test_pigous_network_costs_four_thirds():
    # Half the traffic each: x = (0, 1/2, 1) of it takes the road that costs what share uses it.
    def cost(own, other):
        return (own + other) / 2 * own + (1 - own)

    shares = np.linspace(0.0, 1.0, 101)
    one = -cost(shares[:, None], shares[None]) / 2
    all_take_it = np.eye(101)[100]
    found = price_of_anarchy(np.stack([one, one.T]), [(all_take_it, all_take_it)])
    assert found.price == pytest.approx(4 / 3)
    assert found.worst == -1.0


def test_where_signs_differ_there_is_a_loss_and_no_ratio():
    found = price_of_anarchy(DILEMMA - 2.0, [(DEFECT, DEFECT)])
    assert np.isnan(found.price)
    assert (found.sign, found.loss) == ("none", 4.0)
    assert found.as_summary()["price"] is None
    zero = price_of_anarchy(np.stack([ONE, -ONE]), [(DEFECT, COOPERATE)])
    assert np.isnan(zero.price)


def test_regret_tells_a_profile_that_is_no_equilibrium():
    found = price_of_anarchy(DILEMMA, [(COOPERATE, COOPERATE), ([0.5, 0.5], DEFECT)])
    assert found.regrets.tolist() == [2.0, 0.5]


def test_correlated_equilibria_are_joint_distributions():
    one = np.array([[6.0, 2.0], [7.0, 0.0]])
    chicken = np.stack([one, one.T])
    found = price_of_anarchy(chicken, [np.array([[1 / 3, 1 / 3], [1 / 3, 0.0]])])
    assert found.worst == pytest.approx((12 + 9 + 9) / 3)
    assert found.regrets == pytest.approx(0.0, abs=1e-12)


def test_mixtures_and_joint_distributions_are_told_apart_by_their_sum():
    both = np.array([DEFECT, DEFECT])
    assert price_of_anarchy(DILEMMA, [both]).worst == 2.0
    assert price_of_anarchy(DILEMMA, [[[0.5, 0.0], [0.0, 0.5]]]).worst == 4.0
    wide = np.ones((2, 2, 3))
    assert price_of_anarchy(wide, [(DEFECT, [0.0, 0.5, 0.5])]).price == 1.0


def test_three_roles():
    # Each may give 1 so that all get 1/2: none does, and all together would have 3/2 - 1 each.
    giving = np.indices((2, 2, 2))
    payoffs = giving.sum(0) / 2 - giving + 1.0
    none, every = [[1.0, 0.0]] * 3, [[0.0, 1.0]] * 3
    found = price_of_anarchy(payoffs, [none])
    assert found.price == pytest.approx(3.0 / 4.5)
    assert found.regrets.tolist() == [0.0]
    assert price_of_anarchy(payoffs, [every]).regrets.tolist() == [0.5]


def test_a_known_optimum_is_compared_with():
    assert price_of_anarchy(DILEMMA, [(DEFECT, DEFECT)], optimum=8.0).price == 0.25
    with pytest.raises(UsageError, match="no optimum"):
        price_of_anarchy(DILEMMA, [(COOPERATE, COOPERATE)], optimum=5.0)


def seen(truth, deviation, matches, drawn):
    noise = drawn.normal(0.0, deviation / np.sqrt(matches), truth.shape)
    covariances = np.broadcast_to(np.eye(2)[:, :, None, None] * deviation**2, (2, 2, 2, 2))
    names = (("a", "b"), ("c", "d"))
    return Payoffs(names, truth + noise, covariances, np.full((2, 2), matches))


def test_intervals_cover_the_price():
    drawn, inside, losses = rng(1), 0, 0
    for _ in range(60):
        payoffs = seen(DILEMMA, 1.0, 50, drawn)
        found = uncertain_price(payoffs, [(DEFECT, DEFECT)], drawn, draws=100)
        inside += found.price.interval[0] <= 1 / 3 <= found.price.interval[1]
        losses += found.loss.interval[0] <= 4.0 <= found.loss.interval[1]
    assert inside >= 51
    assert losses >= 51
    assert found.regrets[0, 0] == 0.0
    summary = found.as_summary()
    assert summary["price"]["value"] == found.found.price
    assert summary["sign"] == "gains"


def test_equilibria_may_be_worked_out_for_each_sample():
    def worst_cell(payoffs):
        cell = np.zeros((2, 2))
        cell[np.unravel_index(payoffs.sum(0).argmin(), (2, 2))] = 1.0
        return [cell]

    flat = np.ones((2, 2, 2))
    found = uncertain_price(seen(flat, 1.0, 400, rng()), worst_cell, rng())
    assert found.worst.value < 2.0
    assert found.worst.value < found.worst.corrected < 2.1
    assert found.loss.corrected < found.loss.value
    assert found.regrets.shape == (2, 0)


def test_a_price_that_some_samples_do_not_have_is_not_told():
    found = uncertain_price(seen(DILEMMA - 1.0, 1.0, 4, rng()), [(DEFECT, DEFECT)], rng())
    assert np.isnan(found.price.interval).all()
    assert found.loss.interval[0] < 4.0 < found.loss.interval[1]


def test_exact_payoffs_have_no_uncertainty():
    found = uncertain_price(exact(ONE, ONE.T), [(DEFECT, DEFECT)], rng(), draws=3)
    assert found.price.interval == pytest.approx((1 / 3, 1 / 3))
    assert not found.regrets.any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: price_of_anarchy(ONE, [(DEFECT, DEFECT)]), r"\(2, 2\)"),
        (lambda: price_of_anarchy(DILEMMA * np.nan, [(DEFECT, DEFECT)]), "not numbers"),
        (lambda: price_of_anarchy(DILEMMA, []), "at least one"),
        (lambda: price_of_anarchy(DILEMMA, [(DEFECT,)]), "mixture for each role"),
        (lambda: price_of_anarchy(DILEMMA, [3.0]), "mixture for each role"),
        (lambda: price_of_anarchy(DILEMMA, [(DEFECT, [1.0, 1.0])]), "adds up to 2"),
        (lambda: price_of_anarchy(DILEMMA, [(DEFECT, DEFECT)], optimum=np.nan), "optimum"),
        (lambda: uncertain_price(exact(ONE), [(DEFECT, DEFECT)], rng(), draws=1), "draws"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_line(call, message):
    with pytest.raises(UsageError, match=message):
        call()
