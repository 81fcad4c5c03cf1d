"""How long an actor waits for whom: for learners that make progress, and no longer."""

import copy
import os
import time

import pytest

from played_rooms import ROLLOUT, Clock, Game, Learner, make
from remuda.experience import backpressure
from remuda.system.memory.waiting import Wakeup
from remuda.system.processes.activity import Activity, started


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(
        Wakeup, "wait", lambda self, predicate, timeout: clock.advance(timeout, predicate)
    )
    return clock


@pytest.mark.parametrize(("update", "limit"), [(0.01, 0.2), (0.3, 0.6), (0.9, 1.8), (1.7, 2.0)])
def test_a_stopped_learner_is_waited_for_as_long_as_two_of_its_updates_take(clock, update, limit):
    experience = make()
    game, learner = Game(clock, experience), Learner(clock, experience, update, newest=True)
    game.play(200)
    learner.stopped = True
    game.standstills.clear()
    game.play(2000)
    # Once, and no longer: the update that it was in the middle of may have been taken for waiting.
    assert len([s for s in game.standstills if s > update + 0.01]) <= 1
    assert limit - 0.01 < max(game.standstills) < limit + min(update, limit) + 0.01
    assert experience.overwritten > 1000
    learner.stopped = False
    before, lost = learner.updates, learner.rollouts.lost
    clock.advance(2 * update)
    game.standstills.clear()
    game.play(200)
    assert learner.updates > before + 10
    assert learner.rollouts.lost > lost + 1000
    assert max(game.standstills) <= update + 0.01  # it takes the newest, and does not catch up


def test_a_learner_whose_updates_take_longer_than_the_limit_is_not_waited_for_longer(clock):
    game = Game(clock, experience := make())
    learner = Learner(clock, experience, 5.0)
    game.play(3000, step=0.01)
    assert max(game.standstills) < 2.01
    assert learner.updates >= 5


class Processor:
    """What processes have had of a processor, as an actor sees it: all the time, till it stops."""

    def __init__(self, clock):
        self.clock, self.stops, self.asked = clock, float("inf"), set()

    def __call__(self, pid, began):
        assert began == started(pid) > 0
        self.asked.add(pid)
        return Activity(min(self.clock.now, self.stops), self.clock.now < self.stops)


class Processes:
    """What there is of processes by id: when each started, and what it has had of a processor.

    Each computes half of the time, and rests when it is looked at.
    """

    def __init__(self, clock, monkeypatch):
        self.clock, self.there = clock, {}
        self.monkeypatch = monkeypatch
        monkeypatch.setattr(backpressure, "started", lambda pid: self.there.get(pid, (0, 0.0))[0])

    def start(self, pid, had=0.0):
        """Let one start that has had so many seconds before; learners made from now on are it."""
        self.there[pid] = (int(self.clock.now * 1000), had - self.clock.now / 2)
        self.monkeypatch.setattr(os, "getpid", lambda: pid)

    def __call__(self, pid, began):
        start, had = self.there.get(pid, (None, 0.0))
        if start is None or began not in (0, start):
            return None
        return Activity(had + self.clock.now / 2, False)


def test_a_successor_in_its_first_update_is_waited_for_by_its_own_processor_time(
    clock, monkeypatch
):
    """Though the learner before it had had more, and died in its first update too."""
    experience, processes = make(), Processes(clock, monkeypatch)
    processes.start(7, had=100.0)
    game, learners = Game(clock, experience, computes=processes), []
    # Each in a process of its own: the words are shared, and all else is not.
    learners.append(Learner(clock, copy.copy(experience), 1000.0))

    def replace():
        learners[0].stopped = True
        del processes.there[7]
        experience.release()
        processes.start(8)
        learners.append(Learner(clock, copy.copy(experience), 9.0))
        clock.at(1.0, lambda: setattr(learners[1], "update", 0.05))

    clock.at(1.0, replace)
    game.play(400, step=0.001)
    assert learners[1].updates > 10
    assert game.left_behind == 0
    assert max(game.standstills) == pytest.approx(9.0, abs=0.2)


def test_a_process_that_has_the_id_of_a_learner_that_died_is_not_waited_for(clock, monkeypatch):
    experience, processes = make(), Processes(clock, monkeypatch)
    processes.start(7)
    game = Game(clock, experience, computes=processes)
    learner = Learner(clock, experience, 1000.0)

    def replace():
        learner.stopped = True
        processes.start(7)  # something else, before anything tells that the learner died

    clock.at(1.0, replace)
    game.play(400)
    assert [s for s in game.standstills if s > 0.01] == [pytest.approx(3.0, abs=0.25)]


