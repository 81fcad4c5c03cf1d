"""The actor's end of rings: it writes decisions and outcomes for many streams at once.

A stream is an agent of a copy of the environment. One writer writes the streams of all policies
whose rings are in a block, in one call of a compiled kernel (`remuda.experience.write_kernels`). A
single ring is a block of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from remuda.checkpoint.fitting import branch, fitting
from remuda.experience import write_kernels as kernels
from remuda.experience.experience import Experience
from remuda.experience.places import check_open, check_places, check_steps
from remuda.experience.ring import CLOSED_STEPS, CONTENTS, WRITTEN
from remuda.experience.ring_arrays import Beginnings, Decisions, Outcomes, Places, Segments
from remuda.experience.room import Room
from remuda.experience.write_kernels import NOWHERE
from remuda.types import Array, Bools, Floats, Integers, State


class RingWriter:
    """Writes streams into rings: the common part of single rings and blocks.

    In each turn `decide` comes first and `outcome` after; a step is committed once the observation
    that followed it is written: the one at the agent's next decision, or the final one of an
    episode. Its reward sums what the agent received until then; rewards before its first decision
    of an episode belong to no step.
    """

    def __init__(
        self,
        experiences: Sequence[Experience],
        actor: int,
        arrays: Mapping[str, Array],
        rows: Sequence[int],
        firsts: Sequence[int] | None = None,
    ) -> None:
        """Start writing.

        `arrays` are [rings, ...], those of `fields_of` and `counters` [rings, COUNTERS]. `rows` are
        each ring's row in the stack of networks, `firsts` the number of its first stream; None: 0
        of all.
        """
        self.ring = ring = experiences[0].rings[actor]
        # where it may have to wait; empty with `on_full: overwrite`
        self.rooms: list[Room] = [e.room(actor) for e in experiences if e.may_wait]
        # whether it also writes the mask after the last step of an episode
        self.keeps_last_mask = ring.shape.keeps_last_mask
        self._learners = [experience.learner for experience in experiences]
        # by row of the stack of networks
        self.rings = dict(zip(rows, (e.rings[actor] for e in experiences), strict=True))
        self._rows: Integers = np.array(rows, np.int64)
        self._due: Bools = np.zeros(len(rows), np.bool_)
        self._slots: Integers = np.full((len(rows), ring.num_streams), NOWHERE, np.int64)
        self._lengths: Integers = np.zeros((len(rows), ring.num_streams), np.int64)
        last_size = ring.shape.mask_size if self.keeps_last_mask else 0
        self._no_last_masks: Bools = np.ones((ring.num_streams, last_size), np.bool_)
        # The kernels, with what every call of them begins with.
        segments = Segments(*(arrays[name] for name in Segments._fields))
        places = Places(self._slots, self._lengths)
        watched = CLOSED_STEPS if experiences[0].rollout else WRITTEN
        begins: Integers = np.zeros(len(rows), np.int64)
        if firsts is not None:
            begins[:] = firsts
        each = (*places, self._rows, begins, watched, self._due)
        decisions = (arrays[name] for name in (*Decisions._fields, *Segments._fields))
        beginnings = (arrays[name] for name in Beginnings._fields)
        decide: Callable[..., int] = kernels.decide
        outcome: Callable[..., int] = kernels.outcome
        self._decide = partial(decide, *decisions, *beginnings, *each)
        outcomes = (arrays[name] for name in Outcomes._fields)
        self._outcome = partial(outcome, *outcomes, *segments, *each)
        self._steps = {name: arrays[name] for name in CONTENTS}
        self._segments = [Segments(*(a[p] for a in segments)) for p in range(len(rows))]
        for of_ring in self._segments:
            kernels.repair(of_ring)

    def close_orphans(self) -> None:
        """Close what a previous writer had open when it died, so that it can be taken.

        Not for a writer that will be restored: it continues these segments.
        """
        for segments in self._segments:
            kernels.close_orphans(segments)

    def state(self) -> State:
        """Return by row what `state_of` returns."""
        return {str(row): self.state_of(row) for row in self.rings}

    def state_of(self, row: int) -> State:
        """Return the segments that the streams of one row have open, and their current steps.

        Readers of the ring do not see that step yet, and on another node it does not exist. So it
        belongs to this part of a checkpoint; committed steps belong to the learner's.
        """
        ring = self._ring_of(row)
        found: State = {name: array[ring].copy() for name, array in self._places.items()}
        steps = self._steps_at(ring, found["slots"], found["lengths"])
        return found | {name: self._steps[name][at] for name, at in steps.items()}

    def holds(self, state: State) -> bool:
        """Return whether `holds_of` is true of every row."""
        return all(self.holds_of(row, branch(state, str(row))) for row in self.rings)

    def holds_of(self, row: int, state: State) -> bool:
        """Return whether the ring has the segments that were open when `state_of` was called.

        It has none of them where a run is resumed without its experience.
        """
        ring = self._ring_of(row)
        like = {name: array[ring] for name, array in self._places.items()}
        slots = check_places(state, self.ring, like)["slots"]
        return bool((self._segments[ring].sequence[slots[slots != NOWHERE]] > 0).all())

    def restore(self, state: State) -> None:
        """Restore what `state` returned; the rings must hold what was committed then."""
        for row in self.rings:
            self.restore_of(row, branch(state, str(row)))

    def restore_of(self, row: int, state: State) -> None:
        """Restore what `state_of` returned for the streams of one row."""
        ring = self._ring_of(row)
        found = check_places(state, self.ring, {n: a[ring] for n, a in self._places.items()})
        slots, lengths = found["slots"], found["lengths"]
        check_open(state, self.rings[row], slots, lengths)
        at_steps = self._steps_at(ring, slots, lengths)
        steps = {n: fitting(state, n, self._steps[n][at]) for n, at in at_steps.items()}
        check_steps(state, self.rings[row], steps["actions"])
        self._slots[ring], self._lengths[ring] = slots, lengths
        for name, at in at_steps.items():
            self._steps[name][at] = steps[name]

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
        """Return what is saved: [rings, streams]."""
        return {"slots": self._slots, "lengths": self._lengths}

    def _wake_learners(self) -> None:
        """Wake the learners that have enough to train on now."""
        for p in np.flatnonzero(self._due):
            self._learners[p].ring()

    def _compile_rare(self) -> None:
        """Compile what is called only after an actor died, or a policy was replaced."""
        *arrays, counters = self._segments[0]
        none = Segments._make([*(array[:0] for array in arrays), np.zeros_like(counters)])
        kernels.close_orphans(none)
        kernels.clear_ring(none)


class ExperienceWriter(RingWriter):
    """Writes the streams of one policy on one seat into its ring, for one actor."""

    def __init__(self, experience: Experience, actor: int = 0, num_agents: int = 2) -> None:
        """Start writing for `actor`; `num_agents` is the columns of the arrays of `decide`."""
        super().__init__([experience], actor, _arrays_of([experience], actor), [0])
        # where it may have to wait; None with `on_full: overwrite`
        self.room = self.rooms[0] if self.rooms else None
        streams, shape = self.ring.num_streams, self.ring.shape
        self._begins: Integers = np.array([0, streams])
        self._streams: Integers = np.arange(streams)
        self._version: Integers = np.zeros(1, np.int64)
        self._no_log_probs: Floats = np.zeros(streams, np.float32)
        self._no_masks: Bools = np.ones((streams, shape.mask_size), np.bool_)
        self._no_recurrent_states: Floats = np.zeros((streams, shape.memory), np.float32)
        # Of the strides of a column, as the environment's own array has them.
        self._nothing: Floats = np.zeros((streams, num_agents), np.float32)[:, 0]
        self._compile(num_agents)

    def decide(
        self,
        observations: Array,
        actions: Array,
        version: int,
        active: Bools,
        log_probs: Floats | None = None,
        masks: Bools | None = None,
        recurrent_states: Floats | None = None,
        before: Floats | None = None,
    ) -> None:
        """Write a decision of the active streams.

        Shapes of N streams: observations [N, size], unstacked; actions [N, action_size]; masks [N,
        mask_size]; recurrent_states [N, memory], before these observations; others [N]. `version`
        is that of the acting weights. `before` are rewards of this turn so far, a column of an
        array; they belong to the decision before.
        """
        self._version[0] = version
        if self._decide(
            self._begins,
            self._streams,
            active,
            observations,
            actions,
            self._no_log_probs if log_probs is None else log_probs,
            self._no_masks if masks is None else masks,
            self._no_recurrent_states if recurrent_states is None else recurrent_states,
            self._version,
            self._nothing if before is None else before,
        ):
            self._wake_learners()

    def outcome(
        self,
        rewards: Floats,
        terminated: Bools,
        truncated: Bools,
        final_observations: Array,
        active: Bools,
        final_masks: Bools | None = None,
    ) -> None:
        """Write the outcomes of the decisions; shapes as in `decide`.

        `rewards` are of the whole turn. Final observations are read only for streams whose episode
        ended, and final masks only for truncated ones, if `keeps_last_mask`. `active` are the
        streams that decided in this turn.
        """
        if final_masks is None or not self.keeps_last_mask:
            final_masks = self._no_last_masks
        if self._outcome(
            self._begins,
            self._streams,
            active,
            rewards,
            terminated,
            truncated,
            final_observations,
            final_masks,
        ):
            self._wake_learners()

    def _compile(self, num_agents: int) -> None:
        """Compile the kernels, by a turn without any stream.

        A column of an array has another memory layout if it is the only one.
        """
        streams, shape = self.ring.num_streams, self.ring.shape
        none: Bools = np.zeros((streams, num_agents), np.bool_)
        rewards: Floats = np.zeros((streams, num_agents), np.float32)
        observations = np.zeros((streams, shape.size), shape.dtype)
        actions = np.zeros((streams, shape.action_size), shape.action_dtype)
        self.decide(observations, actions, 0, none[:, 0])
        self.outcome(rewards[:, 0], none[:, 0], none[:, 0], observations, none[:, 0])
        self._compile_rare()


class BlockWriter(RingWriter):
    """Writes the streams of several policies into the rings of a block.

    Streams are numbered over all seats and copies. For every row of a stack of networks, calls get
    the streams that it plays: those of row k are `streams[begins[k] : begins[k + 1]]`. Where seats
    are dealt, a stream's policy changes from match to match, always at an episode's start, so that
    no segment ever holds steps of two policies.
    """

    def __init__(
        self, policies: Sequence[tuple[Experience, int]], actor: int = 0, own_streams: int = 0
    ) -> None:
        """Start writing for policies whose rings are neighbours in one block, or for a single ring.

        `policies` pairs their experience with their row in the stack. If each policy has its own
        streams, those of row k are numbered from `k * own_streams` on; 0: any may play any.
        """
        experiences, rows = zip(*sorted(policies, key=lambda pair: pair[0].index), strict=True)
        firsts = [row * own_streams for row in rows]
        super().__init__(experiences, actor, _arrays_of(experiences, actor), rows, firsts)
        self._compile()

    def decide(
        self,
        begins: Integers,
        streams: Integers,
        active: Bools,
        observations: Array,
        actions: Array,
        log_probs: Floats,
        masks: Bools,
        recurrent_states: Floats,
        versions: Integers,
        before: Floats,
    ) -> None:
        """Write a decision of the active streams.

        `begins` [rows + 1] is where each row's streams begin in the list `streams`; `versions`
        [rows] are those of the acting weights. Otherwise as in `ExperienceWriter.decide`, with
        `before` [N].
        """
        if self._decide(
            begins,
            streams,
            active,
            observations,
            actions,
            log_probs,
            masks,
            recurrent_states,
            versions,
            before,
        ):
            self._wake_learners()

    def outcome(
        self,
        begins: Integers,
        streams: Integers,
        active: Bools,
        rewards: Floats,
        terminated: Bools,
        truncated: Bools,
        final_observations: Array,
        final_masks: Bools,
    ) -> None:
        """Write the outcomes of the decisions.

        Arguments are as in `decide` and `ExperienceWriter.outcome`.
        """
        if self._outcome(
            begins,
            streams,
            active,
            rewards,
            terminated,
            truncated,
            final_observations,
            final_masks if self.keeps_last_mask else self._no_last_masks,
        ):
            self._wake_learners()

    def clear(self, row: int) -> bool:
        """Empty the ring of this row, while no stream plays it.

        A learner waits for new steps from then on. If the actor dies meanwhile, some segments are
        empty and some not; its successor clears the ring again. Returns False if this row's ring is
        elsewhere.
        """
        for p in np.flatnonzero(self._rows == row):
            kernels.clear_ring(self._segments[p])
            return True
        return False

    def wake(self, row: int) -> None:
        """Ring the learner of this row, if its ring is here."""
        for p in np.flatnonzero(self._rows == row):
            self._learners[p].ring()

    def _compile(self) -> None:
        """Compile the kernels, by a turn without any stream."""
        streams, shape = self.ring.num_streams, self.ring.shape
        rows = int(self._rows.max()) + 1
        begins: Integers = np.zeros(rows + 1, np.int64)
        no_streams: Integers = np.zeros(0, np.int64)
        none: Bools = np.zeros(streams, np.bool_)
        rewards: Floats = np.zeros(streams, np.float32)
        observations = np.zeros((streams, shape.size), shape.dtype)
        actions = np.zeros((streams, shape.action_size), shape.action_dtype)
        masks: Bools = np.ones((streams, shape.mask_size), np.bool_)
        recurrent_states: Floats = np.zeros((streams, shape.memory), np.float32)
        versions: Integers = np.zeros(rows, np.int64)
        self.decide(
            begins,
            no_streams,
            none,
            observations,
            actions,
            rewards,
            masks,
            recurrent_states,
            versions,
            rewards,
        )
        self.outcome(begins, no_streams, none, rewards, none, none, observations, masks)
        self._compile_rare()


def _arrays_of(experiences: Sequence[Experience], actor: int) -> dict[str, Array]:
    """Return the arrays of one actor's rings, [rings, ...] each."""
    names = {*Segments._fields, *Beginnings._fields, *CONTENTS}
    names -= {"counters"}
    block = experiences[0].block
    if block is None:
        (experience,) = experiences
        ring = experience.rings[actor]
        found = {name: ring.shared[name][None] for name in names}
        return found | {"counters": ring.counters[None]}
    first, count = experiences[0].index, len(experiences)
    assert [experience.index - first for experience in experiences] == list(range(count))
    here = slice(first, first + count)
    found = {name: block.shared(actor)[name][here] for name in names}
    return found | {"counters": block.words_of(actor)[here]}
