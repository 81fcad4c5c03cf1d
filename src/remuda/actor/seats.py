"""The interface between seats and the actor's loop."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from remuda.envs.checks import TurnChecks
from remuda.envs.vector_env import VectorEnv
from remuda.experience.backpressure import Backpressure
from remuda.publish.snapshot import Snapshot
from remuda.system.kernels import njit
from remuda.system.scoreboard import Policy, Row
from remuda.types import Bools, Floats, Integers, State, TurnResult

# Plain integers, which Numba compiles as constants.
EPISODES, RETURN_SUM, TURNS_SUM = (
    int(Policy.EPISODES),
    int(Policy.RETURN_SUM),
    int(Policy.TURNS_SUM),
)
MARK, RETURNS, FIRST = int(Policy.MARK), int(Policy.RETURNS), int(Policy.FIRST)
ABOVE_SUM, ABOVE_SQUARES = int(Policy.ABOVE_SUM), int(Policy.ABOVE_SQUARES)
LOW, HIGH = int(Policy.LOW), int(Policy.HIGH)


class EpisodeCounter:
    """A counter of policies' episodes and returns."""

    def __init__(self, rows: Row, mark: Row | None = None) -> None:
        """Count into `rows` [policies, len(Policy)]; `mark` is `Scoreboard.mark`."""
        self._rows = rows
        self._mark = np.ones(1) if mark is None else mark
        nothing: Integers = np.zeros(0, np.int64)
        self.count(nothing, np.zeros(0), nothing)

    def count(self, policies: Integers, returns: np.ndarray, turns: Integers) -> None:
        """Count N episodes; `policies` [N] are rows of the counters. Skip NaN returns."""
        _count(self._rows, policies, returns, turns, self._mark[0])


@njit(cache=True)
def _count(
    rows: Row, policies: Integers, returns: np.ndarray, turns: Integers, mark: float
) -> None:
    for i in range(policies.size):
        k, value = policies[i], returns[i]
        if math.isnan(value):
            continue
        if rows[k, MARK] != mark:
            rows[k, RETURNS] = 0.0  # reset first, because readers skip a row without returns
            rows[k, MARK] = mark
            rows[k, FIRST] = rows[k, LOW] = rows[k, HIGH] = value
            rows[k, ABOVE_SUM] = rows[k, ABOVE_SQUARES] = 0.0
        above = value - rows[k, FIRST]
        rows[k, ABOVE_SUM] += above
        rows[k, ABOVE_SQUARES] += above * above
        rows[k, LOW] = min(rows[k, LOW], value)
        rows[k, HIGH] = max(rows[k, HIGH], value)
        rows[k, RETURNS] += 1.0
        rows[k, EPISODES] += 1.0
        rows[k, RETURN_SUM] += value
        rows[k, TURNS_SUM] += turns[i]


if TYPE_CHECKING:
    from remuda.actor.stream_arrays import StreamArrays
    from remuda.experience.writer import BlockWriter


class Seats:
    """Policies on an environment's seats: `FixedSeats`, or `MatchSeats` dealt for each match.

    In each turn, the actor calls `observe`, `choose` and `decide` for each group, and `act` for
    each agent of the group. Then it calls `outcome`, and `close` and `begin` for finished copies.
    """

    # groups of agents that observe together, in the order in which they act
    groups: Sequence[tuple[int, ...]]
    # [num_envs, num_agents] whether the agent was active when it observed in this turn
    acted: Bools

    env: VectorEnv
    checks: TurnChecks | None = None  # None: results are not checked
    # by agent: the arrays of its streams (one for each copy), and whether learners use final masks
    _arrays_of: Mapping[int, StreamArrays]
    _keeps_last_mask: Sequence[bool]

    def writers(self) -> Sequence[BlockWriter]:
        return ()

    @property
    def backpressure(self) -> list[Backpressure]:
        return [each for writer in self.writers() for each in writer.backpressure]

    def observe(self, group: int) -> None:
        """Read the observations and masks of a group's agents."""

    def choose(self, group: int, rng: np.random.Generator | None = None) -> None:
        """Choose a group's actions; with `rng`, a warm-up that draws from no other generator."""

    def decide(self, group: int) -> None:
        """Write the group's observations and actions to the rings."""

    def act(self, agent: int) -> None:
        """Apply an agent's actions to the environment."""

    def outcome(self, result: TurnResult) -> None:
        """Write the outcome of a turn to the rings."""

    def _observe_last(self, ended: Bools, truncated: Bools) -> None:
        """Write final observations of ended episodes; both masks are [num_envs, num_agents]."""
        for agent in np.flatnonzero(ended.any(0)).tolist():
            arrays = self._arrays_of[agent]
            last = arrays.final_observations[arrays.position_of[agent]]
            self.env.observe(agent, last)
            if self.checks is not None:
                own = arrays.row.numbers(last, arrays.row.own_size)
                self.checks.last(agent, own, ended[:, agent])
            if self._keeps_last_mask[agent] and truncated[:, agent].any():
                self.env.mask(agent, arrays.final_masks[arrays.streams_of(agent)])

    def close(
        self, over: Bools, returns: np.ndarray, truncated: Bools, turns: Integers, metrics: Floats
    ) -> None:
        """Count the episodes of the finished copies `over` [num_envs].

        `returns` [num_envs, num_agents] are NaN for agents that took no part. `truncated`
        [num_envs]: whether the last turn truncated any agent. `turns` [num_envs]: the episode's
        length. `metrics` [metrics, num_envs] are the environment's episode metrics.
        """

    def begin(self, over: Bools) -> None:
        """Start new episodes in these copies."""

    def note_options(self, options: Mapping[str, Any]) -> None:
        """Record the environment's changed options in the ledger of matches, if there is one."""

    def settled(self) -> bool:
        """Return whether this actor has processed all results of other actors, and may end."""
        return True

    def take(self, news: Mapping[str, Snapshot]) -> None:
        """Load newer weights."""

    def state(self) -> State:
        """Return the state that a restarted actor needs to continue exactly."""
        return {}

    def restore(self, state: State) -> None:
        """Restore what `state` returned."""

    def close_orphans(self) -> None:
        for writer in self.writers():
            writer.close_orphans()

    def holds(self, state: State) -> bool:  # noqa: ARG002
        """Return whether the rings have the segments that were open when `state` was called."""
        return False

    def lasting(self) -> State:
        """Return the state that does not depend on the current episodes."""
        return {}

    def restore_lasting(self, state: State) -> None:
        """Restore what `lasting` returned."""
