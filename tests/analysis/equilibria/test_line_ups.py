"""Correlated equilibria over line-ups, against numbers worked out by hand."""

import numpy as np
import pytest

from refusals import refuses
from remuda.analysis.equilibria import correlated, line_ups
from remuda.analysis.equilibria.game_equilibrium import game_equilibrium
from remuda.analysis.payoffs.empirical_game import Role, exact_game
from remuda.analysis.payoffs.profile_sums import game_of_matches
from remuda.errors import UsageError
from role_games import public_goods, shapley


def dilemma(seats=2):
    """Seats earn 2 for each cooperator among the others, and 1 more if they defect."""

    def payoff(profile):
        others = profile[0] - np.array([1, 0])
        return 2.0 * others + np.array([0.0, 1.0])

    return exact_game([Role("players", ("cooperate", "defect"), seats)], payoff)


@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize(
    ("game", "value"), [(dilemma(), 1.0), (dilemma(4), 1.0), (public_goods(), 0.0)]
)
def test_a_dominant_strategy_is_all_that_is_played(game, value, coarse):
    found = line_ups.solve(game, coarse)
    assert found.mixtures[0] == pytest.approx([0.0, 1.0], abs=1e-9)
    assert found.values == pytest.approx([value], abs=1e-9)
    assert found.regret == pytest.approx([0.0], abs=1e-9)


@pytest.mark.parametrize("coarse", [False, True])
def test_unlike_players_have_the_equilibrium_of_their_tensor(coarse):
    game = shapley()
    found, expected = line_ups.solve(game, coarse), correlated.solve(game.tensor(), coarse=coarse)
    assert found.joint.reshape(3, 3, 3) == pytest.approx(expected.joint, abs=1e-6)
    assert found.values == pytest.approx([1 / 3] * 3, abs=1e-6)
    assert found.regret.max() <= 1e-9


def test_chicken_has_the_equilibrium_of_aumann():
    """Of two seats that dare (7 and 2, or 0 both) or yield (6 both), a mediator may say who dares.

    The largest entropy: by symmetry x for both yielding, y for one daring, twice, and z for both.
    """
    earned = np.array([[6.0, 2.0], [7.0, 0.0]])

    def payoff(profile):
        others = profile - np.eye(2)
        return (earned * others).sum(1)

    game = exact_game([Role("players", ("yield", "dare"), 2)], payoff)
    found = line_ups.solve(game)
    assert found.regret.max() <= 1e-9
    both_yield, one_dares, both_dare = found.joint
    # who is told to yield: of x + y / 2, daring gains 1 with x and loses 2 with y / 2
    assert both_yield <= one_dares + 1e-9
    # who is told to dare: yielding loses 1 with y / 2, and gains 2 with z
    assert 2.0 * both_dare <= 0.5 * one_dares + 1e-9
    assert found.values[0] == pytest.approx(6 * both_yield + 4.5 * one_dares)


def test_only_line_ups_that_were_played_count():
    """a earns 3, b 2 and c 1, and no line-up has one twice: only a with b keeps its seats."""
    rng = np.random.default_rng(0)
    chosen = np.array([[0, 1], [1, 2], [2, 0]] * 40)
    returns = 3.0 - chosen + 0.01 * rng.standard_normal(chosen.shape)
    game = game_of_matches([Role("players", ("a", "b", "c"), 2)], [0, 0], chosen, returns)
    found = line_ups.solve(game)
    assert found.mixtures[0] == pytest.approx([0.5, 0.5, 0.0], abs=1e-9)
    assert found.note == line_ups.INCOMPLETE
    uncertain = game_equilibrium(game, rng, 50)
    assert uncertain.kind == "correlated"
    assert uncertain.in_support[0] == pytest.approx([1.0, 1.0, 0.0])
    assert uncertain.regrets[2].max() == pytest.approx(0.0, abs=1e-9)
    assert uncertain.values[1, 0] < 2.5 < uncertain.values[2, 0]


def test_the_least_regret_is_found_if_no_equilibrium_exists():
    """a beats b beats c beats a, and each line-up has two: in each, one gains 2 by the third."""
    chosen = np.array([[0, 1], [1, 2], [2, 0]])
    returns = np.array([[1.0, -1.0]] * 3)
    game = game_of_matches([Role("players", ("a", "b", "c"), 2)], [0, 0], chosen, returns)
    swaps = line_ups.Swaps.of(game)
    assert not swaps.are_complete
    found = line_ups.solve(game)
    gains = swaps.gains(game.means)
    assert found.regret == pytest.approx(line_ups.regret(swaps, gains, found.joint, False))
    for other in np.random.default_rng(0).dirichlet(np.ones(3), 200):
        assert line_ups.regret(swaps, gains, other, False).max() >= found.regret.max() - 1e-9


def test_a_whole_game_of_one_role_has_a_nash_equilibrium():
    found = game_equilibrium(public_goods(), np.random.default_rng(0), 30)
    assert found.kind == "role-symmetric"
    assert found.answer.mixtures[0] == pytest.approx([0.0, 1.0], abs=1e-6)
    assert found.regrets.max() == pytest.approx(0.0, abs=1e-8)
    of_players = game_equilibrium(shapley(), np.random.default_rng(0), 5)
    assert of_players.kind == "correlated"
    assert of_players.answer.regret.max() <= 1e-9


@pytest.mark.parametrize("coarse", [False, True])
def test_a_role_of_one_strategy_has_no_deviation(coarse):
    """x has one strategy; y and z each earn 1 by matching the other's number."""
    roles = [Role("x", ("x0",)), Role("y", ("y0", "y1")), Role("z", ("z0", "z1"))]

    def payoff(profile):
        return np.append(0.0, np.repeat(float(profile[1] == profile[3]), 4))

    game = exact_game(roles, payoff)
    found = line_ups.solve(game, coarse)
    assert found.mixtures[0] == pytest.approx([1.0])
    assert found.regret == pytest.approx([0.0] * 3, abs=1e-9)
    assert found.values[1:].min() >= 0.5 - 1e-9


def test_a_game_without_line_ups_is_refused():
    none = game_of_matches(
        [Role("players", ("a", "b"), 3)], [0] * 3, np.full((1, 3), -1), np.zeros((1, 3))
    )
    for solver in (
        line_ups.solve,
        lambda game: game_equilibrium(game, np.random.default_rng(0), 5),
    ):
        with refuses(UsageError):
            solver(none)
