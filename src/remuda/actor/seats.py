"""The interface of seats to the actor's loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from remuda.envs.checks import TurnChecks
from remuda.envs.vector_env import VectorEnv
from remuda.experience.backpressure import Backpressure
from remuda.publish.snapshot import Snapshot
from remuda.types import Bools, Floats, Integers, State, TurnResult

if TYPE_CHECKING:
    from remuda.experience.writer import BlockWriter


class Seats:
    """Policies on an environment's seats: `FixedSeats`, or `MatchSeats` for each match.

    In each turn, for each group: `observe`, `choose`, `decide`, and `act` for each of its agents;
    then `outcome`; and for copies that are over `close` and `begin`.
    """

    # agents that observe together, in the order in which they act
    groups: Sequence[tuple[int, ...]]
    # [num_envs, num_agents] whether the agent was active when it observed in this turn
    acted: Bools

    env: VectorEnv  # the copies
    checks: TurnChecks | None = None  # checks of what the environment returns

    def writers(self) -> Sequence[BlockWriter]:
        """Return the writers of all rings."""
        return ()

    @property
    def backpressure(self) -> list[Backpressure]:
        """Return the backpressure of all rings with `on_full: wait`."""
        return [each for writer in self.writers() for each in writer.backpressure]

    def observe(self, group: int) -> None:
        """Observe for a group's agents, with masks."""

    def choose(self, group: int, rng: np.random.Generator | None = None) -> None:
        """Choose for a group's agents; with `rng` this is a trial without other random numbers."""

    def decide(self, group: int) -> None:
        """Write the group's observations and choices to the rings."""

    def act(self, agent: int) -> None:
        """Apply an agent's choice to the environment."""

    def outcome(self, result: TurnResult) -> None:
        """Write the outcome of a turn to the rings."""

    def close(
        self, over: Bools, returns: np.ndarray, truncated: Bools, turns: Integers, metrics: Floats
    ) -> None:
        """Count the episodes of the copies that are over [num_envs].

        `returns` [num_envs, num_agents] are NaN for agents that took no part. `truncated`
        [num_envs] is whether any agent's episode was truncated, `turns` [num_envs] its length.
        `metrics` [metrics, num_envs] are the environment's episode metrics.
        """

    def begin(self, over: Bools) -> None:
        """Start new episodes in these copies."""

    def settled(self) -> bool:
        """Return whether nothing of other actors has to be processed, once all turns are played."""
        return True

    def take(self, news: Mapping[str, Snapshot]) -> None:
        """Act with newer weights."""

    def state(self) -> State:
        """Return all that a successor needs to continue exactly."""
        return {}

    def restore(self, state: State) -> None:
        """Restore what `state` returned."""

    def close_orphans(self) -> None:
        """Close what a previous actor had open and this one does not continue."""
        for writer in self.writers():
            writer.close_orphans()

    def holds(self, state: State) -> bool:  # noqa: ARG002
        """Return whether the rings have the segments that were open when `state` was called."""
        return False

    def lasting(self) -> State:
        """Return what is still valid where other episodes are played."""
        return {}

    def restore_lasting(self, state: State) -> None:
        """Restore what `lasting` returned."""
