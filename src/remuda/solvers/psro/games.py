"""Games small enough to traverse, and their trees."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic

from remuda.analysis.trees.exact_play import walked_of
from remuda.analysis.trees.open_spiel_games import OpenSpielGame
from remuda.analysis.trees.played_trees import PLAYED, TIC_TAC_TOE
from remuda.analysis.trees.tree_games import TicTacToe
from remuda.analysis.trees.tree_walk import flatten
from remuda.analysis.trees.trees import State, Tree, TreeGame
from remuda.envs.description import EnvSpec
from remuda.envs.registry import GAMES
from remuda.errors import ConfigError, UnknownGameError

RULES: Mapping[str, Callable[[], TreeGame[Any]]] = {
    **{name: played.rules for name, played in PLAYED.items()},
    "tic_tac_toe": TicTacToe,
}
OPEN_SPIEL = "open_spiel:"  # prefix of the names of OpenSpiel's games


class ByHistory(Generic[State]):
    """A game of perfect information with histories as states.

    In one state, a mixture of policies may act differently after different histories. A policy
    equivalent to the mixture is therefore defined over histories, not over states.
    """

    merges = False

    def __init__(self, rules: TreeGame[State]) -> None:
        self._rules = rules
        self.name = rules.name
        self.num_players, self.num_actions = rules.num_players, rules.num_actions

    def root(self) -> tuple[State, tuple[int, ...]]:
        return self._rules.root(), ()

    def player(self, state: tuple[State, tuple[int, ...]]) -> int:
        return self._rules.player(state[0])

    def actions(self, state: tuple[State, tuple[int, ...]]) -> Sequence[int]:
        return self._rules.actions(state[0])

    def outcomes(self, state: tuple[State, tuple[int, ...]]) -> Sequence[tuple[int, float]]:
        return self._rules.outcomes(state[0])

    def child(
        self, state: tuple[State, tuple[int, ...]], action: int
    ) -> tuple[State, tuple[int, ...]]:
        return self._rules.child(state[0], action), (*state[1], action)

    def information(self, state: tuple[State, tuple[int, ...]]) -> Hashable:
        return state[1]

    def returns(self, state: tuple[State, tuple[int, ...]]) -> Sequence[float]:
        return self._rules.returns(state[0])


def tree_of(game: str, options: Mapping[str, Any] | None = None) -> Tree:
    """Return the tree of a game; each node has a single history.

    `game`: `kuhn_poker`, `leduc_poker`, `tic_tac_toe`, a matrix game of one round, or
    `open_spiel:NAME`.
    """
    if game.startswith(OPEN_SPIEL) or game in RULES:
        if options:
            raise ConfigError(f"env.options.{next(iter(options))}: {game} has no options here")
        if game.startswith(OPEN_SPIEL):
            return flatten(OpenSpielGame(game.removeprefix(OPEN_SPIEL)))
        rules = RULES[game]()
        return flatten(ByHistory(rules) if rules.merges else rules)
    try:
        env = EnvSpec.of(game, options or {})
    except UnknownGameError as error:
        if ":" in game:
            raise
        raise UnknownGameError(f"{error}; or one of {_walkable()}") from None
    walked = walked_of(env)
    if walked is None:
        raise ConfigError(
            f"{game} cannot be traversed completely, which exact oracles need; train them "
            f"(--oracle ppo), or use one of {_walkable()}"
        )
    return walked.tree


def check_played(game: str) -> None:
    """Raise a `ConfigError` for a game that exact oracles can traverse but runs cannot play."""
    if game == TIC_TAC_TOE or game in GAMES or game not in RULES:
        return
    instead = f"use {TIC_TAC_TOE}" if RULES.get(game) is TicTacToe else "`remuda games` lists those"
    raise ConfigError(
        f"{game} has only rules for exact oracles, and trained oracles need a game that "
        f"runs play; {instead}, or leave out --oracle"
    )


def _walkable() -> str:
    names = [name for name in RULES if name != TIC_TAC_TOE]
    return f"{', '.join(names)}, {OPEN_SPIEL}NAME, or a matrix game of one round"
