"""The actor's end of rings: it writes decisions and what came of them, for many streams at once.

A stream is an agent of a copy of the game. One writer writes the streams of all policies whose
rings are in a block, in one call of a compiled kernel (`remuda.experience.write_kernels`). A ring
that stands alone is a block of one.
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
    """Writes streams into rings; what a ring that stands alone and a block have in common.

    In each turn `decide` comes first and `outcome` after; a step is committed once the
    observation that followed it is written: the one at the agent's next decision, or the last
    one of an episode. Its reward is all that the agent was given until then; what it was given
    before its first decision of an episode is no step's.
    """

    def __init__(
        self,
        experiences: Sequence[Experience],
        actor: int,
        arrays: Mapping[str, Array],
        rows: Sequence[int],
        firsts: Sequence[int] | None = None,
    ) -> None:
        """Begin to write.

        Args:
            experiences: by ring.
            actor: whose rings these are.
            arrays: [rings, ...] by name, as `fields_of` has them, and `counters` [rings, COUNTERS].
            rows: by ring, its row in the stack of networks.
            firsts: by ring, the number of its first stream; None: 0 of all.
        """
        self.ring = ring = experiences[0].rings[actor]
        self.rooms: list[Room] = [e.room(actor) for e in experiences if e.may_wait]
        """Where it may have to wait; none: the user lets it overwrite."""
        self.keeps_last_mask = ring.shape.keeps_last_mask
        """Whether it writes what is allowed after the last step of an episode, too."""
        self._learners = [experience.learner for experience in experiences]
        self.rings = dict(zip(rows, (e.rings[actor] for e in experiences), strict=True))
        """By row of the stack of networks, the ring that its policy is written into."""
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
        """Close what a writer before this one had open when it died, so that it can be taken.

        Not for a writer that will be restored: it goes on with these segments.
        """
        for segments in self._segments:
            kernels.close_orphans(segments)

    def state(self) -> State:
        """Return by row what `state_of` returns."""
        return {str(row): self.state_of(row) for row in self.rings}

    def state_of(self, row: int) -> State:
        """Return the segments that the streams of one row have open, and the step each is at.

        A reader of the ring may not see that step yet, and on another node it is not even there. So
        it belongs to this part of a checkpoint; the committed steps belong to the learner's.
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
        """Go on writing where `state` was called; the rings must hold what was committed then."""
        for row in self.rings:
            self.restore_of(row, branch(state, str(row)))

    def restore_of(self, row: int, state: State) -> None:
        """Go on writing the streams of one row where `state_of` was called."""
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
        """Return where the step lies that each open stream is at, as indices by array."""
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
        """What is saved: [rings, streams]."""
        return {"slots": self._slots, "lengths": self._lengths}

    def _wake_learners(self) -> None:
        """Wake the learners that have enough to train on now."""
        for p in np.flatnonzero(self._due):
            self._learners[p].ring()

    def _compile_rare(self) -> None:
        """Compile what is called only where an actor died, or a policy was replaced."""
        *arrays, counters = self._segments[0]
        none = Segments._make([*(array[:0] for array in arrays), np.zeros_like(counters)])
        kernels.close_orphans(none)
        kernels.clear_ring(none)


class ExperienceWriter(RingWriter):
    """Writes the streams of one policy on one seat into its ring, for one actor."""

    def __init__(self, experience: Experience, actor: int = 0, num_agents: int = 2) -> None:
        """Begin to write for `actor`; `num_agents`: columns of the arrays that it will be given."""
        super().__init__([experience], actor, _arrays_of([experience], actor), [0])
        self.room = self.rooms[0] if self.rooms else None
        """Where it may have to wait; None: the user lets it overwrite."""
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

        Args:
            observations: [num_streams, size], unstacked.
            actions: [num_streams, action_size].
            version: of the weights that chose.
            active: [num_streams] bool.
            log_probs: [num_streams] float32, of the actions when they were chosen.
            masks: [num_streams, mask_size] bool, what each was allowed to do.
            recurrent_states: [num_streams, memory] float32, before these observations.
            before: [num_streams] float32, what each has been given in this turn so far, as a
                column of an array; it belongs to the decision before. None: nothing.
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
        """Write what came of the decisions.

        Args:
            rewards: [num_streams] float32, of the whole turn.
            terminated: [num_streams] bool.
            truncated: [num_streams] bool.
            final_observations: [num_streams, size], after the turn; read only for streams whose
                episode ended.
            active: [num_streams] bool, the streams that decided in this turn.
            final_masks: [num_streams, mask_size] bool, what is allowed after the turn; read only
                for streams that were truncated, where `keeps_last_mask` says so.
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
        """Compile the kernels, by a turn in which no stream takes part.

        A column of an array is of another layout where it is the only one.
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

    Streams are numbered over all seats and copies. Each call is given, for every row of a stack of
    networks, the streams that it plays: those of row k are `streams[begins[k] : begins[k + 1]]`.
    Where seats are dealt, which policy a stream belongs to changes from match to match, and always
    at an episode's start, so that no segment ever holds steps of two.
    """

    def __init__(
        self, policies: Sequence[tuple[Experience, int]], actor: int = 0, own_streams: int = 0
    ) -> None:
        """Begin to write.

        Args:
            policies: whose rings are neighbours in one block, or one whose ring stands alone: the
                experience of each, and its row in the stack.
            actor: whose rings these are.
            own_streams: of each policy, where each has its own: those of row k have the numbers
                from `k * own_streams` on; 0: any may play any.
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
        """Write a decision of the streams that are active.

        Args:
            begins: [rows + 1] where each row's streams begin...
            streams: ...in this list of numbers.
            active: [num_streams].
            observations: [num_streams, size], unstacked.
            actions: [num_streams, action_size].
            log_probs: [num_streams], of the actions when they were chosen.
            masks: [num_streams, mask_size] what each was allowed to do.
            recurrent_states: [num_streams, memory], before these observations.
            versions: [rows] of the weights that chose.
            before: [num_streams] what each has been given in this turn so far; it belongs to the
                decision before.
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
        """Write what came of the decisions.

        Args:
            begins: [rows + 1] where each row's streams begin...
            streams: ...in this list of numbers.
            active: [num_streams] who decided in this turn.
            rewards: [num_streams] of the whole turn.
            terminated: [num_streams].
            truncated: [num_streams].
            final_observations: [num_streams, size], after the turn; read only for streams whose
                episode ended.
            final_masks: [num_streams, mask_size] what is allowed after the turn; read only for
                streams that were truncated, where `keeps_last_mask` says so.
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
        """Forget all that is in the ring of this row, while no stream plays it.

        A learner waits for new steps from then on. If the actor dies on the way, some segments are
        empty and some not; its successor clears the ring again. False: this row's ring is
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
        """Compile the kernels, by a turn in which no stream takes part."""
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
    """What the rings of one actor are made of, [rings, ...] by name."""
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
