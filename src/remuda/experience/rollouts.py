"""The learner's end of experience, on-policy: whole segments, once, as they were closed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from remuda.experience.experience import Experience
from remuda.experience.ring import CLOSED, TAKEN, TAKEN_STEPS, ExperienceRing
from remuda.memory.atomic import fence_acquire, load
from remuda.types import Array, Bools, Floats, Integers

AFTER = -1
"""The stream of a row that holds no step, but what was seen after the last step of a segment."""


@dataclass(frozen=True)
class Rollout:
    """Segments one after another, for K policies: L rows for L - 1 steps each.

    The last row of a segment holds what was seen after its last step, and nothing else. Rows beyond
    `num_rows` are whatever they were.
    """

    observations: Array
    """[K, R, n_frames * size]: stacked, in the dtype of the game."""
    actions: Array
    """[K, R, action_size]."""
    log_probs: Floats
    """[K, R]: of the actions, when they were chosen."""
    masks: Bools
    """[K, R, mask_size]: what was allowed."""
    rewards: Floats
    """[K, R]."""
    discounts: Floats
    """[K, R]: 0 where the episode terminated, else 1."""
    versions: Integers
    """[K, R]: of the weights that chose."""
    streams: Integers
    """[K, R]: the copy and seat that a step is of, or `AFTER`."""
    memories: Floats
    """[K, G, memory]: what was kept before the first step of each segment."""
    starts: Integers
    """[K, G]: the first row of each segment."""
    num_rows: Integers
    """[K]."""
    num_segments: Integers
    """[K]."""
    num_steps: Integers
    """[K]."""

    @staticmethod
    def empty(experience: Experience, num_policies: int) -> Rollout:
        """Room for the largest rollout that `take` may bring from experience like this."""
        shape, length = experience.shape, experience.config.segment_length
        # A rollout passes its number of steps by less than one segment; each has a row more.
        places = sum(ring.num_segments for ring in experience.rings)
        rows = min(2 * (experience.rollout + length), places * (length + 1))
        at = (num_policies, rows)
        return Rollout(
            observations=np.zeros((*at, shape.n_frames * shape.size), shape.dtype),
            actions=np.zeros((*at, shape.action_size), shape.action_dtype),
            log_probs=np.zeros(at, np.float32),
            masks=np.ones((*at, shape.mask_size), np.bool_),
            rewards=np.zeros(at, np.float32),
            discounts=np.zeros(at, np.float32),
            versions=np.zeros(at, np.int64),
            streams=np.full(at, AFTER, np.int64),
            memories=np.zeros((num_policies, rows // 2, shape.memory), np.float32),
            starts=np.zeros((num_policies, rows // 2), np.int64),
            num_rows=np.zeros(num_policies, np.int64),
            num_segments=np.zeros(num_policies, np.int64),
            num_steps=np.zeros(num_policies, np.int64),
        )


@njit(cache=True)
def _take(
    ring_observations: Array,
    ring_actions: Array,
    ring_log_probs: Floats,
    ring_masks: Bools,
    ring_rewards: Floats,
    ring_discounts: Floats,
    ring_versions: Integers,
    ring_streams: Integers,
    ring_memories: Floats,
    sequence: Integers,
    committed: Integers,
    queue: Integers,
    queue_sequence: Integers,
    queue_steps: Integers,
    counters: Integers,
    observations: Array,
    actions: Array,
    log_probs: Floats,
    masks: Bools,
    rewards: Floats,
    discounts: Floats,
    versions: Integers,
    streams: Integers,
    memories: Floats,
    starts: Integers,
    wanted: int,
    n_frames: int,
    oldest: int,
    first_row: int,
    first_stream: int,
    check: bool,
) -> tuple[int, int, int, int, int, int]:
    """Copy segments until `wanted` steps are there, or none is left.

    Returns the rows, steps and segments copied, the segments and steps of the ring that this brings
    us to, and the steps that were passed over: overwritten, or by versions before `oldest`.
    """
    size = ring_observations.shape[2]
    num_segments = sequence.size
    closed = load(counters, CLOSED)
    first = max(load(counters, TAKEN), closed - num_segments)
    reached = load(counters, TAKEN_STEPS)
    rows, steps, copied, lost = 0, 0, 0, 0
    i = first
    while i < closed and steps < wanted:
        at = i % num_segments
        i += 1
        slot, expected, end = queue[at], queue_sequence[at], queue_steps[at]
        fence_acquire()
        if check and load(counters, CLOSED) - (i - 1) >= num_segments:
            continue  # the writer may be at this very entry: what it held is long overwritten
        length = committed[slot]
        intact = load(sequence, slot) == expected or not check
        fresh = intact and ring_versions[slot, 0] >= oldest
        if fresh:
            memories[copied] = ring_memories[slot]
            starts[copied] = first_row + rows
            for t in range(length + 1):
                row = rows + t
                for frame in range(n_frames):
                    for j in range(size):
                        observations[row, frame * size + j] = ring_observations[slot, t + frame, j]
                streams[row] = AFTER
                rewards[row] = 0.0
                discounts[row] = 0.0
                if t < length:
                    actions[row] = ring_actions[slot, t]
                    log_probs[row] = ring_log_probs[slot, t]
                    masks[row] = ring_masks[slot, t]
                    rewards[row] = ring_rewards[slot, t]
                    discounts[row] = ring_discounts[slot, t]
                    versions[row] = ring_versions[slot, t]
                    streams[row] = first_stream + ring_streams[slot]
            fence_acquire()
            fresh = load(sequence, slot) == expected or not check
        lost += end - reached
        reached = end
        if fresh:
            rows += length + 1
            steps += length
            copied += 1
            lost -= length
    return rows, steps, copied, i, reached, lost


class Rollouts:
    """Takes the rollouts of one policy.

    A segment is handed out at most once. One that was overwritten before it was taken (only where
    the user lets the actor overwrite, or after the actor waited for its limit) is passed over and
    counted, and so is one whose first step was chosen by weights that are too old.
    """

    def __init__(
        self,
        experience: Experience,
        max_staleness: int | None = None,
        check_sequence: bool = True,
    ) -> None:
        self.experience = experience
        self.lost = 0
        """Steps that were closed, and that nobody trained on."""
        self._max_staleness, self._check = max_staleness, check_sequence
        self._taken = 0
        experience.take_up()
        one = Rollout.empty(experience, 1)
        for ring in experience.rings:
            self._take(ring, one, 0, 0, 0)  # nothing wanted: this compiles the kernel

    def ready(self) -> bool:
        """Whether there is a rollout to take; if not, the learner is rung when there is."""
        return self.experience.has_rollout() and self.experience.untaken > 0

    def take(self, out: Rollout, policy: int, version: int) -> int:
        """Copy the next rollout into row `policy` of `out`; returns its steps.

        Args:
            out: made for experience like this by `Rollout.empty`.
            policy: the row.
            version: the newest version of this policy, to which steps may be too old.
        """
        oldest = 0 if self._max_staleness is None else version - self._max_staleness
        out.num_rows[policy] = out.num_steps[policy] = out.num_segments[policy] = 0
        rings = self.experience.rings
        # What is left over waits for the next rollout; each time it is another actor's.
        for i in range(len(rings)):
            ring = rings[(self._taken + i) % len(rings)]
            wanted = self.experience.rollout - int(out.num_steps[policy])
            rows, steps, copied, segments, reached, lost = self._take(
                ring, out, policy, wanted, oldest
            )
            out.num_rows[policy] += rows
            out.num_steps[policy] += steps
            out.num_segments[policy] += copied
            self.lost += lost
            self.experience.take(ring.actor, segments, reached)
        self._taken += 1
        return int(out.num_steps[policy])

    def _take(
        self, ring: ExperienceRing, out: Rollout, policy: int, wanted: int, oldest: int
    ) -> tuple[int, int, int, int, int, int]:
        shared = ring.shared
        row, segment = int(out.num_rows[policy]), int(out.num_segments[policy])
        found: tuple[int, int, int, int, int, int] = _take(
            shared["observations"],
            shared["actions"],
            shared["log_probs"],
            shared["masks"],
            shared["rewards"],
            shared["discounts"],
            shared["versions"],
            shared["streams"],
            shared["memories"],
            shared["sequence"],
            shared["committed"],
            shared["queue"],
            shared["queue_sequence"],
            shared["queue_steps"],
            ring.counters,
            out.observations[policy, row:],
            out.actions[policy, row:],
            out.log_probs[policy, row:],
            out.masks[policy, row:],
            out.rewards[policy, row:],
            out.discounts[policy, row:],
            out.versions[policy, row:],
            out.streams[policy, row:],
            out.memories[policy, segment:],
            out.starts[policy, segment:],
            wanted,
            self.experience.shape.n_frames,
            oldest,
            row,
            sum(other.num_streams for other in self.experience.rings[: ring.actor]),
            self._check,
        )
        return found
