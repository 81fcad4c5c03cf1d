"""Wrappers of games; `Recorded` records rewards per turn, and the steps of acting agents."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from remuda.envs.recorded_steps import TERMINATED, TRUNCATED, StepLog, Steps
from remuda.envs.scripted import masks_of, possibilities
from remuda.envs.vector_env import VectorEnv
from remuda.types import Array, Bools, Floats, Integers, State, TurnResult

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PlayedEpisodes:
    """E whole episodes of N agents, turn by turn; the longest has T turns."""

    agents: tuple[str, ...]
    rewards: Numbers = field(repr=False)  # [E, T, N] of each turn; 0 after an episode's end
    took_part: Bools = field(repr=False)  # [E, N] agents that made a decision in each episode
    lengths: Integers = field(repr=False)  # [E] turns of each episode
    episode_metrics: dict[str, Numbers] = field(repr=False)  # [E] each

    @property
    def returns(self) -> Numbers:
        """Return undiscounted returns, [E, N]; NaN if the agent took no part."""
        returns: Numbers = np.where(self.took_part, self.rewards.sum(1), np.nan)
        return returns


@dataclass(frozen=True)
class ObservedStates:
    """Observations on which agents acted."""

    observations: Array
    """[S, frames, *shape], as the game writes them: each observation comes last, after the previous
    observations of its episode. Frames before the episode's start are zeros."""
    masks: Bools | None  # [S, mask_size]; None: the agents are not masked
    episodes: Integers  # [S] the number of each observation's episode


class RecordedEpisode(NamedTuple):
    """A finished episode of one copy."""

    number: int
    rewards: Floats  # [T, num_agents]
    took_part: Bools  # [num_agents]
    metrics: list[float]
    policies: Mapping[int, str]  # by agent, of a population


class Wrapped(VectorEnv):
    """A wrapper of a game that forwards all calls, except those that a subclass overrides."""

    def __init__(self, game: VectorEnv) -> None:
        self.game = game
        self.num_envs, self.agents, self.turn_groups = game.num_envs, game.agents, game.turn_groups
        self.active, self.episode_metrics = game.active, game.episode_metrics
        self.can_observe_together = game.can_observe_together
        self.may_return_at_once = game.may_return_at_once
        self.rewards_so_far = game.rewards_so_far
        self.checker, self.changeable_options = game.checker, game.changeable_options

    @property
    def notes(self) -> MutableMapping[str, str]:  # type: ignore[override]
        return self.game.notes

    @property
    def check(self) -> bool:
        return self.game.check

    @check.setter
    def check(self, check: bool) -> None:
        self.game.check = check

    @property
    def first_copy(self) -> int:
        return self.game.first_copy

    @first_copy.setter
    def first_copy(self, number: int) -> None:
        self.game.first_copy = number

    def warm_up(self) -> None:
        self.game.warm_up()

    def reset(self, seeds: Integers, mask: Bools) -> None:
        self.game.reset(seeds, mask)

    def begin_turn(self) -> None:
        self.game.begin_turn()

    def observe(self, agent: int, out: Array) -> None:
        self.game.observe(agent, out)

    def observe_state(self, agent: int, out: Array) -> None:
        self.game.observe_state(agent, out)

    def mask(self, agent: int, out: Bools) -> None:
        self.game.mask(agent, out)

    def act(self, agent: int, actions: Array) -> None:
        self.game.act(agent, actions)

    def end_turn(self) -> TurnResult:
        return self.game.end_turn()

    def render(self, env: int = 0) -> Array:
        return self.game.render(env)

    def describe(self, agent: int, env: int = 0) -> str:
        return self.game.describe(agent, env)

    def history(self, env: int = 0) -> list[int] | None:
        return self.game.history(env)

    def state(self) -> State:
        return self.game.state()

    def restore(self, state: State) -> None:
        self.game.restore(state)

    def options(self) -> dict[str, Any]:
        return self.game.options()

    def set_option(self, name: str, value: Any) -> None:
        self.game.set_option(name, value)

    def close(self) -> None:
        self.game.close()


