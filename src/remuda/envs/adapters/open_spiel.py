"""Games of OpenSpiel (Lanctot et al. 2019), sequential or simultaneous, with explicit chance.

Examples of names are `open_spiel:leduc_poker` and `open_spiel:kuhn_poker(players=3)`.
"""

from __future__ import annotations

import difflib
import math
from importlib import import_module
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from remuda.envs.games.array_game import TurnArrays
from remuda.envs.games.rendering import picture_of_text
from remuda.errors import ConfigError
from remuda.system.checkpoint.fitting import branch, fitting, require
from remuda.types import AgentSpec, Array, Bools, Floats, Integers, State, TurnResult

INFORMATION, OBSERVATION = "information_state", "observation"
FROM_SPIEL = (IndexError, MemoryError, OverflowError, RuntimeError, ValueError)
"""Errors other than `SpielError` that OpenSpiel raises for parameters that it does not check."""
MOST_ACTIONS = 50_000  # limit of a game's distinct actions
SEES = ("auto", INFORMATION, OBSERVATION)


class OpenSpielEnv(TurnArrays):
    """Copies of a game of OpenSpiel.

    An agent observes OpenSpiel's information state (all that it has observed in the episode) or an
    observation, which may omit the past. In a sequential game a turn is a round in which each
    player may act once, in the order of their numbers. In a simultaneous game all players act in
    one turn. The seed of an episode determines its chance events. A player's rewards before its
    first action count in its return, but are credited to no action.
    """

    def __init__(self, name: str, num_envs: int = 1, sees: str = "auto") -> None:
        """Load a game by its OpenSpiel name and parameters.

        `sees` is `information_state`, `observation`, or `auto`: the information state if the game
        offers it, else the observation; vice versa in games of perfect information. A `ConfigError`
        states what is missing: OpenSpiel, the game, a tensor, or explicit chance.
        """
        self._spiel, self.game = load_game(name)  # OpenSpiel's game
        self.name = name
        kind = self.game.get_type()
        self.moves_together = kind.dynamics == self._spiel.GameType.Dynamics.SIMULTANEOUS
        """True if players move simultaneously."""
        self.can_observe_together = self.moves_together
        _check(self._spiel, kind, name)
        self._sees = _tensor_of(self._spiel, name, kind, sees)
        shape = self._shape = _shape_of(self._spiel, self.game, name, self._sees)
        space = Box(-np.inf, np.inf, shape, np.float32)
        acts = _actions_of(self.game, name)
        players = range(self.game.num_players())
        self._make_arrays(
            num_envs, [AgentSpec(f"player_{i}", space, acts, masked=True) for i in players]
        )
        self.turn_groups = (
            (tuple(players),) if self.moves_together else tuple((i,) for i in players)
        )
        self.rewards_so_far = self._rewards
        self._returns = np.zeros(self.active.shape)  # of the episode so far
        self._chosen: Integers = np.zeros(self.active.shape, np.int64)
        self._numbers = [np.random.PCG64(0) for _ in range(num_envs)]
        self.states: list[Any] = [self.game.new_initial_state() for _ in range(num_envs)]
        """OpenSpiel's state of each copy."""
        try:
            for e in range(num_envs):
                self._by_chance(e)
        except (self._spiel.SpielError, *FROM_SPIEL) as error:
            raise ConfigError(f"OpenSpiel cannot start {name!r}: {_line_of(error)}") from None

    def reset(self, seeds: Integers, mask: Bools) -> None:
        for e in np.flatnonzero(mask).tolist():
            self._numbers[e] = np.random.PCG64(int(seeds[e]))
            self.states[e] = self.game.new_initial_state()
            self._terminated[e] = False
            self._by_chance(e)
            self._returns[e] = self.states[e].returns()
            self._note(e)

    def observe(self, agent: int, out: Array) -> None:
        """Write the information state or observation, or zeros if the game has ended."""
        for e, state in enumerate(self.states):
            out[e] = 0.0 if state.is_terminal() else self.observation_in(state, agent)

    def observation_in(self, state: Any, agent: int) -> Floats:
        """Return a player's observation of a state of OpenSpiel: [*observation_shape]."""
        is_information = self._sees == INFORMATION
        read = state.information_state_tensor if is_information else state.observation_tensor
        found: Floats = np.asarray(read(agent), np.float32).reshape(self._shape)
        return found

    def mask(self, agent: int, out: Bools) -> None:
        """Allow legal actions to a player that acts, and all actions to the others."""
        out[...] = True
        for e in np.flatnonzero(self.active[:, agent]).tolist():
            out[e] = False
            out[e, self.states[e].legal_actions(agent)] = True

    def act(self, agent: int, actions: Integers) -> None:
        if self.moves_together:
            self._chosen[:, agent] = actions
            return
        for e in np.flatnonzero(self.active[:, agent]).tolist():
            self.states[e].apply_action(int(actions[e]))
            self._update(e)

    def end_turn(self) -> TurnResult:
        if self.moves_together:
            for e in np.flatnonzero(self.active.any(1)).tolist():
                state = self.states[e]
                if state.is_simultaneous_node():
                    # OpenSpiel expects 0 for a player without legal actions.
                    chosen = np.where(self.active[e], self._chosen[e], 0)
                    state.apply_actions(chosen.tolist())
                else:
                    state.apply_action(int(self._chosen[e, state.current_player()]))
                self._update(e)
        return self._result

    def describe(self, agent: int, env: int = 0) -> str:
        state, kind = self.states[env], self.game.get_type()
        if state.is_terminal():
            return ""
        if kind.provides_information_state_string:
            return str(state.information_state_string(agent))
        return str(state.observation_string(agent)) if kind.provides_observation_string else ""

    def history(self, env: int = 0) -> list[int]:
        """Return all moves of a copy's episode, including chance, as OpenSpiel numbers them."""
        return [int(action) for action in self.states[env].history()]

    def render(self, env: int = 0) -> Array:
        return picture_of_text(str(self.states[env]))

    def state(self) -> State:
        copies = range(self.num_envs)
        return {
            "histories": {str(e): np.array(self.history(e), np.int64) for e in copies},
            "numbers": {str(e): numbers.state for e, numbers in enumerate(self._numbers)},
            "active": self.active.copy(),
        }

    def restore(self, state: State) -> None:
        numbers, histories = branch(state, "numbers"), branch(state, "histories")
        for e in range(self.num_envs):
            drawn: Any = dict(branch(numbers, str(e)))
            self._numbers[e].state = drawn
            history = histories[str(e)]
            like = np.empty(np.shape(history), np.int64)
            moves = fitting(histories, str(e), like).ravel().tolist()
            found = _replayed(self.game, moves)
            require(histories, str(e), found is not None, "each move is one that the rules allow")
            self.states[e] = found
            self._returns[e] = self.states[e].returns()
        self.active[...] = fitting(state, "active", self.active)
        self._rewards[...], self._terminated[...] = 0.0, False

    def options(self) -> dict[str, Any]:
        return {"sees": self._sees}

    def _update(self, e: int) -> None:
        """Play chance events after a move, and add the rewards."""
        self._by_chance(e)
        # `rewards` is not used, because some games do not update it in chance events.
        returns = np.asarray(self.states[e].returns())
        self._rewards[e] += returns - self._returns[e]
        self._returns[e] = returns
        self._note(e)

    def _by_chance(self, e: int) -> None:
        state = self.states[e]
        while not state.is_terminal() and state.is_chance_node():
            actions, probabilities = zip(*state.chance_outcomes(), strict=True)
            left = float(self._numbers[e].random_raw() >> 11) * 2.0**-53 * math.fsum(probabilities)
            chosen = actions[-1]
            for action, probability in zip(actions, probabilities, strict=True):
                left -= probability
                if left < 0.0:
                    chosen = action
                    break
            state.apply_action(chosen)

    def _note(self, e: int) -> None:
        """Mark the players that act next, or the end of the episode."""
        state, active = self.states[e], self.active[e]
        active[:] = False
        if state.is_terminal():
            self._terminated[e] = True
        elif state.is_simultaneous_node():
            for player in range(active.size):
                active[player] = bool(state.legal_actions(player))
        else:
            active[state.current_player()] = True


