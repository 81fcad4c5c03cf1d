"""The base class of adapters, `Copies`, and the adapter of PettingZoo's parallel environments.

`Copies` cannot be saved in mid-episode, because the environments of Gymnasium and PettingZoo
cannot.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from remuda.envs.adapters.detect import CHECKERS, PARALLEL
from remuda.envs.adapters.masks import MASK, Masks, can_be_masked
from remuda.envs.adapters.spaces import action_converter, observation_converter
from remuda.envs.adapters.step_results import (
    RESET,
    STEP,
    FirstCopy,
    first_reset,
    mapping_of,
    parts,
    refuse_lists,
)
from remuda.envs.adapters.wrappers import NOTHING, InfoMetrics, Wrapping
from remuda.envs.checks import (
    BadValueError,
    BoundsCheck,
    UntakeableError,
    broken,
    flag,
    number,
    of_mask,
    short,
)
from remuda.envs.closing import close_all
from remuda.envs.games.array_game import TurnArrays
from remuda.errors import ContractError
from remuda.types import AgentSpec, Array, Bools, Integers, TurnResult

if TYPE_CHECKING:
    from pettingzoo import ParallelEnv

Spaces = tuple[spaces.Space[Any], spaces.Space[Any]]  # observation space and action space


class Copies(TurnArrays):
    """The base class of adapters, which owns and fills the arrays of all copies.

    If any agent's first `info` has an `action_mask` (even None), every agent with discrete actions
    is masked. Some environments return only the selected agent's mask, and in others agents join
    later. All actions are allowed to an agent that never has a mask.
    """

    def __init__(
        self,
        copies: Sequence[Any],
        agents: Mapping[Any, Spaces],
        infos: Mapping[Any, Any] | None,
        wrapping: Wrapping,
    ) -> None:
        """Wrap copies of an environment, the first of which has been reset."""
        self.copies = copies  # the library's environments
        self._names = names = tuple(agents)
        self._index = {name: i for i, name in enumerate(names)}
        self._actions = [action_converter(acts) for _, acts in agents.values()]
        self._observations = [
            observation_converter(sees, actions)
            for (sees, _), actions in zip(agents.values(), self._actions, strict=True)
        ]
        try:
            infos = mapping_of(infos)
            own_infos = [mapping_of(infos.get(name)) for name in names]
        except UntakeableError as error:
            raise ContractError(f"the game breaks its contract: {error}") from None
        any_mask = any(MASK in info for info in own_infos)
        count = len(copies)
        specs = [
            AgentSpec(
                str(name),
                observed.space,
                acts.space,
                masked=can_be_masked(acts.space) and (observed.has_mask or any_mask),
                env_observation_space=agents[name][0],
                env_action_space=agents[name][1],
            )
            for name, observed, acts in zip(names, self._observations, self._actions, strict=True)
        ]
        self._make_arrays(count, specs)
        self._seen = [
            np.zeros((count, *each.space.shape), each.space.dtype) for each in self._observations
        ]
        self._masks = [
            Masks(spec, acts.env_space, count, observed.has_mask, info.get(MASK) is not None)
            for spec, observed, acts, info in zip(
                specs, self._observations, self._actions, own_infos, strict=True
            )
        ]
        self._turns: Integers = np.zeros(count, np.int64)
        self.notes = {}
        self._bounds = BoundsCheck(self, self._seen, self._terminated, self._truncated)
        self._playing: Bools = np.zeros_like(self.active)  # whether an agent is in an episode
        self.wrapping = wrapping
        self._metrics = wrapping.reading([spec.name for spec in specs], count)
        self.episode_metrics = self._metrics.names if self._metrics is not None else ()

    def reset(self, seeds: Integers, mask: Bools) -> None:
        for e in np.flatnonzero(mask).tolist():
            self.active[e] = self._playing[e] = False
            self._turns[e] = 0
            if self._metrics is not None:
                self._metrics.begin(e)
            self._terminated[e] = self._truncated[e] = False
            for seen, masks in zip(self._seen, self._masks, strict=True):
                seen[e] = 0
                masks.clear(e)
            self._restart(e, int(seeds[e]) % 2**31)

    @abstractmethod
    def _restart(self, e: int, seed: int) -> None:
        """Restart one copy, and set its active agents and their observations."""

    def begin_turn(self) -> None:
        super().begin_turn()
        self._turns += 1

    def observe(self, agent: int, out: Array) -> None:
        if self.check:
            self._bounds.look(agent, self._turns)
        out[...] = self._seen[agent]

    def mask(self, agent: int, out: Bools) -> None:
        masks, active = self._masks[agent], self._acting(agent)
        lacking = masks.lacking(active) if self.check else None
        if lacking is not None:
            raise self._broken(lacking, agent, of_mask(BadValueError("its mask is missing")))
        masks.write(out, active, self.check)

    def _acting(self, agent: int) -> Bools:
        """Return the copies in which an agent acts on its newest observation: [num_envs]."""
        return self.active[:, agent]

    def end_turn(self) -> TurnResult:
        if self._metrics is None:
            return self._result
        metrics = self._metrics.episode_metrics(np.any(self._terminated | self._truncated, axis=1))
        return TurnResult(self._rewards, self._terminated, self._truncated, metrics)

    def render(self, env: int = 0) -> Array:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # environments without a render mode warn
            picture = self.copies[env].render()
        if not isinstance(picture, np.ndarray):
            raise NotImplementedError(f"render() of {self.copies[env]} returned no image")
        return picture

    def close(self) -> None:
        close_all(self.copies)

    def _note(self, e: int, agent: int, observation: Any, info: Any) -> None:
        """Store an agent's observation and mask, or raise a `ContractError`."""
        try:
            self._write(e, agent, observation, info)
        except BadValueError as error:
            raise self._broken(e, agent, error) from None

    def _write(self, e: int, agent: int, observation: Any, info: Any) -> None:
        """Store an agent's observation and mask, or raise a `BadValueError`."""
        if type(info) is not dict:
            info = mapping_of(info)
        # `...` makes a view of a zero-dimensional observation, too.
        self._observations[agent].write(observation, self._seen[agent][e, ...], self.check)
        self._masks[agent].note(e, observation, info, self.check)

    def _nonzero(self, e: int, rewards: Mapping[Any, Any]) -> Iterator[tuple[int, float]]:
        for name, reward in rewards.items():
            if type(reward) is not float and (self.check or reward is not None):
                reward = self._number(e, name, reward)  # noqa: PLW2901
            if reward:
                agent = self._known(e, name, "its rewards contain")
                if agent is not None:
                    yield agent, reward

    def _number(self, e: int, name: Any, reward: Any) -> float:
        try:
            return number(reward, self.check)
        except BadValueError as error:
            raise self._broken(e, self._index.get(name), error) from None

    def _read(self, metrics: InfoMetrics, e: int, agent: int, info: Any) -> None:
        try:
            metrics.read(e, agent, mapping_of(info), self.check)
        except BadValueError as error:
            raise self._broken(e, agent, error) from None

    def _known(self, e: int, name: Any, where: str) -> int | None:
        """Return an agent's number; None if it is unknown and checks are off."""
        agent = self._index.get(name)
        if agent is None and self.check:
            raise self._broken(e, None, BadValueError(self._unknown(name, where)))
        return agent

    def _unknown(self, name: Any, where: str) -> str:
        names = ", ".join(map(str, self._names))
        return f"{where} {short(name)}, and the `possible_agents` are {names}"

    def _broken(self, e: int, agent: int | None, fault: object) -> ContractError:
        return broken(self, agent, e, int(self._turns[e]), fault)

    def _end(self, e: int, agent: int, terminated: bool) -> None:
        self._playing[e, agent] = self.active[e, agent] = False
        self._terminated[e, agent] = terminated
        self._truncated[e, agent] = not terminated

    def _truncate_all(self, e: int) -> None:
        """Truncate the agents that are still in an episode when their copy finishes."""
        for agent in np.flatnonzero(self._playing[e]).tolist():
            self._end(e, agent, terminated=False)


