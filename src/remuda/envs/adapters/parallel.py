"""The base class of adapters, `Copies`, and the adapter of PettingZoo's parallel environments.

`Copies` cannot be saved in mid-episode, because the environments of Gymnasium and PettingZoo
cannot.
"""

from __future__ import annotations

import contextlib
import warnings
from abc import abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium import spaces

from remuda.envs.adapters.copy_options import CopyOptions
from remuda.envs.adapters.detect import CHECKERS, PARALLEL
from remuda.envs.adapters.masks import MASK, Masks, can_be_masked
from remuda.envs.adapters.spaces import action_converter, observation_converter
from remuda.envs.adapters.step_results import (
    RESET,
    STEP,
    first_reset,
    mapping_of,
    parts,
    refuse_lists,
    reset_env,
)
from remuda.envs.adapters.wrappers import NOTHING, Wrapping
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


def _has_state(copy: Any) -> bool:
    """Return whether a copy that has been reset implements `state`; other errors come later."""
    if not callable(getattr(copy, "state", None)):
        return False
    try:
        copy.state()
    except NotImplementedError:
        return False
    except Exception:  # the user's environment raises it again when the state is read
        return True
    return True


class ParallelCopies(Copies):
    """Copies of a PettingZoo environment whose agents act simultaneously.

    In a turn every agent in the environment's `agents` acts. A dead agent keeps its last
    observation. An agent that returns to `agents` starts a new episode.
    """

    checker = CHECKERS[PARALLEL]

    def __init__(
        self, make: Callable[[], Any], num_envs: int = 1, wrapping: Wrapping = NOTHING
    ) -> None:
        super().__init__(make, num_envs, wrapping)
        self.turn_groups = (tuple(range(self.num_agents)),)
        self._chosen: list[Any] = [None] * self.num_agents
        # By copy: agents whose episode has ended, but that have not left `agents`.
        self._lingering: list[set[int]] = [set() for _ in range(num_envs)]
        self._states: Array | None = None  # [num_envs, *state_shape], once read in a turn
        space = getattr(self.copies[0], "state_space", None)
        if isinstance(space, spaces.Space) and _has_state(self.copies[0]):
            with contextlib.suppress(ContractError):  # a state without a fixed size: no critic
                self._state = observation_converter(space)
                self.agents = tuple(
                    replace(agent, state_space=self._state.space) for agent in self.agents
                )

    def observe_state(self, agent: int, out: Array) -> None:  # noqa: ARG002 - all share it
        if self._states is None:
            self._states = np.zeros(out.shape, out.dtype)
            # Where nothing follows, no critic needs the state, and the game may have none.
            over = ~self.active.any(1) & ~self._truncated.any(1)
            for e in np.flatnonzero(~over).tolist():
                self._agent = None
                try:
                    self._state.write_unmasked(self.copies[e].state(), self._states[e, ...])
                except BadValueError as error:
                    fault = str(error).replace("the observation", "its `state()`", 1)
                    raise self._broken(e, BadValueError(fault)) from None
        out[...] = self._states

    def _restart(self, e: int, seed: int) -> None:
        self._states = None
        observations, infos = result = self._reset_copy(e, seed)
        if self.check:
            refuse_lists(self.copies[e], "reset", result, RESET)
        self._note_all(e, observations, infos or {})
        self._lingering[e].clear()
        if self.check:
            self._check_observed(self.copies[e].agents, observations)
        self._refuse_half_ended(e, self._let_play(e))

    def act(self, agent: int, actions: Array) -> None:
        """Store the actions; `end_turn` steps the copies."""
        self._chosen[agent] = self._actions[agent].unpack(actions)

    def end_turn(self) -> TurnResult:
        names, chosen, self._states = self._names, self._chosen, None
        for e, acts in enumerate(self.active.tolist()):
            actions = {names[i]: chosen[i][e] for i, is_active in enumerate(acts) if is_active}
            if actions:
                self._agent = None
                try:
                    self._step_together(e, actions)
                except BadValueError as error:
                    raise self._broken(e, error) from None
        return super().end_turn()

    def _step_together(self, e: int, actions: Mapping[Any, Any]) -> None:
        copy = self.copies[e]
        result = parts(copy, "step", copy.step(actions), STEP)
        if self.check:
            refuse_lists(copy, "step", result, STEP)
        observations, rewards, terminations, truncations, infos = result
        infos = infos or {}
        self._note_all(e, observations, infos)
        if self._metrics is not None:
            for name in actions:
                self._agent = self._index[name]
                self._metrics.read(e, self._agent, mapping_of(infos.get(name)), self.check)
        if self.check:
            self._check_complete(actions, observations, rewards, terminations, truncations)
            self._check_observed(copy.agents, observations)
        ended: dict[int, bool] = {}
        for agent, name in enumerate(self._names):
            terminated = self._flag("terminated", name, terminations)
            over = terminated or self._flag("truncated", name, truncations)
            if over and self._playing[e, agent]:
                ended[agent] = terminated
        # Start the episodes of agents that join in this step before counting rewards.
        lingering = self._let_play(e, ended)
        for agent, reward in self._nonzero(rewards):
            if self._playing[e, agent]:
                self._rewards[e, agent] += reward
        for agent, terminated in ended.items():
            self._end(e, agent, terminated)
        self._refuse_half_ended(e, lingering)

    def _flag(self, kind: str, name: Any, flags: Mapping[Any, Any]) -> bool:
        """Return an agent's flag, unchecked; `_check_complete` checks it."""
        value = flags.get(name, False)
        if type(value) is bool:
            return value
        self._agent = self._index[name]
        return flag(kind, value, check=False)

    def _note_all(self, e: int, observations: Mapping[Any, Any], infos: Mapping[Any, Any]) -> None:
        for name, observation in observations.items():
            agent = self._index.get(name)
            if agent is not None and observation is not None:
                self._note(e, agent, observation, infos.get(name))

    def _check_complete(
        self, acted: Mapping[Any, Any], observations: Mapping[Any, Any], *results: Mapping[Any, Any]
    ) -> None:
        rewards, terminations, truncations = results
        kinds = (("terminated", terminations), ("truncated", truncations))
        for kind, flags in kinds:
            for name in flags if type(flags) is dict and len(flags) > len(acted) else ():
                self._known(name, f"its `{kind}` contains")
        for name in acted:
            self._agent = self._index[name]
            if name not in rewards:
                raise BadValueError("the reward is missing")
            for kind, flags in kinds:
                if name not in flags:
                    raise BadValueError(f"`{kind}` is missing")
                if type(flags[name]) is not bool:
                    flag(kind, flags[name])
            if observations.get(name) is None and not terminations[name]:
                raise BadValueError("the observation is missing")

    def _check_observed(self, live: Iterable[Any], observations: Mapping[Any, Any]) -> None:
        for name in live:
            agent = self._known(name, "its `agents` contain")
            if observations.get(name) is None:
                self._agent = agent
                raise BadValueError("the observation is missing")

    def _let_play(self, e: int, ended: Container[int] = ()) -> set[int]:
        """Activate `agents`, except those that `ended` now; return those whose episode is over."""
        before, lingering = self._lingering[e], set[int]()
        self.active[e] = False
        for name in self.copies[e].agents:
            agent = self._known(name, "its `agents` contain")
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
            self._agent = min(lingering)
            raise BadValueError(
                "its episode has ended, but it is still in `agents` while others continue; in "
                "PettingZoo a step must remove the agents whose episodes it ends (they may join "
                "again in a later step)"
            )
