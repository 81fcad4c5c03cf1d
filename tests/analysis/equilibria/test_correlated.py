"""Correlated equilibria: worked by hand, compared with another method, and verified."""

import numpy as np
import pytest
from scipy.optimize import minimize

from refusals import refuses
from remuda.analysis.equilibria import correlated
from remuda.analysis.equilibria.correlated import constraints, solve
from remuda.analysis.equilibria.general_sum import all_equilibria
from remuda.analysis.equilibria.regret import correlated_regret
from remuda.errors import UsageError

CHICKEN = np.array([[[6.0, 2.0], [7.0, 0.0]], [[6.0, 7.0], [2.0, 0.0]]])
DILEMMA = np.array([[[3.0, 0.0], [5.0, 1.0]], [[3.0, 5.0], [0.0, 1.0]]])
SHAPLEY = np.stack([np.eye(3)[[2, 0, 1]], np.eye(3)[[1, 2, 0]]])


def verified(game, found, coarse=False, least=1e-9):
    assert found.joint.sum() == pytest.approx(1.0)
    assert found.joint.min() >= 0.0
    assert np.array_equal(found.regret, correlated_regret(game, found.joint, coarse))
    assert found.regret.max() <= least
    axes = tuple(range(1, game.ndim))
    assert found.values == pytest.approx((game * found.joint).sum(axes))


def entropy(p):
    p = p[p > 0.0]
    return -(p * np.log(p)).sum()


@pytest.mark.parametrize("coarse", [False, True])
def test_the_largest_welfare_in_chicken(coarse):
    # Let both swerve with p, and one alone with q each: p + 2q = 1, since the crash earns nothing.
    # Told to swerve, a role earns 6p + 2q and by daring 7p, so p <= 2q: p = 1/2, q = 1/4. Told to
    # dare, it earns 7q and by swerving 6q. Welfare: 12 / 2 + 9 / 2 = 10.5; 9 in any pure
    # equilibrium. With two strategies each, the coarse ones are no others.
    found = solve(CHICKEN, "welfare", coarse)
    assert found.joint == pytest.approx(np.array([[0.5, 0.25], [0.25, 0.0]]), abs=1e-9)
    assert found.values.sum() == pytest.approx(10.5)
    assert found.values == pytest.approx([5.25, 5.25])
    verified(CHICKEN, found, coarse)


def test_the_largest_entropy_in_chicken():
    # By symmetry (p, q, q, r). In the uniform one a role that is told to dare gains by swerving,
    # 7 < 6 + 2, and one that is told to swerve does not, 6 + 2 > 7: so 7q = 6q + 2r, q = 2r. Of
    # (p, 2r, 2r, r) with p + 5r = 1 the entropy is the largest where 5 log p = 4 log 2r + log r.
    r = 1.0 / (5.0 + 2.0**0.8)
    found = solve(CHICKEN)
    assert found.joint == pytest.approx(np.array([[2.0**0.8 * r, 2 * r], [2 * r, r]]), abs=1e-9)
    verified(CHICKEN, found)


@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize("choose", ["entropy", "welfare"])
def test_the_only_one_of_the_dilemma(choose, coarse):
    found = solve(DILEMMA, choose, coarse)
    assert found.joint == pytest.approx(np.array([[0.0, 0.0], [0.0, 1.0]]), abs=1e-9)
    assert found.note == ""
    verified(DILEMMA, found, coarse)


def test_shapleys_game():
    # The largest welfare: never both nothing, six cells alike; the largest entropy: all alike.
    found = solve(SHAPLEY, "welfare")
    assert found.values.sum() == pytest.approx(1.0)
    verified(SHAPLEY, found)
    found = solve(SHAPLEY)
    assert found.joint == pytest.approx(np.full((3, 3), 1 / 9), abs=1e-12)


@pytest.mark.slow
def test_nash_equilibria_are_correlated_ones():
    rng = np.random.default_rng(0)
    for _ in range(10):
        game = rng.normal(size=(2, 3, 4))
        best, most = solve(game, "welfare"), solve(game)
        for row, column, values in (
            (row, column, values)
            for listed in [all_equilibria(*game)]
            for row, column, values in zip(listed.rows, listed.columns, listed.values, strict=True)
        ):
            joint = np.outer(row, column)
            assert (constraints(game, False) @ joint.reshape(-1)).min() >= -1e-9
            assert best.values.sum() >= values.sum() - 1e-9
            assert entropy(most.joint) >= entropy(joint) - 1e-9


