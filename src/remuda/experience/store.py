"""`ExperienceStore`: what one policy lived through, as its learner and the coordinator see it.

`Experience` is the one that lies in the shared memory of a machine. Its two ends, which write and
read steps, are made from it in this room: the writers of actors, and what learners take and draw
from (`rollout_queue`, `transition_replay`, `segment_replay`). Another store brings ends of its own,
and passes the same contract: `tests/contracts/test_experience_store.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from remuda.config import ExperienceConfig
from remuda.types import State


@dataclass(frozen=True)
class Held:
    """How many steps fit into a policy's segments, by the mean length of those closed so far."""

    steps: int
    wanted: int
    """Steps of the capacity, or of a rollout."""
    is_rollout: bool
    """Whether `wanted` is a rollout; if so, short segments end it early."""
    mean_length: float
    """Steps in a segment, on average."""
    segment_length: int
    """The most steps in a segment."""
    advised: int
    """A `segment_length` with which more fits."""

    @property
    def share(self) -> float:
        """The share of `wanted` that fits, 0 to 1."""
        return min(self.steps / max(self.wanted, 1), 1.0)


class ExperienceStore(Protocol):
    """One policy's experience: written by one or more actors, read by one learner.

    1. A learner that asks for steps or a rollout is woken once they are there, from any writer.
    2. An actor waits only where the user set `wait`, and only for a learner that makes progress.
    3. A segment is handed to an on-policy learner at most once, and every step is counted.
    """

    config: ExperienceConfig
    rollout: int
    """Steps that the learner takes at once; 0: it draws single ones."""
    ahead: int
    """Rollouts that actors may have written and the learner not yet taken, where they wait."""

    @property
    def written(self) -> int:
        """Steps committed since the run began."""

    @property
    def lost(self) -> int:
        """Steps that a resumed run did not bring along."""

    @property
    def fill(self) -> float:
        """The share of the capacity, or of a rollout, that holds steps to train on."""

    @property
    def held(self) -> Held | None:
        """How many steps fit, by the mean length of segments; None: too few were closed to tell."""

    @property
    def untaken(self) -> int:
        """Steps in closed segments that no on-policy learner took yet, and that one may."""

    @property
    def passed(self) -> int | None:
        """Steps that wait for the learner no more, trained on or not; None: it was released."""

    @property
    def closed(self) -> list[int]:
        """By actor, the segments that were closed since the run began."""

    @property
    def is_urgent(self) -> bool:
        """Whether an actor that may wait does so now, for a rollout to be taken."""

    @property
    def may_wait(self) -> bool:
        """Whether the user lets an actor wait for the learner."""

    def has(self, steps: int, begins: bool = True) -> bool:
        """Whether so many steps were committed; if not, the learner is rung once they are.

        Args:
            steps: at which its next update is due.
            begins: whether that update begins if they are there.
        """

    def consume(self, steps: int) -> None:
        """Tell waiting actors that the learner has had its share of the first `steps` steps."""

    def skip(self, closed: Sequence[int] | None = None) -> None:
        """Take what is closed unread: all of it, or so many segments by actor."""

    def release(self) -> None:
        """Take nothing any more, so that no actor ever waits for this learner."""

    def state(self) -> State:
        """A copy of all that is committed, taken while actors may go on."""

    def restore(self, state: State | None, written: int) -> None:
        """Hold what was held before; None: the steps were not saved, `written` of them.

        Raises:
            CheckpointError: the steps are of another shape, or of another number of actors.
        """
