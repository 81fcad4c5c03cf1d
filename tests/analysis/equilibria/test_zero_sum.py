"""Zero-sum games: values and equilibria that are known, and verified ones of those that are not."""

import numpy as np
import pytest
from scipy.optimize import minimize

from refusals import refuses
from remuda.analysis.equilibria import zero_sum
from remuda.analysis.equilibria.maximum_entropy import find_face, maximize
from remuda.analysis.equilibria.regret import regret
from remuda.analysis.equilibria.zero_sum import solve, solve_max_entropy
from remuda.errors import UsageError

BIASED = np.array([[0.0, -0.25, 0.5], [0.25, 0.0, -0.05], [-0.5, 0.05, 0.0]])
ROCK_PAPER_SCISSORS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
TWICE = [0, 1, 2, 2]


def verified(matrix, found, least=1e-9):
    matrix = np.asarray(matrix, np.float64)
    row, column = found.mixtures
    assert np.array_equal(found.regret, regret(np.stack([matrix, -matrix]), (row, column)))
    assert found.regret.max() <= least
    assert found.value == pytest.approx(row @ matrix @ column, abs=1e-9)


@pytest.mark.parametrize("solver", [solve, solve_max_entropy])
def test_biased_rock_paper_scissors(solver):
    found = solver(BIASED)
    for mixture in found.mixtures:
        assert mixture == pytest.approx([1 / 16, 10 / 16, 5 / 16], abs=1e-12)
    assert found.value == pytest.approx(0.0, abs=1e-12)
    verified(BIASED, found, 1e-14)


def test_a_strategy_twice_shares_its_mass():
    matrix = ROCK_PAPER_SCISSORS[np.ix_(TWICE, TWICE)]
    found = solve_max_entropy(matrix)
    for mixture in found.mixtures:
        assert mixture == pytest.approx([1 / 3, 1 / 3, 1 / 6, 1 / 6], abs=1e-10)
    assert found.dimensions == (1, 1)
    assert not found.unique
    verified(matrix, found)


def test_values_worked_by_hand():
    # No saddle point: the row mixes 3/5, 2/5 for 1.4 against either column.
    found = solve_max_entropy([[3.0, -1.0], [-1.0, 5.0]])
    assert found.mixtures[0] == pytest.approx([0.6, 0.4])
    assert found.value == pytest.approx(1.4)
    assert found.unique
    # A saddle point, with a column that is as good for the value but would let the row depart.
    found = solve_max_entropy([[2.0, 2.0], [2.0, 3.0]])
    assert found.value == 2.0
    assert found.mixtures[1] == pytest.approx([1.0, 0.0])


def test_the_largest_entropy_may_lie_on_a_bound():
    # The row may play its first strategy at most 1/5 of the time, or the column takes its second;
    # in the second game at most half of the time, which leaves the even thirds.
    found = solve_max_entropy([[0.0, -4.0], [0.0, 1.0], [0.0, 1.0]])
    assert found.mixtures[0] == pytest.approx([0.2, 0.4, 0.4], abs=1e-7)
    found = solve_max_entropy([[0.0, -1.0], [0.0, 1.0], [0.0, 1.0]])
    assert found.mixtures[0] == pytest.approx([1 / 3, 1 / 3, 1 / 3], abs=1e-12)


def test_the_largest_entropy_is_that_of_another_method():
    rng = np.random.default_rng(5)
    for _ in range(5):
        matrix = np.outer(rng.normal(size=5), rng.normal(size=4)) + rng.integers(0, 2, (5, 1))
        matrix[:, 1] = matrix[:, 0]
        found = solve_max_entropy(matrix)
        verified(matrix, found)
        for game, mixture, value in (
            (matrix, found.mixtures[0], found.value),
            (-matrix.T, found.mixtures[1], -found.value),
        ):
            limits = [
                {"type": "eq", "fun": lambda p: p.sum() - 1.0},
                {"type": "ineq", "fun": lambda p, g=game, v=value: g.T @ p - v + 1e-9},
            ]
            other = minimize(
                lambda p: (p * np.log(np.maximum(p, 1e-300))).sum(),
                solve(game).mixtures[0],
                bounds=[(0.0, 1.0)] * len(mixture),
                constraints=limits,
                options={"ftol": 1e-12, "maxiter": 500},
            )
            positive = mixture[mixture > 0.0]
            assert -(positive * np.log(positive)).sum() >= -other.fun - 1e-6


def test_games_of_one_strategy_and_games_without_any_difference():
    found = solve_max_entropy([[1.0, 2.0, 3.0]])
    assert found.value == 1.0
    assert found.mixtures[1].tolist() == [1.0, 0.0, 0.0]
    found = solve_max_entropy([[1.0], [2.0], [2.0]])
    assert found.mixtures[0] == pytest.approx([0.0, 0.5, 0.5])
    found = solve_max_entropy(np.full((3, 4), 7.0))
    assert found.value == 7.0
    assert found.mixtures[0] == pytest.approx([1 / 3] * 3)
    assert found.mixtures[1] == pytest.approx([0.25] * 4)
    assert solve_max_entropy([[4.0]]).unique


