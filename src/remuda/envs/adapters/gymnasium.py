"""Gymnasium environments: one agent, many copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from remuda.envs.vector_env import VectorEnv
from remuda.errors import ConfigError, ContractError
from remuda.types import AgentSpec, Array, Bools, Floats, Integers, TurnResult

AGENT = "agent_0"


class GymnasiumEnv(VectorEnv):
    """Copies of one Gymnasium environment, stepped one after another.

    Observations that are no Box are flattened by `gymnasium.spaces.flatten`. Where `info` holds an
    `action_mask` after a reset, it is asked for after each step too.
    """

    turn_groups = ((0,),)

    def __init__(self, make: Callable[[], gymnasium.Env[Any, Any]], num_envs: int = 1) -> None:
        """Make the copies.

        Args:
            make: makes one copy.
            num_envs: copies.

        Raises:
            ContractError: what it sees cannot be written as numbers.
        """
        self.num_envs = num_envs
        self._copies = [make() for _ in range(num_envs)]
        first = self._copies[0]
        self._space = first.observation_space
        _, info = first.reset(seed=0)
        masked = "action_mask" in info
        space, self._flatten = _as_box(self._space)
        self.agents = (AgentSpec(AGENT, space, first.action_space, masked=masked),)
        self._seen = np.zeros((num_envs, *space.shape), space.dtype)
        self._masks: Bools = np.zeros(
            (num_envs, np.size(info["action_mask"]) if masked else 0), np.bool_
        )
        shape = (num_envs, 1)
        self._rewards: Floats = np.zeros(shape, np.float32)
        self._terminated: Bools = np.zeros(shape, np.bool_)
        self._truncated: Bools = np.zeros(shape, np.bool_)
        self.active: Bools = np.zeros(shape, np.bool_)
        self._discrete = isinstance(first.action_space, spaces.Discrete)

    def reset(self, seeds: Integers, mask: Bools) -> None:
        """Restart the copies in `mask`, each from its own seed."""
        for i in np.flatnonzero(mask).tolist():
            self._note(i, *self._copies[i].reset(seed=int(seeds[i] % 2**31)))
            self.active[i] = True

    def begin_turn(self) -> None:
        """Nothing moves by itself."""
        self._rewards[:] = 0.0
        self._terminated[:] = False
        self._truncated[:] = False

    def observe(self, agent: int, out: Array) -> None:  # noqa: ARG002
        """Write what was seen last: [num_envs, *observation_shape]."""
        out[...] = self._seen

    def mask(self, agent: int, out: Bools) -> None:  # noqa: ARG002
        """Write what is allowed: [num_envs, possibilities]."""
        out[...] = self._masks

    def act(self, agent: int, actions: Integers) -> None:  # noqa: ARG002
        """Step every copy that is not over."""
        for i in np.flatnonzero(self.active[:, 0]).tolist():
            action = int(actions[i]) if self._discrete else actions[i]
            seen, reward, terminated, truncated, info = self._copies[i].step(action)
            self._note(i, seen, info)
            self._rewards[i] = float(reward)
            self._terminated[i] = terminated
            self._truncated[i] = truncated and not terminated
            self.active[i] = not (terminated or truncated)

    def end_turn(self) -> TurnResult:
        """What the steps brought."""
        return TurnResult(self._rewards, self._terminated, self._truncated)

    def render(self, env: int = 0) -> Array:
        """A picture of one copy: [height, width, 3] uint8."""
        try:
            picture = self._copies[env].render()
        except gymnasium.error.Error as error:  # what it draws with is not installed
            raise NotImplementedError(" ".join(str(error).split())) from None
        if not isinstance(picture, np.ndarray):
            raise NotImplementedError(f"{self._copies[env]} has no picture of its world")
        return picture

    def close(self) -> None:
        """Close every copy."""
        for copy in self._copies:
            copy.close()

    def _note(self, i: int, seen: Any, info: dict[str, Any]) -> None:
        self._seen[i] = self._flatten(seen)
        if self._masks.shape[1]:
            self._masks[i] = np.asarray(info["action_mask"], np.bool_).ravel()


def _as_box(space: spaces.Space[Any]) -> tuple[spaces.Box, Callable[[Any], Any]]:
    """A space as a Box, and how what is seen gets into it."""
    if isinstance(space, spaces.Box):
        return space, lambda seen: seen
    try:
        flat = spaces.flatten_space(space)
    except NotImplementedError:
        flat = None
    if not isinstance(flat, spaces.Box):
        raise ContractError(f"an agent that sees {space} cannot be given numbers of one length")
    low, high = flat.low.astype(np.float32), flat.high.astype(np.float32)
    box = spaces.Box(low, high, dtype=np.float32)
    return box, lambda seen: spaces.flatten(space, seen)


def make_gymnasium(name: str, num_envs: int = 1, **options: Any) -> GymnasiumEnv:
    """Copies of the environment that Gymnasium knows as `name`.

    Raises:
        ConfigError: Gymnasium does not know it, or lacks what it needs.
    """
    try:
        modes = gymnasium.spec(name).kwargs | options
        kind = gymnasium.make(name, **options)
        drawable = "rgb_array" in (kind.metadata.get("render_modes") or ())
        kind.close()
        if drawable and "render_mode" not in modes:
            options["render_mode"] = "rgb_array"
        return GymnasiumEnv(lambda: gymnasium.make(name, **options), num_envs)
    except (gymnasium.error.Error, TypeError, ImportError) as error:
        line = " ".join(str(error).split())
        raise ConfigError(f"gymnasium:{name} cannot be made: {line}") from None
