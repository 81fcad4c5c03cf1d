"""Compiled kernels that copy a ring of segments from its actor's node to its learner's node.

The bridge of the learner's node writes the data in the same order as the actor, so the learner sees
no difference. A segment's sequence number is odd while a new segment is started. `collect` reads
that number, copies new steps, and reads the number again, as a learner does. The words are the
ring's 64-bit counters. The ring's queue lists closed segments.
"""

from __future__ import annotations

from typing import NamedTuple

from remuda.experience.ring import (
    CLOSED,
    CLOSED_STEPS,
    HEAD,
    LOST,
    NEXT_OVERWRITTEN,
    NOTHING,
    OPEN,
    OVERWRITTEN,
    WANTED,
    WRITTEN,
)
from remuda.system.kernels import njit
from remuda.system.memory.atomic import (
    exchange,
    fence_acquire,
    fence_full,
    fence_release,
    load,
    store,
)
from remuda.types import Array, Floats, Integers

# number of words that an actor writes: HEAD, OVERWRITTEN, NEXT_OVERWRITTEN, LOST, CLOSED,
# CLOSED_STEPS, WRITTEN
WORDS = 7
# columns that describe a sent segment and its sent steps, BEGIN to END
SLOT, SEQUENCE, BEGIN, END, CLOSED_AS, NUMBER, IS_NEW = range(7)
COLUMNS = 7
ENTRY = 4  # columns of a queue entry: number, segment's slot and sequence number, closed steps
# Outcomes of `collect`: everything copied; segments in progress skipped; the buffer is full.
FITS, SKIPPED, CUT = range(3)
MOST = 1 << 24  # maximum number of queue entries that are skipped one by one
NOT_THE_SAME = -1  # result of `follow` if steps do not continue the ring's segment


class RingParts(NamedTuple):
    """The arrays of a ring, [segments, ...] except `counters`, as the kernels need them."""

    sequence: Integers
    committed: Integers
    closed_as: Integers
    queue: Integers
    queue_sequence: Integers
    queue_steps: Integers
    numbers: Integers
    discounts: Floats
    recurrent_states: Array  # [segments, bytes]
    final_observations: Array  # [segments, bytes]
    final_masks: Array  # [segments, bytes]
    counters: Integers


AS_BYTES = ("recurrent_states", "final_observations", "final_masks")


class Sent(NamedTuple):
    """The state of the other node's copy of a ring, as far as this node knows."""

    sequence: Integers
    committed: Integers
    words: Integers  # [WORDS], as last sent


@njit(cache=True)
def _words(counters: Integers, words: Integers) -> None:
    """Read the actor's words; data written before them is visible after this."""
    words[6] = load(counters, WRITTEN)
    words[4] = load(counters, CLOSED)
    words[5] = load(counters, CLOSED_STEPS)
    words[1] = load(counters, OVERWRITTEN)
    words[2] = load(counters, NEXT_OVERWRITTEN)
    words[3] = load(counters, LOST)
    words[0] = load(counters, HEAD)
    fence_acquire()


@njit(cache=True)
def has_changed(parts: RingParts, sent: Sent, words: Integers) -> bool:
    """Return whether there is data to send, and fill `words` [WORDS]."""
    _words(parts.counters, words)
    changed = False
    for i in range(WORDS):
        changed |= words[i] != sent.words[i]
    return changed


@njit(cache=True)
def _entries(parts: RingParts, words: Integers, first: int, steps: int, out: Integers) -> int:
    """Copy the queue entries from `first` up to `CLOSED` in `words`; return their number.

    Entries that the actor overwrites during the copy get no segment. `CLOSED_STEPS` in `words` is
    set to the last copied entry's count, or without a new entry to `steps`, the value last sent.
    The actor's own count may belong to a later entry.
    """
    places = parts.queue.size
    if words[4] == first and steps >= 0:
        words[5] = steps
    closed = words[4]
    first = max(first, closed - places, 0)
    count = 0
    for number in range(first, closed):
        i = number % places
        out[count, 0] = number
        out[count, 1] = parts.queue[i]
        out[count, 2] = parts.queue_sequence[i]
        out[count, 3] = parts.queue_steps[i]
        count += 1
    fence_acquire()
    overwritten = load(parts.counters, CLOSED) - places
    for i in range(count):
        if out[i, 0] <= overwritten:
            out[i, 1], out[i, 2] = 0, NOTHING
    if count and out[count - 1, 0] > overwritten:
        words[5] = out[count - 1, 3]
    return count