@pytest.mark.parametrize("size", [3, 10, 50, 200])
@pytest.mark.parametrize("solver", [solve, solve_max_entropy])
def test_random_games(size, solver):
    rng = np.random.default_rng(size)
    matrix = rng.normal(size=(size, size))
    found = solver(matrix)
    verified(matrix, found)
    if solver is solve_max_entropy:
        assert found.unique


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_units_make_no_difference(scale):
    found = solve_max_entropy(BIASED * scale + 3.0 * scale)
    assert found.mixtures[0] == pytest.approx([1 / 16, 10 / 16, 5 / 16], abs=1e-9)
    assert found.value == pytest.approx(3.0 * scale)
    assert found.regret.max() <= 1e-9 * scale


def degenerate(kind, rng):
    match kind:
        case "duplicates":
            places = np.arange(30) // 2
            return rng.normal(size=(15, 15))[np.ix_(places, places)]
        case "integers":
            return rng.integers(-1, 2, (30, 20)).astype(np.float64)
        case "low rank":
            return rng.normal(size=(25, 3)) @ rng.normal(size=(3, 30))
        case "wins":
            skew = rng.normal(size=(31, 31))
            return np.sign(skew - skew.T)
        case _:
            return np.subtract.outer(rng.integers(0, 3, 20), rng.integers(0, 3, 15)) * 1.0


@pytest.mark.parametrize("kind", ["duplicates", "integers", "low rank", "wins", "skill"])
def test_degenerate_games(kind):
    rng = np.random.default_rng(11)
    for _ in range(4):
        matrix = degenerate(kind, rng)
        found = solve_max_entropy(matrix)
        verified(matrix, found)
        assert found.note == ""
        if kind == "duplicates":
            assert found.mixtures[0][::2] == pytest.approx(found.mixtures[0][1::2], abs=1e-9)
            assert found.mixtures[1][::2] == pytest.approx(found.mixtures[1][1::2], abs=1e-9)


def test_a_rare_strategy_that_is_there_twice_shares_its_mass():
    """The last two rows are needed with 5e-6 together: a linear program raises but one of them."""
    rare = 5e-6
    matrix = np.array([[rare, -rare / (1.0 - rare)], [rare - 1.0, 1.0]])[[0, 1, 1]]
    found = solve_max_entropy(matrix)
    verified(matrix, found)
    assert found.mixtures[0][1] == pytest.approx(found.mixtures[0][2], abs=1e-12)
    assert found.mixtures[0][1] == pytest.approx(rare / 2.0, rel=1e-6)
    assert found.note == ""


def test_order_of_strategies_makes_no_difference():
    rng = np.random.default_rng(4)
    matrix = degenerate("duplicates", rng)
    rows, columns = rng.permutation(30), rng.permutation(30)
    found, turned = solve_max_entropy(matrix), solve_max_entropy(matrix[np.ix_(rows, columns)])
    assert turned.mixtures[0] == pytest.approx(found.mixtures[0][rows], abs=1e-7)
    assert turned.mixtures[1] == pytest.approx(found.mixtures[1][columns], abs=1e-7)


def test_a_symmetric_game_has_one_mixture_for_both():
    rng = np.random.default_rng(8)
    skew = rng.integers(-2, 3, (20, 20)).astype(np.float64)
    found = solve_max_entropy(skew - skew.T)
    assert np.array_equal(found.mixtures[0], found.mixtures[1])
    assert found.value == pytest.approx(0.0, abs=1e-12)


def test_pivots_and_programs_agree_on_the_value(monkeypatch):
    """Small games need no program; each of these has one equilibrium."""
    rng = np.random.default_rng(2)

    def no_program(*_, **__):
        raise RuntimeError("a linear program")

    for symmetric in (False, True):
        game = rng.normal(size=(12, 12))
        game = game - game.T if symmetric else game
        program = solve(game)
        with monkeypatch.context() as patch:
            patch.setattr(zero_sum, "solve_program", no_program)
            pivots = solve_max_entropy(game)
        assert pivots.unique
        for one, other in zip(pivots.mixtures, program.mixtures, strict=True):
            assert one == pytest.approx(other, abs=1e-10)
    monkeypatch.setattr(zero_sum, "solve_program", no_program)
    with refuses(RuntimeError):
        solve_max_entropy(rng.normal(size=(60, 60)))


def test_a_face_is_all_that_can_be_positive():
    # p_0 must be 0; p_1 and p_2 are alike; the last expectation is free.
    gains = np.array([[-1.0, 0.0, 0.0, 0.0], [0.0, 1.0, -1.0, 0.0], [0.0, -1.0, 1.0, 0.0]])
    gains = np.vstack([gains, [0.0, 0.0, 1.0, 1.0]])
    face = find_face(gains)
    assert face.support.tolist() == [False, True, True, True]
    assert face.tight.tolist() == [True, True, True, False]
    assert (face.inside > 0.0).tolist() == [False, True, True, True]
    found, dimension = maximize(gains)
    assert found == pytest.approx([0.0, 1 / 3, 1 / 3, 1 / 3])
    assert dimension == 1
    assert maximize(-np.ones((1, 3))) is None  # there is no such distribution


@pytest.mark.parametrize(
    "matrix",
    [
        [1.0, 2.0],
        [[np.nan, 1.0]],
        [[np.inf, 1.0]],
        [[]],
    ],
)
def test_refused(matrix):
    with refuses(UsageError):
        solve_max_entropy(matrix)


@pytest.mark.slow
def test_large_games():
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(500, 500))
    verified(matrix, solve_max_entropy(matrix))
