"""The ring of segments: one policy's experience from one actor, in shared memory.

A ring has S segments of T steps. A segment holds one long episode's steps, or those of several
episodes; its steps of one episode are a *piece*. `discounts` is 1 within an episode, and 0 or
`TRUNCATED` at an episode's last step, so it marks where pieces end (`experience/pieces.py`).

The stacked observation of step t is rows t to t + n_frames - 1, the newest last, without the rows
before its piece: these count as zeros. So a segment has T + n_frames rows: the frames before its
first step, its T observations, and the observation after its last step. At an episode's start the
frames before the first step are zeros; if a long episode continues in another segment, they are
copied from the previous segment. The observation after an episode's last step t is row t of
`final_observations`; for value-based learners its mask is row t of `final_masks`.

A stream whose episode ends before its segment is full leaves the segment open. It continues it
with its next episode, unless another stream does. A full segment is *closed*, and its slot (its
index in the ring) is added to a queue. So rings hold, and rollouts consist of, equally many steps
however short episodes are. A stream that acts rarely closes its segment before it is full, once
others have started `OpenSegments.patience` segments, so that its steps do not grow old. Segments
are reused in the order in which they were closed. An off-policy learner samples committed steps of
any segment; an on-policy learner takes each closed segment whole and at most once, in the order of
the queue.

The writer (the actor) owns all arrays and counters, except the counters `WANTED`, `CONSUMED`,
`EXCUSED`, `TAKEN`, `TAKEN_STEPS` and `UPDATE_TIME`, which belong to the learner. There is no lock.
`remuda.experience.experience` and `backpressure` define how learner and actors use these counters.

- A segment's `sequence` is odd while the writer prepares it for new steps, and even otherwise.
- The first `committed` steps never change while `sequence` stays the same. `committed` is stored
  with release and loaded with acquire ordering, so a reader that sees the count sees these steps.
- A reader reads `sequence`, copies, and reads it again; if it changed, the copy is discarded.
- A segment's `closed_as` is the value of `CLOSED` after it was closed, until the slot is reused.
  Its queue entry is overwritten later than that, because `HEAD` is at least `CLOSED`.
- A writer that dies leaves at most one odd sequence behind. Readers skip that segment. The next
  writer (`BlockWriter`) empties it, makes its sequence even again, recounts the ring, and reuses it
  first. It also closes open segments of its predecessor. The order of reuse is the writer's own
  memory; a successor derives it from `closed_as`.
- A segment's `closed_as` and queue entry are complete before `CLOSED` counts the segment. The next
  writer resets a `closed_as` that was not counted. It does not use the queue entry for this,
  because an incomplete entry may still refer to another segment.
- A learner publishes that it took segments before it trains on them. If it dies, they are lost.
  Until its successor starts, the runtime of the dead process writes `CONSUMED`, `TAKEN` and
  `TAKEN_STEPS` (`Role.on_process_death`), so that actors do not wait; in `lockstep` they do wait.
  The successor first makes these counters consistent (`Experience.take_up`). A `WANTED` of a dead
  learner causes one needless wake-up.

Tests kill the writer and the learner at every line, and then their successors:
`tests/experience/test_writer_deaths.py` and `test_learner_deaths.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from remuda.config import ExperienceConfig
from remuda.system.checkpoint.fitting import COUNT, MOST, Range, Table, fitting_all, require, whole
from remuda.system.kernels import njit
from remuda.system.memory.atomic import fence_acquire, fence_full, load, store
from remuda.system.memory.packing import Packing
from remuda.system.memory.shared import Fields
from remuda.types import Array, Bools, Floats, Integers, State

# Indices in `counters`; each counter has its own cache line, to avoid false sharing.
STRIDE = 8
WRITTEN = 0 * STRIDE  # steps committed since the run started
OVERWRITTEN = 1 * STRIDE  # committed steps that newer ones replaced
# segments started since the run started: `CLOSED` plus the open ones. A dead writer may have
# counted a segment that it did not start; its successor counts again.
HEAD = 2 * STRIDE
WANTED = 3 * STRIDE  # number of steps in the ring at which to wake the learner; 0: it is awake
CONSUMED = 4 * STRIDE  # steps for which the learner has done all training due by the replay ratio
ROOM_WANTED = 5 * STRIDE  # value of CONSUMED at which to wake the actor; 0: it is awake
# committed steps that a resumed run did not restore, or that the ring's previous policy played
LOST = 6 * STRIDE
CLOSED = 7 * STRIDE  # segments closed since the run started
CLOSED_STEPS = 8 * STRIDE  # steps in the closed segments
TAKEN = 9 * STRIDE  # closed segments that an on-policy learner has taken or skipped
TAKEN_STEPS = 10 * STRIDE  # steps in the segments that `TAKEN` counts
# mean duration of an update in microseconds; 0 before the learner's first update, and minus the id
# of the learner's process during it
UPDATE_TIME = 11 * STRIDE
# steps beyond the lead that do not make actors wait for an off-policy learner, because actors
# wrote them without waiting
EXCUSED = 12 * STRIDE
# the next value of `OVERWRITTEN`, stored before a segment is reused; needed if the writer dies
# before it stores `OVERWRITTEN` itself
NEXT_OVERWRITTEN = 13 * STRIDE
COUNTERS = 14 * STRIDE

# arrays of the steps
CONTENTS = ("observations", "actions", "log_probs", "masks", "rewards", "discounts", "versions")
SEGMENTS = ("recurrent_states", "numbers", "streams")  # arrays written when a piece starts
FINAL = ("final_observations", "final_masks")  # arrays written when an episode ends
# arrays for the order in which segments were closed
QUEUE = ("queue", "queue_sequence", "queue_steps")
NOTHING = -1  # sequence of a queue entry without a segment
OPEN = 0  # `closed_as` of a segment that is not closed
TRUNCATED = -1.0  # `discounts` of an episode's last step if it did not terminate

OTHERS = -1  # in batches: version of a step whose action another policy chose

# Every byte of a fresh integer has this value, and fresh floats are NaN, so unwritten entries
# cannot pass for data. Fresh booleans are false, because only 0 and 1 are valid.
POISON = 0xA5


@dataclass(frozen=True)
class StreamShape:
    """The shape of a policy's steps."""

    observation: tuple[int, ...]  # shape of one observation, unstacked
    dtype: npt.DTypeLike  # of an observation, as the environment writes it
    n_frames: int  # observations in one stacked input
    action_size: int = 1  # numbers in one action
    action_dtype: npt.DTypeLike = np.int64  # integers, or float32 for continuous actions
    mask_size: int = 0  # entries of an action mask; 0: no masks
    memory: int = 0  # size of the recurrent state
    # whether the mask after a segment's last step is kept too, for value-based learners
    keeps_last_mask: bool = False
    # number of options of each component of a MultiDiscrete action; empty for other actions
    choices: tuple[int, ...] = ()
    branching: bool = False  # one action value per option of each component, not per combination
    packing: Packing | None = None  # of observations

    @property
    def is_continuous(self) -> bool:
        return np.dtype(self.action_dtype).kind == "f"

    @property
    def size(self) -> int:
        return int(np.prod(self.observation, dtype=np.int64))

    @property
    def num_inputs(self) -> int:
        """Return how many numbers a stacked input has."""
        return self.n_frames * (self.size if self.packing is None else self.packing.numbers)

    @property
    def num_valued(self) -> int:
        """Return the size of a sample's mask, one entry per action value; 0: no masks."""
        combined = self.choices and self.mask_size and not self.branching
        return math.prod(self.choices) if combined else self.mask_size

    def empty_choices(self, samples: tuple[int, ...]) -> Array:
        """Allocate the action components of samples, [*samples, C].

        C is 0 unless actions are continuous or `branching`.
        """
        count = self.action_size if self.is_continuous or self.branching else 0
        return np.zeros((*samples, count), self.action_dtype)


