"""Games that play into rings with a clock of their own, and learners that take from them."""

import numpy as np

from remuda.config import ExperienceConfig
from remuda.experience.backpressure import ActorBackpressure
from remuda.experience.experience import Experience
from remuda.experience.ring import StreamShape
from remuda.experience.rollout_queue import RolloutQueue
from remuda.experience.segments import AFTER, Rollout
from remuda.system.memory.waiting import Wakeup
from ring_writers import ExperienceWriter

ROLLOUT = 8


class Clock:
    """Time that passes only where somebody waits, and what happens at which time."""

    def __init__(self):
        self.now = 100.0
        self.plans = []

    def at(self, seconds, action):
        """Let something happen so many seconds from now."""
        self.plans.append((self.now + seconds, action))

    def advance(self, seconds, is_over=lambda: False):
        """Let time pass, until it is over or so much has passed; whether it is over."""
        end = self.now + seconds
        while True:
            if is_over():
                return True
            due = min((when for when, _ in self.plans), default=end)
            if due > end:
                self.now = end
                return is_over()
            self.now = max(self.now, due)
            if not self.plans:
                return is_over()
            for plan in [plan for plan in self.plans if plan[0] <= self.now]:
                self.plans.remove(plan)
                plan[1]()


def make(rollout=ROLLOUT, learner=None, actors=1, **config):
    settings = {"segment_length": 4, "on_full": "wait", "capacity": 40, "replay_ratio": 1.0}
    config = ExperienceConfig(**settings | config)
    wakeups = [Wakeup() for _ in range(actors)]
    streams = [1] * actors
    learner = learner or Wakeup()
    return Experience(StreamShape((1,), np.float32, 1), config, streams, learner, wakeups, rollout)


class Game:
    """An actor that writes single steps of several policies, and waits as an actor does."""

    def __init__(self, clock, *experiences, actor=0, length=4, exact=False, computes=None):
        self.clock, self.length = clock, length
        self.writers = [ExperienceWriter(experience, actor) for experience in experiences]
        rooms = [writer.room for writer in self.writers if writer.room]
        self.rooms = ActorBackpressure(rooms, exact, computes or (lambda pid, began: None))
        self.turns, self.waited, self.standstills = 0, 0.0, []
        self.left_behind = 0

    def play(self, turns, step=0.0):
        one, none = np.ones(1, bool), np.zeros(1, bool)
        for _ in range(turns):
            began = self.clock.now
            while not self.rooms.has_room():
                self.left_behind += self.rooms.wait(1.0, lambda: False) or 0
                assert self.clock.now < began + 100, "the game stands still"
            if self.clock.now > began:
                self.standstills.append(self.clock.now - began)
            over = np.array([self.turns % self.length == self.length - 1])
            for writer in self.writers:
                seen = np.full((1, 1), self.turns, np.float32)
                writer.decide(seen, np.array([[self.turns]]), 0, one)
                writer.outcome(np.zeros(1, np.float32), over, none, seen, one)
            self.turns += 1
            self.clock.advance(step)


class Learner:
    """Takes rollouts whenever there is one, and trains so long on each."""

    def __init__(self, clock, experience, update, **options):
        self.clock, self.update = clock, update
        self.rollouts = RolloutQueue(experience, **options)
        self.out = Rollout.empty(experience, 1)
        self.updates, self.stopped, self.taken = 0, False, []
        self.look()

    def look(self):
        if self.stopped or not self.rollouts.ready():
            self.clock.at(0.001, self.look)
            return
        self.rollouts.take(self.out, 0, 0)
        rows = int(self.out.num_rows[0])
        steps = self.out.streams[0, :rows] != AFTER
        self.taken.append(self.out.actions[0, :rows, 0][steps].tolist())
        self.updates += 1
        self.clock.at(self.update, self.look)
