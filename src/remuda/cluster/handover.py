"""The handover state: other nodes' copies of the state of roles that move to a node.

A learner resumes from its part of the newest checkpoint, or else from its newest published weights.
An actor resumes from its learners' copies of its rings. Both keep their rows of the scoreboard (the
run's shared counters). The state is written before any role starts on the new node.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from remuda.assembly.assembly import Assembly
from remuda.cluster.rings import RingIn, RingOut, mend
from remuda.cluster.stores import ACTORS_WORDS
from remuda.errors import CheckpointError
from remuda.experience import ring as word
from remuda.experience.experience import Experience
from remuda.experience.ring import ExperienceRing
from remuda.experience.ring_block import Block
from remuda.publish.snapshot import PublishedWeights, Snapshot
from remuda.system.checkpoint.opening import ANY_SIZE, read_file
from remuda.system.checkpoint.state import write_whole
from remuda.system.checkpoint.store import MANIFEST, Checkpoints, Manifest
from remuda.system.memory.atomic import load, store
from remuda.types import Array, Integers, State

# Added to each segment's sequence number when a ring moves. No reader then mistakes a new segment
# for an old one, not even for one that the lost node sent last.
MOVED = 1 << 32


@dataclass(frozen=True)
class CheckpointFiles:
    """A checkpoint to send to another node: its manifest, and the files that the manifest lists."""

    manifest: Manifest
    files: Mapping[str, bytes]

    @classmethod
    def read(cls, checkpoints: Checkpoints, number: int) -> CheckpointFiles:
        manifest = checkpoints.manifest(number)
        files = {
            name: read_file(checkpoints.file(manifest, name), ANY_SIZE) for name in manifest.files
        }
        return cls(replace(manifest, earlier={}), files)

    def write(self, checkpoints: Checkpoints) -> None:
        """Write the files, then the manifest, unless this node already has all of them."""
        number = self.manifest.number
        directory = checkpoints.directory(number)
        try:
            if self.manifest.files.keys() <= checkpoints.manifest(number).files.keys():
                return
        except CheckpointError:
            directory.mkdir(parents=True, exist_ok=True)
        for name, data in sorted(self.files.items()):
            write_whole(directory / name, data)
        write_whole(directory / MANIFEST, self.manifest.pack())


@dataclass(frozen=True)
class HandoverState:
    """The picklable state of the roles that move to one node."""

    # weights of policies that will learn there
    snapshots: Mapping[str, Snapshot] = field(default_factory=dict)
    learned: Mapping[str, Array] = field(default_factory=dict)  # scoreboard rows of these policies
    # the head's copy of the counters of every policy's rings, [actors, words]
    words: Mapping[str, Integers] = field(default_factory=dict)
    # each actor's rows of the scoreboard
    acted: Mapping[int, Mapping[str, Array]] = field(default_factory=dict)
    # state and number of written steps of each copied ring, by policy and actor
    rings: Mapping[tuple[str, int], tuple[State, int]] = field(default_factory=dict)
    # the head's copy of the match results of each moving actor
    shards: Mapping[int, Mapping[str, Array]] = field(default_factory=dict)
    saved: CheckpointFiles | None = None  # the newest checkpoint
    # policies that already learn there: their learner is reading the rings
    learns: frozenset[str] = frozenset()


def handover_state_of(
    assembly: Assembly,
    actors: Sequence[int],
    names: Sequence[str],
    rings: Mapping[tuple[str, int], tuple[State, int]],
    checkpoints: Checkpoints,
    learns: Collection[str] = (),
) -> HandoverState:
    """Collect the head's copies of the state of actors, and of the learners of policies `names`."""
    reader, board = assembly.published.reader(), assembly.scoreboard
    numbers = checkpoints.numbers()
    snapshots, shards = {}, {}
    for name in names:
        snapshot = reader.newest(name, training=True)
        snapshots[name] = replace(snapshot, weights=snapshot.weights.copy())
    if assembly.table is not None:
        for actor in actors:
            arrays = assembly.table.shards[actor - 1].arrays
            shards[actor] = {name: arrays[name].copy() for name in arrays.names}
    acted = ("play", "policy", "episode_totals")
    return HandoverState(
        snapshots,
        {name: board.learn(name).copy() for name in names},
        {spec.name: assembly.experience[spec.name].counters.copy() for spec in assembly.specs},
        {actor: {name: board.arrays[name][actor].copy() for name in acted} for actor in actors},
        rings,
        shards,
        CheckpointFiles.read(checkpoints, numbers[-1]) if numbers and names else None,
        frozenset(learns),
    )


