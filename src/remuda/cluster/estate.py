"""What roles that move to a node go on from there: what other nodes know of them.

A learner goes on from its newest part of a checkpoint, or else from its newest published weights,
with the counts and words that it had; an actor from the rings as the nodes know them that learn
from it, and with its counts. It is written before any role begins there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from remuda.assembly import Assembly
from remuda.checkpoint.store import Checkpoints
from remuda.cluster.rings import Followed, Following, mend
from remuda.cluster.saved import Saved
from remuda.cluster.stores import ACTORS_WORDS
from remuda.experience.experience import Experience
from remuda.experience.ring import (
    CLOSED,
    CLOSED_STEPS,
    COUNTERS,
    HEAD,
    LOST,
    NOTHING,
    OPEN,
    OVERWRITTEN,
    WRITTEN,
    ExperienceRing,
)
from remuda.memory.atomic import load, store
from remuda.memory.shared import SharedArrays
from remuda.publish.snapshot import PublishedWeights, Snapshot
from remuda.types import Array, Integers, State

MOVED = 1 << 32
"""Added to each sequence of a ring that moves: no reader takes its segments for those it knows,
nor for those that the node which is gone may have sent last."""


@dataclass(frozen=True)
class Estate:
    """Of the roles that move to one node; plain data."""

    snapshots: Mapping[str, Snapshot] = field(default_factory=dict)
    """Of policies that learn there from now on."""
    learned: Mapping[str, Array] = field(default_factory=dict)
    """Their learners' rows of the scoreboard."""
    words: Mapping[str, Integers] = field(default_factory=dict)
    """[actors, words] of the rings of every policy, as the head knows them."""
    acted: Mapping[int, Mapping[str, Array]] = field(default_factory=dict)
    """By actor, its rows of the scoreboard."""
    rings: Mapping[tuple[str, int], tuple[State, int]] = field(default_factory=dict)
    """By policy and actor, what a ring holds and how many steps were written; of those that are
    known of."""
    shards: Mapping[int, Mapping[str, Array]] = field(default_factory=dict)
    """By follower, what the head has of it."""
    saved: Saved | None = None
    """The newest checkpoint."""
    learns: frozenset[str] = frozenset()
    """Policies that learn there already: the node has their rings, and their learner is at them."""


def estate_of(
    assembly: Assembly,
    actors: Sequence[int],
    groups: Sequence[int],
    rings: Mapping[tuple[str, int], tuple[State, int]],
    checkpoints: Checkpoints,
    learns: Collection[str] = (),
) -> Estate:
    """What the head knows of roles that are to move."""
    names = [assembly.specs[i].name for group in groups for i in assembly.layout.groups[group]]
    reader, board = assembly.published.reader(), assembly.scoreboard
    numbers = checkpoints.numbers()
    snapshots = {}
    for name in names:
        found = reader.newest(name, training=True)
        snapshots[name] = Snapshot(
            found.weights.copy(), found.version, found.learner_step, found.epsilon, found.training
        )
    return Estate(
        snapshots,
        {name: board.learn(name).copy() for name in names},
        {spec.name: assembly.experience[spec.name].counters.copy() for spec in assembly.specs},
        {
            actor: {name: board.arrays[name][actor].copy() for name in ("play", "policy", "facts")}
            for actor in actors
        },
        rings,
        _shards(assembly, actors),
        Saved.read(checkpoints, numbers[-1]) if numbers and names else None,
        frozenset(learns),
    )


def take_over(assembly: Assembly, estate: Estate, checkpoints: Checkpoints) -> None:
    """Write down, on the node that roles move to, what they go on from; none of them has begun.

    No bridge writes there meanwhile.
    """
    published = assembly.published
    assert isinstance(published, PublishedWeights)
    if estate.saved is not None:
        estate.saved.write(checkpoints)
    for name, snapshot in estate.snapshots.items():
        published.publisher(name, published.checksums[name]).follow(snapshot)
        assembly.scoreboard.learn(name)[:] = estate.learned[name]
        for ring in assembly.experience[name].rings:
            if not _was_followed(ring):
                _let_words_agree(ring)
        # As after a death on one node: what the head knows of what was taken may be older than what
        # is known here, and no step is to be taken twice.
        assembly.experience[name].release()
    for actor, arrays in estate.shards.items():
        assert assembly.table is not None
        for name, array in arrays.items():
            assembly.table.shards[actor - 1].arrays[name][...] = array
    for actor, rows in estate.acted.items():
        for name, row in rows.items():
            assembly.scoreboard.arrays[name][actor][...] = row
        for spec in assembly.specs:
            ring = assembly.experience[spec.name].rings[actor]
            found = estate.rings.get((spec.name, actor))
            if spec.name in estate.learns and found is None and not _was_followed(ring):
                _begin_after(ring, estate.words[spec.name][actor])  # its learner came here just now
            elif spec.name in estate.learns:
                mend(ring)
                if found is not None:
                    _bring_up(assembly.experience[spec.name], actor, *found)
            elif found is not None:
                _put(ring, *found)
            else:
                _begin_after(ring, estate.words[spec.name][actor])


