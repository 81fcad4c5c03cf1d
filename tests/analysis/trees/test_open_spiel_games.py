"""Games of OpenSpiel: ours are theirs, and so are NashConv and what is refused."""

import sys

import numpy as np
import pytest

from refusals import refuses
from remuda.analysis.trees.exploitability import exploitability, measure, nash_conv
from remuda.analysis.trees.open_spiel_games import OpenSpielGame
from remuda.analysis.trees.sequence_form import equilibrium
from remuda.analysis.trees.tree_games import KuhnPoker, LeducPoker, TicTacToe
from remuda.analysis.trees.tree_walk import flatten
from remuda.analysis.trees.trees import OVER, uniform
from remuda.errors import UsageError
from walked_games import from_callable


def test_without_open_spiel_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    with refuses(UsageError):
        OpenSpielGame("kuhn_poker")


@pytest.fixture
def pyspiel():
    return pytest.importorskip("pyspiel")


@pytest.mark.usefixtures("pyspiel")
@pytest.mark.parametrize("game", [KuhnPoker(), LeducPoker()], ids=lambda game: game.name)
def test_our_rules_are_theirs(game):
    """Both are walked side by side; information sets are the same parts of the nodes."""
    theirs = OpenSpielGame(game.name)
    keys = {}

    def walk(one, other):
        player = game.player(one)
        assert theirs.player(other) == player
        if player == OVER:
            assert list(game.returns(one)) == theirs.returns(other)
            return
        if player >= 0:
            branches = list(game.actions(one))
            assert theirs.actions(other) == branches
            known = player, game.information(one)
            assert keys.setdefault(known, theirs.information(other)) == theirs.information(other)
        else:
            outcomes = theirs.outcomes(other)
            assert np.array(game.outcomes(one)) == pytest.approx(np.array(outcomes))
            branches = [action for action, _ in outcomes]
        for action in branches:
            walk(game.child(one, action), theirs.child(other, action))

    walk(game.root(), theirs.root())
    assert len(set(keys.values())) == len(keys)


@pytest.mark.usefixtures("pyspiel")
def test_our_tic_tac_toe_is_theirs():
    """Ways to play drawn at random: the whole tree takes long."""
    game, theirs = TicTacToe(), OpenSpielGame("tic_tac_toe")
    rng = np.random.default_rng(0)
    for _ in range(300):
        one, other = game.root(), theirs.root()
        while (player := game.player(one)) != OVER:
            assert theirs.player(other) == player
            assert theirs.actions(other) == list(game.actions(one))
            action = int(rng.choice(theirs.actions(other)))
            one, other = game.child(one, action), theirs.child(other, action)
        assert theirs.player(other) == OVER
        assert theirs.returns(other) == list(game.returns(one))


@pytest.mark.slow_cases("leduc_poker")
@pytest.mark.parametrize("name", ["kuhn_poker", "leduc_poker"])
def test_nash_conv_of_cfr_is_theirs(pyspiel, name):
    game, tree = pyspiel.load_game(name), flatten(OpenSpielGame(name))
    solver, last = pyspiel.CFRSolver(game), np.inf
    for iteration in range(1, 101):
        solver.evaluate_and_update_policy()
        if iteration not in (10, 50, 100):
            continue
        policy = solver.average_policy()
        policies = from_callable(
            tree, lambda known, policy=policy: policy.action_probabilities(known.state)
        )
        found = nash_conv(tree, policies)
        assert found == pytest.approx(pyspiel.nash_conv(game, policy), abs=1e-9)
        assert exploitability(tree, policies) == pytest.approx(
            pyspiel.exploitability(game, policy), abs=1e-9
        )
        assert 0.0 < found < last
        last = found


@pytest.mark.parametrize("name", ["kuhn_poker(players=3)", "leduc_poker", "tiny_hanabi"])
def test_gains_of_random_play_are_theirs(pyspiel, name):
    spiel = pytest.importorskip("open_spiel.python.algorithms.exploitability")
    tabular = pytest.importorskip("open_spiel.python.policy").TabularPolicy
    game, tree = pyspiel.load_game(name), flatten(OpenSpielGame(name))
    policy = tabular(game)
    drawn = np.random.default_rng(1).exponential(size=policy.action_probability_array.shape)
    drawn *= policy.legal_actions_mask
    policy.action_probability_array[:] = drawn / drawn.sum(1, keepdims=True)
    found = measure(
        tree,
        from_callable(tree, lambda known: policy.action_probabilities(known.state, known.player)),
    )
    theirs = spiel.nash_conv(game, policy, return_only_nash_conv=False)
    assert found.gains == pytest.approx(theirs.player_improvements, abs=1e-9)
    assert found.nash_conv == pytest.approx(theirs.nash_conv, abs=1e-9)


@pytest.mark.usefixtures("pyspiel")
def test_moves_at_the_same_time_are_hidden():
    tree = flatten(OpenSpielGame("matrix_rps"))
    assert nash_conv(tree, uniform(tree)) == pytest.approx(0.0, abs=1e-12)
    rock = from_callable(tree, lambda known: {0: 1.0})
    assert nash_conv(tree, rock) == pytest.approx(2.0)
    assert equilibrium(tree).value == pytest.approx(0.0, abs=1e-12)
    goofspiel = flatten(OpenSpielGame("goofspiel(num_cards=3,points_order=descending)"))
    assert equilibrium(goofspiel).value == pytest.approx(0.0, abs=1e-9)


@pytest.mark.usefixtures("pyspiel")
@pytest.mark.parametrize(
    "name",
    [
        "kuhnpoker",
        "nfg_game",
        "kuhn_poker(cards=9)",
        "mfg_crowd_modelling",
        "chess",
        "connect_four",
        "dark_hex_ir(board_size=2)",
    ],
)
def test_other_games_are_refused(name):
    with refuses(UsageError):
        flatten(OpenSpielGame(name))