@pytest.mark.parametrize("former", [7, 9])
def test_what_a_learner_that_died_left_of_another_policy_does_not_hide_its_successor(
    clock, monkeypatch, former
):
    """It died in the first update of one; its successor begins with the other."""
    wakeup, processes = Wakeup(), Processes(clock, monkeypatch)
    first, other = make(8, wakeup), make(8, wakeup)
    processes.start(former)
    game = Game(clock, first, other, computes=processes)
    dead, learners = Learner(clock, other, 1000.0), []

    def replace():
        dead.stopped = True
        del processes.there[former]
        processes.start(8)
        learners.append(Learner(clock, first, 9.0))
        clock.at(1.0, lambda: setattr(learners[0], "update", 0.05))
        clock.at(9.1, lambda: learners.append(Learner(clock, other, 0.05)))

    clock.at(1.0, replace)
    game.play(400, step=0.001)
    assert (game.left_behind, learners[0].rollouts.lost) == (0, 0)
    assert max(game.standstills) == pytest.approx(9.0, abs=0.2)


@pytest.mark.parametrize("update", [2.5, 9.0])
def test_a_first_update_that_computes_is_waited_for_and_loses_nothing(clock, update):
    experience, processor = make(), Processor(clock)
    game = Game(clock, experience, computes=processor)
    learner = Learner(clock, experience, update)
    clock.at(1.0, lambda: setattr(learner, "update", 0.05))  # it was only the first
    game.play(400, step=0.001)
    assert learner.updates > 10
    assert (game.left_behind, learner.rollouts.lost) == (0, 0)
    assert max(game.standstills) == pytest.approx(update, abs=0.05)
    assert processor.asked == {os.getpid()}


@pytest.mark.parametrize("after", [0.0, 1.0, 5.0])
def test_a_learner_that_is_stopped_in_its_first_update_is_waited_for_as_long_as_the_limit(
    clock, after
):
    """From when it was stopped, and once: the game goes on, and what is oldest is overwritten."""
    experience, processor = make(), Processor(clock)
    game = Game(clock, experience, computes=processor)
    learner = Learner(clock, experience, 1000.0)
    processor.stops = clock.now + after
    game.play(1000, step=0.0)
    assert learner.updates == 1
    assert [s for s in game.standstills if s > 0.01] == [pytest.approx(after + 2.0, abs=0.25)]
    assert experience.overwritten > 0


def test_a_first_update_holds_up_the_others_of_its_process_without_a_loss_to_them(clock):
    process, processor = Wakeup(), Processor(clock)
    first, other = make(8, process), make(8, process)
    game = Game(clock, first, other, computes=processor)
    learner, others = Learner(clock, first, 6.0), []
    clock.at(1.0, lambda: setattr(learner, "update", 0.05))
    clock.at(6.1, lambda: others.append(Learner(clock, other, 0.05)))
    game.play(400, step=0.001)
    assert (game.left_behind, others[0].rollouts.lost) == (0, 0)
    assert max(game.standstills) == pytest.approx(6.0, abs=0.1)


def test_later_updates_are_not_waited_for_because_they_compute(clock):
    experience, processor = make(), Processor(clock)
    game = Game(clock, experience, computes=processor)
    learner = Learner(clock, experience, 0.05)
    game.play(200)
    learner.update = 1000.0
    game.standstills.clear()
    game.play(200)
    assert max(game.standstills) < 0.3


def test_a_slow_learner_that_makes_progress_is_waited_for_and_loses_nothing(clock):
    experience = make()
    game, learner = Game(clock, experience), Learner(clock, experience, 1.9)
    game.play(400, step=0.001)
    assert game.left_behind == 0
    assert learner.rollouts.lost == 0
    assert [i for taken in learner.taken for i in taken] == list(range(8 * len(learner.taken)))
    assert max(game.standstills) > 1.5


def test_a_learner_that_never_made_an_update_is_waited_for_as_long_as_the_limit(clock):
    game = Game(clock, make(wait_limit=0.7))
    game.play(100)
    assert game.standstills == [pytest.approx(0.7)]
    patient = Game(clock, make(wait_limit=30.0))
    patient.play(100)
    assert patient.standstills == [pytest.approx(30.0)]


