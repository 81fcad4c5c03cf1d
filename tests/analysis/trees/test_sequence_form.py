"""Equilibria by the sequence form, and backward: known values, and the proof by best responses."""

import numpy as np
import pytest

from refusals import refuses
from remuda.analysis.trees.exploitability import nash_conv
from remuda.analysis.trees.sequence_form import equilibrium
from remuda.analysis.trees.tree_games import KuhnPoker, LeducPoker, MatrixGame, TicTacToe
from remuda.analysis.trees.tree_walk import flatten
from remuda.errors import UsageError
from walked_games import Delayed, RandomGame


@pytest.mark.slow_cases("tic_tac_toe-0.0")
@pytest.mark.parametrize(
    ("game", "value"),
    [
        (KuhnPoker(), -1 / 18),
        (LeducPoker(), -0.085606424078),
        (TicTacToe(), 0.0),
        (MatrixGame([[2.0, -1.0], [-1.0, 1.0]]), 0.2),  # (2 * 1 - 1) / 5
        (MatrixGame([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]]), 0.0),
        (MatrixGame([[3.0, 1.0, 4.0]]), 1.0),  # of a player without a choice
        (MatrixGame([[0.0, 0.0], [0.0, 0.0]]), 0.0),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_values(game, value):
    tree = flatten(game)
    found = equilibrium(tree)
    assert found.value == pytest.approx(value, abs=1e-9)
    assert found.lower == pytest.approx(value, abs=1e-9)
    assert found.upper == pytest.approx(value, abs=1e-9)
    assert nash_conv(tree, found.policies) == pytest.approx(found.nash_conv, abs=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_no_best_response_gains_anything(seed):
    for game in (RandomGame(seed), Delayed(RandomGame(seed))):
        tree = flatten(game)
        found = equilibrium(tree)
        assert nash_conv(tree, found.policies) == pytest.approx(0.0, abs=1e-9)
        assert found.lower - 1e-9 <= found.value <= found.upper + 1e-9


class OpenGame(RandomGame):
    """A random game in which players see all that happened."""

    def information(self, state):
        return state


@pytest.mark.parametrize("seed", [1, 2, 9])
def test_backward_and_the_linear_program_agree(seed):
    """The same game, begun late without being told, is of imperfect information."""
    seen, late = flatten(OpenGame(seed)), flatten(Delayed(OpenGame(seed)))
    assert seen.is_perfect_information
    assert not late.is_perfect_information
    found, later = equilibrium(seen), equilibrium(late)
    assert found.nash_conv == pytest.approx(0.0, abs=1e-12)
    assert abs(found.value) > 0.1
    assert later.value == pytest.approx((0.25 + 0.75 * 2.0) * found.value)


def test_other_games_are_refused():
    with refuses(UsageError):
        equilibrium(flatten(MatrixGame([[1.0, 0.0]], [[1.0, 0.0]])))
    with refuses(UsageError):
        equilibrium(flatten(MatrixGame(*np.zeros((3, 2, 2, 2)))))


def test_large_programs_are_refused():
    tree = flatten(KuhnPoker())
    with refuses(UsageError):
        equilibrium(tree, max_sequences=23)
    assert equilibrium(tree, max_sequences=24).nash_conv < 1e-9
