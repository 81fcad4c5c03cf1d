"""A learner that dies at any line of what it tells the actors, and so does its successor."""

from collections import Counter
from contextlib import nullcontext
from linecache import getline

import pytest

from assembled import assemble
from line_deaths import AtLine, DiedError
from remuda.config import load_config, overlay
from remuda.experience import experience as experience_module
from remuda.experience import replay as replay_module
from remuda.experience import rollout_queue as rollouts_module
from remuda.experience.ring import (
    CLOSED_STEPS,
    CONSUMED,
    EXCUSED,
    TAKEN,
    TAKEN_STEPS,
    UPDATE_TIME,
    total,
)
from remuda.learner import learner as learner_module
from remuda.learner import replay as replay_learner_module
from remuda.learner import rollouts as rollout_learner_module
from remuda.population.specs import policy_specs
from remuda.runtime.host import threads
from remuda.runtime.layout import make_layout
from remuda.system.memory.waiting import Wakeup
from remuda.system.scoreboard import Learn, Play
from support import Tape

WATCHED = (
    experience_module,
    replay_module,
    rollouts_module,
    learner_module,
    replay_learner_module,
    rollout_learner_module,
)
SMALL = {
    "game": "support:Tape",
    "run": {"turns": None, "seconds": 3600},
    "env": {"num_envs": 2, "options": {"lengths": (4,)}},
    "learners": {"processes": 1},
    "policy": {
        "network": {"hidden": (8,)},
        "iqn": {"quantiles": 4},
        "ppo": {"rollout_length": 16, "epochs": 1, "minibatches": 1},
        "batch_size": 8,
        "publish": {"every": 1},
        "experience": {"segment_length": 4, "on_full": "wait"},
    },
}
VALUES = {"experience": {"capacity": 40, "learning_starts": 16, "replay_ratio": 0.5}}
KINDS = {
    "on-policy": {"algorithm": "ppo"},
    "hybrid": {"algorithm": "ppo", "learning_mode": "hybrid"},
    "iqn": {"algorithm": "iqn"} | VALUES,
    "dqn": {"algorithm": "dqn"} | VALUES,
}
QUICK = ("on-policy", "iqn")
SPINS = 50
"""Updates on end after which a learner is said to be at it for ever."""


class Death(AtLine):
    """Kills what runs inside it when it comes to a line, the first time or a later one.

    Without a line it only notes which there are, and how often each was come to.
    """

    def __init__(self, place=None, time=0):
        super().__init__(time, WATCHED)
        self.place, self.seen = place, Counter()

    def at_line(self, place):
        self.seen[place] += 1
        if place == self.place:
            super().at_line(place)

    def __exit__(self, *error):
        super().__exit__(*error)


NEVER = nullcontext()


