"""Alpha-rank: published masses, hand-worked chains, limits, and no overflow anywhere."""

import json
import math

import numpy as np
import pytest

from refusals import refuses
from remuda.analysis.payoffs.payoffs import Payoffs
from remuda.analysis.ranking.alpha_rank import (
    AlphaRank,
    alpha_rank,
    log_fixation,
    log_stationary,
)
from remuda.analysis.ranking.rank import rank_intervals
from remuda.errors import UsageError

RPS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])


def transitive(skills):
    return np.subtract.outer(np.asarray(skills), skills)


def test_a_mutant_spreads_with_the_closed_probability():
    gap, m, alpha = 0.3, 10, 2.0
    found = np.exp(log_fixation(np.array([-gap, gap, 0.0]), alpha, m))
    u = alpha * gap
    better = (1 - math.exp(-u)) / (1 - math.exp(-m * u))
    worse = (1 - math.exp(u)) / (1 - math.exp(m * u))
    assert found == pytest.approx([worse, better, 1 / m])


def test_masses_are_those_of_the_eigenvector():
    rng = np.random.default_rng(0)
    for _ in range(20):
        count = int(rng.integers(2, 9))
        matrix = rng.normal(size=(count, count))
        rates = np.exp(log_fixation(matrix.T - matrix, 0.7, 8)) / (count - 1)
        np.fill_diagonal(rates, 0.0)
        chain = rates + np.diag(1.0 - rates.sum(1))
        assert alpha_rank(matrix, 0.7, 8).masses @ chain == pytest.approx(
            alpha_rank(matrix, 0.7, 8).masses, abs=1e-14
        )


def test_a_birth_and_death_chain_has_its_known_distribution_however_steep():
    """Masses by detailed balance: each is exp(-3000) of the one before."""
    count = 40
    logs = np.full((count, count), -np.inf)
    for i in range(count - 1):
        logs[i, i + 1], logs[i + 1, i] = -3000.0, 0.0
    found = log_stationary(logs)
    assert found - found[0] == pytest.approx(-3000.0 * np.arange(count))


@pytest.mark.parametrize("alpha", [1e-12, 1e3, 1e6, 1e12, 1e300])
def test_no_intensity_overflows(alpha):
    found = alpha_rank(transitive([0.0, 0.5, 1.0, 5.0]), alpha)
    assert np.isfinite(found.masses).all()
    assert found.masses.sum() == pytest.approx(1.0)
    if alpha > 1.0:
        assert found.masses == pytest.approx([0.0, 0.0, 0.0, 1.0])
    cycle = alpha_rank(RPS, alpha)
    assert cycle.masses == pytest.approx(np.full(3, 1 / 3))


def test_without_selection_all_are_equal():
    assert alpha_rank(transitive([0.0, 1.0, 2.0]), 0.0).masses == pytest.approx(np.full(3, 1 / 3))
    found = alpha_rank(np.zeros((4, 4)))
    assert found.settled
    assert found.masses == pytest.approx(np.full(4, 0.25))


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_sweep_ends_at_the_limit_whatever_the_scale_of_payoffs(scale):
    """A strategy above a cycle has all; then the cycle below it counts as nothing."""
    below = np.full((4, 4), -1.0)
    below[:3, :3], below[3] = RPS, 1.0
    found = alpha_rank(scale * below)
    assert found.settled
    assert found.masses == pytest.approx([0.0, 0.0, 0.0, 1.0], abs=1e-6)
    cycle = alpha_rank(scale * below[:3, :3])
    assert cycle.settled
    assert cycle.masses == pytest.approx(np.full(3, 1 / 3))


def test_one_payoff_far_from_all_others_does_not_end_a_sweep():
    """At first only the difference of many millions tells, and the masses stand still meanwhile."""
    matrix = np.full((4, 4), -1e8)
    matrix[:3, :3], matrix[:3, 3] = transitive([0.0, 1.0, 2.0]), 1e8
    found = alpha_rank(matrix)
    assert found.settled
    assert found.masses == pytest.approx([0.0, 0.0, 1.0, 0.0], abs=1e-6)
    roles = alpha_rank([matrix, matrix.T])
    assert roles.settled
    assert roles.by_role[0] == pytest.approx([0.0, 0.0, 1.0, 0.0], abs=1e-6)


def test_a_sweep_and_the_limit_agree_where_one_class_of_strategies_is_left():
    rng = np.random.default_rng(1)
    for _ in range(10):
        matrix = rng.normal(size=(6, 6))
        limit = alpha_rank(matrix, math.inf)
        assert alpha_rank(matrix, 1e5).masses == pytest.approx(limit.masses, abs=1e-6)


