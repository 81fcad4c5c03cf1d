"""Rewards of AEC environments: when `rewards` holds them, and in sum what `last()` returns.

PettingZoo defines an agent's reward between two of its turns as what `last()` returns when it is
selected. `rewards` shows when each part of it came. The two agree if every step calls
`_accumulate_rewards`. Otherwise `last()` counts, and the difference is added when the agent is
selected. If `last()` has never returned a reward, the environment does not accumulate any, and
`rewards` counts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pettingzoo import AECEnv

ROUNDING = 1e-5
"""The share of the sum of `rewards` by which `last()` may differ, as sums of float32 do."""


def has_own_last(copy: AECEnv[Any, Any, Any]) -> bool:
    """Return whether the environment overrides PettingZoo's `last()`."""
    return getattr(copy.last, "__module__", "") != "pettingzoo.utils.env"


def last_reward_of(copy: AECEnv[Any, Any, Any]) -> Callable[[Any, Callable[[str], Any], Any], Any]:
    """Return a function of a copy, its attribute reader and an agent: the reward of `last()`.

    The reward is None if it is unknown: an environment's own `last()` has it for the selected agent
    alone.
    """
    if not has_own_last(copy):
        return _accumulated
    without = {"observe": False} if "observe" in inspect.signature(copy.last).parameters else {}

    def call_last(copy: Any, read: Callable[[str], Any], name: Any) -> Any:
        return copy.last(**without)[1] if read("agent_selection") == name else None

    return call_last


def _accumulated(copy: Any, read: Callable[[str], Any], name: Any) -> Any:  # noqa: ARG001
    try:
        return read("_cumulative_rewards").get(name)
    except AttributeError:  # the environment only has `rewards`
        return None


class LastRewards:
    """The rewards of one copy's agents since their last decision, or since they joined."""

    def __init__(self, num_agents: int) -> None:
        self._sums = [0.0] * num_agents
        self._sizes = [0.0] * num_agents  # sums of absolute values, for rounding
        self._counted = [0.0] * num_agents  # without those given outside an episode
        self._accumulates = False
        self.differs: tuple[float, float] | None = None
        """The first sums of `rewards` and of `last()` that differed."""

    def restart(self) -> None:
        """Begin an episode of the copy."""
        for agent in range(len(self._sums)):
            self.begin(agent)

    def begin(self, agent: int) -> None:
        """Begin a sum: the agent acts, or has died."""
        self._sums[agent] = self._sizes[agent] = self._counted[agent] = 0.0

    def add(self, agent: int, reward: float, counts: bool) -> None:
        """Add an entry of `rewards`; it `counts` if the agent is in an episode."""
        self._sums[agent] += reward
        self._sizes[agent] += abs(reward)
        if counts:
            self._counted[agent] += reward

    def missing(self, agent: int, last: float | None) -> float:
        """Return what is left to count; `last` is the reward of `last()`, if it is known."""
        total = self._sums[agent]
        if last is not None and abs(last - total) > ROUNDING * self._sizes[agent]:
            self.differs = self.differs or (total, last)
            self._accumulates |= last != 0.0
            if self._accumulates:
                total = last
        elif last:
            self._accumulates = True
        missing = total - self._counted[agent]
        self._counted[agent] = total
        return missing
