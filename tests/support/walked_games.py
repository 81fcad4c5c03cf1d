"""Games for tests of trees: random ones, and play worked out by walking their rules."""

from itertools import product

import numpy as np

from remuda.analysis.trees.trees import CHANCE, OVER


class RandomGame:
    """Players who see of each other's actions and of chance only some, and remember all they saw.

    A state is what happened: (player, action) each. What comes after it is drawn by a generator
    whose seed is the state itself, so that the rules are the same every time.
    """

    merges, name, num_actions = False, "random", 3

    def __init__(self, seed, num_players=2, length=5, zero_sum=True):
        self.seed, self.num_players, self.length = seed, num_players, length
        self.zero_sum = zero_sum

    def root(self):
        return ()

    def _rng(self, *what):
        return np.random.default_rng([self.seed, *(number + 3 for number in np.ravel(what))])

    def player(self, state):
        if len(state) == self.length:
            return OVER
        # Who acts is known to all: by the number of moves, and the actions of player 0.
        shown = [action for player, action in state if player == 0]
        rng = self._rng(1, len(state), *shown)
        return int(rng.integers(-1, self.num_players))

    def actions(self, state):
        known = [len(state), *(action for _, action in self._seen(state))]
        return range(1 + int(self._rng(2, *known).integers(1, self.num_actions)))

    def outcomes(self, state):
        shares = self._rng(3, len(state)).dirichlet(np.ones(2))
        return list(enumerate(shares.tolist()))

    def child(self, state, action):
        return (*state, (self.player(state), action))

    def _seen(self, state):
        """What the player who acts knows: player 0's actions, and its own."""
        me = self.player(state)
        return tuple((player, action) for player, action in state if player in (0, me))

    def information(self, state):
        return len(state), self._seen(state)

    def returns(self, state):
        rng = self._rng(4, *[action for _, action in state])
        found = rng.integers(-3, 4, self.num_players).astype(float)
        return [found[0], -found[0]] if self.zero_sum else found.tolist()


class Delayed:
    """A game that chance may begin a move later, for twice the returns; players do not see which.

    States of one information set then lie at different depths.
    """

    merges, name = False, "delayed"

    def __init__(self, game):
        self.game, self.num_players, self.num_actions = game, game.num_players, game.num_actions

    def root(self):
        return "begin", None

    def player(self, state):
        return CHANCE if state[1] is None else self.game.player(state[1])

    def actions(self, state):
        return self.game.actions(state[1])

    def outcomes(self, state):
        if state[1] is not None:
            return self.game.outcomes(state[1])
        return [(0, 0.25), (1, 0.75)] if state[0] == "begin" else [(0, 1.0)]

    def child(self, state, action):
        if state[1] is not None:
            return state[0], self.game.child(state[1], action)
        if state[0] == "begin" and action == 1:
            return "later", None
        return state[0], self.game.root()

    def information(self, state):
        return self.game.information(state[1])

    def returns(self, state):
        factor = 2.0 if state[0] == "later" else 1.0
        return [factor * value for value in self.game.returns(state[1])]


def earned(game, tree, policies):
    """[R]: what players earn, by walking the rules again."""
    place = {
        (known.player, known.key): policies[known.player][number]
        for sets in tree.information_sets
        for number, known in enumerate(sets)
    }

    def walk(state):
        player = game.player(state)
        if player == OVER:
            return np.array(game.returns(state))
        if player == CHANCE:
            branches = game.outcomes(state)
        else:
            row = place[player, game.information(state)]
            branches = [(action, row[action]) for action in game.actions(state)]
        return sum(share * walk(game.child(state, action)) for action, share in branches if share)

    return walk(game.root())


def all_pure(tree, player):
    """Every policy of a player without chance."""
    sets = tree.information_sets[player]
    for choice in product(*(known.actions for known in sets)):
        policy = np.zeros((len(sets), tree.num_actions))
        policy[np.arange(len(sets)), choice] = 1.0
        yield policy


def random_policies(tree, seed):
    """By player, probabilities drawn at random."""
    rng = np.random.default_rng(seed)
    found = []
    for player in range(tree.num_players):
        legal = tree.legal_of(player)
        drawn = rng.exponential(size=legal.shape) * legal
        found.append(drawn / drawn.sum(1, keepdims=True))
    return tuple(found)


def from_callable(tree, play):
    """Policies from a function of an information set to the probabilities of actions."""
    found = [np.zeros(tree.legal_of(player).shape) for player in range(tree.num_players)]
    for player, policy in enumerate(found):
        for row, known in zip(policy, tree.information_sets[player], strict=True):
            for action, probability in play(known).items():
                row[action] = probability
    return tuple(found)