class NamedArrays(Protocol):
    """The arrays of a ring in a block, by key (`remuda.experience.ring_block.BlockRow`)."""

    def __getitem__(self, name: str) -> Array:
        """Return an array of `fields_of`, or the `counters` of all rings of the policy."""


def fields_of(shape: StreamShape, length: int, segments: int) -> Fields:
    """Return shapes and dtypes of a ring's arrays."""
    return {
        "observations": ((segments, length + shape.n_frames, shape.size), shape.dtype),
        "actions": ((segments, length, shape.action_size), shape.action_dtype),
        "log_probs": ((segments, length), np.float32),  # of the actions, when they were chosen
        "masks": ((segments, length + shape.keeps_last_mask, shape.mask_size), np.bool_),
        "rewards": ((segments, length), np.float32),
        # 1, or at an episode's last step: 0 if it terminated, else `TRUNCATED`
        "discounts": ((segments, length), np.float32),
        "versions": ((segments, length), np.int64),
        "sequence": ((segments,), np.int64),
        "committed": ((segments,), np.int64),
        "recurrent_states": ((segments, shape.memory), np.float32),  # before the first step
        "numbers": ((segments,), np.int64),  # value of HEAD when the segment was started
        "streams": ((segments, length), np.int64),  # at the first step of each piece
        # After the steps at which an episode ended. Other rows stay untouched and take no memory.
        "final_observations": ((segments, length, shape.size), shape.dtype),
        "final_masks": ((segments, length * shape.keeps_last_mask, shape.mask_size), np.bool_),
        "closed_as": ((segments,), np.int64),  # CLOSED after it was closed, or OPEN
        "queue": ((segments,), np.int64),
        "queue_sequence": ((segments,), np.int64),
        "queue_steps": ((segments,), np.int64),
    }