def test_coarse_ones_are_more():
    rng = np.random.default_rng(4)
    for _ in range(10):
        game = rng.normal(size=(3, 3, 2, 3))
        for choose in ("entropy", "welfare"):
            strict, coarse = solve(game, choose), solve(game, choose, True)
            verified(game, strict)
            verified(game, coarse, True)
            assert correlated_regret(game, strict.joint, True).max() <= 1e-9
            if choose == "entropy":
                assert entropy(coarse.joint) >= entropy(strict.joint) - 1e-9
            else:
                assert coarse.values.sum() >= strict.values.sum() - 1e-9


def test_the_largest_entropy_is_that_of_another_method():
    rng = np.random.default_rng(7)
    for coarse in (False, True):
        game = rng.normal(size=(2, 3, 3))
        losses = constraints(game, coarse)
        other = minimize(
            lambda p: (p * np.log(np.maximum(p, 1e-300))).sum(),
            np.full(9, 1 / 9),
            bounds=[(0.0, 1.0)] * 9,
            constraints=[
                {"type": "eq", "fun": lambda p: p.sum() - 1.0},
                {"type": "ineq", "fun": lambda p, g=losses: g @ p},
            ],
            options={"ftol": 1e-13, "maxiter": 1000},
        )
        found = solve(game, coarse=coarse)
        verified(game, found, coarse)
        assert entropy(found.joint) == pytest.approx(-other.fun, abs=1e-6)


def test_constraints_say_what_departures_lose():
    rng = np.random.default_rng(3)
    game = rng.normal(size=(2, 2, 3))
    joint = rng.dirichlet(np.ones(6)).reshape(2, 3)
    # The row, told 0, plays 1 instead.
    lost = (joint[0] * (game[0, 0] - game[0, 1])).sum()
    assert np.abs(constraints(game, False) @ joint.reshape(-1) - lost).min() <= 1e-12
    always = (joint * (game[1] - game[1][:, [2]])).sum()  # the column plays 2 throughout
    assert np.abs(constraints(game, True) @ joint.reshape(-1) - always).min() <= 1e-12
    assert constraints(game, False).shape == (2 * 1 + 3 * 2, 6)
    assert constraints(game, True).shape == (5, 6)


@pytest.mark.parametrize("coarse", [False, True])
def test_three_roles_of_many_strategies(coarse):
    rng = np.random.default_rng(10)
    for game in (rng.normal(size=(3, 6, 6, 6)), rng.integers(0, 3, (3, 6, 6, 6)) * 1.0):
        for choose in ("entropy", "welfare"):
            found = solve(game, choose, coarse)
            verified(game, found, coarse)
            assert found.note == ""


@pytest.mark.slow
def test_three_roles_of_ten_strategies():
    game = np.random.default_rng(10).normal(size=(3, 10, 10, 10))
    for choose in ("entropy", "welfare"):
        found = solve(game, choose)
        verified(game, found)
        assert found.note == ""


def test_games_without_a_choice():
    assert solve(np.ones((2, 1, 1))).joint.tolist() == [[1.0]]
    assert solve(np.ones((3, 2, 2, 2))).joint == pytest.approx(np.full((2, 2, 2), 0.125))
    one_role = solve([[1.0, 2.0, 2.0]])
    assert one_role.joint == pytest.approx([0.0, 0.5, 0.5])
    assert solve([[1.0, 2.0, 2.0]], "welfare", True).values.sum() == pytest.approx(2.0)


def test_strategies_that_are_twice_share():
    places = [0, 1, 1]
    game = SHAPLEY[:, [0, 1, 2, 2]]
    found = solve(game)
    verified(game, found)
    assert found.joint[2] == pytest.approx(found.joint[3], abs=1e-9)
    game = CHICKEN[np.ix_([0, 1], places, places)]
    found = solve(game)
    verified(game, found)
    assert found.joint[:, 1] == pytest.approx(found.joint[:, 2], abs=1e-9)


def test_where_the_largest_entropy_is_not_found_it_is_said(monkeypatch):
    monkeypatch.setattr(correlated, "maximize", lambda losses: None)
    found = solve(CHICKEN)
    assert "not found" in found.note
    assert found.values.sum() == pytest.approx(10.5)
    # A wrong one is not an answer either.
    monkeypatch.setattr(correlated, "maximize", lambda losses: (np.eye(4)[3], 0))
    assert "not found" in solve(CHICKEN).note


def test_marginals():
    found = solve(CHICKEN, "welfare")
    for marginal in found.mixtures:
        assert marginal == pytest.approx([0.75, 0.25])


@pytest.mark.parametrize(
    "call",
    [
        lambda: solve(np.zeros((2, 3))),
        lambda: solve(CHICKEN, "fairness"),
        lambda: solve(np.zeros((2, 200, 200))),
        lambda: solve(np.full((2, 2, 2), np.inf)),
    ],
)
def test_refused(call):
    with refuses(UsageError):
        call()
