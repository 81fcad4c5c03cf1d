"""Export a Remuda game as a PettingZoo environment, for use with other libraries.

    from remuda.envs.adapters.export import aec_env, parallel_env

    env = parallel_env("treasure_hunt", num_agents=4)

In a `ParallelGame` all agents observe at the start of a turn, and their actions take effect in the
game's order. In an `AECGame` a later agent also observes what those before it did.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from remuda.errors import ConfigError

try:
    from pettingzoo import AECEnv, ParallelEnv
except ImportError as error:
    raise ConfigError(
        f"a game as a PettingZoo environment needs PettingZoo ({error}): "
        "pip install 'remuda[pettingzoo]'"
    ) from None

from remuda.envs.adapters.masks import MASK
from remuda.envs.adapters.spaces import OBSERVATION
from remuda.envs.registry import make_env
from remuda.envs.scripted import masks_of, possibilities, room_for
from remuda.envs.vector_env import VectorEnv
from remuda.types import Array, Floats

EVERY = np.ones(1, np.bool_)


class _Exported:
    """One copy of a game, addressed by agents' names."""

    def __init__(self, game: VectorEnv, name: str = "game", render_mode: str | None = None) -> None:
        """Take one copy of a game; with the mode `rgb_array`, `render` returns a picture."""
        if game.num_envs != 1:
            raise ValueError(f"one copy becomes an environment, not {game.num_envs}")
        self._game, self.render_mode = game, render_mode
        self._names = [spec.name for spec in game.agents]
        self._index = {name: i for i, name in enumerate(self._names)}
        self._rng = np.random.default_rng()
        self._paid: Floats = np.zeros(len(self._names), np.float32)
        self.metadata = {
            "name": name,
            "render_modes": ["rgb_array"],
            "is_parallelizable": game.can_observe_together,
        }
        self.possible_agents = list(self._names)
        self.agents: list[str] = []
        self._spaces = {spec.name: _observation_space(spec) for spec in game.agents}

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self._spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self._game.agents[self._index[agent]].action_space

    def render(self) -> Array | None:
        """Return a picture: [height, width, 3] uint8."""
        return None if self.render_mode is None else self._game.render()

    def close(self) -> None:
        self._game.close()

    def _reset_game(self, seed: int | None) -> None:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._game.reset(self._rng.integers(2**62, size=1), EVERY)

    def _begin_game_turn(self) -> None:
        self._game.begin_turn()
        self._paid[:] = 0.0

    def _newly_given(self, rewards: Array | None = None) -> dict[str, float]:
        """Return each agent's reward since the last call, in mid-turn or at its end (`rewards`)."""
        if rewards is None:
            rewards = self._game.rewards_so_far
        if rewards is None:
            return dict.fromkeys(self._names, 0.0)
        given = rewards[0] - self._paid
        self._paid[:] = rewards[0]
        return dict(zip(self._names, given.tolist(), strict=True))

    def _look(self, name: str) -> Any:
        """Return an agent's observation, with its mask if it has one."""
        agent = self._index[name]
        seen = room_for(self._game, agent)
        self._game.observe(agent, seen)
        masks = masks_of(self._game, agent)
        return seen[0] if masks is None else {OBSERVATION: seen[0], MASK: masks[0].astype(np.int8)}

    def _act(self, name: str, action: Any) -> None:
        self._game.act(self._index[name], np.asarray(action)[None])

    def _live(self) -> list[str]:
        """Return the agents that act."""
        return [name for i, name in enumerate(self._names) if self._game.active[0, i]]


def _observation_space(spec: Any) -> spaces.Space[Any]:
    if not spec.masked:
        space: spaces.Space[Any] = spec.observation_space
        return space
    allowed = spaces.Box(0, 1, (possibilities(spec),), np.int8)
    return spaces.Dict({OBSERVATION: spec.observation_space, MASK: allowed})


