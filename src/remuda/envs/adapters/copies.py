"""The base class of adapters: copies of an environment that are stepped one by one.

They cannot be saved in mid-episode, because the environments of Gymnasium and PettingZoo cannot.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from remuda.envs.adapters.copy_options import CopyOptions
from remuda.envs.adapters.masks import MASK, Masks, can_be_masked
from remuda.envs.adapters.spaces import action_converter, observation_converter
from remuda.envs.adapters.step_results import (
    RESET,
    first_reset,
    mapping_of,
    reset_env,
)
from remuda.envs.adapters.wrappers import METRICS, NOTHING, Wrapping
from remuda.envs.checks import (
    BadValueError,
    BoundsCheck,
    UntakeableError,
    broken,
    number,
    of_mask,
    short,
)
from remuda.envs.closing import close, close_all
from remuda.envs.games.array_game import TurnArrays
from remuda.envs.scripted import room_for
from remuda.errors import ContractError
from remuda.types import AgentSpec, Array, Bools, Integers, TurnResult

Spaces = tuple[spaces.Space[Any], spaces.Space[Any]]  # observation space and action space


class Copies(TurnArrays):
    """The base class of adapters, which owns and fills the arrays of all copies.

    If any agent's first `info` has an `action_mask` (even None), every agent with discrete actions
    is masked. Some environments return only the selected agent's mask, and in others agents join
    later. All actions are allowed to an agent that never has a mask.
    """

    _reset_result = RESET  # the values that the library's `reset` returns

    def __init__(
        self, make: Callable[[], Any], num_envs: int = 1, wrapping: Wrapping = NOTHING
    ) -> None:
        """Make the copies, and reset the first to inspect it."""
        self._make, self._inspected = make, {0}
        self.copies = copies = [make() for _ in range(num_envs)]  # the library's environments
        self._options = CopyOptions(copies)
        self.changeable_options = self._options.declared
        result = first_reset(copies[0], self._reset_result)
        agents, infos = self._spaces_of(copies[0]), self._infos_of(copies[0], result)
        self._names = names = tuple(agents)
        self._index = {name: i for i, name in enumerate(names)}
        self._actions = [action_converter(acts) for _, acts in agents.values()]
        self._observations = [
            observation_converter(observed, actions)
            for (observed, _), actions in zip(agents.values(), self._actions, strict=True)
        ]
        try:
            infos = mapping_of(infos)
            own_infos = [mapping_of(infos.get(name)) for name in names]
        except UntakeableError as error:
            raise ContractError(f"the game breaks its contract: {error}") from None
        any_mask = any(MASK in info for info in own_infos)
        converters = list(zip(self._observations, self._actions, strict=True))
        specs = [
            AgentSpec(
                str(name),
                observed.space,
                acts.space,
                masked=can_be_masked(acts.space) and (observed.has_mask or any_mask),
                env_observation_space=agents[name][0],
                env_action_space=agents[name][1],
            )
            for name, (observed, acts) in zip(names, converters, strict=True)
        ]
        count = len(copies)
        self._make_arrays(count, specs)
        self._newest = [room_for(self, agent) for agent in range(len(specs))]
        self._masks = [
            Masks(spec, acts.env_space, count, observed.has_mask, info.get(MASK) is not None)
            for spec, (observed, acts), info in zip(specs, converters, own_infos, strict=True)
        ]
        self._turns: Integers = np.zeros(count, np.int64)
        self.notes = {}
        self._bounds = BoundsCheck(self, self._newest, self._terminated, self._truncated)
        self._playing: Bools = np.zeros_like(self.active)  # whether an agent is in an episode
        self._agent: int | None = None  # the agent whose values are read, for errors
        self.wrapping = wrapping
        self._metrics = wrapping.reading([spec.name for spec in specs], count)
        self.episode_metrics = self._metrics.names if self._metrics is not None else ()

    def reset(self, seeds: Integers, mask: Bools) -> None:
        for e in np.flatnonzero(mask).tolist():
            self.active[e] = self._playing[e] = False
            self._turns[e] = 0
            if self._metrics is not None:
                self._metrics.begin(e)
                if self._metrics.note:
                    self.notes[METRICS] = self._metrics.note
            self._terminated[e] = self._truncated[e] = False
            for rows, masks in zip(self._newest, self._masks, strict=True):
                rows[e] = 0
                masks.clear(e)
            self._agent = None
            try:
                self._restart(e, int(seeds[e]) % 2**31)
            except BadValueError as error:
                raise self._broken(e, error) from None

    def set_option(self, name: str, value: Any) -> None:
        self._options.change(name, value)

    def _spaces_of(self, env: Any) -> Mapping[Any, Spaces]:
        """Return the spaces of each agent; those of a PettingZoo environment by default."""
        names = env.possible_agents
        return {name: (env.observation_space(name), env.action_space(name)) for name in names}

    def _infos_of(self, env: Any, result: Any) -> Any:  # noqa: ARG002
        """Return the infos by agent after `reset` returned this result."""
        return result[1]

    def _reset_copy(self, e: int, seed: int) -> Any:
        """Reset a copy, and return the result.

        Some environments refuse a second reset before the episode ends; the first copy, which has
        been reset for inspection, is then replaced.
        """
        was_inspected = e in self._inspected
        self._inspected.discard(e)
        self._options.apply(e, self.copies[e])
        try:
            return reset_env(self.copies[e], seed, self._reset_result)
        except Exception as error:
            if isinstance(error, UntakeableError) or not was_inspected:
                raise
            close(self.copies[e].close, self.copies[e])
            self.copies[e] = self._make()
            self._options.replaced(e)
            self._options.apply(e, self.copies[e])
            return reset_env(self.copies[e], seed, self._reset_result)

    @abstractmethod
    def _restart(self, e: int, seed: int) -> None:
        """Start an episode of a copy; raise a `BadValueError` for a fault of `self._agent`."""

    def begin_turn(self) -> None:
        super().begin_turn()
        self._turns += 1

    def act(self, agent: int, actions: Array) -> None:
        unpacked = self._actions[agent].unpack(actions)
        for e in np.flatnonzero(self.active[:, agent]).tolist():
            self._agent = agent
            try:
                self._step(e, agent, unpacked[e])
            except BadValueError as error:
                raise self._broken(e, error) from None

    def _step(self, e: int, agent: int, action: Any) -> None:
        """Step one copy with an agent's action; raise a `BadValueError` as `_restart` does."""

    def observe(self, agent: int, out: Array) -> None:
        if self.check:
            self._bounds.look(agent, self._turns)
        out[...] = self._newest[agent]

    def mask(self, agent: int, out: Bools) -> None:
        masks, active = self._masks[agent], self._acting(agent)
        lacking = masks.lacking(active) if self.check else None
        if lacking is not None:
            self._agent = agent
            raise self._broken(lacking, of_mask(BadValueError("its mask is missing")))
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
        self._agent = agent
        if type(info) is not dict:
            info = mapping_of(info)
        # `...` makes a view of a zero-dimensional observation, too.
        self._observations[agent].write(observation, self._newest[agent][e, ...], self.check)
        self._masks[agent].note(e, observation, info, self.check)

    def _nonzero(self, rewards: Mapping[Any, Any]) -> Iterator[tuple[int, float]]:
        for name, reward in rewards.items():
            if type(reward) is not float and (self.check or reward is not None):
                reward = self._number(name, reward)  # noqa: PLW2901
            if reward:
                agent = self._known(name, "its rewards contain")
                if agent is not None:
                    yield agent, reward

    def _number(self, name: Any, reward: Any) -> float:
        self._agent = self._index.get(name)
        return number(reward, self.check)

    def _known(self, name: Any, where: str) -> int | None:
        """Return an agent's number; None if it is unknown and checks are off."""
        agent = self._index.get(name)
        if agent is None and self.check:
            self._agent = None
            raise BadValueError(self._unknown(name, where))
        return agent

    def _unknown(self, name: Any, where: str) -> str:
        names = ", ".join(map(str, self._names))
        return f"{where} {short(name)}, and the `possible_agents` are {names}"

    def _broken(self, e: int, fault: BadValueError) -> ContractError:
        return broken(self, self._agent, e, int(self._turns[e]), fault)

    def _end(self, e: int, agent: int, terminated: bool) -> None:
        self._playing[e, agent] = self.active[e, agent] = False
        self._terminated[e, agent] = terminated
        self._truncated[e, agent] = not terminated

    def _truncate_all(self, e: int) -> None:
        """Truncate the agents that are still in an episode when their copy finishes."""
        for agent in np.flatnonzero(self._playing[e]).tolist():
            self._end(e, agent, terminated=False)