@njit(cache=True)
def _begins_episode(parts: RingParts, slot: int, first: int) -> bool:
    """Return whether an episode ends before step `first` of a segment.

    `collect` reads this once for each segment: if the writer reuses the segment meanwhile, a second
    reading may differ, and more bytes would be copied than were counted.
    """
    begins: bool = first > 0 and parts.discounts[slot, first - 1] != 1.0
    return begins


@njit(cache=True)
def _bytes(
    layout: Integers, f: int, first: int, end: int, is_new: bool, begins: bool
) -> tuple[int, int]:
    """Return the range of a field's bytes to send with steps `first` to `end`."""
    width, more, rows = layout[f]
    lo = 0 if is_new else min(first + more, rows)
    # The row after an episode's last step was sent before the next episode wrote it.
    if not is_new and more > 0 and begins:
        lo = first + more - 1
    return lo * width, min(end + more, rows) * width


@njit(cache=True)
def _size(
    fields: tuple[Array, ...],
    layout: Integers,
    parts: RingParts,
    first: int,
    end: int,
    is_new: bool,
    begins: bool,
) -> int:
    """Return the bytes of steps `first` to `end`, plus the data before them if `is_new`.

    The final observations and masks of episodes are not included.
    """
    size: int = parts.recurrent_states.shape[1] if is_new else 0
    for f in range(len(fields)):
        a, b = _bytes(layout, f, first, end, is_new, begins)
        size += b - a
    return size


