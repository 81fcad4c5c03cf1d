"""Rewards of AEC environments: counted when `rewards` holds them, and in sum what `last()` returns.

PettingZoo defines what an agent earned between two of its turns as the reward that `last()` returns
when it is selected. `rewards` tells when each part of it came, and who had not acted yet. The two
agree in an environment that calls `_accumulate_rewards` in every step. Where they do not, `last()`
counts, and the difference is added when the agent is selected. An environment whose `last()` has
never returned a reward does not accumulate any: there `rewards` counts alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pettingzoo import AECEnv

ROUNDING = 1e-5
"""The share of what `rewards` added up by which `last()` may differ: sums of float32 do."""


def has_own_last(copy: AECEnv[Any, Any, Any]) -> bool:
    """Return whether `last()` is the environment's own, and not PettingZoo's."""
    return getattr(copy.last, "__module__", "") != "pettingzoo.utils.env"


def last_reward_of(copy: AECEnv[Any, Any, Any]) -> Callable[[Any, Callable[[str], Any], Any], Any]:
    """Return what reads the reward that `last()` returns for an agent that is selected.

    It takes a copy, what reads its attributes, and an agent's name. It returns None where that is
    not known: of an agent that is not selected, if `last()` is the environment's own, and where
    there is nothing to read.
    """
    if not has_own_last(copy):
        return _accumulated
    without = {"observe": False} if "observe" in inspect.signature(copy.last).parameters else {}

    def ask(copy: Any, read: Callable[[str], Any], name: Any) -> Any:
        return copy.last(**without)[1] if read("agent_selection") == name else None

    return ask


def _accumulated(copy: Any, read: Callable[[str], Any], name: Any) -> Any:  # noqa: ARG001
    """Return what PettingZoo's `last()` reads."""
    try:
        return read("_cumulative_rewards").get(name)
    except AttributeError:  # the environment only has `rewards`
        return None


class LastRewards:
    """The rewards of one copy: of each agent since its last decision, or since it joined."""

    def __init__(self, num_agents: int) -> None:
        self._told = [0.0] * num_agents
        # What of that was counted: nothing while the agent was in no episode.
        self._counted = [0.0] * num_agents
        self._size = [0.0] * num_agents  # the sum of absolute values, for rounding
        self._speaks = False
        self.differs: tuple[float, float] | None = None
        """The first sums of `rewards` and of `last()` that were unlike."""

    def restart(self) -> None:
        """Begin an episode of the copy."""
        for agent in range(len(self._told)):
            self.begin(agent)

    def begin(self, agent: int) -> None:
        """Begin anew: an agent acts, and its next rewards belong to this act; or it has died."""
        self._told[agent] = self._counted[agent] = self._size[agent] = 0.0

    def add(self, agent: int, reward: float, counts: bool) -> None:
        """Add a reward that `rewards` holds, which counts for an agent that is in an episode."""
        self._told[agent] += reward
        self._size[agent] += abs(reward)
        if counts:
            self._counted[agent] += reward

    def missing(self, agent: int, heard: float | None) -> float:
        """Return what is left to count of an agent that is selected, or whose episode ends.

        Args:
            agent: which.
            heard: the reward that `last()` returns for it; None: that is not known.
        """
        told = self._told[agent]
        if heard is not None and abs(heard - told) > ROUNDING * self._size[agent]:
            self.differs = self.differs or (told, heard)
            self._speaks |= heard != 0.0
            if self._speaks:
                told = heard
        elif heard:
            self._speaks = True
        missing = told - self._counted[agent]
        self._counted[agent] = told
        return missing