def _shards(assembly: Assembly, actors: Sequence[int]) -> dict[int, dict[str, Array]]:
    table = assembly.table
    if table is None:
        return {}
    found = {}
    for actor in actors:
        arrays = table.shards[actor - 1].arrays
        found[actor] = {name: arrays[name].copy() for name in arrays.names}
    return found


def rings_of(
    assembly: Assembly, actors: Sequence[int], policies: Sequence[str]
) -> dict[tuple[str, int], Any]:
    """What is known here of the rings that some actors write for some policies.

    A ring is left out that never came here: others know more of it, if only its words.
    """
    found = {}
    for name in policies:
        for actor in actors:
            ring = assembly.experience[name].rings[actor]
            if _was_followed(ring) or ring.open_steps:
                found[name, actor] = (ring.state(), load(ring.counters, WRITTEN))
    return found


def _bring_up(experience: Experience, actor: int, state: State, written: int) -> None:
    """Add to a ring, whose learner goes on here, what its actor wrote and did not tell yet.

    As a bridge does it, so that the learner reads nothing torn, and keeps the words that are its.
    """
    ring = experience.rings[actor]
    words = SharedArrays({"counters": ((1, COUNTERS), np.int64)})
    source = ExperienceRing(ring.shape, ring.config, ring.num_streams, ring.num_segments, words, 0)
    source.restore(state, written)
    followed, following = Followed(source), Following(experience, actor)
    followed.holds(*following.holds)
    payload: Array = np.empty(followed.largest, np.uint8)
    while (found := followed.news(payload, 0)) is not None:
        following.write(found[0])


def _was_followed(ring: ExperienceRing) -> bool:
    """Whether anything of a ring came here, whose words may have come without it."""
    shared, closed = ring.shared, load(ring.counters, CLOSED)
    if not closed:
        return bool((shared["sequence"] > 0).any())
    last = (closed - 1) % ring.num_segments
    return bool(shared["queue_steps"][last] > 0 and shared["queue_sequence"][last] != NOTHING)


def _let_words_agree(ring: ExperienceRing) -> None:
    """Note in the queue how many steps its words tell of, where nothing else of it came here.

    Else its learner would pass over its segments and not over their steps, and wake for these again
    and again until the queue is here.
    """
    if closed := load(ring.counters, CLOSED):
        last = (closed - 1) % ring.num_segments
        ring.shared["queue_sequence"][last] = NOTHING
        ring.shared["queue_steps"][last] = load(ring.counters, CLOSED_STEPS)


def _put(ring: ExperienceRing, state: State, written: int) -> None:
    """Hold what a ring held on the node of its learner, for a new actor to go on writing."""
    shared = ring.shared
    state = dict(state)
    sequence, queue = state["sequence"].copy(), state["queue"]
    belongs = state["queue_sequence"] == sequence[queue]
    sequence += MOVED
    state["queue_sequence"] = np.where(belongs, state["queue_sequence"] + MOVED, NOTHING)
    ring.restore(state | {"sequence": sequence}, written)
    assert shared["sequence"].shape == sequence.shape


def _begin_after(ring: ExperienceRing, words: Integers) -> None:
    """Be an empty ring that counts on from these words, or from its own where they are newer.

    All that it held is lost.
    """
    shared, counters = ring.shared, ring.counters
    own = counters.copy()
    if own[WRITTEN] >= words[WRITTEN] and own[CLOSED] >= words[CLOSED]:
        words = own
    for word in ACTORS_WORDS:
        store(counters, word, int(words[word]))
    written = int(words[WRITTEN])
    store(counters, OVERWRITTEN, written)
    store(counters, LOST, written)
    sequence = shared["sequence"]
    sequence += MOVED + sequence % 2
    shared["committed"][:] = 0
    shared["closed_as"][:] = OPEN
    # What is gone is in the way of nothing: else the first places would be taken for good.
    shared["numbers"][:] = int(words[HEAD])
    shared["queue"][:] = 0
    shared["queue_sequence"][:] = NOTHING
    shared["queue_steps"][:] = int(words[CLOSED_STEPS])
    if written > int(words[CLOSED_STEPS]):
        # What was being written: no actor closes it, so that it would be nowhere. It is closed and
        # gone, by an entry of the queue that leads to no segment, which a learner passes over.
        closed = int(words[CLOSED])
        shared["queue_steps"][closed % ring.num_segments] = written
        store(counters, CLOSED, closed + 1)
        store(counters, CLOSED_STEPS, written)