@njit(cache=True)
def _final_size(parts: RingParts, slot: int, first: int, end: int) -> int:
    """Return the bytes of the final observations and masks after steps `first` to `end`."""
    ended = 0
    for t in range(first, end):
        ended += parts.discounts[slot, t] != 1.0
    width = parts.final_observations.shape[1] + parts.final_masks.shape[1]
    size: int = ended * (width // parts.discounts.shape[1])
    return size


@njit(cache=True)
def _copy_final(
    parts: RingParts, slot: int, first: int, end: int, payload: Array, at: int, sends: bool
) -> int:
    """Copy final observations and masks to `payload`, or from it; return the byte after them."""
    length = parts.discounts.shape[1]
    for t in range(first, end):
        if parts.discounts[slot, t] == 1.0:
            continue
        for array in (parts.final_observations, parts.final_masks):
            width = array.shape[1] // length
            if at + width > payload.size:  # the segment is overwritten meanwhile
                return at
            row = array[slot, t * width : (t + 1) * width]
            if sends:
                payload[at : at + width] = row
            else:
                row[:] = payload[at : at + width]
            at += width
    return at


@njit(cache=True)
def collect(
    fields: tuple[Array, ...],
    layout: Integers,
    parts: RingParts,
    sent: Sent,
    words: Integers,
    heads: Integers,
    entries: Integers,
    payload: Array,
    at: int,
) -> tuple[int, int, int, int]:
    """Copy data that the peer lacks into `payload` from byte `at`, as far as the data fits.

    Fill `heads` [segments, COLUMNS] and `entries` [segments, ENTRY], and update `sent`; `words`
    come from `has_changed`. `fields` are the arrays of steps, [segments, bytes] each. `layout`
    [fields, 3] has the bytes of a row, the extra rows after a segment's last step, and the rows of
    a segment. Return the outcome, the numbers of heads and entries, and the end in `payload`.
    """
    num_heads, outcome = 0, FITS
    num_entries = _entries(parts, words, sent.words[4], sent.words[5], entries)
    for slot in range(parts.sequence.size):
        sequence = load(parts.sequence, slot)
        if sequence % 2 == 1:
            outcome = max(outcome, SKIPPED)
            continue
        end = load(parts.committed, slot)
        is_new = sequence != sent.sequence[slot]
        first = 0 if is_new else sent.committed[slot]
        if not is_new and end <= first:
            continue
        begins = _begins_episode(parts, slot, first)
        size = _size(fields, layout, parts, first, end, is_new, begins)
        if at + size + _final_size(parts, slot, first, end) > payload.size:
            outcome = CUT
            break
        start = at
        if is_new:
            width = parts.recurrent_states.shape[1]
            payload[at : at + width] = parts.recurrent_states[slot]
            at += width
        for f in range(len(fields)):
            a, b = _bytes(layout, f, first, end, is_new, begins)
            payload[at : at + b - a] = fields[f][slot, a:b]
            at += b - a
        at = _copy_final(parts, slot, first, end, payload, at, True)
        head = heads[num_heads]
        head[SLOT], head[SEQUENCE], head[BEGIN], head[END] = slot, sequence, first, end
        number = parts.closed_as[slot]
        head[CLOSED_AS] = number if number <= words[4] else OPEN
        head[NUMBER], head[IS_NEW] = parts.numbers[slot], is_new
        fence_acquire()
        if load(parts.sequence, slot) != sequence:  # overwritten during the copy
            at, outcome = start, max(outcome, SKIPPED)
            continue
        num_heads += 1
        sent.sequence[slot], sent.committed[slot] = sequence, end
    return outcome, num_heads, num_entries, at


@njit(cache=True)
def _pass_over(parts: RingParts, first: int) -> None:
    """Count queue entries up to `first` that were overwritten before they could be sent.

    As an actor does, count each entry in `CLOSED` before the next one is written. Otherwise a
    reader could not detect that its entry is overwritten.
    """
    counters, places = parts.counters, parts.queue.size
    begin, steps = counters[CLOSED], counters[CLOSED_STEPS]
    if not 0 <= begin <= first <= begin + MOST:
        begin = max(first - places, 0)
    for number in range(begin, first):
        i = number % places
        fence_release()
        parts.queue[i], parts.queue_sequence[i], parts.queue_steps[i] = 0, NOTHING, steps
        store(counters, CLOSED, number + 1)


@njit(cache=True)
def follow(
    fields: tuple[Array, ...],
    layout: Integers,
    parts: RingParts,
    words: Integers,
    heads: Integers,
    entries: Integers,
    payload: Array,
    watched: int,
) -> int:
    """Write the data that `collect` copied.

    Return 1 if the learner must be woken, 0 if not, or `NOT_THE_SAME`. `words` is empty if more
    data of the ring follows. `watched` is the index of the counter that the learner waits for.
    """
    at = 0
    counters, length = parts.counters, layout[len(fields) - 1, 2]
    for i in range(heads.shape[0]):
        head = heads[i]
        slot, first, end, is_new = head[SLOT], head[BEGIN], head[END], head[IS_NEW] != 0
        if not (0 <= slot < parts.sequence.size and 0 <= first <= end <= length):
            return NOT_THE_SAME
        begins = _begins_episode(parts, slot, first)
        if at + _size(fields, layout, parts, first, end, is_new, begins) > payload.size:
            return NOT_THE_SAME
        if is_new:
            store(parts.sequence, slot, head[SEQUENCE] - 1)
            fence_release()
            store(parts.committed, slot, 0)
            width = parts.recurrent_states.shape[1]
            parts.recurrent_states[slot] = payload[at : at + width]
            at += width
            parts.numbers[slot] = head[NUMBER]
            parts.closed_as[slot] = head[CLOSED_AS]
        elif parts.sequence[slot] != head[SEQUENCE] or parts.committed[slot] != first:
            return NOT_THE_SAME
        for f in range(len(fields)):
            a, b = _bytes(layout, f, first, end, is_new, begins)
            fields[f][slot, a:b] = payload[at : at + b - a]
            at += b - a
        if at + _final_size(parts, slot, first, end) > payload.size:
            return NOT_THE_SAME
        at = _copy_final(parts, slot, first, end, payload, at, False)
        store(parts.committed, slot, end)
        if is_new:
            store(parts.sequence, slot, head[SEQUENCE])
    if words.size == 0:
        return 0
    store(counters, HEAD, words[0])
    store(counters, NEXT_OVERWRITTEN, words[2])
    store(counters, OVERWRITTEN, words[1])
    store(counters, LOST, words[3])
    if entries.shape[0] and counters[CLOSED] < entries[0, 0] < words[4]:
        _pass_over(parts, entries[0, 0])
    for i in range(entries.shape[0]):
        number, slot = entries[i, 0], entries[i, 1]
        if not (0 <= number < words[4] and 0 <= slot < parts.sequence.size):
            return NOT_THE_SAME
        at_entry = number % parts.queue.size
        fence_release()
        parts.queue[at_entry] = slot
        parts.queue_sequence[at_entry] = entries[i, 2]
        parts.queue_steps[at_entry] = entries[i, 3]
        if parts.sequence[slot] == entries[i, 2]:
            parts.closed_as[slot] = number + 1
        if number >= counters[CLOSED]:
            store(counters, CLOSED, number + 1)
    store(counters, CLOSED, words[4])
    store(counters, CLOSED_STEPS, words[5])
    store(counters, WRITTEN, words[6])
    fence_full()
    wanted = load(counters, WANTED)
    return int(0 < wanted <= counters[watched] and exchange(counters, WANTED, 0) != 0)


@njit(cache=True)
def mend(parts: RingParts) -> None:
    """Repair the count of closed steps in a ring whose bridge died; missing data is sent again."""
    counters = parts.counters
    if counters[CLOSED] > 0 and counters[HEAD] > 0:  # otherwise no data arrived here
        last = parts.queue_steps[(counters[CLOSED] - 1) % parts.queue_steps.size]
        store(counters, CLOSED_STEPS, last)