def test_a_stopped_process_lets_the_game_stand_still_once_however_many_policies_it_trains(clock):
    """Though their rollouts are complete at different times."""
    process, other = Wakeup(), make()
    late = [make(rollout, process) for rollout in (8, 12, 20, 28, 36)]
    learner = Learner(clock, other, 0.01)
    game = Game(clock, *late, other)
    game.play(1000)
    assert [s for s in game.standstills if s > 0.05] == [pytest.approx(2.0)]
    assert game.left_behind == 1
    assert learner.rollouts.lost == 0


def test_once_one_policy_of_a_stopped_process_is_taken_all_are_waited_for_again(clock):
    process = Wakeup()
    experiences = [make(8, process), make(8, process)]
    game = Game(clock, *experiences)
    game.play(100)
    assert len(game.standstills) == 1
    learners = [Learner(clock, experience, 0.5, newest=True) for experience in experiences]
    game.play(400)
    assert [learner.updates > 40 for learner in learners] == [True, True]
    before = [learner.rollouts.lost for learner in learners]
    game.play(400)
    assert [learner.rollouts.lost for learner in learners] == before
    assert max(game.standstills[1:]) < 0.6  # it takes the newest, and does not catch up


def test_one_policy_that_is_never_taken_does_not_hold_up_those_of_its_process(clock):
    process = Wakeup()
    alive, starved = make(8, process), make(8, process)
    game, learner = Game(clock, starved, alive), Learner(clock, alive, 0.01)
    game.play(1000)
    assert [s for s in game.standstills if s > 0.05] == [pytest.approx(2.0)]
    assert learner.rollouts.lost == 0


def test_each_of_several_actors_goes_on_and_both_wait_again_once_it_takes(clock):
    experience = make(actors=2)
    games = [Game(clock, experience, actor=actor) for actor in range(2)]
    for game in games:
        game.play(100)
        assert game.standstills == [pytest.approx(2.0)]
    learner = Learner(clock, experience, 0.1)
    for _ in range(100):
        for game in games:
            game.play(4, step=0.001)
    assert learner.updates > 50
    lost = learner.rollouts.lost
    for _ in range(100):
        for game in games:
            game.play(4, step=0.001)
    assert learner.rollouts.lost == lost


def test_an_off_policy_learner_need_not_make_up_for_what_was_played_while_it_stood(clock):
    experience = make(rollout=0)
    game = Game(clock, experience)

    def consume():
        clock.at(0.02, consume)
        if not stopped and experience.has(1):
            experience.consume(min(consumed[0] + 10, experience.written))
            consumed[0] = min(consumed[0] + 10, experience.written)

    stopped, consumed = [], [0]
    consume()
    game.play(1000)
    assert game.left_behind == 0
    assert game.standstills
    stopped.append(True)
    game.standstills.clear()
    game.play(5000)
    assert game.standstills == [pytest.approx(0.2, abs=0.03)]
    stopped.clear()
    game.standstills.clear()
    clock.advance(0.05)
    game.play(1000)
    assert max(game.standstills) < 0.1
    assert game.left_behind == 1
    # It waits at the pace of what is consumed, as before.
    assert sum(game.standstills) > 0.9 * 1000 / 10 * 0.02


class Consumer:
    """A Q-learner: each of its updates is for ten steps, and takes so long."""

    def __init__(self, clock, experience, update, consumed=None):
        self.clock, self.experience, self.update = clock, experience, update
        self.consumed, self.stopped, self.updates = consumed or 0, False, 0
        if consumed is not None:
            experience.consume(consumed)  # it goes on from a checkpoint
        self.look()

    def look(self):
        if not self.stopped and self.experience.has(self.consumed + 10):
            self.consumed += 10
            self.experience.consume(self.consumed)
            self.updates += 1
        self.clock.at(self.update, self.look)


def learner_of(clock, experience, consumed=None):
    """A learner whose updates take 0.02 s, of either kind."""
    if experience.rollout:
        return Learner(clock, experience, 0.02, newest=True)
    return Consumer(clock, experience, 0.02, consumed)


def play_all(games, turns):
    for _ in range(turns):
        for game in games:
            game.play(1)


def goes_on_at_the_pace_of(learner, games):
    before = learner.updates
    for game in games:
        game.standstills.clear()
    play_all(games, 200)
    assert max(s for game in games for s in game.standstills) < 0.1
    assert learner.updates > before + len(games) * 200 / 10 / 2
    assert sum(game.left_behind for game in games) <= len(games)


KINDS = pytest.mark.parametrize(
    ("rollout", "actors"), [(0, 1), (0, 2), (ROLLOUT, 1), (ROLLOUT, 2)], ids=str
)


