"""Rings hold their capacity however short episodes are, and no draw ever crosses an episode."""

import itertools
from dataclasses import fields

import numpy as np
import pytest

from remuda.config import ExperienceConfig
from remuda.experience.experience import Experience
from remuda.experience.priorities import PrioritisedReplay, PrioritisedSequences
from remuda.experience.replay import TransitionReplay
from remuda.experience.ring import StreamShape
from remuda.experience.rollout_queue import RolloutQueue
from remuda.experience.segments import AFTER, Rollout
from remuda.experience.sequence_replay import SequenceReplay
from remuda.system.memory.waiting import Wakeup
from ring_writers import ExperienceWriter

CAPACITY, LENGTH, STREAMS = 1_000, 20, 2
DISCOUNT = 0.5
LENGTHS = (1, 2, 3, 7, 1_000)
REPLAYS = {
    "uniform": (TransitionReplay, 1, ()),
    "n-step": (TransitionReplay, 3, ()),
    "prioritised": (PrioritisedReplay, 1, (0.6,)),
    "sequences": (SequenceReplay, 2, ()),
    "prioritised sequences": (PrioritisedSequences, 1, (0.6,)),
}


class Played:
    """Streams that play episodes of one length; step i of all observes i + 1 and chooses i."""

    def __init__(self, length, n_frames=1, rollout=0, streams=STREAMS, masks=0, **config):
        settings = {"capacity": CAPACITY, "segment_length": LENGTH, "learning_starts": 1}
        shape = StreamShape(
            (1,), np.float32, n_frames, memory=1, mask_size=masks, keeps_last_mask=masks > 0
        )
        self.experience = Experience(
            shape,
            ExperienceConfig(**settings | config),
            (streams,),
            Wakeup(),
            (Wakeup(),),
            rollout,
        )
        self.writer = ExperienceWriter(self.experience)
        self.length, self.streams, self.turns = length, streams, 0

    def play(self, turns):
        everyone, masks = np.ones(self.streams, bool), self.experience.shape.mask_size
        for _ in range(turns):
            steps = self.streams * self.turns + np.arange(self.streams)
            t = (self.turns + np.arange(self.streams)) % self.length
            states = np.where(t[:, None] > 0, steps[:, None], 0)
            seen = (steps[:, None] + 1).astype(np.float32)
            self.writer.decide(
                seen,
                steps[:, None],
                0,
                everyone,
                masks=self._allowed(steps, masks),
                recurrent_states=states.astype(np.float32),
            )
            over = t == self.length - 1
            terminated = over & (steps // self.streams % 2 == 0)  # half of them are truncated
            self.writer.outcome(
                np.ones(self.streams, np.float32),
                terminated,
                over & ~terminated,
                seen + 0.5,
                everyone,
                self._allowed(steps + 1_000_000, masks),
            )
            self.turns += 1

    @staticmethod
    def _allowed(steps, size):
        return np.arange(size)[None] != steps[:, None] % 3

    def step(self, number):
        """The frames before a step and after it, whether it ends its episode, and its discount."""
        turn, stream = divmod(number, self.streams)
        t = (turn + stream) % self.length
        # Streams start in the middle of an episode, which is a shorter one.
        t = min(t, turn)
        n_frames = self.experience.shape.n_frames
        seen = [number + 1 - self.streams * back for back in range(n_frames - 1, -1, -1)]
        before = [x if n_frames - 1 - i <= t else 0 for i, x in enumerate(seen)]
        ends = (turn + stream) % self.length == self.length - 1
        after = [*before[1:], number + 1.5 if ends else number + 1 + self.streams]
        return before, after, ends, 0.0 if ends and turn % 2 == 0 else 1.0


def check(played, one, n_steps):
    """Hold a transition to what was played; it may have fewer steps, at a segment's end."""
    number = int(one["a_tm1"])
    before, _, _, _ = played.step(number)
    assert one["s_tm1"].tolist() == before
    total, factor = 0.0, 1.0
    for i in range(n_steps):
        _, after, ends, discount = played.step(number + i * played.streams)
        total += factor
        factor *= DISCOUNT * discount
        found = (float(one["r_t"]), float(one["discount_t"]), one["s_t"].tolist())
        if ends or found == (total, factor, after):
            break
    assert found == (total, factor, after)
    return i + 1 == n_steps or ends


@pytest.mark.parametrize("n_frames", [1, 3])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", REPLAYS)
def test_the_capacity_is_held_and_drawn_from_however_short_episodes_are(kind, length, n_frames):
    """With one-step episodes 50 of 1,000 steps were held: each had a segment of its own."""
    played = Played(length, n_frames)
    make, n_steps, more = REPLAYS[kind]
    replay = make([played.experience], n_steps, DISCOUNT, np.random.default_rng(0), *more)
    drawn, whole = set(), []
    for turns in (30, CAPACITY):
        played.play(turns)
        drawn.clear()
        for _ in range(40):
            out = replay.empty(1, 256, weighed=True)
            assert replay.sample(out, 0, 256)
            for b in range(256):
                if "sequences" in kind:
                    drawn |= check_sequence(played, out, b, n_steps)
                    continue
                named = [f.name for f in fields(out) if f.name != "weights"]
                one = {name: getattr(out, name)[0, b] for name in named}
                whole.append(check(played, one, n_steps))
                drawn.add(int(one["a_tm1"]))
    assert np.mean(whole or [1.0]) > 1.0 - n_steps / LENGTH, "few are cut at a segment's end"
    experience = played.experience
    held = experience.written - experience.overwritten
    assert held >= 0.95 * CAPACITY
    assert len(drawn) >= 0.95 * held
    newest = STREAMS * played.turns
    assert min(drawn) >= newest - CAPACITY - STREAMS * LENGTH


def check_sequence(played, out, g, n_steps):
    length, first = int(out.lengths[0, g]), int(out.a_tm1[0, g, 0])
    number = first
    for t in range(length):
        number = first + t * played.streams
        assert int(out.a_tm1[0, g, t]) == number
        before, after, ends, _ = played.step(number)
        assert out.inputs[0, g, t].tolist() == before
        assert int(out.after[0, g, t]) == min(t + n_steps, length)
        assert ends == (t == length - 1) or t == length - 1, "it crosses an episode"
    assert out.inputs[0, g, length].tolist() == after
    turn, stream = divmod(first, played.streams)
    starts = (turn + stream) % played.length == 0
    assert out.states[0, g, 0] == (0 if starts or (turn == 0 and stream == 0) else first)
    return set(range(first, number + 1, played.streams))


@pytest.mark.parametrize("length", [1, 2, 3, 7, 33])
def test_masks_after_a_truncation_are_those_of_its_episode(length):
    played = Played(length, masks=3)
    played.play(300)
    replay = TransitionReplay([played.experience], 1, DISCOUNT, np.random.default_rng(0))
    out = replay.empty(1, 512)
    assert replay.sample(out, 0, 512)
    for b in range(512):
        number = int(out.a_tm1[0, b])
        _, _, ends, discount = played.step(number)
        assert out.allowed_tm1[0, b].tolist() == [i != number % 3 for i in range(3)]
        after = number + (1_000_000 if ends else STREAMS)
        expected = [discount == 0.0 or i != after % 3 for i in range(3)]
        assert out.allowed_t[0, b].tolist() == expected


@pytest.mark.parametrize("n_frames", [1, 2])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("streams", [1, 3])
def test_rollouts_have_their_steps_however_short_episodes_are(streams, length, n_frames):
    rollout = 2 * LENGTH * streams
    played = Played(length, n_frames, rollout, streams)
    queue, out, taken = RolloutQueue(played.experience), Rollout.empty(played.experience, 1), []
    updates = 0
    for _ in range(1_000):
        played.play(1)
        if not queue.ready():
            continue
        assert queue.take(out, 0, 0) == rollout
        updates += 1
        starts = [*out.starts[0, : out.num_segments[0]].tolist(), int(out.num_rows[0])]
        for start, end in itertools.pairwise(starts):
            first = int(out.actions[0, start, 0])
            for row in range(start, end - 1):
                number = first + (row - start) * streams
                before, after, ends, discount = played.step(number)
                assert out.actions[0, row, 0] == number
                assert out.streams[0, row] == number % streams
                assert out.observations[0, row].tolist() == before
                assert out.discounts[0, row] == discount
                assert not ends or row == end - 2, "it crosses an episode"
                taken.append(number)
            assert out.streams[0, end - 1] == AFTER
            assert out.observations[0, end - 1].tolist() == after
    # The last segments close with the last turn only if it ends an episode.
    ends = all(played.step(999 * streams + stream)[2] for stream in range(streams))
    assert updates == (1_000 - (not ends)) // (2 * LENGTH)
    assert len(taken) == len(set(taken)) == updates * rollout
    assert queue.lost == 0


def test_streams_that_play_in_turn_share_segments():
    """As with dealt seats: segments that other streams left open are filled first."""
    played = Played(2, streams=8, rollout=64)
    ring = played.experience.rings[0]
    writer = ExperienceWriter(played.experience, dealt=True)
    random = np.random.default_rng(0)
    for number in range(2_000):
        here = np.arange(8) == random.integers(8)
        for t in range(2):
            seen = np.full((8, 1), 2 * number + t + 1, np.float32)
            writer.decide(seen, np.full((8, 1), 2 * number + t), 0, here)
            writer.outcome(np.zeros(8, np.float32), here & (t == 1), ~(here | True), seen, here)
        assert len(ring.shared["committed"][ring.shared["closed_as"] == 0].nonzero()[0]) <= 1
    queue, out = RolloutQueue(played.experience), Rollout.empty(played.experience, 1)
    assert queue.take(out, 0, 0) >= 64
    steps = out.streams[0, : out.num_rows[0]] != AFTER
    assert len(set(out.streams[0, : out.num_rows[0]][steps].tolist())) == 8


def test_a_saved_writer_goes_on_in_the_segments_that_wait():
    played, other = Played(3), Played(3)
    played.play(31)
    other.experience.restore(played.experience.state(), played.experience.written)
    other.writer = ExperienceWriter(other.experience)
    other.writer.restore(played.writer.state())
    other.turns = played.turns
    for each in (played, other):
        each.play(200)
    states = [each.experience.rings[0].state() for each in (played, other)]
    for name in ("committed", "final_observations", "queue_steps", "numbers"):
        assert np.array_equal(states[0][name], states[1][name])
    held = states[0]["committed"]
    for slot in range(len(held)):
        one, two = (state["observations"][slot, : held[slot]] for state in states)
        assert np.array_equal(one, two)


def test_a_policy_that_is_replaced_leaves_no_segment_to_its_successor():
    played = Played(3, streams=1)
    played.play(4)  # one step of the second episode is not complete
    played.play(2)
    assert played.writer.state_of(0)["paused"].tolist() != [-1]
    played.writer.clear(0)
    assert played.writer.state_of(0)["paused"].tolist() == [-1]
    written = played.experience.written
    played.play(6)
    assert played.experience.rings[0].shared["committed"].sum() == 6
    assert played.experience.written == written + 6
