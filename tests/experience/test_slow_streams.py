"""Streams that act rarely: their segments neither end rollouts early nor lose steps."""

import itertools

import numpy as np
import pytest

from remuda.config import ExperienceConfig
from remuda.experience.experience import Experience, segments_for
from remuda.experience.replay import TransitionReplay
from remuda.experience.ring import CLOSED, HEAD, StreamShape
from remuda.experience.ring_block import NOWHERE, Block
from remuda.experience.rollout_queue import RolloutQueue
from remuda.experience.segments import AFTER, Rollout
from remuda.experience.sequence_replay import SequenceReplay
from remuda.system.memory.waiting import Wakeup
from ring_writers import ExperienceWriter

LENGTH, FAST = 20, 6
SLOW = [10, 50]  # turns from one action of the slow streams to their next
MIXES = [1, 2]  # slow streams, of FAST + slow in all
EPISODES = [3, 1_000]  # actions of an episode


class Played:
    """Streams of which some act rarely; action i observes i + 1, in the turn `turns[i]`."""

    def __init__(self, period, slow, episode, rollout=0, n_frames=1, **config):
        settings = {"segment_length": LENGTH, "learning_starts": 1}
        self.streams = FAST + slow
        self.periods = np.array([1] * FAST + [period] * slow)
        self.episode, self.turn, self.number = episode, 0, 0
        shape = StreamShape((1,), np.float32, n_frames, memory=1)
        self.experience = Experience(
            shape,
            ExperienceConfig(**settings | config),
            (self.streams,),
            Wakeup(),
            (Wakeup(),),
            rollout,
        )
        self.writer = ExperienceWriter(self.experience)
        self.turns, self.stream = [], []
        self.acted = [[] for _ in range(self.streams)]  # numbers of a stream's actions
        self.place = {}  # of a number in `acted`

    def play(self):
        acts = self.turn % self.periods == 0
        actions, over = np.zeros((self.streams, 1), np.int64), np.zeros(self.streams, bool)
        states = np.zeros((self.streams, 1), np.float32)
        for stream in np.flatnonzero(acts):
            number = actions[stream, 0] = len(self.turns)
            t = len(self.acted[stream]) % self.episode
            states[stream] = number if t else 0
            over[stream] = t == self.episode - 1
            self.place[number] = len(self.acted[stream])
            self.acted[stream].append(number)
            self.turns.append(self.turn)
            self.stream.append(stream)
        seen, nothing = (actions + 1).astype(np.float32), np.zeros(self.streams, np.float32)
        self.writer.decide(seen, actions, 0, acts, recurrent_states=states)
        self.writer.outcome(nothing, over, over & False, seen + 0.5, acts)
        self.turn += 1

    def step(self, number):
        """The frames before an action and after it, and whether it ends its episode."""
        own, at = self.acted[self.stream[number]], self.place[number]
        t, n_frames = at % self.episode, self.experience.shape.n_frames
        frames = [own[at - b] + 1 if b <= t else 0 for b in range(n_frames - 1, -1, -1)]
        ends = t == self.episode - 1
        return frames, [*frames[1:], number + 1.5 if ends else own[at + 1] + 1], ends

    @property
    def complete(self):
        """The numbers of all actions whose next observation is known."""
        waiting = {own[-1] for own in self.acted if own and not self.step_ends(own[-1])}
        return [number for number in range(len(self.turns)) if number not in waiting]

    def step_ends(self, number):
        return self.place[number] % self.episode == self.episode - 1


