"""Random play written into rings and read back, compared with a plain list of what was played."""

from dataclasses import dataclass, field, fields

import numpy as np

from remuda.config import ExperienceConfig
from remuda.experience.experience import Experience
from remuda.experience.priorities import Drawn, Priorities
from remuda.experience.replay import TransitionReplay
from remuda.experience.ring import StreamShape
from remuda.experience.rollout_queue import RolloutQueue
from remuda.experience.segments import AFTER, Rollout
from remuda.experience.sequence_replay import SequenceReplay
from remuda.system.memory.waiting import Wakeup
from ring_writers import ExperienceWriter


@dataclass
class Step:
    """A decision, and what came of it."""

    number: int
    """What it observed: the first number of its observation."""
    before: list[int]
    """The observations of its episode up to this one; 0 where there was none."""
    action: int
    mask: np.ndarray
    version: int
    reward: float
    state: float
    """The recurrent state before it."""
    discount: float = 1.0
    after: list[int] = field(default_factory=list)
    """The same as `before` for what was observed next; empty: not known yet."""
    mask_after: np.ndarray | None = None
    rest: "Step | None" = None
    """The next step of the same segment."""


class Game:
    """Plays any number of random streams, each with episodes of random lengths."""

    def __init__(self, random, rollout=0, memory=0):
        self.random = random
        self.streams, self.frames = int(random.integers(1, 5)), int(random.integers(1, 4))
        self.length, self.width = int(random.integers(1, 9)), int(random.integers(1, 4))
        self.choices = tuple(random.integers(1, 4, int(random.integers(1, 3))).tolist())
        self.masked = bool(random.random() < 0.5)
        self.branching = bool(random.random() < 0.5)
        capacity = int(random.integers(1, 120))
        config = ExperienceConfig(capacity=capacity, segment_length=self.length, learning_starts=1)
        total = sum(self.choices)
        dtype = str(random.choice(["float32", "int32"]))
        shape = StreamShape(
            (self.width,),
            dtype,
            self.frames,
            len(self.choices),
            mask_size=total if self.masked else 0,
            memory=memory,
            keeps_last_mask=self.masked,
            choices=self.choices,
            branching=self.branching,
        )
        self.memory, self.dtype = memory, dtype
        self.experience = Experience(shape, config, (self.streams,), Wakeup(), (Wakeup(),), rollout)
        self.writer = ExperienceWriter(self.experience)
        self.steps: dict[int, Step] = {}
        self._open: list[list[Step]] = [[] for _ in range(self.streams)]
        self._number = self._version = 0
        self._mean = float(random.choice([0.05, 0.2, 0.6, 1.0]))

    def play(self, turns):
        for _ in range(turns):
            self._turn()

    def _mask(self):
        masks = self.random.random((self.streams, sum(self.choices))) < 0.6
        starts = np.cumsum(self.choices) - np.array(self.choices)
        masks[:, starts] = True
        return masks if self.masked else masks[:, :0]

    def _observations(self):
        """[streams, width]: each begins with a number of its own."""
        found = np.zeros((self.streams, self.width), self.dtype)
        numbers = self._number + 1 + np.arange(self.streams)
        self._number += self.streams
        found[:] = numbers[:, None] + 100_000 * np.arange(self.width)
        return found, numbers

    def _turn(self):
        random, streams = self.random, self.streams
        acts = random.random(streams) < 0.8
        seen, numbers = self._observations()
        masks, actions = (
            self._mask(),
            random.integers(0, self.choices, (streams, len(self.choices))),
        )
        before, rewards = (random.integers(-40, 40, (2, streams)) / 8.0).astype(np.float32)
        before[random.random(streams) < 0.5] = 0.0
        states = random.integers(0, 9, (streams, self.memory)).astype(np.float32)
        states[[not episode for episode in self._open]] = 0.0
        self._version += int(random.integers(0, 2))
        self.writer.decide(seen, actions, self._version, acts, None, masks, states, _column(before))
        places = self.writer.state_of(0)["lengths"]
        for s in np.flatnonzero(acts):
            self._decide(s, int(numbers[s]), actions[s], masks[s], states[s], float(before[s]))
            if len(self._open[s]) > 1 and places[s] > 0:
                self._open[s][-2].rest = self._open[s][-1]
        ends = random.random(streams) < self._mean
        terminated = ends & (random.random(streams) < 0.5)
        last, numbers = self._observations()
        last_masks = self._mask()
        self.writer.outcome(
            _column(rewards), terminated, ends & ~terminated, last, acts, last_masks
        )
        for s in range(streams):
            self._outcome(s, float(rewards[s]), ends[s], terminated[s], numbers[s], last_masks[s])

    def _decide(self, s, number, action, mask, state, before):
        episode, combined = self._open[s], 0
        for size, choice in zip(self.choices, action, strict=True):
            combined = combined * size + int(choice)
        history = [*(step.number for step in episode), number]
        frames = [*[0] * self.frames, *history][-self.frames :]
        first = float(state[0]) if self.memory else 0.0
        step = Step(number, frames, combined, mask, self._version, -before, first)
        if episode:
            self._follow(episode[-1], frames, mask)
            episode[-1].reward += before
        episode.append(step)

    def _follow(self, step, frames, mask):
        step.after, step.mask_after = frames, mask
        self.steps[step.number] = step

    def _outcome(self, s, reward, ends, terminated, number, mask):
        episode = self._open[s]
        if not episode:
            return
        episode[-1].reward += reward
        if ends:
            episode[-1].discount = 0.0 if terminated else 1.0
            history = [*(step.number for step in episode), int(number)]
            frames = [*[0] * self.frames, *history][-self.frames :]
            self._follow(episode[-1], frames, np.ones_like(mask) if terminated else mask)
            self._open[s] = []

    def first_of(self, inputs):
        """The first number of each frame of stacked observations."""
        return inputs.reshape(-1, self.width)[:, 0].astype(np.int64).tolist()

    def allowed(self, mask):
        """Which combinations of choices a mask allows, the last choice changing fastest.

        Of a game whose choices are valued one by one, those that the mask allows.
        """
        if self.branching:
            return mask.tolist()
        parts = np.split(mask, np.cumsum(self.choices)[:-1])
        return [
            all(part[i] for part, i in zip(parts, index, strict=True))
            for index in np.ndindex(*self.choices)
        ]

    def check(self, one, steps, discount, ends):
        """Hold one n-step transition to what was played; `ends`: steps of it that are counted."""
        step, total, factor = self.steps[self.first_of(one["s_tm1"])[-1]], 0.0, 1.0
        assert self.first_of(one["s_tm1"]) == step.before
        assert one["versions"] == step.version
        if self.branching:
            assert one["choices_tm1"].tolist() == list(np.unravel_index(step.action, self.choices))
        else:
            assert one["a_tm1"] == step.action
            assert not one["choices_tm1"].size
        if self.masked:
            assert one["allowed_tm1"].tolist() == self.allowed(step.mask)
        last = step
        for i in range(steps):
            total += factor * last.reward
            factor *= discount * last.discount
            known = last.rest is not None and last.rest.number in self.steps
            if i + 1 == steps or not known or (ends is not None and i + 1 == ends):
                break
            last = last.rest
        np.testing.assert_allclose(one["r_t"], total, rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(one["discount_t"], factor, rtol=1e-5)
        assert self.first_of(one["s_t"]) == last.after
        if self.masked:
            # A mask that allows nothing of a choice stands for one that allows all of it.
            assert one["allowed_t"].tolist() == self.allowed(last.mask_after)


def _column(values):
    """As a column of the environment's array."""
    return np.stack([values, values], 1)[:, 0]


def transitions(random):
    """Single steps, drawn while the ring is written over again and again."""
    game = Game(random)
    steps, discount = int(random.integers(1, 6)), float(random.choice([0.5, 0.97, 1.0]))
    replay = TransitionReplay([game.experience], steps, discount, np.random.default_rng(1))
    for _ in range(4):
        game.play(int(random.integers(1, 90)))
        out = replay.empty(1, 48)
        if not replay.sample(out, 0, 48):
            assert game.experience.written == 0
            continue
        for b in range(48):
            one = {f.name: getattr(out, f.name)[0, b] for f in fields(out) if f.name != "weights"}
            game.check(one, steps, discount, None)
    assert game.experience.written == len(game.steps)


def sequences(random):
    """Whole pieces of segments, with the recurrent state before their first step."""
    game = Game(random, memory=int(random.integers(1, 4)))
    steps, discount = int(random.integers(1, 5)), 0.9
    replay = SequenceReplay([game.experience], steps, discount, np.random.default_rng(1))
    for _ in range(4):
        game.play(int(random.integers(1, 90)))
        out = replay.empty(1, 12)
        if not replay.sample(out, 0, 12):
            continue
        for g in range(12):
            length = int(out.lengths[0, g])
            first = game.steps[game.first_of(out.inputs[0, g, 0])[-1]]
            assert (out.states[0, g, 0], 1 <= length <= game.length) == (first.state, True)
            for t in range(length):
                after = int(out.after[0, g, t])
                assert after == min(t + steps, length)
                one = {
                    "s_tm1": out.inputs[0, g, t],
                    "s_t": out.inputs[0, g, after],
                    "allowed_tm1": out.allowed[0, g, t],
                    "allowed_t": out.allowed[0, g, after],
                }
                names = ("a_tm1", "choices_tm1", "r_t", "discount_t", "versions")
                one |= {name: getattr(out, name)[0, g, t] for name in names}
                game.check(one, steps, discount, length - t)


def rollouts(random):
    """Closed segments: each once, in order, and every step is taken, lost, waiting or open."""
    game = Game(random, rollout=int(random.integers(1, 60)), memory=int(random.integers(0, 3)))
    queue, out = RolloutQueue(game.experience), Rollout.empty(game.experience, 1)
    taken = []
    for version in range(8):
        game.play(int(random.integers(1, 60)))
        while random.random() < 0.6 and queue.take(out, 0, version):
            rows = int(out.num_rows[0])
            steps = np.flatnonzero(out.streams[0, :rows] != AFTER)
            assert len(steps) == out.num_steps[0]
            for row in steps:
                seen = game.first_of(out.observations[0, row])
                step = game.steps[seen[-1]]
                taken.append(step.number)
                assert seen == step.before
                assert game.first_of(out.observations[0, row + 1]) == step.after
                found = (out.rewards[0, row], out.discounts[0, row], out.versions[0, row])
                assert found == (np.float32(step.reward), step.discount, step.version)
                assert (out.masks[0, row] == step.mask).all()
        open_ = game.experience.rings[0].open_steps
        waiting = game.experience.untaken
        assert len(taken) + queue.lost + waiting + open_ == game.experience.written
    assert len(set(taken)) == len(taken)


def priorities(random):
    """The tree of priorities, held to a plain list of them."""
    segments, length = int(random.integers(1, 12)), int(random.integers(1, 9))
    alpha = float(random.choice([0.0, 0.5, 1.0]))
    tree, plain = Priorities(alpha, segments, length), np.zeros((segments, length))
    sequences, counts = np.zeros(segments, np.int64), np.zeros(segments, np.int64)
    greatest = 1.0
    for _ in range(6):
        for s in range(segments):
            if random.random() < 0.3:
                sequences[s] += 2
                counts[s], plain[s] = 0, 0.0
            more = int(random.integers(counts[s], length + 1))
            plain[s, counts[s] : more] = greatest
            counts[s] = more
        ends = np.cumsum(counts)
        tree.follow(sequences, ends)
        np.testing.assert_allclose(tree.leaves, plain)
        if not ends[-1]:
            continue
        size = int(random.integers(1, 20))
        out, todo = Drawn.empty(size), np.ones(size, np.bool_)
        uniforms = random.random(size)
        picks = tree.draw(uniforms, ends, todo, out)
        places = [(s, t) for s in range(segments) for t in range(counts[s])]
        sums = np.cumsum([plain[place] for place in places])
        for b in range(size):
            at, place = (b + uniforms[b]) / size * sums[-1], places[picks[b]]
            low = sums[picks[b]] - plain[place]
            slack = 1e-9 * sums[-1]
            assert low - slack <= at <= sums[picks[b]] + slack
            share = len(places) * plain[place] / sums[-1]
            np.testing.assert_allclose(out.shares[b], share)
            assert out.sequences[b] == sequences[place[0]]
        errors = (3.0 * random.standard_normal(size)).astype(np.float32)
        errors[random.random(size) < 0.1] = np.nan
        tree.learn(out, errors)
        for b in np.flatnonzero(np.isfinite(errors)):
            plain[places[picks[b]]] = (abs(float(errors[b])) + 1e-6) ** alpha
            greatest = max(greatest, plain[places[picks[b]]])
        np.testing.assert_allclose(tree.leaves, plain)