@KINDS
def test_a_learners_successor_need_not_make_up_for_what_was_played_without_it(
    clock, rollout, actors
):
    experience = make(rollout, actors=actors)
    games = [Game(clock, experience, actor=actor) for actor in range(actors)]
    learner = learner_of(clock, experience)
    play_all(games, 100)
    learner.stopped = True  # killed,
    experience.release()  # which the coordinator sees
    play_all(games, 5000)
    saved = None if rollout else learner.consumed - 20
    goes_on_at_the_pace_of(learner_of(clock, experience, saved), games)


@KINDS
def test_an_actors_successor_need_not_wait_until_a_learner_has_made_up(clock, rollout, actors):
    experience = make(rollout, actors=actors)
    games = [Game(clock, experience, actor=actor) for actor in range(actors)]
    learner = learner_of(clock, experience)
    play_all(games, 100)
    learner.stopped = True
    play_all(games, 5000)
    learner.stopped = False
    clock.advance(0.05)
    games[0] = Game(clock, experience, actor=0)
    for writer in games[0].writers:
        writer.close_orphans()
    goes_on_at_the_pace_of(learner, games)


def catches_up(clock, learner, steps):
    """Let time pass until an off-policy learner is through with so many steps."""
    assert clock.advance(60.0, lambda: learner.consumed >= steps)


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_an_actor_that_slept_through_a_learners_absence_waits_for_none_of_its_arrears(clock, end):
    """The other actor played on meanwhile; the learner, or its successor, goes on far behind.

    This actor looks again only once the learner is further than it was before it went away.
    """
    experience = make(rollout=0, actors=2)
    games = [Game(clock, experience, actor=actor) for actor in range(2)]
    learner = learner_of(clock, experience)
    play_all(games, 100)
    learner.stopped, before = True, learner.consumed
    if end == "killed":
        experience.release()
    games[0].play(5000)
    if end == "killed":
        learner = learner_of(clock, experience, before - 20)
    learner.stopped = False
    catches_up(clock, learner, before + 30)
    goes_on_at_the_pace_of(learner, games)


def test_an_actor_that_waits_for_one_policy_sleeps_through_the_absence_of_anothers_learner(clock):
    first, second = make(rollout=ROLLOUT), make(rollout=0, actors=2)
    slow, learner = Learner(clock, first, 1.5), learner_of(clock, second)
    game, other = Game(clock, first, second), Game(clock, second, actor=1)
    play_all([game, other], 100)
    while game.rooms.has_room():  # it does not look at the second while it waits for the first
        game.play(1)
    learner.stopped, before = True, learner.consumed
    second.release()
    other.play(5000)
    learner = learner_of(clock, second, before - 20)
    catches_up(clock, learner, before + 30)
    game.standstills.clear()
    game.play(40)
    assert slow.updates > 5
    assert max(game.standstills) < 1.6


def test_an_actor_asleep_is_rung_when_what_it_sleeps_for_was_excused(clock, monkeypatch):
    """It asked to be rung once as much was consumed as was missing before the other played on."""
    experience = make(rollout=0, actors=2)
    games = [Game(clock, experience, actor=actor) for actor in range(2)]
    experience.consume(0)
    assert games[1].rooms.has_room()  # so nothing was written before it began to look
    games[0].play(5000)  # does not wait for what takes nothing
    rung = []
    assert not games[1].rooms.has_room()
    monkeypatch.setattr(Wakeup, "ring", lambda wakeup: rung.append(wakeup))
    experience.consume(5)
    assert games[1].writers[0].room.wakeup in rung
    assert games[1].rooms.has_room()


@pytest.mark.parametrize("first", ["actor", "learner"])
def test_a_resumed_run_goes_on_at_the_pace_of_a_learner_that_was_behind(clock, first):
    experience = make(rollout=0)
    experience.restore(None, 5000)
    if first == "learner":
        learner = Consumer(clock, experience, 0.02, 4000)
    game = Game(clock, experience)
    assert game.rooms.has_room()
    if first == "actor":
        learner = Consumer(clock, experience, 0.02, 4000)
    goes_on_at_the_pace_of(learner, [game])
    assert experience.written - learner.consumed <= 1000 + 40 + 10


def test_where_a_run_repeats_itself_a_successor_waits_as_the_one_before_it_did(clock):
    experience = make(rollout=0)
    game = Game(clock, experience, exact=True)
    experience.consume(0)
    while game.rooms.has_room():
        game.play(1)
    assert not Game(clock, experience, exact=True).rooms.has_room()
    assert Game(clock, experience).rooms.has_room()
