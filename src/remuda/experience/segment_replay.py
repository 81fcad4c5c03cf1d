"""The learner's end of experience for replayed segments."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from remuda.checkpoint.state import restore_rng, rng_state
from remuda.experience.experience import Experience
from remuda.experience.ring import CLOSED, OTHERS, ExperienceRing
from remuda.experience.ring_arrays import Segments
from remuda.experience.segments import (
    Rollout,
    Steps,
    closed_of,
    copy_segment,
    row_of,
    steps_of,
)
from remuda.kernels import njit
from remuda.memory.atomic import fence_acquire, load
from remuda.types import Integers, State

TRIES = 100  # draws in a row that bring nothing before giving up


@njit(cache=True)
def _draw(
    ring: Steps,
    closed: Segments,
    places: Integers,
    count: int,
    out: Steps,
    starts: Integers,
    row: int,
    segment: int,
    n_frames: int,
    oldest: int,
    own: bool,
    check: bool,
) -> tuple[int, int, int]:
    """Copy segments from these places of a ring's queue, when `count` had been closed.

    Those overwritten, or begun by versions before `oldest`, are left out. Returns rows, steps,
    segments.
    """
    num_segments = closed.sequence.size
    rows, steps, copied = 0, 0, 0
    for at in places:
        i = count - 1 - (count - 1 - at) % num_segments  # the newest entry in this place
        slot, expected = closed.queue[at], closed.queue_sequence[at]
        fence_acquire()
        if check and load(closed.counters, CLOSED) - i >= num_segments:
            continue  # the writer may be at this very entry
        length = closed.committed[slot]
        if length == 0 or (check and load(closed.sequence, slot) != expected):
            continue
        if ring.versions[slot, 0] < oldest:
            continue
        out.recurrent_states[segment + copied] = ring.recurrent_states[slot]
        starts[segment + copied] = row + rows
        copy_segment(ring, slot, length, out, row + rows, n_frames, 0)
        if not own:
            out.versions[row + rows : row + rows + length] = OTHERS
        fence_acquire()
        if load(closed.sequence, slot) == expected or not check:
            rows += length + 1
            steps += length
            copied += 1
    return rows, steps, copied


def _held(ring: ExperienceRing) -> tuple[int, Integers]:
    """Return how many segments were closed, and queue places still valid, to be checked again."""
    shared, count = ring.shared, load(ring.counters, CLOSED)
    entries = min(count, ring.num_segments)
    queue = shared["queue"][:entries]
    return count, np.flatnonzero(shared["sequence"][queue] == shared["queue_sequence"][:entries])


def _newest(ring: ExperienceRing) -> int:
    """Return the version that began the newest closed segment, or a newer one; 0: none."""
    count, shared = load(ring.counters, CLOSED), ring.shared
    if count == 0:
        return 0
    return int(shared["versions"][shared["queue"][(count - 1) % ring.num_segments], 0])


class SegmentReplay:
    """Draws closed segments of a policy's own experience, and of those it shares with.

    Every kept segment is equally likely. Nothing is waited for; what a writer overtakes is drawn
    again.
    """

    def __init__(
        self,
        sources: Sequence[Experience],
        rng: np.random.Generator,
        replays: float,
        alone: bool,
        check_sequence: bool = True,
    ) -> None:
        """Draw `replays` steps per step taken; `alone` leaves out what was taken."""
        self._sources = tuple(sources)
        self._rings = [(ring, i == 0) for i, found in enumerate(sources) for ring in found.rings]
        self._n_frames, self._length = sources[0].shape.n_frames, sources[0].config.segment_length
        self._rng, self._replays, self._alone = rng, replays, alone
        self._check = check_sequence
        one = Rollout.empty(sources[0], 1)
        nothing: Integers = np.zeros(0, np.int64)
        held = [(1, nothing) for _ in self._rings]
        self._draw(nothing, held, one, 0, [0] * len(held))  # compiles the kernel

    def join(
        self, out: Rollout, policy: int, version: int, max_staleness: int | None = None
    ) -> None:
        """Join what was taken into row `policy` with what is drawn.

        Segments may be older than `version`, the policy's newest, by `max_staleness` versions;
        another policy's by that from its own newest segment.
        """
        wanted = math.ceil(int(out.num_taken[policy]) * self._replays)
        if self._alone:
            out.num_rows[policy] = out.num_steps[policy] = out.num_segments[policy] = 0
        tries = 0
        while wanted > 0 and tries < TRIES:
            held = [_held(ring) for ring, _ in self._rings]
            entries = sum(len(places) for _, places in held)
            if not entries:
                return
            # No more at a time than all are needed, so that none is favoured by the order of rings.
            picks = self._rng.integers(0, entries, max(wanted // self._length, 1))
            steps = self._draw(picks, held, out, policy, self._oldest(version, max_staleness))
            wanted -= steps
            tries = 0 if steps else tries + 1

    def state(self) -> State:
        return rng_state(self._rng)

    def restore(self, state: State) -> None:
        restore_rng(self._rng, state)

    def _oldest(self, version: int, max_staleness: int | None) -> list[int]:
        """Return, by ring, the oldest acceptable version of the policy that fills it."""
        if max_staleness is None:
            return [0] * len(self._rings)
        newest = [version, *(max(map(_newest, found.rings)) for found in self._sources[1:])]
        return [
            found - max_staleness
            for found, source in zip(newest, self._sources, strict=True)
            for _ in source.rings
        ]

    def _draw(
        self,
        picks: Integers,
        held: Sequence[tuple[int, Integers]],
        out: Rollout,
        policy: int,
        oldest: Sequence[int],
    ) -> int:
        """Copy these picks of all entries; `oldest` are the first acceptable versions by ring."""
        base, drawn = 0, 0
        for (count, places), (ring, own), least in zip(held, self._rings, oldest, strict=True):
            here = picks[(picks >= base) & (picks < base + len(places))] - base
            source = (steps_of(ring), closed_of(ring), places[here], count)
            to = (row_of(out, policy), out.starts[policy])
            at = (int(out.num_rows[policy]), int(out.num_segments[policy]))
            rows, steps, copied = _draw(*source, *to, *at, self._n_frames, least, own, self._check)
            out.num_rows[policy] += rows
            out.num_steps[policy] += steps
            out.num_segments[policy] += copied
            drawn += steps
            base += len(places)
        return drawn