def test_the_limit_with_a_tie_by_hand():
    """0 beats 1, 1 beats 2, and 0 and 2 are equal: they move to each other with 1 / m.

    With a = 1 / m the balance of state 0 is p0 * a = p1 + p2 * a, and of state 1 it is p1 = p2.
    """
    matrix = np.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 1.0], [0.0, -1.0, 0.0]])
    a = 1 / 10
    p = np.array([1.0 + a, a, a])
    assert alpha_rank(matrix, math.inf, 10).masses == pytest.approx(p / p.sum())


def test_roles_have_populations_of_their_own():
    """Matching pennies goes round: each choice of both is as likely."""
    one = np.array([[1.0, -1.0], [-1.0, 1.0]])
    pennies = alpha_rank([one, -one])
    assert pennies.masses == pytest.approx(np.full((2, 2), 0.25))
    dilemma = np.array([[3.0, 0.0], [5.0, 1.0]])
    found = alpha_rank([dilemma, dilemma.T])
    assert found.settled
    assert found.masses == pytest.approx(np.array([[0.0, 0.0], [0.0, 1.0]]), abs=1e-6)
    assert found.by_role[0] == pytest.approx([0.0, 1.0], abs=1e-6)


def test_two_populations_have_the_masses_of_open_spiel():
    alpharank = pytest.importorskip("open_spiel.python.egt.alpharank")
    rng = np.random.default_rng(3)
    for rows, columns in ((2, 2), (3, 4), (5, 2)):
        payoffs = rng.normal(size=(2, rows, columns))
        for alpha in (0.1, 1.0, 3.0):
            *_, expected, _, _ = alpharank.compute(list(payoffs), m=20, alpha=alpha)
            found = alpha_rank(payoffs, alpha, 20).masses
            assert found.reshape(-1) == pytest.approx(expected, abs=1e-9)


def test_three_roles_and_unlike_numbers_of_strategies_by_brute_force():
    rng = np.random.default_rng(2)
    payoffs, m, alpha = rng.normal(size=(3, 2, 3, 4)), 6, 0.9
    states = list(np.ndindex(2, 3, 4))
    chain = np.zeros((24, 24))
    for i, one in enumerate(states):
        for j, other in enumerate(states):
            changed = [role for role in range(3) if one[role] != other[role]]
            if len(changed) == 1:
                u = alpha * (payoffs[(changed[0], *other)] - payoffs[(changed[0], *one)])
                chain[i, j] = (1 - math.exp(-u)) / (1 - math.exp(-m * u)) / 6
    chain += np.diag(1.0 - chain.sum(1))
    values, vectors = np.linalg.eig(chain.T)
    expected = vectors[:, np.abs(values - 1.0).argmin()].real
    found = alpha_rank(payoffs, alpha, m)
    assert found.masses.reshape(-1) == pytest.approx(expected / expected.sum())
    assert [len(each) for each in found.by_role] == [2, 3, 4]


def test_two_hundred_strategies_are_swept():
    """Compiled and in logarithms; a check of the answer, whose time the benchmark tells."""
    skills = np.random.default_rng(3).permutation(200).astype(float)
    found = alpha_rank(transitive(skills))
    assert found.settled
    assert found.masses.argmax() == skills.argmax()
    assert found.masses.max() == pytest.approx(1.0, abs=1e-6)


def uncertain(matrix, deviation, matches):
    """A symmetric zero-sum game with these means, and this deviation of a match."""
    count = len(matrix)
    variance = np.full((count, count), deviation**2)
    covariances = np.array([[variance, -variance], [-variance, variance]])
    names = tuple(f"p{i}" for i in range(count))
    counts = np.full((count, count), matches)
    return Payoffs((names,) * 2, np.stack([matrix, matrix.T]), covariances, counts, True)


def test_the_rank_by_alpha_rank_is_a_rank_like_any_other():
    payoffs = uncertain(transitive([0.0, 2.0, 1.0]), 0.1, 50)
    found = rank_intervals(
        payoffs, lambda game: alpha_rank(game, 0.03).masses, np.random.default_rng(5), samples=50
    )
    assert found.ranks.tolist() == [3, 1, 2]
    assert found.first.tolist() == [0.0, 1.0, 0.0]


def test_a_summary_is_plain_data():
    found = AlphaRank(np.array([0.25, 0.75]), math.inf, 50)
    assert json.loads(json.dumps(found.as_summary(), allow_nan=False)) == {
        "masses": [0.25, 0.75],
        "alpha": None,
        "population": 50,
        "settled": None,
    }


@pytest.mark.parametrize(
    ("payoffs", "options"),
    [
        (np.zeros((2, 3)), {}),
        (np.zeros((3, 2, 2)), {}),
        ([[0.0, np.nan], [0.0, 0.0]], {}),
        (RPS, {"alpha": -1.0}),
        (RPS, {"alpha": math.nan}),
        (RPS, {"alpha": 1e308}),
        (RPS, {"population": 1}),
        (np.zeros((2, 50, 50)), {}),
    ],
)
def test_what_cannot_be_ranked_is_refused(payoffs, options):
    with refuses(UsageError):
        alpha_rank(payoffs, **options)
