"""The adapter of PettingZoo's parallel environments."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium import spaces

from remuda.envs.adapters.copies import Copies
from remuda.envs.adapters.detect import CHECKERS, PARALLEL
from remuda.envs.adapters.spaces import observation_converter
from remuda.envs.adapters.step_results import (
    RESET,
    STEP,
    mapping_of,
    parts,
    refuse_lists,
)
from remuda.envs.adapters.wrappers import NOTHING, Wrapping
from remuda.envs.checks import (
    BadValueError,
    flag,
)
from remuda.errors import ContractError
from remuda.types import Array, TurnResult


def _has_state(copy: Any) -> bool:
    """Return whether a copy that has been reset implements `state`; other errors come later.

    A list of dictionaries is no state: Shimmy returns all players' observations of Melting Pot.
    """
    if not callable(getattr(copy, "state", None)):
        return False
    try:
        found = copy.state()
    except NotImplementedError:
        return False
    except Exception:  # the user's environment raises it again when the state is read
        return True
    return not (isinstance(found, list) and found and isinstance(found[0], Mapping))


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
