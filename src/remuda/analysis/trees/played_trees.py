"""Rules and observations of card and board games that runs can play and trees can represent.

To add a game, add its rules (`trees.TreeGame`) and a function from a player's information set in
the tree to the observation in the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from remuda.analysis.trees.tree_games import KuhnPoker, LeducPoker, TicTacToe
from remuda.analysis.trees.trees import InformationSet, Tree, TreeGame
from remuda.envs.adapters.wrappers import NOTHING, Wrapping
from remuda.envs.games import kuhn_poker, leduc_poker
from remuda.envs.vector_env import VectorEnv
from remuda.types import Array, Bools

KUHN, LEDUC = "kuhn_poker", "leduc_poker"
TIC_TAC_TOE = "pettingzoo:classic/tictactoe-v3"
KUHN_DONE: Mapping[tuple[int, ...], int] = {
    (): kuhn_poker.START,
    (0,): kuhn_poker.PASSED,
    (1,): kuhn_poker.BETS,
    (0, 1): kuhn_poker.PASSED_BETS,
}
"""The history index in `kuhn_poker`'s observations, by action history (0: pass, 1: bet)."""


@dataclass(frozen=True)
class PlayedRules:
    """The rules of a game that runs play, and the observations of its information sets."""

    rules: Callable[[], TreeGame[Any]]  # builds the rules
    observe: Callable[[InformationSet], Array]  # returns an information set's observation [*shape]
    first: int = 0  # the index that the run uses for the tree's action 0; the others follow
    env: type[VectorEnv] | None = None  # the game's class; None: only the name identifies it

    def observations(self, tree: Tree, player: int) -> tuple[Array, Bools]:
        """Return a run's observations of a player's information sets in the tree.

        Returns: observations [I_p, *shape], and the run's legal actions in these sets [I_p,
        actions].
        """
        sets, legal = tree.information_sets[player], tree.legal_of(player)
        allowed = np.zeros((len(sets), self.first + tree.num_actions), np.bool_)
        allowed[:, self.first :] = legal
        return np.stack([self.observe(known) for known in sets]), allowed


def observe_kuhn(known: InformationSet) -> Array:
    """Return the observation of `kuhn_poker` for an information set of the tree: [8] float32."""
    card, done = cast(tuple[int, tuple[int, ...]], known.key)
    observation = np.zeros(8, np.float32)
    observation[card] = observation[3 + KUHN_DONE[done]] = observation[7] = 1.0
    return observation


def observe_leduc(known: InformationSet) -> Array:
    """Return `leduc_poker`'s observation, [23] float32, which equates the two cards of a rank."""
    own, public, rounds = cast(tuple[int, tuple[int, ...], tuple[tuple[int, ...], ...]], known.key)
    observation = np.zeros(leduc_poker.SIZE, np.float32)
    observation[own // 2] = observation[leduc_poker.TO_ACT] = 1.0
    for card in public:
        observation[leduc_poker.PUBLIC + card // 2] = 1.0
    for number, done in enumerate(rounds):
        for turn, action in enumerate(done):
            place = leduc_poker.BETS + 2 * (leduc_poker.MOST_ACTIONS * number + turn)
            observation[place + (action == LeducPoker.RAISE)] = 1.0
    return observation


def observe_tic_tac_toe(known: InformationSet) -> Array:
    """Return the run's observation of a node, [3, 3, 2] int8: own squares, the other's squares."""
    grid = np.array(known.key, np.int8)
    planes = np.stack([grid == known.player, grid == 1 - known.player], axis=-1)
    return planes.reshape(3, 3, 2).astype(np.int8)


PLAYED: Mapping[str, PlayedRules] = {
    KUHN: PlayedRules(KuhnPoker, observe_kuhn, kuhn_poker.PASS, kuhn_poker.KuhnPoker),
    LEDUC: PlayedRules(LeducPoker, observe_leduc, leduc_poker.FOLD, leduc_poker.LeducPoker),
    TIC_TAC_TOE: PlayedRules(TicTacToe, observe_tic_tac_toe),
}


def played_rules(game: str, env: VectorEnv) -> PlayedRules | None:
    """Return the rules of a run's game; None: it cannot be traversed.

    Wrapped environments and subclasses are not traversed, because their observations, rewards or
    rules may differ.
    """
    wrapping: Wrapping = getattr(env, "wrapping", NOTHING)
    if wrapping.wrappers:
        return None
    for name, found in PLAYED.items():
        if game == name or type(env) is found.env:
            return found
    return None
