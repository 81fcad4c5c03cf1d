"""The interface of one policy's experience, for its learner and the coordinator.

`Experience` implements it in shared memory; actors' writers and learners' readers are separate
classes. Any other store must pass `tests/contracts/test_experience_store.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from remuda.config import ExperienceConfig
from remuda.types import State


class ExperienceStore(Protocol):
    """One policy's experience: written by one or more actors, read by one learner.

    1. A learner that waits for steps or a rollout is woken once the writers together complete them.
    2. An actor waits only with `on_full: wait`, and only for a learner that makes progress.
    3. An on-policy learner receives a segment at most once, and every step is counted.
    """

    config: ExperienceConfig
    rollout: int  # steps in a rollout; 0 if the learner samples steps instead
    ahead: int  # rollouts that actors may write before they wait (with `on_full: wait`)

    @property
    def written(self) -> int:
        """Return the steps committed since the run started."""

    @property
    def lost(self) -> int:
        """Return the steps that a resumed run did not restore, or that a past policy played."""

    @property
    def fill(self) -> float:
        """Return the share of the segments, or of a rollout, that is filled with steps."""

    @property
    def untaken(self) -> int:
        """Return the steps of closed segments that an on-policy learner may still take."""

    @property
    def passed(self) -> int | None:
        """Return the steps that the learner has taken or skipped; None after `release`."""

    @property
    def closed(self) -> list[int]:
        """Return, by actor, the number of segments closed since the run started."""

    @property
    def is_urgent(self) -> bool:
        """Return whether actors with `on_full: wait` wait until the learner takes a rollout."""

    @property
    def may_wait(self) -> bool:
        """Return whether actors may wait for the learner."""

    def has(self, steps: int, begins: bool = True) -> bool:
        """Return whether `steps` steps are committed; if not, the learner is woken when they are.

        If they are and `begins` is set, the learner's update counts as begun.
        """

    def consume(self, steps: int) -> None:
        """Publish to waiting actors that the learner has used the first `steps` steps."""

    def skip(self, closed: Sequence[int] | None = None) -> None:
        """Skip all closed segments, or the first `closed[i]` segments of actor i."""

    def release(self) -> None:
        """Stop using experience, so no actor ever waits for this learner."""

    def state(self) -> State:
        """Return a copy of all committed steps, while actors may continue."""

    def restore(self, state: State | None, written: int) -> None:
        """Restore what `state` returned; None: the `written` steps were not saved."""