def spaces_of(env: Any) -> dict[Any, Spaces]:
    """Return the spaces of each agent of a PettingZoo environment."""
    return {
        name: (env.observation_space(name), env.action_space(name)) for name in env.possible_agents
    }


class ParallelCopies(Copies):
    """Copies of a PettingZoo environment whose agents act simultaneously.

    In a turn every agent in the environment's `agents` acts. A dead agent keeps its last
    observation. An agent that returns to `agents` starts a new episode.
    """

    checker = CHECKERS[PARALLEL]

    def __init__(
        self,
        make: Callable[[], ParallelEnv[Any, Any, Any]],
        num_envs: int = 1,
        wrapping: Wrapping = NOTHING,
    ) -> None:
        copies = [make() for _ in range(num_envs)]
        _, infos = first_reset(copies[0])
        self._first = FirstCopy(copies, make)
        super().__init__(copies, spaces_of(copies[0]), infos, wrapping)
        self.turn_groups = (tuple(range(self.num_agents)),)
        self._chosen: list[Any] = [None] * self.num_agents
        # By copy: agents whose episode has ended, but that have not left `agents`.
        self._lingering: list[set[int]] = [set() for _ in copies]

    def _restart(self, e: int, seed: int) -> None:
        try:
            observations, infos = result = self._first.reset(e, seed)
            if self.check:
                refuse_lists(self.copies[e], "reset", result, RESET)
        except BadValueError as error:
            raise self._broken(e, None, error) from None
        self._note_all(e, observations, infos or {})
        self._lingering[e].clear()
        if self.check:
            self._check_observed(e, self.copies[e].agents, observations)
        self._refuse_half_ended(e, self._let_play(e))

    def act(self, agent: int, actions: Array) -> None:
        """Store the actions; `end_turn` steps the copies."""
        self._chosen[agent] = self._actions[agent].unpack(actions)

    def end_turn(self) -> TurnResult:
        """Step every copy that has not finished."""
        names, chosen = self._names, self._chosen
        playing = self.active.tolist()
        for e, copy in enumerate(self.copies):
            actions = {names[i]: chosen[i][e] for i, acts in enumerate(playing[e]) if acts}
            if not actions:
                continue
            try:
                result = parts(copy, "step", copy.step(actions), STEP)
                if self.check:
                    refuse_lists(copy, "step", result, STEP)
            except BadValueError as error:
                raise self._broken(e, None, error) from None
            observations, rewards, terminations, truncations, infos = result
            infos = infos or {}
            self._note_all(e, observations, infos)
            if self._metrics is not None:
                for name in actions:
                    self._read(self._metrics, e, self._index[name], infos.get(name))
            if self.check:
                self._check_complete(e, actions, observations, rewards, terminations, truncations)
            ended: dict[int, bool] = {}
            for agent, name in enumerate(names):
                terminated = self._flag(e, "terminated", name, terminations)
                over = terminated or self._flag(e, "truncated", name, truncations)
                if over and self._playing[e, agent]:
                    ended[agent] = terminated
            # Start the episodes of agents that join in this step before counting rewards.
            lingering = self._let_play(e, ended)
            for agent, reward in self._nonzero(e, rewards):
                if self._playing[e, agent]:
                    self._rewards[e, agent] += reward
            for agent, terminated in ended.items():
                self._end(e, agent, terminated)
            self._refuse_half_ended(e, lingering)
        return super().end_turn()

    def _flag(self, e: int, kind: str, name: Any, flags: Mapping[Any, Any]) -> bool:
        """Return an agent's flag, unchecked; `_check_complete` checks it."""
        value = flags.get(name, False)
        if type(value) is bool:
            return value
        try:
            return flag(kind, value, check=False)
        except BadValueError as error:
            raise self._broken(e, self._index[name], error) from None

    def _note_all(self, e: int, observations: Mapping[Any, Any], infos: Mapping[Any, Any]) -> None:
        for name, observation in observations.items():
            agent = self._index.get(name)
            if agent is not None and observation is not None:
                self._note(e, agent, observation, infos.get(name))

    def _check_complete(
        self,
        e: int,
        acted: Mapping[Any, Any],
        observations: Mapping[Any, Any],
        *results: Mapping[Any, Any],
    ) -> None:
        rewards, terminations, truncations = results
        kinds = (("terminated", terminations), ("truncated", truncations))
        for kind, flags in kinds:
            for name in flags if type(flags) is dict and len(flags) > len(acted) else ():
                self._known(e, name, f"its `{kind}` contains")
        for name in acted:
            try:
                if name not in rewards:
                    raise BadValueError("the reward is missing")
                for kind, flags in kinds:
                    if name not in flags:
                        raise BadValueError(f"`{kind}` is missing")
                    if type(flags[name]) is not bool:
                        flag(kind, flags[name])
                if observations.get(name) is None and not terminations[name]:
                    raise BadValueError("the observation is missing")
            except BadValueError as error:
                raise self._broken(e, self._index[name], error) from None
        self._check_observed(e, self.copies[e].agents, observations)

    def _check_observed(self, e: int, live: Iterable[Any], observations: Mapping[Any, Any]) -> None:
        for name in live:
            agent = self._known(e, name, "its `agents` contain")
            if observations.get(name) is None:
                raise self._broken(e, agent, "the observation is missing")

    def _let_play(self, e: int, ended: Container[int] = ()) -> set[int]:
        """Activate the agents in `agents`, except those whose episode `ended` in this step.

        Returns the agents whose episode has ended, but that have not left `agents`.
        """
        before, lingering = self._lingering[e], set[int]()
        self.active[e] = False
        for name in self.copies[e].agents:
            agent = self._known(e, name, "its `agents` contain")
            if agent is None:
                continue
            if agent in ended or agent in before:
                lingering.add(agent)
            else:
                self.active[e, agent] = self._playing[e, agent] = True
        self._lingering[e] = lingering
        return lingering

    def _refuse_half_ended(self, e: int, lingering: set[int]) -> None:
        """Refuse a copy that continues while agents whose episode has ended stay in `agents`."""
        if not self.active[e].any():
            self._truncate_all(e)
        elif lingering and self.check:
            raise self._broken(
                e,
                min(lingering),
                "its episode has ended, but it is still in `agents` while others continue; in "
                "PettingZoo a step must remove the agents whose episodes it ends (they may join "
                "again in a later step)",
            )
