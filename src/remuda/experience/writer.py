"""The actor's side of experience: `BlockWriter` writes decisions and outcomes into rings.

A block holds the rings of one or more policies, and one call of a compiled kernel writes the
streams of all of them. A row is the index of a policy in a stack of networks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from remuda.experience import write_kernels as kernels
from remuda.experience.backpressure import Backpressure
from remuda.experience.experience import Experience
from remuda.experience.paused_heap import oldest_first
from remuda.experience.ring import (
    CLOSED,
    CLOSED_STEPS,
    CONTENTS,
    FINAL,
    HEAD,
    OPEN,
    WRITTEN,
    ExperienceRing,
)
from remuda.experience.ring_block import (
    NOWHERE,
    Beginnings,
    Choices,
    Decisions,
    OpenSegments,
    Outcomes,
    Segments,
    StreamPlan,
    TurnOutcomes,
)
from remuda.system.checkpoint.fitting import Range, branch, fitting, fitting_all, require
from remuda.system.memory.atomic import store
from remuda.types import Array, Bools, Floats, Integers, State


class BlockWriter:
    """A writer of the streams of several policies into the rings of a block.

    Call `decide` and then `outcome` in each turn. A step is committed when the observation after
    it is written. Its reward sums the agent's rewards until then; rewards before the first decision
    of an episode belong to no step.

    A `StreamPlan` lists, for every row, the streams that the policy of that row plays. A matchmaker
    changes a stream's policy only at an episode's start. Then the segment that the last episode
    left open may be continued by any stream of its policy, or it would wait for this stream.
    """

    def __init__(
        self, policies: Sequence[tuple[Experience, int]], actor: int = 0, own_streams: int = 0
    ) -> None:
        """Write for policies whose rings are adjacent in one block.

        `policies` pairs the experience of each policy with its row. If seats are fixed, each policy
        has `own_streams` streams, and the first stream of row k is `k * own_streams`. If
        `own_streams` is 0, any policy may play any stream.
        """
        experiences, rows = zip(*sorted(policies, key=lambda pair: pair[0].index), strict=True)
        arrays = _arrays_of(experiences, actor)
        self.ring = ring = experiences[0].rings[actor]
        # empty with `on_full: overwrite`
        self.backpressure: list[Backpressure] = [
            Backpressure(e, actor) for e in experiences if e.may_wait
        ]
        # whether the mask after the last step of an episode is written too
        self.keeps_last_mask = ring.shape.keeps_last_mask
        self._learners = [experience.learner for experience in experiences]
        # by row
        self.rings = dict(zip(rows, (e.rings[actor] for e in experiences), strict=True))
        self._rows: Integers = np.array(rows, np.int64)
        self._due: Bools = np.zeros(len(rows), np.bool_)
        self._slots: Integers = np.full((len(rows), ring.num_streams), NOWHERE, np.int64)
        self._lengths: Integers = np.zeros((len(rows), ring.num_streams), np.int64)
        self._paused: Integers = np.full_like(self._slots, NOWHERE)
        # The kernels, with the first arguments of every call bound.
        segments = Segments(*(arrays[name] for name in Segments._fields))
        self._free: Integers = np.zeros((len(rows), ring.num_segments), np.int64)
        patience, self._shared = _patience(experiences[0], ring), own_streams == 0
        open_ = (self._slots, self._lengths, self._paused)
        places = OpenSegments(*open_, self._free, patience, self._shared)
        watched = CLOSED_STEPS if experiences[0].rollout else WRITTEN
        each = (*places, self._rows, self._rows * own_streams, watched, self._due)
        decisions = (arrays[name] for name in (*Decisions._fields, *Segments._fields))
        beginnings = (arrays[name] for name in Beginnings._fields)
        decide: Callable[..., int] = kernels.decide
        outcome: Callable[..., int] = kernels.outcome
        self._decide = partial(decide, *decisions, *beginnings, *each)
        outcomes = (arrays[name] for name in Outcomes._fields)
        self._outcome = partial(outcome, *outcomes, *segments, arrays["numbers"], *each)
        self._steps = {name: arrays[name] for name in CONTENTS}
        self._segments = [Segments(*(a[p] for a in segments)) for p in range(len(rows))]
        for p, of_ring in enumerate(self._segments):
            kernels.repair(of_ring)
            self._order(p)
        self._compile()

    def close_orphans(self) -> None:
        """Close a dead predecessor's open segments, if they are not continued by `restore`."""
        for p, segments in enumerate(self._segments):
            kernels.close_orphans(segments)
            self._order(p)

    def _order(self, p: int) -> None:
        """List the segments that are not open, in the order of reuse, and count the open ones."""
        segments, places = self._segments[p], (self._slots[p], self._paused[p])
        is_open = (segments.closed_as == OPEN) & (segments.committed > 0)
        for slots in places:
            is_open[slots[slots != NOWHERE]] = True
        # Empty segments first, then those that were closed first.
        order = np.argsort(segments.closed_as, kind="stable")
        order = order[~is_open[order]]
        head = int(segments.counters[CLOSED]) + int(is_open.sum())
        self._free[p, (head + np.arange(len(order))) % is_open.size] = order
        store(segments.counters, HEAD, head)

    def state(self) -> State:
        return {str(row): self.state_of(row) for row in self.rings}

    def state_of(self, row: int) -> State:
        """Return the open segments of one row's streams, and their current steps.

        Readers of the ring do not see current steps yet, and other nodes do not have them.
        Committed steps belong to the learner's part of a checkpoint.
        """
        ring = self._ring_of(row)
        found: State = {name: array[ring].copy() for name, array in self._places.items()}
        if self._shared:
            found["paused"] = oldest_first(self.rings[row].shared["numbers"], found["paused"])
        steps = self._steps_at(ring, found["slots"], found["lengths"])
        return found | {name: self._steps[name][at] for name, at in steps.items()}

    def holds(self, state: State) -> bool:
        return all(self.holds_of(row, branch(state, str(row))) for row in self.rings)

    def holds_of(self, row: int, state: State) -> bool:
        """Return whether the ring has the segments of a saved state; False if the ring is new."""
        ring = self._ring_of(row)
        like = {name: array[ring] for name, array in self._places.items()}
        found = check_places(state, self.ring, like)
        slots = np.concatenate((found["slots"], found["paused"]))
        return bool((self._segments[ring].sequence[slots[slots != NOWHERE]] > 0).all())

    def restore(self, state: State) -> None:
        """Restore what `state` returned; the rings must hold all steps committed at that time."""
        for row in self.rings:
            self.restore_of(row, branch(state, str(row)))

    def restore_of(self, row: int, state: State) -> None:
        """Restore what `state_of` returned for the streams of one row."""
        ring = self._ring_of(row)
        found = check_places(state, self.ring, {n: a[ring] for n, a in self._places.items()})
        slots, lengths = found["slots"], found["lengths"]
        check_open(state, self.rings[row], slots, lengths, found["paused"])
        at_steps = self._steps_at(ring, slots, lengths)
        steps = {n: fitting(state, n, self._steps[n][at]) for n, at in at_steps.items()}
        actions = steps["actions"][:, None]
        self.rings[row].check_actions(state, actions, np.ones(len(actions), np.int64))
        if self._shared:
            found["paused"] = oldest_first(self.rings[row].shared["numbers"], found["paused"])
        for name, array in self._places.items():
            array[ring] = found[name]
        for name, at in at_steps.items():
            self._steps[name][at] = steps[name]
        self._order(ring)

    def _steps_at(
        self, ring: int, slots: Integers, lengths: Integers
    ) -> dict[str, tuple[int, Integers, Integers]]:
        """Return the indices of each open stream's current step, by array."""
        is_open = slots != NOWHERE
        slots, steps = slots[is_open], lengths[is_open] - 1
        newest = self.ring.shape.n_frames - 1
        return {
            name: (ring, slots, steps + newest if name == "observations" else steps)
            for name in CONTENTS
        }

    def _ring_of(self, row: int) -> int:
        return int(np.flatnonzero(self._rows == row)[0])

    @property
    def _places(self) -> dict[str, Integers]:
        return {"slots": self._slots, "lengths": self._lengths, "paused": self._paused}

    def _wake_learners(self) -> None:
        for p in np.flatnonzero(self._due):
            self._learners[p].ring()

    def results(self, results: TurnOutcomes) -> TurnOutcomes:
        """Return `results`, without final masks unless `keeps_last_mask`."""
        if self.keeps_last_mask:
            return results
        return results._replace(final_masks=np.ones((self.ring.num_streams, 0), np.bool_))

    def decide(self, plan: StreamPlan, choices: Choices) -> None:
        if self._decide(*plan, *choices):
            self._wake_learners()

    def outcome(self, plan: StreamPlan, results: TurnOutcomes) -> None:
        if self._outcome(*plan, *results):
            self._wake_learners()

    def clear(self, row: int) -> bool:
        """Empty the ring of a row that no stream plays; return False if the row has no ring here.

        Segments that were left open are closed first, so their steps count as passed. If the actor
        dies halfway, its successor clears the ring again.
        """
        for p in np.flatnonzero(self._rows == row):
            self._paused[p] = NOWHERE
            kernels.close_orphans(self._segments[p])
            kernels.clear_ring(self._segments[p])
            self._order(int(p))
            return True
        return False

    def wake(self, row: int) -> None:
        for p in np.flatnonzero(self._rows == row):
            self._learners[p].ring()

    def _compile(self) -> None:
        streams, shape = self.ring.num_streams, self.ring.shape
        rows = int(self._rows.max()) + 1
        plan = StreamPlan(np.zeros(rows + 1, np.int64), np.zeros(0, np.int64))
        none: Bools = np.zeros(streams, np.bool_)
        numbers: Floats = np.zeros(streams, np.float32)
        observations = np.zeros((streams, shape.size), shape.dtype)
        masks: Bools = np.ones((streams, shape.mask_size), np.bool_)
        choices = Choices(
            active=none,
            observations=observations,
            actions=np.zeros((streams, shape.action_size), shape.action_dtype),
            log_probs=numbers,
            masks=masks,
            recurrent_states=np.zeros((streams, shape.memory), np.float32),
            versions=np.zeros(rows, np.int64),
            rewards_before=numbers,
        )
        self.decide(plan, choices)
        self.outcome(
            plan, self.results(TurnOutcomes(none, numbers, none, none, observations, masks))
        )
        # Compile these now, not when an actor has died or a policy is replaced.
        *arrays, counters = self._segments[0]
        empty = Segments._make([*(array[:0] for array in arrays), np.zeros_like(counters)])
        kernels.close_orphans(empty)
        kernels.clear_ring(empty)


