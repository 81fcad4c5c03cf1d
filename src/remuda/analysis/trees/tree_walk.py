"""Traverse a game to build its `Tree`."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterator
from typing import Generic

import numpy as np

from remuda.analysis.trees.trees import CHANCE, OVER, SLACK, InformationSet, State, Tree, TreeGame
from remuda.errors import UsageError

MAX_NODES = 1_000_000  # default limit of nodes: takes tens of seconds and 1 GB
PROBES = 25  # random paths that estimate the size of a game before it is traversed
FAR_MORE = 4.0  # an estimate above this multiple of the limit rejects a game


def flatten(game: TreeGame[State], max_nodes: int = MAX_NODES) -> Tree:
    """Traverse a game completely, once, and return its tree."""
    if not game.merges:
        _check_size(game, max_nodes)
    tree = _Walk(game, max_nodes).tree()
    if not tree.merged:
        _check_recall(tree)
    elif not tree.is_perfect_information:
        raise UsageError(
            f"{game.name}: equal states are merged, but players cannot distinguish some of them"
        )
    return tree


class _Walk(Generic[State]):
    """One depth-first traversal of a game."""

    def __init__(self, game: TreeGame[State], max_nodes: int) -> None:
        self._game, self._max = game, max_nodes
        self._players: list[int] = []
        self._sets: list[int] = []  # information set of each node, numbered for each player
        self._returns: list[tuple[float, ...]] = []
        self._edges = (
            array("q"),
            array("q"),
            array("q"),
            array("d"),
        )  # from, to, action, probability
        self._nodes: dict[Hashable, int] = {}  # node numbers of merged states
        self._left: list[int] = []  # nodes in post-order
        self._known: list[dict[Hashable, int]] = [{} for _ in range(game.num_players)]
        self._found: list[list[InformationSet]] = [[] for _ in range(game.num_players)]

    def tree(self) -> Tree:
        """Traverse the game; then number the nodes so that parents come before children."""
        self._walk()
        game, count = self._game, len(self._players)
        order = np.array(self._left[::-1], np.int64)
        number = np.empty(count, np.int64)
        number[order] = np.arange(count)
        sources, children, actions = (np.array(part, np.int64) for part in self._edges[:3])
        sources = number[sources]
        by_source = np.argsort(sources, kind="stable")
        players = np.array(self._players, np.int64)[order]
        offsets = np.cumsum([0, *map(len, self._found)])
        sets = np.array(self._sets, np.int64)[order]
        return Tree(
            name=game.name,
            num_players=game.num_players,
            num_actions=game.num_actions,
            players=players,
            sets=np.where(players >= 0, sets + offsets[np.maximum(players, 0)], -1),
            first=np.searchsorted(sources[by_source], np.arange(count + 1)).astype(np.int64),
            children=number[children][by_source],
            actions=actions[by_source],
            chance=np.array(self._edges[3], np.float64)[by_source],
            returns=np.array(self._returns, np.float64)[order],
            information_sets=tuple(tuple(found) for found in self._found),
            merged=game.merges,
        )

    def _walk(self) -> None:
        path = [self._enter(self._game.root())]
        left: set[int] = set()
        while path:
            node, state, branches = path[-1]
            branch = next(branches, None)
            if branch is None:
                path.pop()
                self._left.append(node)
                if self._game.merges:
                    left.add(node)
                continue
            action, probability = branch
            after = self._game.child(state, action)
            child = self._nodes.get(after, -1) if self._game.merges else -1
            if child < 0:
                path.append(self._enter(after))
                child = path[-1][0]
            elif child not in left:
                raise UsageError(f"{self._game.name}: a state repeats, so the game may never end")
            sources, children, actions, likely = self._edges
            sources.append(node)
            children.append(child)
            actions.append(action)
            likely.append(probability)

    def _enter(self, state: State) -> tuple[int, State, Iterator[tuple[int, float]]]:
        """Create a node for a state; return it with its outgoing branches."""
        game, node = self._game, len(self._players)
        if node >= self._max:
            raise _too_large(game, self._max)
        player = game.player(state)
        self._players.append(player)
        if game.merges:
            self._nodes[state] = node
        branches: list[tuple[int, float]] = []
        number, returns = -1, (0.0,) * game.num_players
        if player == OVER:
            returns = self._earned(state)
        elif player == CHANCE:
            branches = list(game.outcomes(state))
            chances = [probability for _, probability in branches]
            if not chances or min(chances) < 0.0 or abs(sum(chances) - 1.0) > SLACK:
                raise UsageError(f"{game.name}: chance has the invalid probabilities {chances}")
        else:
            number = self._information_set(player, state)
            branches = [(action, 1.0) for action in self._found[player][number].actions]
        self._sets.append(number)
        self._returns.append(returns)
        return node, state, iter(branches)

    def _earned(self, state: State) -> tuple[float, ...]:
        returns = tuple(float(value) for value in self._game.returns(state))
        if len(returns) != self._game.num_players or not np.isfinite(returns).all():
            raise UsageError(
                f"{self._game.name}: the returns {returns} are not a number for each of "
                f"{self._game.num_players} players"
            )
        return returns

    def _information_set(self, player: int, state: State) -> int:
        """Return the number of a state's information set among those of its player."""
        game = self._game
        if not 0 <= player < game.num_players:
            raise UsageError(
                f"{game.name}: player {player} acts, but there are {game.num_players} players"
            )
        key, actions = game.information(state), tuple(int(a) for a in game.actions(state))
        number = self._known[player].get(key, -1)
        if number < 0:
            if not actions or len(set(actions)) < len(actions):
                raise UsageError(
                    f"{game.name}: in the information set {key!r} the actions are {actions}"
                )
            if not 0 <= min(actions) <= max(actions) < game.num_actions:
                raise UsageError(
                    f"{game.name}: actions are 0 to {game.num_actions - 1}; in the "
                    f"information set {key!r} they are {actions}"
                )
            number = self._known[player][key] = len(self._found[player])
            self._found[player].append(InformationSet(player, key, actions, state))
        elif self._found[player][number].actions != actions:
            raise UsageError(
                f"{game.name}: in the information set {key!r} the actions are {actions}, "
                f"and elsewhere {self._found[player][number].actions}: a player could "
                "distinguish these states"
            )
        return number


