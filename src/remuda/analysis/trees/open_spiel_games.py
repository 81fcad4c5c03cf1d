"""Small games of OpenSpiel as trees. Requires the extra `openspiel`.

Lanctot et al. 2019, "OpenSpiel: a framework for reinforcement learning in games".
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from remuda.analysis.trees.trees import CHANCE, OVER
from remuda.envs.adapters.open_spiel import load_game
from remuda.errors import ConfigError, UsageError

MAX_LENGTH = 200  # most moves of a game, chance moves included: the number of states grows with it


class OpenSpielGame:
    """The rules of a game of OpenSpiel, for `tree_walk.flatten`.

    Simultaneous moves become sequential moves hidden from the other players. Information sets have
    OpenSpiel's names (`information_state_string`). A game without these names must have perfect
    information; then each history is its own set.
    """

    merges = False

    def __init__(self, name: str) -> None:
        try:
            pyspiel, game = load_game(name)
        except ConfigError as error:
            raise UsageError(str(error)) from None
        kind = game.get_type()
        if kind.dynamics == pyspiel.GameType.Dynamics.SIMULTANEOUS:
            game = pyspiel.convert_to_turn_based(game)
        elif kind.dynamics != pyspiel.GameType.Dynamics.SEQUENTIAL:
            raise UsageError(f"{name}: mean-field games are not supported")
        if kind.chance_mode == pyspiel.GameType.ChanceMode.SAMPLED_STOCHASTIC:
            raise UsageError(
                f"{name}: OpenSpiel samples its chance outcomes without listing them; use "
                "a game with explicit chance"
            )
        longest = int(game.max_game_length())
        if longest > MAX_LENGTH:
            raise UsageError(
                f"{name}: a game may take {longest} moves; games are traversed completely "
                f"if they take at most {MAX_LENGTH}"
            )
        self._named = bool(game.get_type().provides_information_state_string)
        if not self._named and kind.information != pyspiel.GameType.Information.PERFECT_INFORMATION:
            raise UsageError(
                f"{name}: OpenSpiel provides no information states (no information_state_string)"
            )
        self.name = name
        self.num_players = int(game.num_players())
        self.num_actions = int(game.num_distinct_actions())
        self.game: Any = game  # OpenSpiel's game object, turn-based

    def root(self) -> Any:
        return self.game.new_initial_state()

    def player(self, state: Any) -> int:
        if state.is_terminal():
            return OVER
        return CHANCE if state.is_chance_node() else int(state.current_player())

    def actions(self, state: Any) -> Sequence[int]:
        return list(state.legal_actions())

    def outcomes(self, state: Any) -> Sequence[tuple[int, float]]:
        return list(state.chance_outcomes())

    def child(self, state: Any, action: int) -> Any:
        return state.child(action)

    def information(self, state: Any) -> Hashable:
        """Return OpenSpiel's information state of the player to act."""
        if self._named:
            return str(state.information_state_string(state.current_player()))
        return tuple(state.history())

    def returns(self, state: Any) -> Sequence[float]:
        return list(state.returns())