def _replayed(game: Any, history: list[int]) -> Any:
    """Return the state after moves; None if one is illegal, which may crash OpenSpiel itself."""
    state = game.new_initial_state()
    at = 0
    while at < len(history):
        if state.is_simultaneous_node():
            moves = history[at : at + game.num_players()]
            players = range(game.num_players())
            allowed = [state.legal_actions(player) or [0] for player in players]
            if len(moves) < len(players) or any(
                m not in a for m, a in zip(moves, allowed, strict=True)
            ):
                return None
            state.apply_actions(moves)
            at += len(moves)
        elif not state.is_terminal() and history[at] in state.legal_actions():
            state.apply_action(history[at])
            at += 1
        else:
            return None
    return state


def load_game(name: str) -> tuple[Any, Any]:
    """Return the module `pyspiel`, and a game by its name and parameters."""
    try:
        spiel: Any = import_module("pyspiel")
    except ImportError as error:
        raise ConfigError(
            f"open_spiel:{name} needs OpenSpiel ({error}): pip install -e '.[openspiel]'"
        ) from None
    short = name.partition("(")[0]
    if short not in spiel.registered_names():
        near = difflib.get_close_matches(short, spiel.registered_names(), 3)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise ConfigError(f"OpenSpiel has no game {short!r}{hint}")
    try:
        game = spiel.load_game(name)
        game.new_initial_state()  # some games refuse their parameters only here
        return spiel, game
    except (spiel.SpielError, *FROM_SPIEL) as error:
        line = _line_of(error)
        if isinstance(error, IndexError):
            line += "; some games need parameters, as in nfg_game(filename=game.nfg)"
        elif not isinstance(error, spiel.SpielError):
            line += "; OpenSpiel does not check parameters, so check yours"
        raise ConfigError(f"OpenSpiel cannot load {name!r}: {line}") from None


