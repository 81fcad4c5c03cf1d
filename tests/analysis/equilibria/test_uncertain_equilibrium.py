"""The equilibrium of what was seen, and the others that it may be."""

import json

import numpy as np
import pytest

from refusals import refuses
from remuda.analysis.equilibria import general_sum, uncertain_equilibrium
from remuda.analysis.equilibria.game_equilibrium import game_equilibrium
from remuda.analysis.equilibria.regret import regret
from remuda.analysis.equilibria.uncertain_equilibrium import nash
from remuda.analysis.payoffs.empirical_game import EmpiricalGame
from remuda.analysis.payoffs.payoffs import KNOWN, Payoffs, exact
from remuda.errors import UsageError

BIASED = np.array([[0.0, -0.25, 0.5], [0.25, 0.0, -0.05], [-0.5, 0.05, 0.0]])
HAWK_DOVE = np.array([[-1.0, 2.0], [0.0, 1.0]])


def seen(*means, deviation, matches, symmetric=False):
    """Payoffs with an uncertainty; one role alone: of a zero-sum game."""
    shape = np.shape(means[0])
    zero_sum = len(means) == 1
    means = np.array([means[0], -np.asarray(means[0])] if zero_sum else means, np.float64)
    if symmetric and not zero_sum:
        means = np.stack([means[0], means[0].T])
    roles = len(means)
    of_match = np.eye(roles)
    if zero_sum:
        of_match = np.array([[1.0, -1.0], [-1.0, 1.0]])
    covariances = np.multiply.outer(of_match * deviation**2, np.ones(shape))
    counts = np.full(shape, matches)
    if symmetric and zero_sum:
        own = np.eye(shape[0], dtype=np.bool_)
        covariances, counts = np.where(own, 0.0, covariances), np.where(own, KNOWN, counts)
    names = [[f"{'abc'[role]}{place}" for place in range(size)] for role, size in enumerate(shape)]
    names = [names[0]] * 2 if symmetric else names
    return Payoffs(tuple(map(tuple, names)), means, covariances, counts, symmetric)


def biased(matches, deviation=0.3):
    return seen(BIASED, deviation=deviation, matches=matches, symmetric=True)


def test_the_equilibrium_of_the_means():
    found = nash(biased(1000), np.random.default_rng(0), samples=50)
    assert found.kind == "zero-sum"
    for mixture in found.answer.mixtures:
        assert mixture == pytest.approx([1 / 16, 10 / 16, 5 / 16])
    assert found.answer.values == pytest.approx([0.0, 0.0], abs=1e-12)
    assert found.answer.regret.max() <= 1e-9
    assert found.unsolved == 0


def test_known_payoffs_have_one_equilibrium():
    found = nash(exact(BIASED, BIASED.T, symmetric=True), np.random.default_rng(0))
    assert found.masses[0] == pytest.approx(np.tile([1 / 16, 10 / 16, 5 / 16], (3, 1)))
    assert found.in_support[0].tolist() == [1.0, 1.0, 1.0]
    assert found.regrets.max() <= 1e-12


@pytest.mark.slow
def test_intervals_hold_the_truth_and_shrink_with_matches():
    widths = []
    for matches in (400, 40_000):
        rng, held = np.random.default_rng(5), []
        for _ in range(25):
            noise = np.triu(rng.normal(0.0, 0.3 / np.sqrt(matches), (3, 3)), 1)
            told = BIASED + noise - noise.T
            payoffs = seen(told, deviation=0.3, matches=matches, symmetric=True)
            found = nash(payoffs, rng, samples=60)
            low, high = found.masses[0][1:]
            truth = np.array([1 / 16, 10 / 16, 5 / 16])
            held.append((low <= truth) & (truth <= high))
        # 95% nominally; of 75 that are not independent, 80% at least is far from chance.
        assert np.mean(held) >= 0.8
        widths.append(high - low)
    assert (widths[1] < widths[0] / 5.0).all()


def test_a_strategy_that_few_matches_tell_of_is_in_some_supports():
    few = nash(biased(20), np.random.default_rng(1), samples=300)
    assert 0.3 < few.in_support[0][0] < 0.98
    many = nash(biased(100_000), np.random.default_rng(1), samples=100)
    assert many.in_support[0].tolist() == [1.0, 1.0, 1.0]


def test_regret_under_each_draw():
    payoffs = biased(100)
    found = nash(payoffs, np.random.default_rng(3), samples=200)
    draws = payoffs.sample(200, np.random.default_rng(3))
    by_hand = np.array([regret(draw, found.answer.mixtures) for draw in draws])
    assert found.regrets[0] == pytest.approx(by_hand.mean(0))
    assert found.regrets[1:] == pytest.approx(np.quantile(by_hand, [0.025, 0.975], 0))
    assert found.regrets[0].min() > 0.0


def test_large_games_are_drawn_a_few_at_a_time(monkeypatch):
    whole = nash(biased(100), np.random.default_rng(3), samples=7)
    monkeypatch.setattr(uncertain_equilibrium, "CHUNK", 40)
    parts = nash(biased(100), np.random.default_rng(3), samples=7)
    assert parts.samples == 7
    assert parts.answer.mixtures[0] == pytest.approx(whole.answer.mixtures[0])
    assert parts.regrets.shape == (3, 2)


