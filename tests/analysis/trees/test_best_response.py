"""Best responses, against all policies there are."""

import numpy as np
import pytest

from refusals import refuses
from remuda.analysis.trees.exploitability import best_response, expected_returns
from remuda.analysis.trees.tree_games import KuhnPoker, MatrixGame
from remuda.analysis.trees.tree_walk import flatten
from remuda.analysis.trees.trees import uniform
from remuda.errors import UsageError
from walked_games import Delayed, RandomGame, all_pure, from_callable, random_policies

GAMES = (
    KuhnPoker(),
    MatrixGame(np.arange(24.0).reshape(2, 3, 4)[0] % 5),
    MatrixGame(*np.random.default_rng(3).normal(size=(3, 2, 3, 2)), name="of three"),
    *(RandomGame(seed) for seed in (0, 3, 18)),
    *(RandomGame(seed, 3, 4, zero_sum=False) for seed in (1, 6, 19)),
    *(Delayed(RandomGame(seed)) for seed in (0, 3, 13)),
)


@pytest.mark.parametrize("game", GAMES, ids=lambda game: game.name)
@pytest.mark.parametrize("player", [0, 1])
def test_no_policy_earns_more_and_it_earns_what_it_says(game, player):
    tree = flatten(game)
    policies = list(random_policies(tree, 5))
    found = best_response(tree, player, policies)

    def worth(policy):
        return expected_returns(tree, [*policies[:player], policy, *policies[player + 1 :]])[player]

    assert worth(found.policy) == pytest.approx(found.value)
    assert max(map(worth, all_pure(tree, player))) == pytest.approx(found.value)


def test_what_the_player_does_itself_is_not_looked_at():
    tree = flatten(KuhnPoker())
    own, other = random_policies(tree, 1)
    found = best_response(tree, 0, (own, other))
    again = best_response(tree, 0, (np.full_like(own, np.nan), other))
    assert again.value == found.value


def test_a_tie_goes_to_the_first_action_also_where_play_never_leads():
    tree = flatten(KuhnPoker())
    passes = from_callable(tree, lambda known: {0: 1.0})
    found = best_response(tree, 0, passes)
    assert found.value == pytest.approx(1.0)  # it bets, and the other gives up
    for known, row in zip(tree.information_sets[0], found.policy, strict=True):
        # The other never bets, so what is done after its bet does not matter. The king earns 1
        # by passing, too.
        first = bool(known.key[1]) or known.key[0] == 2
        assert row.tolist() == ([1.0, 0.0] if first else [0.0, 1.0])


class Seen(MatrixGame):
    """A matrix game in which the second player sees what the first chose."""

    def information(self, state):
        return state


def test_with_perfect_information_it_is_best_in_every_position():
    tree = flatten(Seen([[1.0, 2.0], [4.0, 3.0]]))
    always_first = from_callable(tree, lambda known: {0: 1.0})
    found = best_response(tree, 1, always_first)
    best = {(0,): [1.0, 0.0], (1,): [0.0, 1.0]}  # though it is never asked after a 1
    for known, row in zip(tree.information_sets[1], found.policy, strict=True):
        assert row.tolist() == best[known.key]
    assert found.value == -1.0


def test_players_that_are_not_there_are_refused():
    tree = flatten(KuhnPoker())
    with refuses(UsageError):
        best_response(tree, 2, uniform(tree))