def check_rows(played, out):
    """Hold a rollout to what was played; return the numbers of its actions."""
    starts = [*out.starts[0, : out.num_segments[0]].tolist(), int(out.num_rows[0])]
    found = []
    for piece, (start, end) in enumerate(itertools.pairwise(starts)):
        first = int(out.actions[0, start, 0])
        own, at = played.acted[played.stream[first]], played.place[first]
        begins = at % played.episode == 0
        assert out.recurrent_states[0, piece, 0] == (0 if begins else first)
        for row in range(start, end - 1):
            number = int(out.actions[0, row, 0])
            assert number == own[at + row - start], "a step is missing within a segment"
            before, after, ends = played.step(number)
            assert out.observations[0, row].tolist() == before
            assert out.discounts[0, row] == (0.0 if ends else 1.0)
            assert not ends or row == end - 2, "it crosses an episode"
            found.append(number)
        assert out.streams[0, end - 1] == AFTER
        assert out.observations[0, end - 1].tolist() == after
    return found


@pytest.mark.parametrize("n_frames", [1, 3])
@pytest.mark.parametrize("episode", EPISODES)
@pytest.mark.parametrize("slow", MIXES)
@pytest.mark.parametrize("period", SLOW)
def test_rollouts_are_full_and_lose_nothing_beside_slow_streams(period, slow, episode, n_frames):
    """Slow streams' segments were the oldest when they closed: rollouts ended early, or lost
    steps although actors waited."""
    streams = FAST + slow
    rollout = LENGTH * streams
    played = Played(period, slow, episode, rollout, n_frames, on_full="wait")
    queue, out = RolloutQueue(played.experience), Rollout.empty(played.experience, 1)
    taken, sizes, ages = [], [], []
    for _ in range(4_000):
        while not played.writer.room.has_room():
            assert queue.ready()
            sizes.append(queue.take(out, 0, 0))
            found = check_rows(played, out)
            ages.append(played.turn - min(played.turns[number] for number in found))
            taken += found
        played.play()
    early = sum(size < rollout for size in sizes)
    assert early == 0, f"{early} of {len(sizes)} rollouts ended early"
    assert queue.lost == 0
    assert len(taken) == len(set(taken))
    configured = len(played.complete) / rollout
    assert 0.95 * configured - 1 <= len(sizes) <= 1.05 * configured
    assert len(taken) + played.experience.untaken + played.experience.rings[0].open_steps == len(
        played.complete
    )
    assert max(ages) <= 5 * LENGTH + period, "a step was taken long after it was played"


@pytest.mark.parametrize("turns", [95, 1_234])
@pytest.mark.parametrize("rollout", [0, 200])
@pytest.mark.parametrize("dealt", [False, True])
def test_a_resumed_writer_closes_and_reuses_what_an_uninterrupted_one_does(dealt, rollout, turns):
    played = Played(10, 2, 3, rollout, capacity=600, on_full="overwrite")
    other = Played(10, 2, 3, rollout, capacity=600, on_full="overwrite")
    played.writer = ExperienceWriter(played.experience, dealt=dealt)
    for _ in range(turns):
        played.play()
    other.experience.restore(played.experience.state(), played.experience.written)
    other.writer = ExperienceWriter(other.experience, dealt=dealt)
    other.writer.restore(played.writer.state())
    assert np.array_equal(other.writer.state_of(0)["paused"], played.writer.state_of(0)["paused"])
    other.turn, other.turns, other.stream = turns, played.turns[:], played.stream[:]
    other.acted, other.place = [own[:] for own in played.acted], played.place.copy()
    for each in (played, other):
        for _ in range(500):
            each.play()
    states = [each.experience.rings[0].state() for each in (played, other)]
    for name in ("committed", "queue", "queue_steps", "numbers", "closed_as", "sequence"):
        assert np.array_equal(states[0][name], states[1][name]), name
    assert states[0]["counters"] == states[1]["counters"]


@pytest.mark.parametrize("kind", [TransitionReplay, SequenceReplay])
@pytest.mark.parametrize("episode", EPISODES)
@pytest.mark.parametrize("period", SLOW)
def test_replay_holds_its_capacity_beside_slow_streams(period, episode, kind):
    played = Played(period, 1, episode, capacity=5_000)
    for _ in range(3_000):
        played.play()
    held = played.experience.written - played.experience.overwritten
    assert held >= 0.95 * 5_000
    replay = kind([played.experience], 1, 0.5, np.random.default_rng(0))
    out = replay.empty(1, 4_096)
    assert replay.sample(out, 0, 4_096)


