"""The compiled kernels that write decisions and outcomes into rings.

In every turn, `decide` and `outcome` process all streams of all rings of a block in one call each.
A stream is one seat in one environment copy. Numba receives separate array arguments much faster
than a tuple of arrays, so both functions build the tuples of `remuda.experience.ring_block`
themselves. Each array of a block is [rings, ...].

`_nrt=False` turns Numba's reference counting off. It updated a count atomically at each access of a
tuple's field, which took half of the playing time. Without it, no function in this file may create
an array or assign a slice of an array.
"""

from __future__ import annotations

from remuda.experience.paused_heap import pop, push
from remuda.experience.pieces import first_frame
from remuda.experience.ring import (
    CLOSED,
    CLOSED_STEPS,
    HEAD,
    LOST,
    NEXT_OVERWRITTEN,
    OPEN,
    OVERWRITTEN,
    TRUNCATED,
    WANTED,
    WRITTEN,
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
from remuda.system.kernels import njit
from remuda.system.memory.atomic import exchange, fence_full, fence_release, load, store
from remuda.types import Array, Bools, Floats, Integers


@njit(cache=True, inline="always", _nrt=False)
def _of_ring(block: Segments, ring: int) -> Segments:
    return Segments(
        block.sequence[ring],
        block.committed[ring],
        block.closed_as[ring],
        block.queue[ring],
        block.queue_sequence[ring],
        block.queue_steps[ring],
        block.counters[ring],
    )


@njit(cache=True, _nrt=False)
def _paused_segment(numbers: Integers, places: OpenSegments, place: int) -> int:
    """Return the segment that this stream's last episode left open, or `NOWHERE`; continue it.

    If segments are shared, return the oldest that any stream left open, so that none grows old
    while its stream plays for other policies.
    """
    if places.shared:
        return pop(numbers, places.paused)
    slot: int = places.paused[place]
    places.paused[place] = NOWHERE
    return slot


@njit(cache=True, _nrt=False)
def _close_segment(segments: Segments, slot: int) -> None:
    """Add a segment, whose steps are all committed, to the queue.

    The queue entry and `closed_as` are complete before `CLOSED` counts the segment. If a writer
    dies before that, the segment is still open: the next writer resets `closed_as` in `repair`, and
    closes the segment. If the writer dies after that, the segment is closed, and `repair` reads
    `CLOSED_STEPS` from the entry.

    A reader of the previous entry loads `CLOSED` again to detect that the entry was replaced. So a
    reader that sees any part of the new entry must also see the last stored `CLOSED`. Without the
    fence, the compiler or a CPU other than x86 may make the entry visible first.
    """
    counters = segments.counters
    closed = counters[CLOSED]
    steps = counters[CLOSED_STEPS] + segments.committed[slot]
    i = closed % segments.queue.size
    fence_release()
    segments.queue[i] = slot
    segments.queue_sequence[i] = segments.sequence[slot]
    segments.queue_steps[i] = steps
    segments.closed_as[slot] = closed + 1
    store(counters, CLOSED, closed + 1)
    store(counters, CLOSED_STEPS, steps)


@njit(cache=True, _nrt=False)
def _finish_segment(segments: Segments, places: OpenSegments, slot: int) -> None:
    """Close a segment; it is reused after all that were closed before it."""
    places.free[segments.counters[CLOSED] % places.free.size] = slot
    _close_segment(segments, slot)


@njit(cache=True, _nrt=False)
def _is_late(segments: Segments, numbers: Integers, places: OpenSegments, slot: int) -> bool:
    """Return whether to close an open segment before it is full, as `patience` is over."""
    late: bool = segments.counters[HEAD] - numbers[slot] > places.patience
    return late


@njit(cache=True, _nrt=False)
def _begin_segment(
    segments: Segments, beginnings: Beginnings, places: OpenSegments, stream: int
) -> int:
    """Reuse the segment that was closed first; the caller makes its `sequence` even again."""
    sequence, committed, counters = segments.sequence, segments.committed, segments.counters
    numbers, paused = beginnings.numbers, places.paused
    while places.shared and paused[0] != NOWHERE and _is_late(segments, numbers, places, paused[0]):
        _finish_segment(segments, places, pop(numbers, paused))
    for other in range(0 if places.shared else paused.size):
        left_open = paused[other]
        if left_open != NOWHERE and _is_late(segments, numbers, places, left_open):
            paused[other] = NOWHERE
            _finish_segment(segments, places, left_open)
    head = counters[HEAD]
    slot: int = places.free[head % places.free.size]
    store(counters, HEAD, head + 1)
    overwritten = counters[OVERWRITTEN] + committed[slot]
    store(counters, NEXT_OVERWRITTEN, overwritten)
    store(sequence, slot, sequence[slot] + 1)
    fence_release()
    store(counters, OVERWRITTEN, overwritten)
    store(committed, slot, 0)
    numbers[slot] = head
    beginnings.streams[slot, 0] = stream
    segments.closed_as[slot] = OPEN
    return slot


@njit(cache=True, _nrt=False)
def _copy(source: Array, row: int, target: Array, slot: int, t: int) -> None:
    """Copy the first numbers of `source[row]` to `target[slot, t]`.

    A ring without a centralised critic has no columns for its inputs. Slices would count
    references.
    """
    for i in range(target.shape[2]):
        target[slot, t, i] = source[row, i]


@njit(cache=True, inline="always", _nrt=False)
def _decide_stream(
    steps: Decisions,
    segments: Segments,
    beginnings: Beginnings,
    places: OpenSegments,
    choices: Choices,
    stream: int,
    place: int,
    version: int,
) -> int:
    """Write a stream's observation and action; return 1 if this commits its previous step, else 0.

    Rewards of this turn before the decision belong to the previous step. This step's reward starts
    at minus that amount, because `_end_stream` adds all rewards of the turn. `place` is the index
    of the stream in the ring.
    """
    length = steps.actions.shape[1]
    n_frames = steps.observations.shape[1] - length
    before = choices.rewards_before[stream]
    fresh = 0
    slot, t = places.slots[place], places.lengths[place]
    if slot == NOWHERE:
        slot = _paused_segment(beginnings.numbers, places, place)
        if slot == NOWHERE:
            slot = _begin_segment(segments, beginnings, places, place)
            for i in range(n_frames - 1):
                for j in range(steps.observations.shape[2]):
                    steps.observations[slot, i, j] = 0
            for j in range(beginnings.recurrent_states.shape[1]):
                beginnings.recurrent_states[slot, j] = choices.recurrent_states[stream, j]
            store(segments.sequence, slot, segments.sequence[slot] + 1)
        t = segments.committed[slot]
        beginnings.streams[slot, t] = place
        _copy(choices.observations, stream, steps.observations, slot, n_frames - 1 + t)
        _copy(choices.masks, stream, steps.masks, slot, t)
    else:
        # The previous step needs this observation and mask too, so write them before its commit.
        _copy(choices.observations, stream, steps.observations, slot, n_frames - 1 + t)
        if t < steps.masks.shape[1]:
            _copy(choices.masks, stream, steps.masks, slot, t)
        if t > 0:
            steps.rewards[slot, t - 1] += before
            store(segments.committed, slot, t)
            fresh = 1
        if t == length or (t > 0 and _is_late(segments, beginnings.numbers, places, slot)):
            # The episode continues in another segment, with the same frames.
            last = slot
            _finish_segment(segments, places, last)
            slot = _begin_segment(segments, beginnings, places, place)
            first = first_frame(steps.discounts, last, t, n_frames)
            for i in range(first):
                for j in range(steps.observations.shape[2]):
                    steps.observations[slot, i, j] = 0
            for i in range(first, n_frames):
                for j in range(steps.observations.shape[2]):
                    steps.observations[slot, i, j] = steps.observations[last, t + i, j]
            _copy(choices.masks, stream, steps.masks, slot, 0)
            for j in range(beginnings.recurrent_states.shape[1]):
                beginnings.recurrent_states[slot, j] = choices.recurrent_states[stream, j]
            store(segments.sequence, slot, segments.sequence[slot] + 1)
            t = 0
    _copy(choices.actions, stream, steps.actions, slot, t)
    steps.log_probs[slot, t] = choices.log_probs[stream]
    steps.versions[slot, t] = version
    steps.rewards[slot, t] = -before
    places.slots[place], places.lengths[place] = slot, t
    return fresh


@njit(cache=True, _nrt=False)
def _count(counters: Integers, fresh: int, word: int) -> bool:
    """Add to `WRITTEN`; return whether to wake the learner, which waits for counter `word`."""
    store(counters, WRITTEN, counters[WRITTEN] + fresh)
    fence_full()
    wanted = load(counters, WANTED)
    return 0 < wanted <= counters[word] and exchange(counters, WANTED, 0) != 0


@njit(cache=True, inline="always", _nrt=False)
def _decide_ring(
    steps: Decisions,
    segments: Segments,
    beginnings: Beginnings,
    places: OpenSegments,
    choices: Choices,
    plan: StreamPlan,
    row: int,
    first: int,
    watched: int,
) -> bool:
    """Write the decisions of a ring's streams; return whether to wake the learner.

    `first` is the number of the ring's first stream.
    """
    version, closed = choices.versions[row], segments.counters[CLOSED]
    fresh = 0
    for i in range(plan.begins[row], plan.begins[row + 1]):
        stream = plan.streams[i]
        if choices.active[stream]:
            fresh += _decide_stream(
                steps, segments, beginnings, places, choices, stream, stream - first, version
            )
    has_news = fresh > 0 or segments.counters[CLOSED] != closed
    return has_news and _count(segments.counters, fresh, watched)


@njit(cache=True, inline="always", _nrt=False)
def _end_stream(
    steps: Outcomes,
    segments: Segments,
    numbers: Integers,
    places: OpenSegments,
    results: TurnOutcomes,
    stream: int,
    place: int,
) -> int:
    """Write the outcome of a stream's last decision; return the steps that it completes."""
    slot = places.slots[place]
    if slot == NOWHERE:
        return 0
    if results.acted[stream]:
        places.lengths[place] += 1
    # Rewards in turns without a decision also belong to the last decision.
    t = places.lengths[place] - 1
    terminated = results.terminated[stream]
    steps.rewards[slot, t] += results.rewards[stream]
    steps.discounts[slot, t] = 0.0 if terminated else 1.0
    if not (terminated or results.truncated[stream]):
        return 0
    _copy(results.final_observations, stream, steps.final_observations, slot, t)
    if not terminated:
        steps.discounts[slot, t] = TRUNCATED
        if t < steps.final_masks.shape[1]:
            _copy(results.final_masks, stream, steps.final_masks, slot, t)
    store(segments.committed, slot, t + 1)
    places.slots[place] = NOWHERE
    if t + 1 == steps.rewards.shape[1]:
        _finish_segment(segments, places, slot)
    elif places.shared:
        push(numbers, places.paused, slot)
    else:
        places.paused[place] = slot
    return 1


@njit(cache=True, _nrt=False)
def decide(
    observations: Array,
    actions: Array,
    log_probs: Floats,
    masks: Bools,
    versions: Integers,
    rewards: Floats,
    discounts: Floats,
    sequence: Integers,
    committed: Integers,
    closed_as: Integers,
    queue: Integers,
    queue_sequence: Integers,
    queue_steps: Integers,
    counters: Integers,
    recurrent_states: Floats,
    numbers: Integers,
    owners: Integers,
    slots: Integers,
    lengths: Integers,
    paused: Integers,
    free: Integers,
    patience: int,
    shared: bool,
    rows: Integers,
    firsts: Integers,
    watched: int,
    due: Bools,
    begins: Integers,
    streams: Integers,
    active: Bools,
    new_observations: Array,
    new_actions: Array,
    new_log_probs: Floats,
    new_masks: Bools,
    new_recurrent_states: Floats,
    new_versions: Integers,
    rewards_before: Floats,
) -> int:
    """Write the observation and action of each active stream; return how many learners to wake.

    Arguments in order: the fields of `Decisions`, `Segments`, `Beginnings` and `OpenSegments` for a
    block; by ring, the row in the plan (`rows`) and the first stream (`firsts`); the counter that
    learners wait for; the output `due`, which marks the learners to wake; the fields of
    `StreamPlan` and `Choices`.
    """
    block = Segments(sequence, committed, closed_as, queue, queue_sequence, queue_steps, counters)
    plan = StreamPlan(begins, streams)
    choices = Choices(
        active,
        new_observations,
        new_actions,
        new_log_probs,
        new_masks,
        new_recurrent_states,
        new_versions,
        rewards_before,
    )
    num_due = 0
    for p in range(rows.size):
        ring = Decisions(
            observations[p],
            actions[p],
            log_probs[p],
            masks[p],
            versions[p],
            rewards[p],
            discounts[p],
        )
        segments = _of_ring(block, p)
        places = OpenSegments(slots[p], lengths[p], paused[p], free[p], patience, shared)
        beginnings = Beginnings(recurrent_states[p], numbers[p], owners[p])
        due[p] = _decide_ring(
            ring, segments, beginnings, places, choices, plan, rows[p], firsts[p], watched
        )
        num_due += due[p]
    return num_due


@njit(cache=True, _nrt=False)
def outcome(
    rewards: Floats,
    discounts: Floats,
    own_final_observations: Array,
    own_final_masks: Bools,
    sequence: Integers,
    committed: Integers,
    closed_as: Integers,
    queue: Integers,
    queue_sequence: Integers,
    queue_steps: Integers,
    counters: Integers,
    numbers: Integers,
    slots: Integers,
    lengths: Integers,
    paused: Integers,
    free: Integers,
    patience: int,
    shared: bool,
    rows: Integers,
    firsts: Integers,
    watched: int,
    due: Bools,
    begins: Integers,
    streams: Integers,
    acted: Bools,
    new_rewards: Floats,
    terminated: Bools,
    truncated: Bools,
    final_observations: Array,
    final_masks: Bools,
) -> int:
    """Write the outcome of each stream's last decision; return how many learners to wake.

    Arguments in order: the fields of `Outcomes` and `Segments` for a block, `numbers` of
    `Beginnings`, and the fields of `OpenSegments`; `rows`
    to `due` as in `decide`; the fields of `StreamPlan` and `TurnOutcomes`.
    """
    block = Segments(sequence, committed, closed_as, queue, queue_sequence, queue_steps, counters)
    results = TurnOutcomes(
        acted, new_rewards, terminated, truncated, final_observations, final_masks
    )
    num_due = 0
    for p in range(rows.size):
        steps = Outcomes(rewards[p], discounts[p], own_final_observations[p], own_final_masks[p])
        segments = _of_ring(block, p)
        places = OpenSegments(slots[p], lengths[p], paused[p], free[p], patience, shared)
        fresh = 0
        for i in range(begins[rows[p]], begins[rows[p] + 1]):
            stream = streams[i]
            fresh += _end_stream(
                steps, segments, numbers[p], places, results, stream, stream - firsts[p]
            )
        due[p] = fresh > 0 and _count(segments.counters, fresh, watched)
        num_due += due[p]
    return num_due


@njit(cache=True, _nrt=False)
def repair(segments: Segments) -> None:
    """Empty a segment that a dead writer was still preparing, and correct the counters.

    The writer may also have died between a change and the update of the matching counter. Every
    committed step is either in a segment or overwritten, so `WRITTEN` is corrected by counting the
    steps in segments. A closed segment that `CLOSED` does not include is marked open again, before
    another segment gets the same `closed_as`.
    """
    sequence, committed, counters = segments.sequence, segments.committed, segments.counters
    closed_as, queue_steps = segments.closed_as, segments.queue_steps
    held = 0
    for slot in range(sequence.size):
        if closed_as[slot] > counters[CLOSED]:
            closed_as[slot] = OPEN
        if sequence[slot] % 2 == 1:
            if committed[slot] > 0:  # its steps are overwritten, but maybe not counted yet
                store(counters, OVERWRITTEN, counters[NEXT_OVERWRITTEN])
            store(committed, slot, 0)
            store(sequence, slot, sequence[slot] + 1)
        held += committed[slot]
    store(counters, WRITTEN, max(counters[WRITTEN], counters[OVERWRITTEN] + held))
    store(counters, OVERWRITTEN, counters[WRITTEN] - held)
    if counters[CLOSED] > 0:
        store(counters, CLOSED_STEPS, queue_steps[(counters[CLOSED] - 1) % queue_steps.size])


@njit(cache=True, _nrt=False)
def clear_ring(segments: Segments) -> None:
    """Empty every segment; none may be open. Concurrent readers discard their copies."""
    sequence, committed, counters = segments.sequence, segments.committed, segments.counters
    for slot in range(sequence.size):
        store(sequence, slot, sequence[slot] + 1)
        fence_release()
        store(committed, slot, 0)
        store(sequence, slot, sequence[slot] + 1)
    store(counters, OVERWRITTEN, counters[WRITTEN])
    store(counters, LOST, counters[WRITTEN])


@njit(cache=True, _nrt=False)
def close_orphans(segments: Segments) -> None:
    """After `repair`, close every segment that has steps and was never closed."""
    for slot in range(segments.sequence.size):
        if segments.committed[slot] > 0 and segments.closed_as[slot] == OPEN:
            _close_segment(segments, slot)
