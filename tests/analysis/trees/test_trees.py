"""Games as trees: what the arrays hold, what is refused, and the rules of the games."""

import numpy as np
import pytest

from refusals import refuses
from remuda.analysis.trees.exploitability import expected_returns
from remuda.analysis.trees.tree_games import KuhnPoker, LeducPoker, MatrixGame, TicTacToe
from remuda.analysis.trees.tree_walk import flatten
from remuda.analysis.trees.trees import CHANCE, OVER, mixture, uniform
from remuda.envs.games.kuhn_poker import BET, PASS
from remuda.envs.games.kuhn_poker import KuhnPoker as KuhnEnv
from remuda.errors import UsageError
from walked_games import Delayed, RandomGame, earned, from_callable, random_policies


class Rules(MatrixGame):
    """Two players who choose between two actions each, with rules that a test may break."""

    def __init__(self, **broken):
        super().__init__([[1.0, 0.0], [0.0, 1.0]], name="broken")
        for name, value in broken.items():
            setattr(self, name, value)


@pytest.mark.parametrize(
    ("game", "nodes", "sets"),
    [
        (KuhnPoker(), 58, (6, 6)),  # 1 + 3 + 6 deals x (1 + 2 + 2 + 2 + 2)
        (LeducPoker(), 9457, (468, 468)),  # as OpenSpiel counts them
        (TicTacToe(), 5478, (2423, 2097)),  # all grids that can come about; 958 are over
        (MatrixGame(np.zeros((2, 3))), 9, (1, 1)),
        (MatrixGame(*np.zeros((3, 2, 2, 2))), 15, (1, 1, 1)),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_sizes(game, nodes, sets):
    tree = flatten(game)
    assert tree.num_nodes == nodes
    assert tuple(map(len, tree.information_sets)) == sets


@pytest.mark.parametrize("game", [KuhnPoker(), TicTacToe(), Delayed(RandomGame(1))])
def test_arrays(game):
    tree = flatten(game)
    assert (tree.children > tree.sources).all()  # parents before children
    parents = np.bincount(tree.children, minlength=tree.num_nodes)
    assert parents[0] == 0
    assert tree.merged or (parents[1:] == 1).all()
    branches = np.diff(tree.first)
    assert ((branches == 0) == (tree.players == OVER)).all()
    by_chance = np.add.reduceat(tree.chance, tree.first[:-1][branches > 0])
    assert by_chance[tree.players[branches > 0] == CHANCE] == pytest.approx(1.0)
    assert ((tree.sets >= 0) == (tree.players >= 0)).all()
    for player in range(2):
        numbers = np.unique(tree.sets[tree.own(player)])
        assert (numbers == np.arange(*tree.offsets[player : player + 2])).all()


@pytest.mark.parametrize("seed", range(6))
def test_returns_are_those_of_a_walk_through_the_rules(seed):
    for game in (RandomGame(seed, 3, 4, zero_sum=False), Delayed(RandomGame(seed))):
        tree = flatten(game)
        policies = random_policies(tree, seed)
        assert expected_returns(tree, policies) == pytest.approx(earned(game, tree, policies))


@pytest.mark.slow
def test_kuhn_poker_is_the_game_that_runs_play():
    game, env = KuhnPoker(), KuhnEnv(1)

    def play(state):
        player = game.player(state)
        if player == CHANCE:
            for card, _ in game.outcomes(state):
                play(game.child(state, card))
        elif player >= 0:
            for action in game.actions(state):
                play(game.child(state, action))
        else:
            env.reset(np.zeros(1, np.int64), np.ones(1, np.bool_))
            env.cards[0] = state.cards
            rewards = np.zeros(2)
            for number, action in enumerate(state.actions):
                assert env.active.all()
                mask = np.zeros((1, 3), np.bool_)
                env.mask(number % 2, mask)
                assert not mask[0, 0]  # it is to act
                env.begin_turn()
                env.act(number % 2, np.array([BET if action else PASS]))
                env.act(1 - number % 2, np.zeros(1, np.int64))
                rewards += env.end_turn().rewards[0]
            assert not env.active.any()
            assert rewards.tolist() == list(game.returns(state))

    play(game.root())


def test_leduc_poker_by_hand():
    game = LeducPoker()

    def returns(cards, *rounds):
        state = game.root()
        left = list(cards)
        for done in rounds:
            while game.player(state) == CHANCE:
                state = game.child(state, left.pop(0))
            for action in done:
                assert action in game.actions(state)
                state = game.child(state, action)
        assert game.player(state) == OVER
        return tuple(game.returns(state))

    fold, call, bet = game.FOLD, game.CALL, game.RAISE
    assert returns((0, 1), (bet, fold)) == (1.0, -1.0)  # the other's ante
    assert returns((0, 4), (bet, bet, fold)) == (-3.0, 3.0)  # 1 + 2
    assert returns((0, 4, 1), (call, call), (call, call)) == (1.0, -1.0)  # a pair beats the king
    assert returns((0, 4, 2), (bet, call), (call, bet, bet, call)) == (-11.0, 11.0)  # 1 + 2 + 4 + 4
    assert returns((2, 3, 0), (call, bet, call), (bet, call)) == (0.0, 0.0)  # both hold a queen
    most = game.root()
    for action in (0, 4, bet, bet):
        most = game.child(most, action)
    assert list(game.actions(most)) == [fold, call]  # twice at most
    assert list(game.actions(game.child(game.child(game.root(), 0), 4))) == [call, bet]


def test_tic_tac_toe_by_hand():
    game = TicTacToe()
    state = game.root()
    for square in (0, 3, 1, 4, 2):
        assert game.player(state) >= 0
        state = game.child(state, square)
    assert game.player(state) == OVER
    assert game.returns(state) == (1.0, -1.0)
    full = (0, 1, 0, 0, 1, 1, 1, 0, 0)
    assert game.player(full) == OVER
    assert game.returns(full) == (0.0, 0.0)


def test_too_many_nodes_are_refused():
    with refuses(UsageError):
        flatten(KuhnPoker(), 57)
    assert flatten(KuhnPoker(), 58).num_nodes == 58


def test_a_vast_game_is_refused_before_it_is_walked():
    class Vast(Rules):
        steps = 0

        def player(self, state):
            return len(state) % 2 if len(state) < 10_000 else OVER

        def child(self, state, action):
            Vast.steps += 1
            return (*state, action)

        def actions(self, state):
            return (0, 1)

    with refuses(UsageError):
        flatten(Vast())
    assert Vast.steps < 1000


@pytest.mark.parametrize(
    "broken",
    [
        {"actions": lambda state: ()},
        {"actions": lambda state: (0, 0)},
        {"actions": lambda state: (0, 2)},
        {"actions": lambda state: (1,) if state == (1,) else (0, 1)},
        {"returns": lambda state: (1.0,)},
        {"returns": lambda state: (np.nan, 0.0)},
        {"player": lambda state: 2 if not state else OVER},
        {"player": lambda state: OVER if state else CHANCE, "outcomes": lambda s: [(0, 0.9)]},
        {"player": lambda state: 0 if len(state) < 2 else OVER},
        {"merges": True, "child": lambda state, action: state},
        {"merges": True},
    ],
)
def test_rules_that_contradict_themselves_are_refused(broken):
    with refuses(UsageError):
        flatten(Rules(**broken))


@pytest.mark.parametrize(
    "payoffs",
    [
        ([1.0, 2.0], [1.0, 2.0]),
        ([[1.0, 2.0]], [[1.0], [2.0]]),
        ([[1.0, np.inf]],),
        (np.zeros((0, 2)),),
    ],
)
def test_payoffs_that_are_no_game_are_refused(payoffs):
    with refuses(UsageError):
        MatrixGame(*payoffs)


def test_policies_that_do_not_fit_are_refused():
    tree = flatten(TicTacToe())
    policies = uniform(tree)
    with refuses(UsageError):
        expected_returns(tree, policies[::-1])
    with refuses(UsageError):
        expected_returns(tree, policies[:1])
    taken = np.full_like(policies[1], 1 / 9)
    with refuses(UsageError):
        expected_returns(tree, (policies[0], taken))


@pytest.mark.parametrize("seed", range(4))
def test_a_mixture_plays_like_one_drawn_for_a_whole_game(seed):
    tree = flatten(Delayed(RandomGame(seed)))
    several = [random_policies(tree, number) for number in range(3)]
    weights = np.array([0.5, 0.2, 0.3])
    own = mixture(tree, 0, [policies[0] for policies in several], 4.0 * weights)
    other = random_policies(tree, 9)[1]
    separately = [expected_returns(tree, (policies[0], other)) for policies in several]
    assert expected_returns(tree, (own, other)) == pytest.approx(weights @ separately)


def test_a_mixture_of_those_who_never_come_somewhere_is_uniform_there():
    tree = flatten(KuhnPoker())
    bets = from_callable(tree, lambda known: {1: 1.0})[0]
    mixed = mixture(tree, 0, [bets, bets])
    for known, row in zip(tree.information_sets[0], mixed, strict=True):
        assert row.tolist() == ([0.5, 0.5] if known.key[1] else [0.0, 1.0])


@pytest.mark.parametrize(
    ("policies", "weights"),
    [
        ([], None),
        (["uniform"], [1.0, 1.0]),
        (["uniform", "uniform"], [2.0, -1.0]),
        (["uniform", "uniform"], [0.0, 0.0]),
    ],
)
def test_mixtures_of_nothing_are_refused(policies, weights):
    tree = flatten(KuhnPoker())
    with refuses(UsageError):
        mixture(tree, 0, [uniform(tree)[0] for _ in policies], weights)


def test_mixtures_over_merged_states_are_refused():
    tree = flatten(TicTacToe())
    with refuses(UsageError):
        mixture(tree, 0, [uniform(tree)[0]])