class Recorded(Wrapped):
    """A wrapper of a game that records its episodes since `start` in which any agent acted."""

    def __init__(
        self,
        game: VectorEnv,
        episodes: int,
        states: int = 0,
        frames: int = 1,
        steps: bool = False,
    ) -> None:
        """Record the first `episodes` of each copy, and at least `states` observations per agent.

        Each observation is stored with its predecessors, `frames` in all. `steps`: record all
        observations of these episodes, with their actions, rewards and ends.
        """
        super().__init__(game)
        if steps:
            states, frames = sys.maxsize, 1
        self._logs = [StepLog(spec, self.num_envs) for spec in self.agents] if steps else []
        self._in_turn = False
        self.sitting: Callable[[int], Mapping[int, str]] = lambda copy: {}  # noqa: ARG005
        """Returns the policies of a copy by agent, in a population."""
        self._episodes, self._states, self._is_on = episodes, states, False
        self._numbers: Integers = np.arange(self.num_envs)
        self._next = self.num_envs
        self._going: list[list[Floats]] = [[] for _ in range(self.num_envs)]
        self._over: list[list[RecordedEpisode]] = [[] for _ in self._going]
        self._took_part: Bools = np.zeros((self.num_envs, len(self.agents)), np.bool_)
        self._observed: list[list[tuple[Array, Bools | None, Integers]]] = [[] for _ in self.agents]
        self._counts = [0] * len(self.agents)
        self._frames: list[Array] = [
            np.zeros((self.num_envs, frames, *(spec.shape or ())), spec.dtype)
            for spec in (agent.observation_space for agent in self.agents)
        ]
        """The newest observations of each agent."""

    def start(self) -> None:
        """Start recording; call this after the actor has compiled with a dummy turn."""
        self._is_on = True

    def reset(self, seeds: Integers, mask: Bools) -> None:
        self.game.reset(seeds, mask)
        self._took_part[mask] = False
        for log in self._logs:
            log.reset(mask)
        for copy in np.flatnonzero(mask):
            self._going[copy] = []
            for frames in self._frames:
                frames[copy] = 0
            self._numbers[copy], self._next = self._next, self._next + 1

    def begin_turn(self) -> None:
        self.game.begin_turn()
        self._in_turn = True
        for log in self._logs:
            log.begin_turn()

    def observe(self, agent: int, out: Array) -> None:
        self.game.observe(agent, out)
        if not self._in_turn:  # a final observation
            return
        self._took_part[:, agent] |= self.active[:, agent]
        if not self._is_on or self._counts[agent] >= self._states:
            return
        rows = np.flatnonzero(self.active[:, agent])
        if self._logs:
            rows = rows[[len(self._over[copy]) < self._episodes for copy in rows]]
            so_far = self.rewards_so_far
            self._logs[agent].observe(rows, None if so_far is None else so_far[:, agent])
        frames = self._frames[agent]
        frames[rows, :-1] = frames[rows, 1:]
        frames[rows, -1] = out.reshape(self.num_envs, *frames.shape[2:])[rows]
        masks = masks_of(self.game, agent)
        allowed = None if masks is None else masks[rows]
        self._observed[agent].append((frames[rows], allowed, self._numbers[rows]))
        self._counts[agent] += len(rows)

    def act(self, agent: int, actions: Array) -> None:
        if self._logs and self._is_on:
            self._logs[agent].act(actions)
        self.game.act(agent, actions)

    def end_turn(self) -> TurnResult:
        """Record rewards, and the metrics of whole episodes."""
        result = self.game.end_turn()
        self._in_turn = False
        if self._is_on:
            self._end_steps(result)
        ended: Bools = result.terminated | result.truncated
        for agent in np.flatnonzero(ended.any(0)).tolist():
            self._frames[agent][ended[:, agent]] = 0
        if self._is_on and self._episodes:
            over: Bools = np.logical_not(self.active.any(axis=1))
            for copy in range(self.num_envs):
                if len(self._over[copy]) >= self._episodes:
                    continue
                self._going[copy].append(result.rewards[copy].copy())
                if over[copy] and self._took_part[copy].any():
                    rewards = np.array(self._going[copy], np.float32)
                    metrics = [float(result.info[name][copy]) for name in self.episode_metrics]
                    took_part = self._took_part[copy].copy()
                    number, policies = int(self._numbers[copy]), dict(self.sitting(copy))
                    self._over[copy].append(
                        RecordedEpisode(number, rewards, took_part, metrics, policies)
                    )
                if over[copy]:
                    self._going[copy] = []
        return result

    def _end_steps(self, result: TurnResult) -> None:
        for agent, log in enumerate(self._logs):
            over = log.end_turn(
                result.rewards[:, agent], result.terminated[:, agent], result.truncated[:, agent]
            )
            if over.any():
                self.game.observe(agent, log.room())
                log.close(over, log.room())

    @property
    def episodes_over(self) -> tuple[int, ...]:
        """Return the number of finished recorded episodes of each copy."""
        return tuple(len(of_copy) for of_copy in self._over)

    def played(self, most: int | None = None) -> PlayedEpisodes:
        """Return the finished recorded episodes, at most `most` of each copy."""
        episodes = [episode for of_copy in self._over for episode in of_copy[:most]]
        count, num_agents = len(episodes), len(self.agents)
        lengths = np.array([len(episode.rewards) for episode in episodes], np.int64)
        whole = np.zeros((count, int(lengths.max(initial=0)), num_agents))
        for row, episode in zip(whole, episodes, strict=True):
            row[: len(episode.rewards)] = episode.rewards
        players = [episode.took_part for episode in episodes]
        took_part = np.array(players, np.bool_).reshape(count, num_agents)
        table = np.array([episode.metrics for episode in episodes], np.float64)
        columns = table.reshape(count, len(self.episode_metrics)).T
        names = tuple(agent.name for agent in self.agents)
        metrics = dict(zip(self.episode_metrics, columns, strict=True))
        return PlayedEpisodes(names, whole, took_part, lengths, metrics)

    def observed(self, agents: Sequence[int]) -> ObservedStates | None:
        """Return the observations of agents with equal spaces; None if no agent acted."""
        parts = [part for agent in agents for part in self._observed[agent] if len(part[0])]
        if not parts:
            return None
        masks = [part[1] for part in parts if part[1] is not None]
        return ObservedStates(
            np.concatenate([part[0] for part in parts]),
            np.concatenate(masks) if len(masks) == len(parts) else None,
            np.concatenate([part[2] for part in parts]),
        )

    def episodes(self, wanted: int) -> list[RecordedEpisode]:
        """Return `wanted` finished episodes, equally many (within one) of each copy."""
        each, rest = divmod(wanted, self.num_envs)
        return [
            episode
            for copy, of_copy in enumerate(self._over)
            for episode in of_copy[: each + (copy < rest)]
        ]

    def steps(self, agent: int, episodes: Sequence[RecordedEpisode]) -> Steps:
        """Return an agent's steps in these episodes, trajectory after trajectory."""
        spec, log, seen = self.agents[agent], self._logs[agent], self.observed([agent])
        if seen is None:
            masks = np.zeros((0, possibilities(spec)), np.bool_) if spec.masked else None
            seen = ObservedStates(log.room()[:0, None], masks, np.zeros(0, np.int64))
        index = {episode.number: i for i, episode in enumerate(episodes)}
        ranks = np.array([index.get(number, -1) for number in seen.episodes.tolist()], np.int64)
        order = np.argsort(ranks, kind="stable")
        order = order[ranks[order] >= 0]
        acts = spec.action_space
        nothing = np.zeros((0, *(acts.shape or ())), acts.dtype)
        ends = log.ends[order]
        last = order[ends > 0]
        final = [log.final_observations[step] for step in last.tolist()]
        return Steps(
            observations=seen.observations[order, 0],
            masks=None if seen.masks is None else seen.masks[order],
            actions=np.concatenate((nothing, *log.actions))[order],
            rewards=log.rewards[order],
            terminations=ends == TERMINATED,
            truncations=ends == TRUNCATED,
            final_observations=np.array(final, log.room().dtype).reshape(-1, *log.room().shape[1:]),
            episodes=ranks[last],
        )