class ExperienceRing:
    """One policy's experience from one actor: written by that actor, read by learners.

    1. A step is read whole or not at all.
    2. No reader ever makes the writer wait.
    3. A writer that dies, at any instruction, leaves a ring that others can continue to use.
    """

    def __init__(
        self,
        shape: StreamShape,
        config: ExperienceConfig,
        num_streams: int,
        shared: NamedArrays,  # the ring's arrays in a block
        actor: int,  # row of the ring's counters
        likely: int,  # typical number of open segments
        sparse: bool = False,  # do not fill fresh memory with `POISON`
    ) -> None:
        self.shape, self.config, self.shared, self.actor = shape, config, shared, actor
        self.num_streams, self.likely = num_streams, likely
        self.num_segments, self.segment_length = len(shared["sequence"]), config.segment_length
        if not sparse:
            for name in CONTENTS:
                _poison(shared[name])

    @property
    def counters(self) -> Integers:
        row: Integers = self.shared["counters"][self.actor]
        return row

    @property
    def tight(self) -> bool:
        """Return whether a turn might overwrite untaken segments."""
        return is_tight(self.counters, self.num_segments, self.likely)

    @property
    def open_steps(self) -> int:
        """Return the committed steps of open segments; call it only while no writer is active."""
        return int(self.shared["committed"][self.shared["closed_as"] == OPEN].sum())

    def ends_at(self, segments: int) -> tuple[int, int]:
        """Return `segments`, and the total steps in the first `segments` closed segments.

        If the last of these is no longer in the queue, return numbers for the oldest that is.
        """
        ends = self.shared["queue_steps"]
        while True:
            # The writer may be replacing the oldest entry.
            known = max(segments, load(self.counters, CLOSED) - ends.size + 2)
            steps = int(ends[(known - 1) % ends.size]) if known else 0
            fence_acquire()
            if known > load(self.counters, CLOSED) - ends.size + 1:
                return known, steps

    def state(self) -> State:
        """Return a copy of all committed steps, while the writer may continue.

        The learner calls it, so `TAKEN` does not change during the copy. The queue is copied before
        the segments, so a queued segment has all of its steps. Segments that the writer changes
        during the copy are left out, and the counters agree with the copied queue entries.
        """
        shared, words = self.shared, self.counters
        # Load each counter before the counter that bounds it from above.
        taken_steps, taken = load(words, TAKEN_STEPS), load(words, TAKEN)
        closed = load(words, CLOSED)
        saved: State = {name: shared[name].copy() for name in QUEUE}
        fence_acquire()
        overwritten = load(words, CLOSED) - self.num_segments
        before = shared["sequence"].copy()
        fence_acquire()
        committed = shared["committed"].copy()
        fence_acquire()
        saved |= {name: shared[name].copy() for name in (*CONTENTS, *SEGMENTS)}
        ended = _ended(saved["discounts"], committed)
        saved |= {name: shared[name][ended] for name in self._final}
        closed_as = shared["closed_as"].copy()
        fence_acquire()
        torn = (before % 2 == 1) | (shared["sequence"] != before)
        committed[torn] = 0
        kept = _ended(saved["discounts"], committed)[ended]
        saved |= {name: saved[name][kept] for name in self._final}
        # A segment that was closed after `closed` was read counts as open.
        closed_as[torn | (closed_as > closed)] = OPEN
        counters = {
            "head": load(words, HEAD),
            "closed": closed,
            "taken": taken,
            "taken_steps": taken_steps,
            "lost": load(words, LOST),
        }
        _settle_queue(saved, counters, overwritten)
        # A new sequence ensures that no entry of the queue refers to a segment that is left out.
        sequence = np.where(torn, before - before % 2 + 2, before)
        saved |= {"committed": committed, "sequence": sequence, "closed_as": closed_as}
        return saved | {"counters": counters}

    def restore(self, state: State | None, written: int) -> None:
        """Restore what `state` returned; None: the `written` steps were not saved."""
        shared, counters = self.shared, self.counters
        if state is not None:
            arrays, counts = self._checked(state)
            ended = _ended(arrays["discounts"], arrays["committed"])
            for name, array in arrays.items():
                shared[name][ended if name in FINAL else ...] = array
            for name, word in SAVED_COUNTERS.items():
                store(counters, word, counts[name])
        held = int(shared["committed"].sum())
        written = max(written, held)
        store(counters, WRITTEN, written)
        store(counters, OVERWRITTEN, written - held)
        store(counters, LOST, written if state is None else state["counters"]["lost"])

    @property
    def _final(self) -> tuple[str, ...]:
        return FINAL if self.shape.keeps_last_mask else FINAL[:1]

    def _table(self) -> Table:
        shared, any_ = self.shared, None
        segments, streams = Range(0, self.num_segments - 1), Range(0, self.num_streams - 1)
        ranges = {
            **dict.fromkeys((*CONTENTS, "recurrent_states"), any_),  # actions: see `check_actions`
            "numbers": COUNT,
            "streams": streams,
            "queue": segments,
            "queue_sequence": Range(NOTHING, MOST),
            "queue_steps": COUNT,
            "committed": Range(0, self.segment_length),
            "sequence": COUNT,
            "closed_as": Range(OPEN, MOST),
        }
        return {name: (shared[name], allowed) for name, allowed in ranges.items()}

    def _checked(self, state: State) -> tuple[dict[str, Array], dict[str, int]]:
        """Return the arrays and counters of a state; raise CheckpointError if they disagree."""
        arrays, words = fitting_all(state, self._table()), state["counters"]
        ended = _ended(arrays["discounts"], arrays["committed"])
        arrays |= fitting_all(state, {n: (self.shared[n][ended], None) for n in self._final})
        counts = {name: whole(words, name) for name in ("head", "closed", "lost")}
        # `release` sets these two to values that no run reaches.
        counts |= {name: whole(words, name, Range(0, 2**62)) for name in ("taken", "taken_steps")}
        counts["closed_steps"] = whole(words, "closed_steps")
        latest = int(arrays["closed_as"].max(initial=OPEN))
        require(words, "closed", latest <= counts["closed"], f"segment {latest} is already closed")
        odd = (arrays["sequence"] % 2 == 1) & (arrays["committed"] > 0)
        require(state, "sequence", not odd.any(), "a segment with an odd sequence has no steps")
        self.check_actions(state, arrays["actions"], arrays["committed"])
        return arrays, counts

    def check_actions(self, state: State, actions: Array, steps: Integers) -> None:
        """Raise CheckpointError if one of the first `steps` actions is out of range."""
        choices = self.shape.choices
        if not choices or not np.issubdtype(actions.dtype, np.integer):
            return
        there = np.arange(actions.shape[1]) < steps[:, None]
        for i, choice in enumerate(choices):
            chosen = actions[..., i][there]
            fits = not chosen.size or (chosen.min() >= 0 and chosen.max() < choice)
            require(state, "actions", fits, f"choice {i} is from 0 to {choice - 1}")


