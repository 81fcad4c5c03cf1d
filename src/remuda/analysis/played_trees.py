"""Games that runs play and that are walked as trees: by game, its rules and what is observed there.

A game is added here by its rules (`trees.TreeGame`), and by a function from what a player knows in
the tree to what the run's game shows it then. All that measures networks exactly goes by that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from remuda.analysis.network_play import probabilities
from remuda.analysis.tree_games import KuhnPoker, LeducPoker, TicTacToe
from remuda.analysis.trees import InformationSet, Tree, TreeGame
from remuda.envs import kuhn_poker, leduc_poker
from remuda.envs.adapters.wrapping import NOTHING, Wrapping
from remuda.envs.vector_env import VectorEnv
from remuda.types import Array, Bools, Floats

if TYPE_CHECKING:
    from remuda.policies.spec import PolicySpec

Numbers = npt.NDArray[np.float64]
KUHN, LEDUC = "kuhn_poker", "leduc_poker"
TIC_TAC_TOE = "pettingzoo:classic/tictactoe-v3"
KUHN_DONE: Mapping[tuple[int, ...], int] = {
    (): kuhn_poker.START,
    (0,): kuhn_poker.PASSED,
    (1,): kuhn_poker.BETS,
    (0, 1): kuhn_poker.PASSED_BETS,
}
"""By what was done in the tree of Kuhn poker (0 passed, 1 bet), what the game of runs calls it."""


@dataclass(frozen=True)
class PlayedRules:
    """The rules of a game that runs play, and what is observed in its information sets.

    Attributes:
        rules: makes them.
        observe: what the run's game shows in an information set, [*shape].
        first: the run's action that is the first of the tree; the others follow in order.
        env: the class of the run's game; None: the game goes by its name alone.
    """

    rules: Callable[[], TreeGame[Any]]
    observe: Callable[[InformationSet], Array]
    first: int = 0
    env: type[VectorEnv] | None = None

    def observations(self, tree: Tree, player: int) -> tuple[Array, Bools]:
        """What the run's game shows in a player's information sets of the tree of these rules.

        Returns:
            Observations [I_p, *shape], and which of the run's actions are allowed [I_p, actions].
        """
        sets, legal = tree.information_sets[player], tree.legal_of(player)
        allowed = np.zeros((len(sets), self.first + tree.num_actions), np.bool_)
        allowed[:, self.first :] = legal
        return np.stack([self.observe(known) for known in sets]), allowed

    def policies(self, tree: Tree, spec: PolicySpec, weights: Floats) -> tuple[Numbers, ...]:
        """By player, what a policy of a run does on that seat: [I_p, A], the tree's actions.

        Raises:
            UsageError: it is of another game, or goes by earlier observations too.
        """
        return tuple(
            probabilities(spec, weights, *self.observations(tree, player))[:, self.first :]
            for player in range(tree.num_players)
        )


def observe_kuhn(known: InformationSet) -> Array:
    """What `kuhn_poker` shows in an information set of `tree_games.KuhnPoker`: [8] float32."""
    card, done = cast(tuple[int, tuple[int, ...]], known.key)
    seen = np.zeros(8, np.float32)
    seen[card] = seen[3 + KUHN_DONE[done]] = seen[7] = 1.0
    return seen


def observe_leduc(known: InformationSet) -> Array:
    """What `leduc_poker` shows in an information set of `tree_games.LeducPoker`: [23] float32.

    The two cards of a rank, which the tree tells apart, are one there.
    """
    own, public, rounds = cast(tuple[int, tuple[int, ...], tuple[tuple[int, ...], ...]], known.key)
    seen = np.zeros(leduc_poker.SIZE, np.float32)
    seen[own // 2] = seen[leduc_poker.TO_ACT] = 1.0
    for card in public:
        seen[leduc_poker.PUBLIC + card // 2] = 1.0
    for number, done in enumerate(rounds):
        for turn, action in enumerate(done):
            place = leduc_poker.BETS + 2 * (leduc_poker.MOST_ACTIONS * number + turn)
            seen[place + (action == LeducPoker.RAISE)] = 1.0
    return seen


def observe_tic_tac_toe(known: InformationSet) -> Array:
    """What `pettingzoo:classic/tictactoe-v3` shows in a node of `tree_games.TicTacToe`.

    Returns:
        [3, 3, 2] int8: own squares, and the other's.
    """
    grid = np.array(known.key, np.int8)
    planes = np.stack([grid == known.player, grid == 1 - known.player], axis=-1)
    return planes.reshape(3, 3, 2).astype(np.int8)


PLAYED: Mapping[str, PlayedRules] = {
    KUHN: PlayedRules(KuhnPoker, observe_kuhn, kuhn_poker.PASS, kuhn_poker.KuhnPoker),
    LEDUC: PlayedRules(LeducPoker, observe_leduc, leduc_poker.FOLD, leduc_poker.LeducPoker),
    TIC_TAC_TOE: PlayedRules(TicTacToe, observe_tic_tac_toe),
}
"""By the name of a game."""


def played_rules(game: str, env: VectorEnv) -> PlayedRules | None:
    """The rules of a run's game; None: there are none here.

    Wrappers may change what is observed and what is paid, and a class that is derived from a game's
    may have rules of its own: neither is a game of these rules.

    Args:
        game: its name.
        env: a copy of it, by whose class a game is known that was given as `module:Class`.
    """
    if is_wrapped(env):
        return None
    for name, found in PLAYED.items():
        if game == name or type(env) is found.env:
            return found
    return None


def is_wrapped(env: VectorEnv) -> bool:
    """Whether `env.wrappers` stand round the copies of a game."""
    wrapping: Wrapping = getattr(env, "wrapping", NOTHING)
    return bool(wrapping.wrappers)
