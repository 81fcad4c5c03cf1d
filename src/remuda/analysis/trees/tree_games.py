"""Rules of small games (`trees.TreeGame`): matrix games, Kuhn and Leduc poker, tic-tac-toe."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from remuda.analysis.trees.trees import CHANCE, OVER
from remuda.errors import UsageError
from remuda.types import Numbers


class MatrixGame:
    """A game in which every player chooses once, without knowing the others' choices.

    A state is the tuple of choices so far. In the tree, players choose one after another.
    """

    merges = False

    def __init__(self, *payoffs: npt.ArrayLike, name: str = "matrix game") -> None:
        """Set the payoffs of every player.

        `payoffs`: by player, [n_1, ..., n_R]; a single matrix [n_1, n_2] holds the first player's
        payoffs in a zero-sum game.
        """
        found = [np.asarray(each, np.float64) for each in payoffs]
        if len(found) == 1 and found[0].ndim == 2:
            found.append(-found[0])
        shapes = {each.shape for each in found}
        if len(shapes) != 1 or found[0].ndim != len(found) or 0 in found[0].shape:
            raise UsageError(
                f"{name}: payoffs of {len(found)} players are {sorted(shapes)}; each must be an "
                "array with one axis for each player"
            )
        self.payoffs: Numbers = np.stack(found)  # [R, n_1, ..., n_R]
        if not np.isfinite(self.payoffs).all():
            raise UsageError(f"{name}: a payoff is not a number")
        self.name, self.num_players = name, len(found)
        self.num_actions = max(found[0].shape)

    def root(self) -> tuple[int, ...]:
        return ()

    def player(self, state: tuple[int, ...]) -> int:
        return len(state) if len(state) < self.num_players else OVER

    def actions(self, state: tuple[int, ...]) -> Sequence[int]:
        return range(self.payoffs.shape[1 + len(state)])

    def outcomes(self, state: tuple[int, ...]) -> Sequence[tuple[int, float]]:  # noqa: ARG002
        return ()

    def child(self, state: tuple[int, ...], action: int) -> tuple[int, ...]:
        return (*state, action)

    def information(self, state: tuple[int, ...]) -> Hashable:  # noqa: ARG002
        """Return a constant: choices are hidden."""
        return ()

    def returns(self, state: tuple[int, ...]) -> Sequence[float]:
        return [float(each[state]) for each in self.payoffs]


class KuhnState(NamedTuple):
    """A state of Kuhn poker."""

    cards: tuple[int, ...] = ()  # dealt so far, by player: 0 jack, 1 queen, 2 king
    actions: tuple[int, ...] = ()  # PASS or BET, in order


class KuhnPoker:
    """Kuhn poker (Kuhn 1950, "A simplified two-person poker"); value -1/18 to player 0.

    `remuda.envs.games.kuhn_poker` states the rules; the agents are the players.
    """

    name = "kuhn_poker"
    num_players, num_actions, merges = 2, 2, False
    PASS, BET = 0, 1
    CARDS = 3

    def root(self) -> KuhnState:
        return KuhnState()

    def player(self, state: KuhnState) -> int:
        if len(state.cards) < self.num_players:
            return CHANCE
        done = state.actions
        if done in ((0, 0), (1, 0), (1, 1)) or len(done) > 2:
            return OVER
        return len(done) % 2

    def actions(self, state: KuhnState) -> Sequence[int]:  # noqa: ARG002
        return (self.PASS, self.BET)

    def outcomes(self, state: KuhnState) -> Sequence[tuple[int, float]]:
        left = [card for card in range(self.CARDS) if card not in state.cards]
        return [(card, 1.0 / len(left)) for card in left]

    def child(self, state: KuhnState, action: int) -> KuhnState:
        if len(state.cards) < self.num_players:
            return state._replace(cards=(*state.cards, action))
        return state._replace(actions=(*state.actions, action))

    def information(self, state: KuhnState) -> Hashable:
        """Return the player's card and the actions so far."""
        return state.cards[len(state.actions) % 2], state.actions

    def returns(self, state: KuhnState) -> Sequence[float]:
        """Return the players' gains: the winner gains 1, or 2 if both bet."""
        first, second = state.cards
        bets = sum(state.actions)
        # A bet that was not called is player 0's after two actions, otherwise player 1's.
        wins = len(state.actions) == 2 if bets == 1 else first > second
        won = 2.0 if bets == 2 else 1.0
        return (won, -won) if wins else (-won, won)


class LeducState(NamedTuple):
    """A state of Leduc poker."""

    cards: tuple[int, ...] = ()  # of player 0, of player 1, then the public card: 0 to 5
    rounds: tuple[tuple[int, ...], ...] = ((),)  # the actions of each round so far


