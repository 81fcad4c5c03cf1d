"""Gymnasium environments: one agent, many copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from remuda.envs.adapters.answers import STEP, FirstCopy, first_reset, is_sequence, parts
from remuda.envs.adapters.parallel import Copies
from remuda.envs.adapters.tuples import copies_of, has_agents, made_quietly
from remuda.envs.adapters.wrapping import NOTHING, Wrapping
from remuda.envs.checks import BadValueError, UntakeableError, flag, number
from remuda.envs.closing import close
from remuda.envs.kinds import CHECKERS, GYMNASIUM
from remuda.envs.vector_env import VectorEnv
from remuda.errors import ConfigError
from remuda.loading import import_module
from remuda.types import Array, Integers
from remuda.user_code import where_raised

AGENT = "agent_0"


class GymnasiumEnv(Copies):
    """Copies of one Gymnasium environment, stepped one after another.

    `gymnasium.spaces.flatten` flattens observations that are no Box. The agent is masked if `info`
    has an `action_mask` (or None for one) after the first reset, or the observation holds one.
    """

    turn_groups = ((0,),)
    checker = CHECKERS[GYMNASIUM]

    def __init__(
        self,
        make: Callable[[], gymnasium.Env[Any, Any]],
        num_envs: int = 1,
        wrapping: Wrapping = NOTHING,
    ) -> None:
        copies = [make() for _ in range(num_envs)]
        _, info = first_reset(copies[0])
        self._first = FirstCopy(copies, make)
        agents = {AGENT: (copies[0].observation_space, copies[0].action_space)}
        super().__init__(copies, agents, {AGENT: info}, wrapping)

    def _restart(self, e: int, seed: int) -> None:
        try:
            observation, info = self._first.reset(e, seed)
            self._write(e, 0, observation, info)
        except BadValueError as error:
            raise self._broken(e, 0, error) from None
        self.active[e] = self._playing[e] = True

    def act(self, agent: int, actions: Integers) -> None:  # noqa: ARG002
        """Step every copy that is not over."""
        unpacked, copies = self._actions[0].unpack(actions), self.copies
        for e in np.flatnonzero(self.active[:, 0]).tolist():
            result: Any = None
            try:
                result = parts(copies[e], "step", copies[e].step(unpacked[e]), STEP)
                observation, reward, terminated, truncated, info = result
                self._write(e, 0, observation, info)
                if self._metrics is not None:
                    self._metrics.read(e, 0, info or {}, self.check)
                plain = type(reward) is float and type(terminated) is type(truncated) is bool
                if not plain:
                    missing = reward is None and not self.check
                    reward = np.nan if missing else number(reward, self.check)
                    terminated = flag("terminated", terminated, self.check)
                    truncated = flag("truncated", truncated, self.check)
            except BadValueError as error:
                raise self._broken(e, 0, self._with_hint(e, result, error)) from None
            self._rewards[e, 0] = reward
            if terminated or truncated:
                self._end(e, 0, terminated)

    def render(self, env: int = 0) -> Array:
        try:
            return super().render(env)
        except gymnasium.error.Error as error:  # a library that it draws with is missing
            raise NotImplementedError(" ".join(str(error).split())) from None

    def _with_hint(self, e: int, result: Any, error: BadValueError) -> BadValueError:
        sees, acts = self.copies[e].observation_space, self.copies[e].action_space
        if not (isinstance(sees, spaces.Tuple) and isinstance(acts, spaces.Tuple)):
            return error
        count = len(sees.spaces)
        reward: Any = result[1] if isinstance(result, tuple | list) and len(result) > 1 else None
        if count == len(acts.spaces) and is_sequence(reward) and len(reward) == count:
            return UntakeableError(
                f"{error}; if its tuples are of {count} agents, let it have an attribute "
                f"n_agents = {count}"
            )
        return error


class _Maker:
    """Makes an environment, with pictures if its metadata offers them and its constructor can."""

    def __init__(
        self,
        name: str,
        options: Mapping[str, Any],
        draws: bool,
        make: Callable[[str, Mapping[str, Any]], gymnasium.Env[Any, Any]],
    ) -> None:
        self._name, self._options, self._draws, self._make = name, dict(options), draws, make

    def __call__(self) -> gymnasium.Env[Any, Any]:
        if self._draws:
            try:
                return self._make(self._name, self._options | {"render_mode": "rgb_array"})
            except Exception:  # any other fault is raised again below
                self._draws = False
        return self._make(self._name, self._options)


def _make(name: str, options: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    return gymnasium.make(name, **options)


def make_gymnasium(
    name: str, /, num_envs: int = 1, *, wrapping: Wrapping = NOTHING, **options: Any
) -> VectorEnv:
    """Make copies of an environment of Gymnasium's registry.

    `my_module:Name-v0` imports a module that registers it. An environment whose spaces are tuples
    by agent gets several agents: see `tuples`.
    """
    try:
        module, _, name = name.rpartition(":")
        if module:
            import_module(module)
        modes = gymnasium.spec(name).kwargs | options
        env = gymnasium.make(name, **options)
        drawable = "rgb_array" in (env.metadata.get("render_modes") or ())
        close(env.close, env)
        draws = drawable and "render_mode" not in modes
        if has_agents(env, lambda: made_quietly(name, options)):
            make = wrapping.around(_Maker(name, options, draws, made_quietly))
            return copies_of(make, num_envs, wrapping)
        make = wrapping.around(_Maker(name, options, draws, _make))
        return GymnasiumEnv(make, num_envs, wrapping)
    except (gymnasium.error.Error, TypeError, ImportError) as error:
        if where_raised(error, libraries=False):
            raise
        line = " ".join(str(error).split())
        full = f"{module}:{name}" if module else name
        raise ConfigError(f"gymnasium:{full} cannot be made: {line}") from None
