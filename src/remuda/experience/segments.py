"""Rollouts, which consist of the pieces of segments copied from rings, and replay of segments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from remuda.experience.experience import Experience
from remuda.experience.pieces import (
    Observed,
    observed,
    piece_end,
    write_next_observation,
    write_observation,
)
from remuda.experience.ring import CLOSED, OTHERS, ExperienceRing
from remuda.experience.ring_block import Segments
from remuda.system.checkpoint.state import restore_rng, rng_state
from remuda.system.kernels import njit
from remuda.system.memory.atomic import fence_acquire, load
from remuda.types import Array, Bools, Floats, Integers, State

AFTER = -1  # in `streams`: the row holds only the observation after a segment


@dataclass(frozen=True)
class Rollout:
    """Segments of K policies, up to G segments in R rows each.

    A segment of a rollout is a piece of a ring's segment, so all of its steps are of one episode.
    It has one row per step, then one for the observation after it. Rows beyond `num_rows` hold old
    data.
    """

    observations: Array  # [K, R, n_frames * size] stacked, in the environment's dtype
    actions: Array  # [K, R, action_size]
    log_probs: Floats  # [K, R] of the actions when they were chosen
    masks: Bools  # [K, R, mask_size] allowed actions
    rewards: Floats  # [K, R]
    discounts: Floats  # [K, R] 0 if the episode terminated, else 1
    versions: Integers  # [K, R] of the acting weights, or `OTHERS` if another policy acted
    streams: Integers  # [K, R] number of the step's stream, or `AFTER`
    recurrent_states: Floats  # [K, G, memory] before the first step of each segment
    starts: Integers  # [K, G] first row of each segment
    num_rows: Integers  # [K]
    num_segments: Integers  # [K]
    num_steps: Integers  # [K]
    # [K] steps taken from the queue; with learning mode `off_policy` they are not in `num_steps`
    num_taken: Integers

    @staticmethod
    def empty(experience: Experience, num_policies: int, replays: float = 0.0) -> Rollout:
        """Allocate the largest possible rollout, with `replays` replayed steps per taken step."""
        shape, rows = experience.shape, rows_for(experience, replays)
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
            recurrent_states=np.zeros((num_policies, rows // 2, shape.memory), np.float32),
            starts=np.zeros((num_policies, rows // 2), np.int64),
            num_rows=np.zeros(num_policies, np.int64),
            num_segments=np.zeros(num_policies, np.int64),
            num_steps=np.zeros(num_policies, np.int64),
            num_taken=np.zeros(num_policies, np.int64),
        )


def rows_for(experience: Experience, replays: float = 0.0) -> int:
    """Return the rows of the largest rollout, including replayed segments."""
    length = experience.config.segment_length
    # A rollout exceeds `experience.rollout` steps by less than a segment. Each piece has an extra
    # row for the observation after it, and may have only one step.
    places = sum(ring.num_segments for ring in experience.rings)
    rows = 2 * min(experience.rollout + length, places * length)
    return rows + (2 * (math.ceil(rows * replays) + length) if replays else 0)


class Steps(NamedTuple):
    """Arrays of steps, of a ring [S, ...] or a rollout [R, ...]; `recurrent_states` by segment."""

    observations: Array
    actions: Array
    log_probs: Floats
    masks: Bools
    rewards: Floats
    discounts: Floats
    versions: Integers
    streams: Integers
    recurrent_states: Floats


@njit(cache=True)
def copy_segment(
    ring: Steps,
    seen: Observed,
    slot: int,
    length: int,
    out: Steps,
    starts: Integers,
    row: int,
    segment: int,
    first_stream: int,
    oldest: int,
) -> tuple[int, int, int]:
    """Copy the pieces of a segment of `length` steps to the rows from `row` on.

    Pieces started by versions before `oldest` are left out. `segment` is the number of the first
    piece in the rollout. Return the rows, pieces and steps copied.
    """
    at, start, pieces, steps = row, 0, 0, 0
    while start < length:
        end = piece_end(ring.discounts, slot, start, length)
        if ring.versions[slot, start] < oldest:
            start = end
            continue
        steps += end - start
        starts[segment + pieces] = at
        if start == 0:
            out.recurrent_states[segment + pieces] = ring.recurrent_states[slot]
        else:  # an episode starts
            out.recurrent_states[segment + pieces] = 0.0
        for t in range(start, end):
            write_observation(seen, slot, t, out.observations, at)
            out.actions[at] = ring.actions[slot, t]
            out.log_probs[at] = ring.log_probs[slot, t]
            out.masks[at] = ring.masks[slot, t]
            out.rewards[at] = ring.rewards[slot, t]
            out.discounts[at] = abs(ring.discounts[slot, t])
            out.versions[at] = ring.versions[slot, t]
            out.streams[at] = first_stream + ring.streams[slot, start]
            at += 1
        write_next_observation(seen, slot, end - 1, out.observations, at)
        out.streams[at] = AFTER
        out.rewards[at] = 0.0
        out.discounts[at] = 0.0
        at += 1
        start = end
        pieces += 1
    return at - row, pieces, steps


def steps_of(ring: ExperienceRing) -> Steps:
    """Return views of the steps of a ring."""
    return Steps(*(ring.shared[name] for name in Steps._fields))


def closed_of(ring: ExperienceRing) -> Segments:
    """Return the arrays of a ring's segments and of the queue of closed ones."""
    *names, _ = Segments._fields
    return Segments._make([*(ring.shared[name] for name in names), ring.counters])


