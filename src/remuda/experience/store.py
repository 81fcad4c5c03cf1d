"""`ExperienceStore`: one policy's experience, for its learner and the coordinator.

`Experience` is in shared memory; actors' writers and learners' readers are beside it. Another store
has its own ends, and passes the same contract: `tests/contracts/test_experience_store.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from remuda.config import ExperienceConfig
from remuda.types import State


@dataclass(frozen=True)
class HeldSteps:
    """The steps that fit into a policy's segments, by the mean length of closed ones."""

    steps: int
    wanted: int  # steps of the capacity, or of a rollout
    is_rollout: bool  # whether `wanted` is a rollout; short segments then end it early
    mean_length: float  # mean steps in a segment
    segment_length: int  # most steps in a segment
    advised: int  # a `segment_length` with which more fits

    @property
    def share(self) -> float:
        return min(self.steps / max(self.wanted, 1), 1.0)


class ExperienceStore(Protocol):
    """One policy's experience: written by one or more actors, read by one learner.

    1. A learner that asks for steps or a rollout is woken once they are there, from any writer.
    2. An actor waits only with `on_full: wait`, and only for a learner that makes progress.
    3. A segment is returned to an on-policy learner at most once, and every step is counted.
    """

    config: ExperienceConfig
    rollout: int  # steps that the learner takes at once; 0: it samples
    ahead: int  # rollouts that actors with `wait` may write before the learner takes them

    @property
    def written(self) -> int:
        """Return the steps committed since the run began."""

    @property
    def lost(self) -> int:
        """Return the steps that a resumed run did not restore."""

    @property
    def fill(self) -> float:
        """Return the share of the capacity, or of a rollout, that holds steps to train on."""

    @property
    def held(self) -> HeldSteps | None:
        """Return how many steps fit, by the mean length of segments; None: not yet known."""

    @property
    def untaken(self) -> int:
        """Return the steps of closed segments that an on-policy learner may still take."""

    @property
    def passed(self) -> int | None:
        """Return steps that no longer wait for the learner, trained on or not; None: released."""

    @property
    def closed(self) -> list[int]:
        """Return, by actor, the segments closed since the run began."""

    @property
    def is_urgent(self) -> bool:
        """Return whether an actor with `wait` is now waiting for a rollout to be taken."""

    @property
    def may_wait(self) -> bool:
        """Return whether actors may wait for the learner."""

    def has(self, steps: int, begins: bool = True) -> bool:
        """Return whether so many steps were committed; if not, the learner is rung for it."""

    def consume(self, steps: int) -> None:
        """Publish to waiting actors that the learner has used the first `steps` steps."""

    def skip(self, closed: Sequence[int] | None = None) -> None:
        """Take what is closed unread: all of it, or so many segments by actor."""

    def release(self) -> None:
        """Take nothing any more, so that no actor ever waits for this learner."""

    def state(self) -> State:
        """Return a copy of all committed steps, while actors may continue."""

    def restore(self, state: State | None, written: int) -> None:
        """Restore what `state` returned; None: the `written` steps were not saved."""