def take_over(assembly: Assembly, handover: HandoverState, checkpoints: Checkpoints) -> None:
    """Write the handover state before roles start on their new node, while links are paused."""
    published = assembly.published
    assert isinstance(published, PublishedWeights)
    if handover.saved is not None:
        handover.saved.write(checkpoints)
    for name, snapshot in handover.snapshots.items():
        published.publisher(name, published.checksums[name]).follow(snapshot)
        assembly.scoreboard.learn(name)[:] = handover.learned[name]
        for ring in assembly.experience[name].rings:
            if not _was_followed(ring):
                _let_words_agree(ring)
        # No step may be trained on twice, but the copied count of consumed steps may be out of
        # date. After `release`, a new learner skips all closed segments.
        assembly.experience[name].release()
    for actor, arrays in handover.shards.items():
        assert assembly.table is not None
        for name, array in arrays.items():
            assembly.table.shards[actor - 1].arrays[name][...] = array
    for actor, rows in handover.acted.items():
        for name, row in rows.items():
            assembly.scoreboard.arrays[name][actor][...] = row
        for spec in assembly.specs:
            ring = assembly.experience[spec.name].rings[actor]
            copy = handover.rings.get((spec.name, actor))
            # A learner that moved here recently may have no data of this ring.
            if spec.name in handover.learns and (copy is not None or _was_followed(ring)):
                mend(ring)
                if copy is not None:
                    _bring_up(assembly.experience[spec.name], actor, *copy)
            elif copy is not None:
                _put(ring, *copy)
            else:
                _begin_after(ring, handover.words[spec.name][actor])


def rings_of(
    assembly: Assembly, actors: Sequence[int], policies: Sequence[str]
) -> dict[tuple[str, int], Any]:
    """Return the state of these actors' rings for these policies, if this node has their data."""
    states = {}
    for name in policies:
        for actor in actors:
            ring = assembly.experience[name].rings[actor]
            if _was_followed(ring) or ring.open_steps:
                states[name, actor] = (ring.state(), load(ring.counters, word.WRITTEN))
    return states


def _bring_up(experience: Experience, actor: int, state: State, written: int) -> None:
    """Add a moved actor's unsent steps to a ring whose learner stays here, as a bridge would."""
    ring = experience.rings[actor]
    row = Block(ring.shape, 1, ring.segment_length, ring.num_segments).row(0)
    source = ExperienceRing(ring.shape, ring.config, ring.num_streams, row, 0, ring.likely)
    source.restore(state, written)
    followed, following = RingOut(source), RingIn(experience, actor)
    followed.holds(*following.holds)
    payload: Array = np.empty(followed.largest, np.uint8)
    while (update := followed.news(payload, 0)) is not None:
        following.write(update[0])


def _was_followed(ring: ExperienceRing) -> bool:
    """Return whether any data of a ring arrived here; its counters alone are not enough."""
    shared, closed = ring.shared, load(ring.counters, word.CLOSED)
    if not closed:
        return bool((shared["sequence"] > 0).any())
    last = (closed - 1) % ring.num_segments
    return bool(shared["queue_steps"][last] > 0 and shared["queue_sequence"][last] != word.NOTHING)


def _let_words_agree(ring: ExperienceRing) -> None:
    """Make the queue of a ring whose data never arrived consistent with the ring's counters."""
    if closed := load(ring.counters, word.CLOSED):
        last = (closed - 1) % ring.num_segments
        ring.shared["queue_sequence"][last] = word.NOTHING
        ring.shared["queue_steps"][last] = load(ring.counters, word.CLOSED_STEPS)


def _put(ring: ExperienceRing, state: State, written: int) -> None:
    """Restore the learner's copy of a ring, so a new actor can continue it."""
    sequence, queue_sequence = state["sequence"], state["queue_sequence"]
    belongs = queue_sequence == sequence[state["queue"]]
    moved = {
        "sequence": sequence + MOVED,
        "queue_sequence": np.where(belongs, queue_sequence + MOVED, word.NOTHING),
    }
    ring.restore({**state, **moved}, written)


def _begin_after(ring: ExperienceRing, words: Integers) -> None:
    """Empty the ring; its counters continue from `words`, or from their own values if newer."""
    shared, counters = ring.shared, ring.counters
    own = counters.copy()
    if own[word.WRITTEN] >= words[word.WRITTEN] and own[word.CLOSED] >= words[word.CLOSED]:
        words = own
    for each in ACTORS_WORDS:
        store(counters, each, int(words[each]))
    written = int(words[word.WRITTEN])
    store(counters, word.OVERWRITTEN, written)
    store(counters, word.LOST, written)
    sequence = shared["sequence"]
    sequence += MOVED + sequence % 2
    shared["committed"][:] = 0
    shared["closed_as"][:] = word.OPEN
    shared["queue"][:] = 0
    shared["queue_sequence"][:] = word.NOTHING
    shared["queue_steps"][:] = int(words[word.CLOSED_STEPS])
    if written > int(words[word.CLOSED_STEPS]):
        # No actor will close the unfinished segment, but its steps must be counted. Count them by a
        # queue entry without a segment, which a learner skips.
        closed = int(words[word.CLOSED])
        shared["queue_steps"][closed % ring.num_segments] = written
        store(counters, word.CLOSED, closed + 1)
        store(counters, word.CLOSED_STEPS, written)