class Population:
    """A policy's ring in a population: its streams come and go."""

    def __init__(self, rng, streams, length, likely, rollout, ahead=1):
        self.rng, self.streams, self.likely = rng, streams, likely
        config = ExperienceConfig(
            segment_length=length, capacity=1, learning_starts=1, on_full="wait"
        )
        shape, count = StreamShape((1,), np.float32, 1), (streams,)
        segments = segments_for(0, length, streams, likely, rollout)
        block = Block(shape, 1, length, segments)
        self.experience = Experience(
            shape, config, count, Wakeup(), (Wakeup(),), rollout, block, 0, (likely,), ahead
        )
        self.start()

    def start(self):
        self.writer = ExperienceWriter(self.experience, dealt=True)
        self.left = np.zeros(self.streams, np.int64)  # turns of the current episodes

    def turn(self, lengths, rates=1.0, begins=0.5):
        rng = self.rng
        begins = np.flatnonzero((self.left == 0) & (rng.random(self.streams) < begins))
        # No more streams begin in a turn than are typical.
        self.left[begins[: self.likely]] = rng.choice(lengths, len(begins[: self.likely]))
        acts = (self.left > 0) & (rng.random(self.streams) < rates)
        actions = np.zeros((self.streams, 1), np.int64)
        seen, over = actions.astype(np.float32), self.left == 1
        self.writer.decide(seen, actions, 0, acts)
        self.writer.outcome(np.zeros(self.streams, np.float32), over, over & False, seen, acts)
        self.left = np.maximum(self.left - 1, 0)
        self.check()

    def check(self):
        ring, state = self.experience.rings[0], self.writer.state_of(0)
        slots = np.concatenate((state["slots"], state["paused"]))
        slots = slots[slots != NOWHERE]
        assert len(slots) == len(set(slots.tolist())) <= self.streams < ring.num_segments
        assert (ring.shared["closed_as"][slots] == 0).all()
        assert ring.counters[HEAD] == ring.counters[CLOSED] + len(slots)


def test_a_population_fills_the_segments_that_were_left_open():
    """Streams continued their own segments first, so others' grew old and were closed early."""
    played = Population(np.random.default_rng(0), 8, LENGTH, 8, 128)
    queue, out = RolloutQueue(played.experience), Rollout.empty(played.experience, 1)
    shared = played.experience.rings[0].shared
    for _ in range(3_000):
        played.turn([2, 7, 40], begins=0.05)
        assert (shared["committed"][shared["closed_as"] > 0] == LENGTH).all()
        if queue.ready():
            assert queue.take(out, 0, 0) == 7 * LENGTH
    assert played.experience.closed[0] > 100


@pytest.mark.parametrize("seed", range(30))
def test_an_actor_never_waits_for_a_learner_that_waits_for_steps(seed):
    """Streams act at any rate, the writer dies, and the policy is replaced."""
    rng = np.random.default_rng(seed)
    streams, length = int(rng.integers(1, 9)), int(rng.integers(1, 7))
    rollout = int(rng.integers(1, 4 * length * streams))
    likely, ahead = int(rng.integers(1, streams + 1)), int(rng.integers(1, 3))
    played = Population(rng, streams, length, likely, rollout, ahead)
    experience, rates = played.experience, rng.choice([0.02, 0.3, 1.0], streams)
    queue, out = RolloutQueue(experience), Rollout.empty(experience, 1)
    steps = 0
    for _ in range(1_500):
        while not played.writer.room.has_room():
            assert queue.ready(), "both wait"
            before = experience.passed
            steps += queue.take(out, 0, 0)
            assert experience.passed > before
        if rng.random() < 0.01:
            played.start()
            played.writer.close_orphans()
        if rng.random() < 0.05 and not played.left.any():
            played.writer.clear(0)
        played.turn([1, 2, 7, 40], rates)
    assert experience.written > 0
    assert steps + queue.lost == experience.passed