def test_a_zero_sum_game_of_unlike_roles_and_of_a_constant_sum():
    # The row mixes 3/5, 2/5 for 1.4; shares of a sum of 10.
    matrix = np.array([[3.0, -1.0], [-1.0, 5.0]])
    payoffs = exact(matrix, 10.0 - matrix)
    found = nash(payoffs, np.random.default_rng(0), samples=5)
    assert found.kind == "zero-sum"
    assert found.answer.values == pytest.approx([1.4, 8.6])
    assert found.answer.mixtures[0] == pytest.approx([0.6, 0.4])
    assert found.answer.mixtures[1] == pytest.approx([0.6, 0.4])


def test_a_symmetric_game_takes_a_symmetric_equilibrium():
    payoffs = seen(HAWK_DOVE, HAWK_DOVE.T, deviation=0.2, matches=100, symmetric=True)
    found = nash(payoffs, np.random.default_rng(0), samples=100)
    assert found.kind == "general-sum"
    assert found.answer.mixtures[0] == pytest.approx([0.5, 0.5])
    assert "3 equilibria" in found.answer.note
    low, high = found.masses[0][1:]
    assert (low < 0.5).all()
    assert (high > 0.5).all()
    assert (high - low < 0.2).all()
    assert found.answer.values == pytest.approx([0.5, 0.5])


def test_a_general_sum_game_takes_the_largest_welfare():
    hunt = np.array([[4.0, 0.0], [3.0, 2.0]])
    found = nash(seen(hunt, hunt.T, deviation=0.1, matches=50), np.random.default_rng(0), 50)
    assert [mixture.tolist() for mixture in found.answer.mixtures] == [[1.0, 0.0], [1.0, 0.0]]
    assert found.in_support[0].tolist() == [1.0, 0.0]
    assert "has the largest welfare" in found.answer.note


@pytest.mark.parametrize("symmetric", [False, True])
def test_a_large_general_sum_game(symmetric):
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(2, 15, 15))
    payoffs = seen(a, b, deviation=0.1, matches=50, symmetric=symmetric)
    found = nash(payoffs, rng, samples=10)
    assert found.answer.regret.max() <= 1e-6
    assert regret(payoffs.means, found.answer.mixtures).max() <= 1e-6
    assert "there may be others" in found.answer.note
    if symmetric:
        assert np.array_equal(*found.answer.mixtures)


def test_three_roles_have_a_correlated_equilibrium():
    rng = np.random.default_rng(2)
    means, roles = rng.normal(size=(3, 2, 3, 2)), {"a": [*"xy"], "b": [*"uvw"], "c": [*"st"]}
    errors, counts = np.full(means.shape, 0.02), np.full((2, 3, 2), 30)
    game = EmpiricalGame.from_arrays(means, roles, errors=errors, counts=counts)
    found = game_equilibrium(game, rng, 20)
    assert found.kind == "correlated"
    assert found.answer.regret.max() <= 1e-9
    assert [len(mixture) for mixture in found.answer.mixtures] == [2, 3, 2]
    assert found.masses[1].shape == (3, 3)
    assert found.values.shape == (3, 3)
    assert (found.values[1] <= found.values[2]).all()
    assert 0.0 < found.regrets[2].max() < 0.5  # in draws of the payoffs


def test_draws_without_an_answer_are_counted(monkeypatch):
    payoffs = seen(HAWK_DOVE, HAWK_DOVE.T, deviation=0.2, matches=100)
    solve, calls = general_sum.solve, []

    def fails(a, b, seconds, symmetric):
        calls.append(seconds)
        found = solve(a, b, seconds, symmetric)
        return found if len(calls) < 4 else None

    monkeypatch.setattr(general_sum, "can_enumerate", lambda *_: False)
    monkeypatch.setattr(general_sum, "solve", fails)
    found = nash(payoffs, np.random.default_rng(0), samples=10)
    assert found.unsolved == 8
    assert calls[:2] == [10.0, 1.0]
    calls[:] = [0.0] * 3
    with refuses(UsageError):
        nash(payoffs, np.random.default_rng(0), samples=10)
    calls[:] = [0.0] * 2
    summary = nash(payoffs, np.random.default_rng(0), samples=3).as_summary()
    assert summary["unsolved"] == 3
    assert summary["roles"][0][0]["mean"] is None
    json.dumps(summary, allow_nan=False)


def test_refused():
    rng = np.random.default_rng(0)
    with refuses(UsageError):
        nash(biased(10), rng, samples=0)
    missing = seen(HAWK_DOVE, deviation=0.1, matches=10)
    counts = np.array([[10, 0], [10, 10]])
    means = np.where(counts > 0, missing.means, np.nan)
    with refuses(UsageError):
        nash(Payoffs(missing.strategies, means, missing.covariances, counts), rng)


def test_what_a_policy_earns_against_itself_need_not_be_played():
    payoffs = biased(100)
    own = np.eye(3, dtype=np.bool_)
    unplayed = Payoffs(
        payoffs.strategies,
        np.where(own, np.nan, payoffs.means),
        np.where(own, np.nan, payoffs.covariances),
        np.where(own, 0, payoffs.counts),
        True,
    )
    found = nash(unplayed, np.random.default_rng(0), samples=5)
    assert found.answer.mixtures[0] == pytest.approx([1 / 16, 10 / 16, 5 / 16])


def test_plain_data():
    summary = nash(biased(100), np.random.default_rng(0), samples=20).as_summary()
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert len(summary["roles"]) == 1
    assert summary["roles"][0][1]["strategy"] == "a1"
    assert summary["roles"][0][1]["mass"] == pytest.approx(0.625)
    low, high = summary["roles"][0][1]["interval"]
    assert low < 0.625 < high


def test_the_same_random_numbers_give_the_same_answer():
    one, other = (nash(biased(50), np.random.default_rng(7), 20).as_summary() for _ in range(2))
    assert one == other
