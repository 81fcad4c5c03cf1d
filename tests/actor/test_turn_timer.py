"""The time of a turn: every second is counted once, and what is in no section is the game's."""

import numpy as np
import pytest

from remuda.actor import turn_timer
from remuda.actor.turn_timer import TurnTimer, section, traced, whole_turn
from remuda.system.scoreboard import Play
from remuda.system.timeline import Span, Timeline


class Player:
    """Each method takes so many seconds of a clock that nothing else moves."""

    def __init__(self, clock, timeline=None):
        self.clock, self.row = clock, np.zeros(len(Play))
        self.timer, self.has_update = TurnTimer(self.row, timeline), True

    @whole_turn
    def turn(self):
        self.look(1)
        for group in range(2):
            self.clock[0] += 10
            self.choose(group)
            self.write(1000)
            self.clock[0] += 20
        self.write(1000)

    @section(Play.SECONDS_WEIGHTS)
    def look(self, seconds):
        self.clock[0] += seconds
        if self.has_update:
            self.load(2)

    @traced(Span.WEIGHTS)
    def load(self, seconds):
        self.clock[0] += seconds

    @section(Play.SECONDS_INFER, Span.INFER)
    def choose(self, group):
        self.clock[0] += 100 + group

    @section(Play.SECONDS_WRITE, Span.WRITE)
    def write(self, seconds):
        self.clock[0] += seconds
        return "written"


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(turn_timer, "perf_counter", lambda: now[0])
    return now


@pytest.mark.parametrize("timeline", [None, Timeline()], ids=["counted", "traced"])
def test_every_second_is_counted_once(clock, timeline):
    player = Player(clock, timeline)
    player.turn()
    player.has_update = False
    player.turn()
    seconds = {word: player.row[word] for word in Play if word.name.startswith("SECONDS")}
    assert seconds == {
        Play.SECONDS_WEIGHTS: 3 + 1,
        Play.SECONDS_ENV: 2 * 60,
        Play.SECONDS_INFER: 2 * 201,
        Play.SECONDS_WRITE: 2 * 3000,
    }
    assert sum(seconds.values()) == clock[0] == player.row.sum()


def test_what_a_section_returns_is_returned(clock):
    assert Player(clock).write(1) == "written"


def test_a_trace_has_the_sections_and_the_game_in_between(clock):
    timeline = Timeline()
    player = Player(clock, timeline)
    player.turn()
    assert list(timeline.spans()) == [
        (Span.WEIGHTS, 1, 3),
        (Span.PLAY, 3, 13),
        (Span.INFER, 13, 113),
        (Span.WRITE, 113, 1113),
        (Span.PLAY, 1113, 1143),
        (Span.INFER, 1143, 1244),
        (Span.WRITE, 1244, 2244),
        (Span.PLAY, 2244, 2264),
        (Span.WRITE, 2264, 3264),
    ]
    player.has_update = False
    player.turn()
    assert list(timeline.spans())[9] == (Span.PLAY, 3265, 3275)