SAVED_COUNTERS = {
    "head": HEAD,
    "closed": CLOSED,
    "closed_steps": CLOSED_STEPS,
    "taken": TAKEN,
    "taken_steps": TAKEN_STEPS,
}


def _ended(discounts: Floats, committed: Integers) -> Bools:
    """Return which committed steps are the last of an episode: [segments, length]."""
    found: Bools = (discounts != 1.0) & (np.arange(discounts.shape[1]) < committed[:, None])
    return found


def _settle_queue(saved: State, counters: dict[str, int], overwritten: int) -> None:
    """Make a copied queue and its counters consistent.

    In `counters`, `closed` was read before the copy, `taken` and `taken_steps` before `closed`.
    `overwritten` is the number of the last entry that may have changed during the copy.
    """
    queue, sequence, steps = (saved[name] for name in QUEUE)
    segments, closed, taken = len(queue), counters["closed"], counters["taken"]
    first = max(overwritten + 1, closed - segments, 0)
    if taken <= closed and taken > first:
        counters["taken_steps"] = int(steps[(taken - 1) % segments])
    if overwritten + segments > closed:  # else the only uncertain entry is never read
        for entry in range(max(closed - segments, 0), min(first, closed)):
            at = entry % segments
            queue[at], sequence[at], steps[at] = 0, NOTHING, counters["taken_steps"]
    counters["closed_steps"] = int(steps[(closed - 1) % segments]) if closed else 0
    if taken > closed:  # after `release`
        return
    if taken == closed or counters["taken_steps"] >= counters["closed_steps"]:
        counters["taken"], counters["taken_steps"] = closed, counters["closed_steps"]


