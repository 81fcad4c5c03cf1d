"""Export a Remuda game as a PettingZoo environment, for use with other libraries.

    from remuda.envs.pettingzoo_export import aec_env, parallel_env

    env = parallel_env("treasure_hunt", num_agents=4)

In a `ParallelGame` all agents observe at the start of a turn, and their actions take effect in the
game's order. In an `AECGame` an agent also observes the effects of earlier actions in the turn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from remuda.errors import ConfigError, UsageError

try:
    from pettingzoo import AECEnv, ParallelEnv
except ImportError as error:
    raise ConfigError(
        f"exporting a game to PettingZoo needs PettingZoo ({error}): pip install -e '.[pettingzoo]'"
    ) from None

from remuda.envs.adapters.masks import MASK
from remuda.envs.adapters.spaces import OBSERVATION
from remuda.envs.registry import make_env
from remuda.envs.scripted import masks_of, possibilities, room_for
from remuda.envs.vector_env import VectorEnv
from remuda.types import Array, Floats


class _Exported:
    """One copy of a game, whose agents are identified by their names."""

    def __init__(self, game: VectorEnv, name: str = "game", render_mode: str | None = None) -> None:
        """Wrap one copy of a game; with the mode `rgb_array`, `render` returns an image."""
        if game.num_envs != 1:
            raise ValueError(f"an environment is one copy of a game, not {game.num_envs}")
        self._game, self.render_mode = game, render_mode
        self.possible_agents = [spec.name for spec in game.agents]
        self._index = {name: i for i, name in enumerate(self.possible_agents)}
        self._rng = np.random.default_rng()
        self._paid: Floats = np.zeros(len(game.agents), np.float32)
        self.metadata = {
            "name": name,
            "render_modes": ["rgb_array"],
            "is_parallelizable": game.can_observe_together,
        }
        self.agents: list[str] = []
        self._spaces = {spec.name: _observation_space(spec) for spec in game.agents}

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self._spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self._game.agents[self._index[agent]].action_space

    def render(self) -> Array | None:
        """Return an image: [height, width, 3] uint8."""
        return None if self.render_mode is None else self._game.render()

    def close(self) -> None:
        self._game.close()

    def _reset_game(self, seed: int | None) -> None:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._game.reset(self._rng.integers(2**62, size=1), np.ones(1, np.bool_))

    def _begin_game_turn(self) -> None:
        self._game.begin_turn()
        self._paid[:] = 0.0

    def _new_rewards(self, rewards: Array | None = None) -> dict[str, float]:
        """Return each agent's reward since the last call; pass `rewards` at the end of a turn."""
        if rewards is None:
            rewards = self._game.rewards_so_far
        if rewards is None:
            return dict.fromkeys(self.possible_agents, 0.0)
        new = rewards[0] - self._paid
        self._paid[:] = rewards[0]
        return dict(zip(self.possible_agents, new.tolist(), strict=True))

    def _look(self, name: str) -> Any:
        agent = self._index[name]
        rows = room_for(self._game, agent)
        self._game.observe(agent, rows)
        masks = masks_of(self._game, agent)
        return rows[0] if masks is None else {OBSERVATION: rows[0], MASK: masks[0].astype(np.int8)}

    def _act(self, name: str, action: Any) -> None:
        passed, space = np.asarray(action), self.action_space(name)
        value = passed
        if not isinstance(space, spaces.Box):
            if passed.size == np.prod(space.shape or ()) and passed.dtype.kind in "biuf":
                with np.errstate(invalid="ignore"):
                    value = passed.reshape(space.shape).astype(space.dtype)
            # Compiled games would look an invalid choice up beyond the end of an array.
            if not (space.contains(value) and np.array_equal(value.ravel(), passed.ravel())):
                raise UsageError(
                    f"{name} cannot take the action {action!r}; its actions are {space}"
                )
        self._game.act(self._index[name], value[None])

    def _live(self) -> list[str]:
        return [name for name, i in self._index.items() if self._game.active[0, i]]


def _observation_space(spec: Any) -> spaces.Space[Any]:
    if not spec.masked:
        space: spaces.Space[Any] = spec.observation_space
        return space
    allowed = spaces.Box(0, 1, (possibilities(spec),), np.int8)
    return spaces.Dict({OBSERVATION: spec.observation_space, MASK: allowed})