def _line_of(error: BaseException) -> str:
    """Return an error's first line, or its type if it has no message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _shape_of(spiel: Any, game: Any, name: str, sees: str) -> tuple[int, ...]:
    try:
        shape = tuple(getattr(game, f"{sees}_tensor_shape")())
    except (spiel.SpielError, *FROM_SPIEL) as error:
        line = _line_of(error)
        raise ConfigError(f"open_spiel:{name} has no {sees} of a fixed size: {line}") from None
    if min(shape, default=1) < 1:
        raise ConfigError(f"open_spiel:{name} shows nothing to its players: {list(shape)}")
    return shape


def _check(spiel: Any, kind: Any, name: str) -> None:
    dynamics, chance = spiel.GameType.Dynamics, spiel.GameType.ChanceMode
    if kind.dynamics not in (dynamics.SEQUENTIAL, dynamics.SIMULTANEOUS):
        raise ConfigError(f"open_spiel:{name} is a mean-field game, which is not supported")
    if kind.chance_mode == chance.SAMPLED_STOCHASTIC:
        raise ConfigError(
            f"open_spiel:{name}: OpenSpiel samples its chance events itself, so an episode could "
            "not be repeated from its seed; choose a game with explicit chance"
        )


def _actions_of(game: Any, name: str) -> Discrete:
    actions = int(game.num_distinct_actions())
    if game.num_players() < 1 or actions < 1:
        raise ConfigError(
            f"open_spiel:{name} would have no players or no actions; give it other parameters"
        )
    if actions > MOST_ACTIONS:
        raise ConfigError(
            f"open_spiel:{name} has {actions:,} distinct actions, and {MOST_ACTIONS:,} are "
            "allowed: a policy has an output for each, and every step stores a mask of all, so "
            "a turn would take seconds. Choose a game with fewer, or other parameters"
        )
    return Discrete(actions)


def _tensor_of(spiel: Any, name: str, kind: Any, wanted: str) -> str:
    if wanted not in SEES:
        raise ConfigError(f"env.options.sees is {wanted!r}; allowed are {', '.join(SEES)}")
    perfect = kind.information == spiel.GameType.Information.PERFECT_INFORMATION
    order = (OBSERVATION, INFORMATION) if perfect else (INFORMATION, OBSERVATION)
    offers = [each for each in order if getattr(kind, f"provides_{each}_tensor")]
    found = [each for each in offers if wanted in ("auto", each)]
    if not found:
        others = ", ".join(offers) or "neither"
        raise ConfigError(
            f"open_spiel:{name} offers no {wanted.replace('auto', 'tensor')}; it offers {others}"
        )
    return found[0]