def _check_recall(tree: Tree) -> None:
    """Raise a `UsageError` unless every player has perfect recall (Kuhn 1953)."""
    for player in range(tree.num_players):
        nodes = np.flatnonzero(tree.own(player))
        before = tree.sequences(player)[nodes]
        sets = tree.sets[nodes]
        usual = tree.sequences(player)[tree.members][sets]
        if (before != usual).any():
            number = int(sets[(before != usual).argmax()] - tree.offsets[player])
            key = tree.information_sets[player][number].key
            raise UsageError(
                f"{tree.name}: player {player} forgets its earlier actions in the "
                f"information set {key!r}; this needs perfect recall"
            )


def _check_size(game: TreeGame[State], max_nodes: int) -> None:
    """Raise a `UsageError` for a game that is very likely too large, before it is traversed.

    Random paths estimate the number of nodes by sums of products of branch counts (Knuth 1975,
    "Estimating the efficiency of backtrack programs"). The estimate is unbiased, and a mean is at
    least half the median. So a median over some paths far above the limit rejects the game.
    """
    rng = np.random.default_rng(0)
    estimates = []
    for _ in range(PROBES):
        state, width, total = game.root(), 1.0, 1.0
        while total <= FAR_MORE * max_nodes and (player := game.player(state)) != OVER:
            if player == CHANCE:
                branches = [action for action, _ in game.outcomes(state)]
            else:
                branches = list(game.actions(state))
            if not branches:
                break  # the traversal reports the error
            width *= len(branches)
            total += width
            state = game.child(state, branches[int(rng.integers(len(branches)))])
        estimates.append(total)
    if np.median(estimates) > FAR_MORE * max_nodes:
        raise _too_large(game, max_nodes)


def _too_large(game: TreeGame[State], max_nodes: int) -> UsageError:
    return UsageError(
        f"{game.name} has more than {max_nodes:,} nodes; use a smaller game, or allow more "
        "(max_nodes)"
    )
