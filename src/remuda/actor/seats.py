"""Seats: who plays the agents of a game, as the loop of the actor knows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from remuda.envs.checks import TurnChecks
from remuda.envs.vector_env import VectorEnv
from remuda.experience.room import Room
from remuda.publish.snapshot import Snapshot
from remuda.types import Bools, Floats, Integers, State, TurnResult


class Seats(Protocol):
    """Policies on the seats of a game: `FixedSeats` for good, `MatchSeats` for a match at a time.

    In each turn, for each group: `observe`, `choose`, `decide`, and `act` for each of its agents;
    then `outcome`; and for copies that are over `close` and `begin`.
    """

    groups: Sequence[tuple[int, ...]]
    """Agents that observe together, in the order in which they act."""
    acted: Bools
    """[num_envs, num_agents]: who was active when it observed, in this turn."""

    env: VectorEnv
    """The copies of the game, that they observe and act in."""
    checks: TurnChecks | None
    """By which it checks what the game hands over; None: it takes whatever comes."""

    @property
    def rooms(self) -> list[Room]:
        """Where a writer may have to wait."""

    def observe(self, group: int) -> None:
        """See what there is to see for a group's agents, and what may be done."""

    def choose(self, group: int, random: np.random.Generator | None = None) -> None:
        """Choose for a group's agents; `random`: only try, with this stream, and count nothing."""

    def decide(self, group: int) -> None:
        """Write down what the group saw and chose."""

    def act(self, agent: int) -> None:
        """Let what was chosen take effect."""

    def outcome(self, result: TurnResult) -> None:
        """Write down what came of the turn."""

    def close(
        self, over: Bools, returns: np.ndarray, truncated: Bools, turns: Integers, told: Floats
    ) -> None:
        """Count the episodes of the copies that are over.

        Args:
            over: [num_envs].
            returns: [num_envs, num_agents]; NaN: the agent took no part. In an episode that was
                over when it began no agent did.
            truncated: [num_envs] whether the episode was cut off for any agent.
            turns: [num_envs] of each episode.
            told: [facts, num_envs] what the game tells of each.
        """

    def begin(self, over: Bools) -> None:
        """Begin new episodes in these copies."""

    def settled(self) -> bool:
        """Once all turns are played: whether nothing of other actors is to be taken any more."""

    def take(self, news: Mapping[str, Snapshot]) -> None:
        """Act with newer weights from now on."""

    def state(self) -> State:
        """All that a successor needs to go on exactly here."""

    def restore(self, state: State) -> None:
        """Go on from what `state` returned."""

    def close_orphans(self) -> None:
        """Close what an actor before this one was writing, and this one does not go on with."""

    def holds(self, state: State) -> bool:
        """Whether the experience is there that was being written when `state` was called."""

    def lasting(self) -> State:
        """What of it still means something where other episodes are played."""

    def restore_lasting(self, state: State) -> None:
        """Go on from what `lasting` returned."""