def _patience(experience: Experience, ring: ExperienceRing) -> int:
    """Return `OpenSegments.patience`: the segments of the ring, or of about two rollouts."""
    if not experience.rollout:
        return ring.num_segments
    own = experience.rollout * ring.num_streams // experience.num_streams
    return 2 * max(-(-own // ring.segment_length), ring.likely)


def _arrays_of(experiences: Sequence[Experience], actor: int) -> dict[str, Array]:
    names = {*Segments._fields, *Beginnings._fields, *CONTENTS, *FINAL} - {"counters"}
    block, first, count = experiences[0].block, experiences[0].index, len(experiences)
    assert [experience.index - first for experience in experiences] == list(range(count))
    here = slice(first, first + count)
    found = {name: block.shared(actor)[name][here] for name in names}
    return found | {"counters": block.words_of(actor)[here]}


def check_places(
    state: State, ring: ExperienceRing, like: Mapping[str, Integers]
) -> dict[str, Array]:
    """Return the fields of `OpenSegments` as saved; raise CheckpointError if they do not fit."""
    segments, steps = Range(NOWHERE, ring.num_segments - 1), Range(0, ring.segment_length)
    ranges = {"slots": segments, "lengths": steps, "paused": segments}
    return fitting_all(state, {name: (like[name], allowed) for name, allowed in ranges.items()})


def check_open(
    state: State, ring: ExperienceRing, slots: Integers, lengths: Integers, paused: Integers
) -> None:
    """Raise CheckpointError unless streams [N] can continue these segments at these steps."""
    open_, steps = slots[slots != NOWHERE], lengths[slots != NOWHERE]
    every = np.concatenate((open_, paused[paused != NOWHERE]))
    fits = len(np.unique(every)) == len(every) < max(ring.num_segments, 1)
    require(state, "slots", fits, "each stream has its own open segment, and one more is free")
    shared = ring.shared
    left = shared["committed"][every[len(open_) :]]
    fits = bool((left >= 1).all() and (left < ring.segment_length).all())
    fits &= bool((shared["closed_as"][every[len(open_) :]] == OPEN).all())
    require(state, "paused", fits, "a paused segment is open and has room for a step")
    fits = bool((shared["closed_as"][open_] == OPEN).all() and (steps >= 1).all())
    require(state, "slots", fits, "a stream's segment is open and has at least one step")
    fits = bool((shared["committed"][open_] <= steps).all())
    require(state, "lengths", fits, "a stream's segment has at most this many committed steps")