class ParallelGame(_Exported, ParallelEnv[str, Any, Any]):  # type: ignore[misc]
    """A game as a PettingZoo environment whose agents act simultaneously."""

    def __init__(self, game: VectorEnv, name: str = "game", render_mode: str | None = None) -> None:
        """Take one copy of a game, as `AECGame` does."""
        if not game.can_observe_together:
            raise ConfigError(
                f"{name}: its agents move one after another, who acts next depending on the move "
                f'before, and cannot act at once as in parallel_env; take aec_env("{name}")'
            )
        super().__init__(game, name, render_mode)
        # By agent in an episode, its rewards that were not paid yet.
        self._owed: dict[str, float] = {}

    def reset(
        self,
        seed: int | None = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Begin an episode, and return observations and infos."""
        self._reset_game(seed)
        self.agents = self._live()
        self._begin_game_turn()
        seen = {name: self._look(name) for name in self.agents}
        self._newly_given()  # before any agent decided
        self._owed = dict.fromkeys(self.agents, 0.0)
        return seen, _nothing(self.agents)

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """Play one turn, in the game's order.

        An agent that sits out turns is paid for them when it is back, or at its end. One whose
        episode has ended gets its final observation, or, if it is back at once, the first of its
        next episode.
        """
        game, played = self._game, self.agents
        for group in game.turn_groups:
            for i in group:
                if self._names[i] in actions:
                    self._act(self._names[i], actions[self._names[i]])
        result = game.end_turn()
        self._earn(self._newly_given(result.rewards))
        terminated = self._flags(result.terminated)
        truncated = self._flags(result.truncated)
        self.agents = self._live()
        ended = [name for name in self._owed if terminated[name] or truncated[name]]
        last = {name: self._look(name) for name in ended if name not in self.agents}
        if self.agents:
            self._begin_game_turn()
        told = [*played, *(name for name in [*ended, *self.agents] if name not in played)]
        seen = {name: last[name] if name in last else self._look(name) for name in told}
        if self.agents:
            self._earn(self._newly_given())
        # Agents that begin an episode now have earned nothing.
        paid = [name for name in told if name in self._owed]
        rewards = {name: self._owed[name] for name in paid}
        self._owed |= dict.fromkeys([*paid, *self.agents], 0.0)
        for name in ended:
            if name not in self.agents:  # else it is in another episode at once
                del self._owed[name]
        ends = ({name: flags[name] for name in paid} for flags in (terminated, truncated))
        return seen, rewards, *ends, _nothing(told)

    def _earn(self, given: dict[str, float]) -> None:
        for name in self._owed:
            self._owed[name] += given[name]

    def _flags(self, flags: Array) -> dict[str, bool]:
        return {name: bool(flags[0, self._index[name]]) for name in self._owed}


class AECGame(_Exported, AECEnv[str, Any, Any]):  # type: ignore[misc]
    """A game as a PettingZoo environment where one agent acts at a time."""

    def reset(
        self,
        seed: int | None = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> None:
        """Begin an episode."""
        self._reset_game(seed)
        self.agents = self._live()
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = _nothing(self.agents)
        self._last: dict[str, Any] = {}  # final observations, by agent
        self._skip_agent_selection = None
        self._begin_turn()
        self._accumulate_rewards()

    def observe(self, agent: str) -> Any:
        """Return an observation. Agents of one group observe the world before any of them acted."""
        if agent in self._last and (self.terminations.get(agent) or self.truncations.get(agent)):
            return self._last[agent]
        return self._seen[agent] if agent in self._seen else self._look(agent)

    def step(self, action: Any) -> None:
        """Let the selected agent act.

        The last act of a turn ends it; rewards appear when they come.
        """
        if self.terminations[self.agent_selection] or self.truncations[self.agent_selection]:
            self._was_dead_step(action)
            self._join(self._live())  # the dead may have come back meanwhile
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
        """Select the agent that acts next in this turn; False: there is none."""
        while not self._waiting:
            group = next(self._groups, None)
            if group is None:
                self._seen: dict[str, Any] = {}
                return False
            live = self._live()
            self._join(live)
            self._waiting = [name for i in group if (name := self._names[i]) in live]
            self._seen = {name: self._look(name) for name in self._waiting}
            self._pay(self._newly_given())
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
        self._pay(self._newly_given(result.rewards))
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

    def _pay(self, given: dict[str, float]) -> None:
        for name in self.agents:
            self.rewards[name] += given[name]


def parallel_env(game: str, render_mode: str | None = None, **options: Any) -> ParallelGame:
    """Make a game with its options as an environment whose agents act simultaneously.

    A `ConfigError` says that there is no such game, that it refuses an option, or that its agents
    move one by one.
    """
    return ParallelGame(make_env(game, 1, **options), game, render_mode)


def aec_env(game: str, render_mode: str | None = None, **options: Any) -> AECGame:
    """Make a game with its options as an environment of one agent at a time."""
    return AECGame(make_env(game, 1, **options), game, render_mode)


def _nothing(names: list[str]) -> dict[str, dict[str, Any]]:
    return {name: {} for name in names}