class World:
    """Actors that live on, and one learner after another.

    Whoever sleeps does nothing until it is rung, as if there were no look at the clock besides.
    """

    def __init__(self, kind, schedule, rung, waited):
        self.lockstep = schedule == "lockstep"
        tree = {"schedule": schedule, "actor": {"processes": 1 if self.lockstep else 2}}
        config = load_config(overlay(overlay(SMALL, tree), {"policy": KINDS[kind]}))
        specs = policy_specs(config, Tape().agents)
        self.assembly = assemble(config, specs, make_layout(config, len(specs)))
        *actors, self.role = self.assembly.roles()
        self.group, self.state = self.role.group(), None
        self.actors = [actor.build() for actor in actors]
        self.wakeups = [actor.seats.backpressure[0].wakeup for actor in self.actors]
        self.rung, self.waited, self.asleep = rung, waited, set()
        self.experience = list(self.assembly.experience.values())
        self.rows = [self.assembly.scoreboard.learn(spec.name) for spec in specs]

    @property
    def turns(self):
        return sum(self.assembly.scoreboard.play(i)[Play.TURNS] for i in range(len(self.actors)))

    @property
    def updates(self):
        return min(row[Learn.ACCEPTED] for row in self.rows)

    def is_awake(self, wakeup):
        """Whether it may do something: it did not go to sleep, or was rung since."""
        if wakeup in self.asleep and wakeup in self.rung:
            self.asleep.discard(wakeup)
        return wakeup not in self.asleep

    def sleep(self, wakeup, look):
        """It looks a last time, as a waiter does, and sleeps."""
        self.rung.discard(wakeup)
        if not look():
            self.asleep.add(wakeup)

    def learner_looks(self):
        """Whether it would not sleep at all if it waited now."""
        self.group.wait(0.0, lambda: False)
        return self.waited[self.role.wakeup]

    def train(self, death):
        """The learner trains all that is due."""
        wakeup = self.role.wakeup
        if not (self.lockstep or self.is_awake(wakeup)):
            return
        with death:
            for _ in range(SPINS):
                if not self.group.work():
                    break
            else:
                pytest.fail("the learner is at it for ever, with nothing to train on")
            if not self.lockstep:
                self.sleep(wakeup, self.learner_looks)

    def turn(self, death):
        for actor, wakeup in zip(self.actors, self.wakeups, strict=True):
            if self.is_awake(wakeup) and not actor.work():
                assert not self.lockstep, "no room, and no learner can train"
                self.sleep(wakeup, actor.has_room)
        self.train(death)

    def succeed(self, death, restored):
        """Another learner takes the place of this one."""
        if not self.lockstep:
            self.role.on_process_death()
        self.asleep.discard(self.role.wakeup)
        with death:
            self.group = self.role.group()
            if restored:
                for part, state in self.state.items():
                    self.group.restore(part, state)

    def play(self, death, restored=None):
        """A learner's life, if `restored` is not None from its beginning; whether it died."""
        try:
            if restored is not None:
                self.succeed(death, restored)
                self.train(death)  # in lockstep the actor waits for that
            for _ in range(20):
                self.turn(death)
        except DiedError:
            return True
        return False

    def check_goes_on(self):
        """All play and train, and nobody sleeps for good."""
        turns, updates = self.turns, self.updates
        for _ in range(60):
            self.turn(NEVER)
            if self.updates > updates + 1 and self.turns > turns + 10:
                break
        else:
            pytest.fail(f"{self.turns - turns} turns, {self.updates - updates} updates")
        self.state = {part: self.group.state(part) for part in self.group.parts}

    def check_words(self):
        """What the learner says is what is so."""
        for experience, row in zip(self.experience, self.rows, strict=True):
            words = experience.counters
            for word in (CONSUMED, EXCUSED, UPDATE_TIME):
                assert len(set(words[:, word])) == 1, "each actor is told something else"
            assert (words[:, UPDATE_TIME] > 0).all()
            if not experience.rollout:
                samples = row[Learn.SAMPLES] - 8
                assert words[0, CONSUMED] == 16 + max(samples, 0.0) / 0.5
                continue
            for ring in experience.rings:
                taken, ends = int(ring.counters[TAKEN]), ring.shared["queue_steps"]
                assert ring.counters[TAKEN_STEPS] == ends[(taken - 1) % len(ends)]
            being_written = sum(ring.open_steps for ring in experience.rings)
            assert total(words, CLOSED_STEPS) + being_written == experience.written
            through = row[Learn.TRAINED] + row[Learn.LOST]
            assert through + experience.untaken + being_written == experience.written
            assert row[Learn.LOST] >= 0


@pytest.fixture
def rung(monkeypatch):
    """Who has been rung."""
    found, ring = set(), Wakeup.ring
    monkeypatch.setattr(Wakeup, "ring", lambda self: (found.add(self), ring(self))[1])
    with threads(1):  # as in the process of a role
        yield found


@pytest.fixture
def waited(monkeypatch):
    """By wakeup, whether what was waited for last had come."""
    found, wait = {}, Wakeup.wait

    def noted(self, predicate, timeout):
        found[self] = wait(self, predicate, timeout)
        return found[self]

    monkeypatch.setattr(Wakeup, "wait", noted)
    return found


def lines(world, restored):
    """Where a learner can die: each line of a life, the first time that it comes there, and then.

    There are two rings and two policies, so what is so after one of both is seen.
    """
    noted = Death()
    assert not world.play(noted, restored)
    return [(line, time) for line, times in noted.seen.items() for time in range(min(times, 2))]


@pytest.mark.slow_cases("iqn-async-words", "iqn-lockstep-words", "on-policy-async-words")
@pytest.mark.parametrize(
    "every_line", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["words", "every line"]
)
@pytest.mark.parametrize("schedule", ["async", "lockstep"])
@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=() if k in QUICK else pytest.mark.slow) for k in KINDS]
)
def test_actors_and_a_third_go_on_wherever_two_learners_died(
    kind, schedule, every_line, rung, waited
):
    """In the quick suite they die where one word is written and the next is not."""
    world = World(kind, schedule, rung, waited)
    assert not world.play(NEVER)
    world.check_goes_on()
    world.check_words()
    points = [(restored, *at) for restored in (False, True) for at in lines(world, restored)]
    if not every_line:  # each once, by turns with what was saved and without
        words = dict.fromkeys(point[1:] for point in points if "store(" in getline(*point[1]))
        points = [(i % 2 == 0, *at) for i, at in enumerate(words)]
    assert len(points) >= 6
    died = 0
    for number, (restored, line, time) in enumerate(points):
        # Where the other one dies, which is another place each time.
        other, second, again = points[number * 37 % len(points)]
        where = f"{line} time {time}, then {second} time {again}, restored {restored}, {other}"
        try:
            died += world.play(Death(line, time), restored)
            world.play(Death(second, again), other)
            world.play(NEVER, restored)
            world.check_goes_on()
            world.check_words()
        except (AssertionError, pytest.fail.Exception) as error:
            raise AssertionError(f"{where}: {error}") from error
    assert died > 0.5 * len(points), "some lines only belong to some of the lives"