class ParallelGame(_Exported, ParallelEnv[str, Any, Any]):  # type: ignore[misc]
    """A game as a PettingZoo environment whose agents act simultaneously."""

    def __init__(self, game: VectorEnv, name: str = "game", render_mode: str | None = None) -> None:
        """Wrap one copy of a game, as `AECGame` does."""
        if not game.can_observe_together:
            raise ConfigError(
                f"{name}: an agent's move decides which agent acts next, so they cannot act at "
                f'once as in parallel_env; use aec_env("{name}")'
            )
        super().__init__(game, name, render_mode)
        # The unpaid rewards of each agent that is in an episode.
        self._owed: dict[str, float] = {}

    def reset(
        self,
        seed: int | None = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Start an episode, and return observations and infos."""
        self._reset_game(seed)
        self.agents = self._live()
        self._begin_game_turn()
        observations = {name: self._look(name) for name in self.agents}
        self._new_rewards()  # drop rewards before any action
        self._owed = dict.fromkeys(self.agents, 0.0)
        return observations, {name: {} for name in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """Play one turn, in the game's order.

        An agent gets the rewards of turns that it skips when it is active again or its episode
        ends. An agent whose episode has ended gets its final observation, or, if it is active again
        in the next turn, the first observation of its next episode.
        """
        game, played = self._game, self.agents
        for group in game.turn_groups:
            for name in (self.possible_agents[i] for i in group):
                if name in actions and name in played:  # actions of inactive agents are ignored
                    self._act(name, actions[name])
        result = game.end_turn()
        self._owe(self._new_rewards(result.rewards))
        terminated, truncated = (
            {name: bool(flags[0, self._index[name]]) for name in self._owed}
            for flags in (result.terminated, result.truncated)
        )
        self.agents = self._live()
        ended = [name for name in self._owed if terminated[name] or truncated[name]]
        last = {name: self._look(name) for name in ended if name not in self.agents}
        if self.agents:
            self._begin_game_turn()
        reported = [*played, *(name for name in [*ended, *self.agents] if name not in played)]
        observations = {name: last[name] if name in last else self._look(name) for name in reported}
        if self.agents:
            self._owe(self._new_rewards())
        # Agents that start an episode now have no rewards yet.
        paid = [name for name in reported if name in self._owed]
        rewards = {name: self._owed[name] for name in paid}
        self._owed |= dict.fromkeys([*paid, *self.agents], 0.0)
        for name in ended:
            if name not in self.agents:  # otherwise it is already in its next episode
                del self._owed[name]
        ends = ({name: flags[name] for name in paid} for flags in (terminated, truncated))
        return observations, rewards, *ends, {name: {} for name in reported}

    def _owe(self, rewards: dict[str, float]) -> None:
        for name in self._owed:
            self._owed[name] += rewards[name]


class AECGame(_Exported, AECEnv[str, Any, Any]):  # type: ignore[misc]
    """A game as a PettingZoo environment where one agent acts at a time."""

    def reset(
        self,
        seed: int | None = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> None:
        self._reset_game(seed)
        self.agents = self._live()
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {name: {} for name in self.agents}
        self._last: dict[str, Any] = {}  # final observations, by agent
        self._skip_agent_selection = None
        self._begin_turn()
        self._accumulate_rewards()

    def observe(self, agent: str) -> Any:
        """Return an observation; agents of one group observe before any of them acts."""
        if agent in self._last and (self.terminations.get(agent) or self.truncations.get(agent)):
            return self._last[agent]
        return self._observed[agent] if agent in self._observed else self._look(agent)

    def step(self, action: Any) -> None:
        """Let the selected agent act.

        The last action of a turn ends the turn. Rewards appear as soon as the game gives them.
        """
        if self.terminations[self.agent_selection] or self.truncations[self.agent_selection]:
            self._was_dead_step(action)
            self._join(self._live())  # dead agents may have come back
            return
        self._cumulative_rewards[self.agent_selection] = 0.0
        self._clear_rewards()
        self._act(self.agent_selection, action)
        if not self._next_agent():
            self._end_turn()
        self._accumulate_rewards()

    def _begin_turn(self) -> None:
        self._begin_game_turn()
        self._groups = iter(self._game.turn_groups)
        self._waiting: list[str] = []
        self._next_agent()

    def _next_agent(self) -> bool:
        """Select the agent that acts next in this turn; return False if there is none."""
        while not self._waiting:
            group = next(self._groups, None)
            if group is None:
                self._observed: dict[str, Any] = {}
                return False
            live = self._live()
            self._join(live)
            self._waiting = [name for i in group if (name := self.possible_agents[i]) in live]
            self._observed = {name: self._look(name) for name in self._waiting}
            self._pay(self._new_rewards())
        self.agent_selection = self._waiting.pop(0)
        return True

    def _join(self, live: list[str]) -> None:
        """Add agents that come back in mid-episode, after their dead step."""
        for name in live:
            if name not in self.terminations:
                self.agents.append(name)
                self.rewards[name] = self._cumulative_rewards[name] = 0.0
                self.terminations[name] = self.truncations[name] = False
                self.infos[name] = {}

    def _end_turn(self) -> None:
        result = self._game.end_turn()
        index = self._index
        self._pay(self._new_rewards(result.rewards))
        for name in self.agents:
            self.terminations[name] = bool(result.terminated[0, index[name]])
            self.truncations[name] = bool(result.truncated[0, index[name]])
            if self.terminations[name] or self.truncations[name]:
                self._last[name] = self._look(name)
        if self._live():
            self._begin_turn()
            self._deads_step_first()
        else:
            self.agent_selection = self.agents[0]

    def _pay(self, rewards: dict[str, float]) -> None:
        for name in self.agents:
            self.rewards[name] += rewards[name]


def parallel_env(game: str, render_mode: str | None = None, **options: Any) -> ParallelGame:
    """Make a game, with its options, as an environment whose agents act simultaneously.

    Raises a `ConfigError` for an unknown game, a refused option, or a game whose agents must act
    one at a time.
    """
    return ParallelGame(make_env(game, 1, **options), game, render_mode)


def aec_env(game: str, render_mode: str | None = None, **options: Any) -> AECGame:
    """Make a game, with its options, as an environment where one agent acts at a time."""
    return AECGame(make_env(game, 1, **options), game, render_mode)
