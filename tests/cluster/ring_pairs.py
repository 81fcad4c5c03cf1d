"""A ring on the node of its actor, and the one that follows it, pumped by hand."""

from dataclasses import dataclass, field

import numpy as np

from remuda.cluster.ring_kernels import WORDS
from remuda.cluster.rings import RingIn, RingOut, RingUpdate
from remuda.config import ExperienceConfig
from remuda.experience.experience import Experience
from remuda.experience.ring import (
    CLOSED,
    CLOSED_STEPS,
    CONTENTS,
    HEAD,
    LOST,
    NEXT_OVERWRITTEN,
    OVERWRITTEN,
    WRITTEN,
    StreamShape,
)
from remuda.experience.ring_block import Block
from remuda.experience.rollout_queue import RolloutQueue
from remuda.experience.segments import AFTER, Rollout
from remuda.system.memory.waiting import Wakeup
from ring_steps import steps_in
from ring_writers import ExperienceWriter

KEPT = (HEAD, OVERWRITTEN, NEXT_OVERWRITTEN, LOST, CLOSED, CLOSED_STEPS, WRITTEN)
"""The words of a ring that its actor writes."""
OF_SEGMENTS = ("sequence", "committed", "closed_as", "numbers", "recurrent_states")


@dataclass
class Kind:
    """What a ring is made of."""

    n_frames: int = 1
    size: int = 1
    masks: int = 0
    keeps_last_mask: bool = False
    memory: int = 0
    continuous: bool = False
    streams: int = 2
    length: int = 4
    capacity: int = 24
    rollout: int = 0
    actors: int = 1
    """Those of the policy; the last is the one that is followed."""
    policies: int = 1
    """Those of its block; with one, and one actor, the ring stands alone."""
    on_full: str = "overwrite"

    def make(self):
        """The experience of a policy: on one node of several, or on the only one."""
        config = ExperienceConfig(
            segment_length=self.length,
            capacity=max(self.capacity, self.length),
            learning_starts=1,
            on_full=self.on_full,
        )
        shape = StreamShape(
            (self.size,),
            np.float32,
            self.n_frames,
            action_dtype=np.float32 if self.continuous else np.int64,
            mask_size=self.masks,
            memory=self.memory,
            keeps_last_mask=self.keeps_last_mask,
        )
        streams = [1] * (self.actors - 1) + [self.streams]
        wakeups = [Wakeup() for _ in streams]
        block = None
        if self.policies > 1:
            places = -(-self.capacity // self.length) + 2 * self.streams
            block = Block(shape, self.policies, self.length, [places] * self.actors)
        return Experience(
            shape,
            config,
            streams,
            Wakeup(),
            wakeups,
            self.rollout,
            block,
            self.policies - 1,
        )


class Player:
    """Lets streams play: every step bears a number of its own, and all else follows from it."""

    def __init__(self, experience, kind, seed, ends=0.2):
        self.experience, self.kind = experience, kind
        self.random, self.ends = np.random.default_rng(seed), ends
        self.turn = 0
        self.begin()

    def begin(self):
        """Be a new writer, after one that died, or the first."""
        self.writer = ExperienceWriter(self.experience, self.kind.actors - 1)
        self.writer.close_orphans()

    def play(self, turns):
        kind, streams = self.kind, self.kind.streams
        everyone = np.ones(streams, np.bool_)
        for _ in range(turns):
            steps = streams * self.turn + np.arange(streams)
            active = self.random.random(streams) < 0.8
            self.writer.decide(
                seen_at(steps, kind.size),
                steps[:, None].astype(np.float32 if kind.continuous else np.int64),
                self.turn // 3,
                active,
                steps.astype(np.float32) / 2,
                allowed_at(steps, kind.masks),
                np.repeat(steps[:, None], kind.memory, 1).astype(np.float32),
            )
            over = self.random.random(streams) < self.ends
            terminated = over & (self.random.random(streams) < 0.5)
            after = seen_at(steps, kind.size) + 0.5
            self.writer.outcome(
                steps.astype(np.float32) / 4,
                terminated,
                over & ~terminated,
                after,
                active,
                allowed_at(steps, kind.masks) if kind.keeps_last_mask else None,
            )
            self.turn += 1
        assert everyone.all()


def seen_at(steps, size):
    return np.repeat(steps[:, None], size, 1).astype(np.float32)


def allowed_at(steps, masks):
    return (
        (steps[:, None] >> np.arange(masks)) % 2 == 0 if masks else np.ones((len(steps), 0), bool)
    )


@dataclass
class Pair:
    """Both ends of a ring, with what crosses."""

    kind: Kind
    here: Experience = field(init=False)
    there: Experience = field(init=False)

    def __post_init__(self):
        self.here, self.there = self.kind.make(), self.kind.make()
        self.link()

    def link(self):
        """Begin anew, as after a link that broke or a bridge that died."""
        actor = self.kind.actors - 1
        self.followed = RingOut(self.here.rings[actor])
        self.following = RingIn(self.there, actor)
        self.followed.holds(*self.following.holds)

    def collect(self, room):
        """What crosses next, as copies; None: nothing."""
        payload = np.zeros(max(room, self.followed.largest), np.uint8)
        found = self.followed.news(payload, 0)
        if found is None:
            return None
        news, _ = found
        return RingUpdate(*(array.copy() for array in news))

    def pump(self, room=1 << 20):
        """Let one frame cross; whether there was one."""
        news = self.collect(room)
        if news is not None:
            self.following.write(news)
        return news is not None

    def pump_all(self, room=1 << 20):
        for _ in range(10_000):
            if not self.pump(room):
                return
        raise AssertionError("it is never through")

    @property
    def rings(self):
        actor = self.kind.actors - 1
        return self.here.rings[actor], self.there.rings[actor]

    def check_same(self):
        """Both ends are equal in all that is committed, closed and counted."""
        here, there = self.rings
        for word in KEPT:
            assert here.counters[word] == there.counters[word], f"word {word}"
        a, b = here.shared, there.shared
        begun = a["sequence"] > 0
        for name in OF_SEGMENTS:
            assert np.array_equal(a[name][begun], b[name][begun]), name
        for slot in np.flatnonzero(begun):
            check_steps(a, b, slot, a["committed"][slot], self.kind.n_frames)
        for one, two in zip(steps_in(here), steps_in(there), strict=True):
            assert (one.slot, one.t, one.stream) == (two.slot, two.t, two.stream)
            assert one.after.tobytes() == two.after.tobytes()
            if one.ends and self.kind.keeps_last_mask:
                masks = [x["final_masks"][one.slot, one.t] for x in (a, b)]
                assert a["discounts"][one.slot, one.t] == 0.0 or np.array_equal(*masks)
        closed, places = int(here.counters[CLOSED]), len(a["queue"])
        # The oldest may be the one that the writer is at: nobody reads it.
        entries = np.arange(max(closed - places + 1, 0), closed) % places
        alive = a["sequence"][a["queue"][entries]] == a["queue_sequence"][entries]
        for name in ("queue", "queue_sequence"):
            assert np.array_equal(a[name][entries][alive], b[name][entries][alive]), name
        assert np.array_equal(a["queue_steps"][entries], b["queue_steps"][entries])

    def check_there(self):
        """What is committed there is whole, whatever is under way."""
        check_whole(self.rings[1], self.kind)


def check_steps(a, b, slot, committed, n_frames):
    # Nothing follows an episode's end in its segment before the next begins there.
    more = int(committed == 0 or a["discounts"][slot, committed - 1] == 1.0)
    for name in CONTENTS:
        end = committed
        if name == "observations":
            end += n_frames - 1 + more
        elif name == "masks":
            end = min(end + more, a["masks"].shape[1])
        found, expected = b[name][slot, :end], a[name][slot, :end]
        assert found.tobytes() == expected.tobytes(), f"{name} of segment {slot}"


def check_whole(ring, kind):
    """Every committed step of segments that may be read is of one turn and one stream."""
    shared = ring.shared
    for slot in np.flatnonzero((shared["sequence"] > 0) & (shared["sequence"] % 2 == 0)):
        end = int(shared["committed"][slot])
        steps = shared["actions"][slot, :end, 0].astype(np.int64)
        frames = kind.n_frames
        assert (np.diff(steps) > 0).all()
        seen = shared["observations"][slot]
        assert (seen[frames - 1 : frames - 1 + end] == steps[:, None]).all()
        assert np.array_equal(shared["log_probs"][slot, :end], steps.astype(np.float32) / 2)
        assert (shared["versions"][slot, :end] == steps // kind.streams // 3).all()
        assert np.isfinite(seen[: end + frames - 1]).all()
        assert np.isfinite(shared["rewards"][slot, :end]).all()
        assert np.array_equal(shared["masks"][slot, :end], allowed_at(steps, kind.masks))
        if end:
            assert (shared["recurrent_states"][slot] == steps[0]).all()
    for step in steps_in(ring):
        if shared["sequence"][step.slot] % 2 == 0:
            number = int(shared["actions"][step.slot, step.t, 0])
            assert number % kind.streams == step.stream
            assert (step.after > number).all()
            assert step.ends == (step.after % 1 == 0.5).all()


def take_all(rollouts, most=10_000):
    """The numbers of all steps that there are to take, or of so many rollouts, in order."""
    out, taken = Rollout.empty(rollouts.experience, 1), []
    for _ in range(most):
        if rollouts.experience.untaken <= 0:
            break
        rollouts.take(out, 0, 0)
        rows = slice(0, int(out.num_rows[0]))
        taken += out.actions[0, rows, 0][out.streams[0, rows] != AFTER].astype(int).tolist()
    return taken


__all__ = ["WORDS", "Kind", "Pair", "Player", "RolloutQueue", "take_all"]