class LeducPoker:
    """Leduc poker (Southey et al. 2005, "Bayes' bluff"); value -0.0856 to player 0.

    `remuda.envs.games.leduc_poker` states the rules; the agents are the players. Actions and
    information sets are those of OpenSpiel's `leduc_poker`, which distinguishes the two cards of a
    rank (card // 2).
    """

    name = "leduc_poker"
    num_players, num_actions, merges = 2, 3, False
    FOLD, CALL, RAISE = 0, 1, 2
    CARDS = 6
    RAISES = (2, 4)  # in chips, by round
    MOST_RAISES = 2

    def root(self) -> LeducState:
        return LeducState()

    def player(self, state: LeducState) -> int:
        if len(state.cards) < 2:
            return CHANCE
        now = state.rounds[-1]
        if now and now[-1] == self.FOLD:
            return OVER
        if self._called(now):
            return OVER if len(state.rounds) == 2 else CHANCE
        return len(now) % 2

    def actions(self, state: LeducState) -> Sequence[int]:
        """Return CALL, FOLD if the other has put in more, and RAISE after fewer than two raises."""
        now = state.rounds[-1]
        allowed = [self.CALL]
        if now and now[-1] == self.RAISE:
            allowed.insert(0, self.FOLD)
        if now.count(self.RAISE) < self.MOST_RAISES:
            allowed.append(self.RAISE)
        return allowed

    def outcomes(self, state: LeducState) -> Sequence[tuple[int, float]]:
        left = [card for card in range(self.CARDS) if card not in state.cards]
        return [(card, 1.0 / len(left)) for card in left]

    def child(self, state: LeducState, action: int) -> LeducState:
        cards, rounds = state
        if len(cards) < 2:
            return LeducState((*cards, action), rounds)
        if self._called(rounds[-1]):
            return LeducState((*cards, action), (*rounds, ()))
        return LeducState(cards, (*rounds[:-1], (*rounds[-1], action)))

    def information(self, state: LeducState) -> Hashable:
        """Return the player's card, the public card, and the actions so far."""
        return state.cards[len(state.rounds[-1]) % 2], state.cards[2:], state.rounds

    def returns(self, state: LeducState) -> Sequence[float]:
        """Return the players' gains: the winner gains what the loser has put in."""
        put_in = [1, 1]
        for done, size in zip(state.rounds, self.RAISES, strict=False):
            for place, action in enumerate(done):
                if action != self.FOLD:
                    put_in[place % 2] = put_in[1 - place % 2]
                if action == self.RAISE:
                    put_in[place % 2] += size
        last = state.rounds[-1]
        if last[-1] == self.FOLD:
            winner = len(last) % 2
        else:
            *own, public = (card // 2 for card in state.cards)
            strength = [(rank == public, rank) for rank in own]
            if strength[0] == strength[1]:
                return (0.0, 0.0)
            winner = int(strength[1] > strength[0])
        won = float(put_in[1 - winner])
        return (won, -won) if winner == 0 else (-won, won)

    def _called(self, done: tuple[int, ...]) -> bool:
        """Return whether a round has ended: the last action is a call, but not the first action."""
        return len(done) > 1 and done[-1] == self.CALL


LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
"""The lines of a 3 x 3 grid, each as three squares."""


class TicTacToe:
    """Tic-tac-toe; value 0. Actions are squares, 0 to 8, row after row.

    A state holds the nine squares: -1 free, or the player's number. The winner receives 1, the
    loser -1. Equal grids are one node: 5478 nodes instead of 549,946 histories.
    """

    name = "tic_tac_toe"
    num_players, num_actions, merges = 2, 9, True
    FREE = -1

    def root(self) -> tuple[int, ...]:
        return (self.FREE,) * 9

    def player(self, state: tuple[int, ...]) -> int:
        free = state.count(self.FREE)
        return OVER if free == 0 or self._winner(state) >= 0 else (9 - free) % 2

    def actions(self, state: tuple[int, ...]) -> Sequence[int]:
        return [square for square in range(9) if state[square] == self.FREE]

    def outcomes(self, state: tuple[int, ...]) -> Sequence[tuple[int, float]]:  # noqa: ARG002
        return ()

    def child(self, state: tuple[int, ...], action: int) -> tuple[int, ...]:
        return (*state[:action], self.player(state), *state[action + 1 :])

    def information(self, state: tuple[int, ...]) -> Hashable:
        return state

    def returns(self, state: tuple[int, ...]) -> Sequence[float]:
        winner = self._winner(state)
        return (0.0, 0.0) if winner < 0 else (1.0, -1.0) if winner == 0 else (-1.0, 1.0)

    def _winner(self, state: tuple[int, ...]) -> int:
        """Return the player with a line; -1: no player."""
        for a, b, c in LINES:
            if state[a] == state[b] == state[c] != self.FREE:
                return state[a]
        return -1