def row_of(out: Rollout, policy: int) -> Steps:
    """Return one policy's steps of a rollout."""
    return Steps(*(getattr(out, name)[policy] for name in Steps._fields))


@njit(cache=True)
def _draw(
    ring: Steps,
    seen: Observed,
    closed: Segments,
    places: Integers,
    count: int,
    out: Steps,
    starts: Integers,
    row: int,
    segment: int,
    oldest: int,
    own: bool,
    check: bool,
) -> tuple[int, int, int]:
    """Copy the segments at the indices `places` of a ring's queue.

    `count` is the value of `CLOSED` when the places were drawn. Segments that were overwritten, and
    pieces started by versions before `oldest`, are left out. Return the rows, steps and pieces
    copied.
    """
    num_segments = closed.sequence.size
    rows, steps, copied = 0, 0, 0
    for at in places:
        i = count - 1 - (count - 1 - at) % num_segments  # the newest entry at this place
        slot, expected = closed.queue[at], closed.queue_sequence[at]
        fence_acquire()
        if check and load(closed.counters, CLOSED) - i >= num_segments:
            continue  # the writer may be replacing this entry
        length = closed.committed[slot]
        if length == 0 or (check and load(closed.sequence, slot) != expected):
            continue
        more, pieces, fresh = copy_segment(
            ring, seen, slot, length, out, starts, row + rows, segment + copied, 0, oldest
        )
        if not own:
            for i in range(row + rows, row + rows + more):
                if out.streams[i] != AFTER:
                    out.versions[i] = OTHERS
        fence_acquire()
        if load(closed.sequence, slot) == expected or not check:
            rows += more
            steps += fresh
            copied += pieces
    return rows, steps, copied


def _held(ring: ExperienceRing) -> tuple[int, Integers]:
    """Return the number of closed segments and the queue's valid places, which `_draw` rechecks."""
    shared, count = ring.shared, load(ring.counters, CLOSED)
    entries = min(count, ring.num_segments)
    queue = shared["queue"][:entries]
    return count, np.flatnonzero(shared["sequence"][queue] == shared["queue_sequence"][:entries])


def _newest(ring: ExperienceRing) -> int:
    """Return the version that started the newest closed segment; 0 if no segment is closed.

    If the writer replaces the segment during the read, return the version of the replacement.
    """
    count, shared = load(ring.counters, CLOSED), ring.shared
    if count == 0:
        return 0
    return int(shared["versions"][shared["queue"][(count - 1) % ring.num_segments], 0])


class SegmentReplay:
    """Replay of closed segments from the experience of a policy and of its group.

    All closed segments in the rings are equally likely. Replay never waits; if a writer overwrites
    a segment during the copy, another segment is drawn.
    """

    def __init__(
        self,
        sources: Sequence[Experience],
        rng: np.random.Generator,
        replays: float,
        alone: bool,
        check_sequence: bool = True,
    ) -> None:
        """Draw `replays` steps per taken step; with `alone`, train only on drawn steps."""
        self._sources = tuple(sources)
        self._rings = [(ring, i == 0) for i, found in enumerate(sources) for ring in found.rings]
        self._shape, self._length = sources[0].shape, sources[0].config.segment_length
        self._rng, self._replays, self._alone = rng, replays, alone
        self._check = check_sequence
        one = Rollout.empty(sources[0], 1)
        nothing: Integers = np.zeros(0, np.int64)
        held = [(1, nothing) for _ in self._rings]
        self._draw(nothing, held, one, 0, [0] * len(held))  # compiles the kernel

    def join(
        self, out: Rollout, policy: int, version: int, max_staleness: int | None = None
    ) -> None:
        """Add drawn segments to row `policy`, or replace its taken segments if `alone`.

        Own segments may be up to `max_staleness` versions older than `version`, the policy's newest
        version. For another policy, the limit counts from the version of its newest segment.
        """
        wanted = math.ceil(int(out.num_taken[policy]) * self._replays)
        if self._alone:
            out.num_rows[policy] = out.num_steps[policy] = out.num_segments[policy] = 0
        tries = 0
        while wanted > 0 and tries < 100:  # consecutive draws without a step
            held = [_held(ring) for ring, _ in self._rings]
            entries = sum(len(places) for _, places in held)
            if not entries:
                return
            # Draw as if all segments were full, so that less than a segment exceeds `wanted`.
            picks = self._rng.integers(0, entries, max(wanted // self._length, 1))
            steps = self._draw(picks, held, out, policy, self._oldest(version, max_staleness))
            wanted -= steps
            tries = 0 if steps else tries + 1

    def state(self) -> State:
        return rng_state(self._rng)

    def restore(self, state: State) -> None:
        restore_rng(self._rng, state)

    def _oldest(self, version: int, max_staleness: int | None) -> list[int]:
        """Return, by ring, the oldest acceptable version of the policy that writes the ring."""
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
        base, drawn = 0, 0
        for (count, places), (ring, own), least in zip(held, self._rings, oldest, strict=True):
            here = picks[(picks >= base) & (picks < base + len(places))] - base
            seen = observed(ring, self._shape, unpacked=False)
            source = (steps_of(ring), seen, closed_of(ring), places[here], count)
            to = (row_of(out, policy), out.starts[policy])
            at = (int(out.num_rows[policy]), int(out.num_segments[policy]))
            rows, steps, copied = _draw(*source, *to, *at, least, own, self._check)
            out.num_rows[policy] += rows
            out.num_steps[policy] += steps
            out.num_segments[policy] += copied
            drawn += steps
            base += len(places)
        return drawn