@njit(cache=True)
def is_tight(counters: Integers, segments: int, likely: int) -> bool:
    """Return whether a turn might overwrite an untaken segment.

    A turn usually starts at most `likely` segments, in a population sometimes more. The segment
    that was closed as number i is reused when `HEAD` is i + S.
    """
    is_due = load(counters, HEAD) + 2 * likely > load(counters, TAKEN) + segments
    return is_due and load(counters, CLOSED_STEPS) > load(counters, TAKEN_STEPS)


def _poison(array: Array) -> None:
    if np.issubdtype(array.dtype, np.floating):
        array[...] = np.nan
    elif array.dtype != np.bool_:
        array.view(np.uint8)[...] = POISON


@njit(cache=True)
def total(counters: Integers, word: int) -> int:
    """Return a counter, summed over all rings."""
    count = 0
    for actor in range(counters.shape[0]):
        count += load(counters[actor], word)
    return count


@njit(cache=True)
def untaken(counters: Integers) -> int:
    """Return the steps in segments that are closed and not taken."""
    return total(counters, CLOSED_STEPS) - total(counters, TAKEN_STEPS)


@njit(cache=True)
def has_steps(counters: Integers, word: int, steps: int) -> bool:
    """Return whether counter `word` of all rings adds up to `steps`; if not, request a wake-up.

    A writer wakes the learner when its ring has grown by an equal share of the missing steps; at
    least one ring must do so before the sum is reached. The learner stores the request before it
    checks the counters, and a writer commits before it checks for a request, so one of them always
    sees the other. If a ring grew by its share before its writer could see the request, the
    requests are stored again.
    """
    actors = counters.shape[0]
    grown = np.zeros(actors, np.int64)
    while True:
        missing = steps
        for actor in range(actors):
            grown[actor] = load(counters[actor], word)
            missing -= grown[actor]
        if missing <= 0:
            return True
        grown += -(-missing // actors)
        for actor in range(actors):
            store(counters[actor], WANTED, grown[actor])
        fence_full()
        together = 0
        in_time = True
        for actor in range(actors):
            found = load(counters[actor], word)
            together += found
            in_time &= found < grown[actor]
        if together >= steps:
            return True
        if in_time:
            return False
