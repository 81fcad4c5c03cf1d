"""Of 200 synthetic pairs of teams, intervals of 95% hold the truth in 92% to 98% of cases."""

from functools import cache
from itertools import permutations, product

import numpy as np
import pytest

from remuda.analysis.equilibria import zero_sum
from remuda.analysis.equilibria.uncertain_equilibrium import nash
from remuda.analysis.payoffs.empirical_game import Role
from remuda.analysis.payoffs.game_draws import pair_draws
from remuda.analysis.payoffs.payoffs import from_sums
from remuda.analysis.payoffs.profile_sums import game_of_matches
from remuda.analysis.payoffs.sums import ROWS, add_up
from remuda.analysis.ranking.rank import mean_over_opponents, rank_intervals
from remuda.analysis.structure.population_regret import gain_over_mean, within_roles
from role_games import BEATS

SEEDS = range(200)
RED, BLUE = range(3), range(3, 6)
SIDES = np.array([0, 0, 1, 1])
LINE_UPS = np.array([(*a, *b) for a, b in product(permutations(RED, 2), permutations(BLUE, 2))])


@cache
def teams(seed):
    """The true payoffs of red against blue [3, 3], the payoffs of matches, and their game.

    Red earns the mean of the payoffs of its two against blue's two, with the noise of a match. In
    half of the games these cycle, and an equilibrium mixes all.
    """
    rng = np.random.default_rng(seed)
    skill = rng.normal(0.0, 1.0, (3, 3)) if seed % 2 else 6.0 * BEATS
    earned = np.array([skill[np.ix_(each[:2], each[2:] - 3)].mean() for each in LINE_UPS])
    truth = np.array([[earned[((r == LINE_UPS).any(1)) & (b == LINE_UPS).any(1)].mean()
                       for b in BLUE] for r in RED])  # fmt: skip
    dealt = rng.integers(0, len(LINE_UPS), 150)
    red = earned[dealt] + rng.normal(0.0, 1.0, len(dealt))
    returns = np.stack([red, red, -red, -red], 1)
    sums = np.zeros((ROWS, 6, 6))
    add_up(LINE_UPS[dealt], returns, SIDES, True, False, sums)
    payoffs = from_sums([f"p{i}" for i in range(6)], sums, True)
    roles = [Role("red", payoffs.names[:3], 2), Role("blue", payoffs.names[3:], 2)]
    game = game_of_matches(roles, SIDES.tolist(), LINE_UPS[dealt] - 3 * SIDES, returns)
    return truth, payoffs.between(list(RED), list(BLUE)), game


def share(held):
    return float(np.mean(np.concatenate([np.atleast_1d(each) for each in held])))


@pytest.mark.slow
def test_mean_payoffs_of_a_role_lie_in_their_intervals():
    held = []
    for seed in SEEDS:
        truth, payoffs, _ = teams(seed)
        found = rank_intervals(payoffs, mean_over_opponents, np.random.default_rng(seed), 250)
        low, high = found.score_intervals
        held.append((low <= truth.mean(1)) & (truth.mean(1) <= high))
    assert 0.92 <= share(held) <= 0.98


@pytest.mark.slow
def test_the_gain_of_the_best_policy_lies_in_its_interval():
    """The interval holds the largest true gain with at least its level."""
    held, errors = [], []
    for seed in SEEDS:
        truth, payoffs, _ = teams(seed)
        found = gain_over_mean(payoffs, np.random.default_rng(seed), 250)
        scores = truth.mean(1)
        held.append(found.interval[0] <= scores.max() - scores.mean() <= found.interval[1])
        errors.append(found.corrected - (scores.max() - scores.mean()))
    assert share(held) >= 0.92
    # it is measured by other noise than it is chosen by, so it is not too large on average
    assert np.mean(errors) < 0.02


@pytest.mark.slow
def test_the_gain_of_an_opponents_best_response_lies_in_its_interval():
    """Blue's gain over its mean against each policy of red: a lower bound, on average."""
    held, errors = [], []
    for seed in SEEDS:
        truth, payoffs, _ = teams(seed)
        rng = np.random.default_rng(seed)
        found = within_roles(payoffs, np.zeros(3, int), rng, 250).gains
        true = truth.mean(1) - truth.min(1)  # blue earns what red loses
        lows, highs = np.array([each.interval for each in found]).T
        held.append((lows <= true) & (true <= highs))
        errors.append([each.corrected for each in found] - true)
    assert share(held) >= 0.92
    assert np.mean(errors) < 0.02


@pytest.mark.slow
def test_the_value_of_two_teams_lies_in_its_interval():
    held = []
    for seed in SEEDS:
        truth, payoffs, game = teams(seed)
        true = zero_sum.solve(truth).value
        rng = np.random.default_rng(seed)
        drawn = pair_draws(game, payoffs, 100, rng)
        found = nash(payoffs, rng, 100, drawn=drawn)
        assert found.kind == "zero-sum"
        low, high = found.values[1:, 0]
        held.append(low <= true <= high)
    assert 0.92 <= share(held) <= 0.98
