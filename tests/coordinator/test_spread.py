"""Extremes and deviation of the returns of an interval, from what every actor counts."""

import numpy as np
import pytest

from remuda.actor.seats import EpisodeCounter
from remuda.coordinator.scoreboard_reader import ScoreboardReader
from remuda.system.checkpoint.state import pack, unpack
from remuda.system.scoreboard import Policy, Scoreboard

NAMES = ("a", "b", "c")


class Quiet:
    """As much of a policy's experience as a record tells."""

    written, rollout, fill, held, untaken, passed = 0, 1, 0.0, None, 0, 0


def make(actors=1):
    scoreboard = Scoreboard(NAMES, actors)
    counters = [EpisodeCounter(scoreboard.policies_of(i), scoreboard.mark) for i in range(actors)]
    return scoreboard, ScoreboardReader(scoreboard, dict.fromkeys(NAMES, Quiet())), counters


def count(counter, policies, returns, turns=None):
    policies = np.asarray(policies, np.int64)
    turns = np.ones_like(policies) if turns is None else np.asarray(turns, np.int64)
    counter.count(policies, np.asarray(returns, np.float64), turns)


def interval(board, earlier):
    now = board.read()
    board.mark(now)
    return now, board.between(earlier, now).policies


@pytest.mark.parametrize("offset", [0.0, 1e6, -3e9])
def test_they_are_those_of_all_returns_of_all_actors(offset):
    """Sums of squares of large returns lose all digits; differences from the first do not."""
    rng = np.random.default_rng(0)
    _, board, counters = make(3)
    earlier = board.start
    for size in (1, 7, 300):
        told = {name: [] for name in NAMES}
        for i, counter in enumerate(counters):
            policies = rng.integers(0, 2, size)  # nobody plays the last
            returns = offset + rng.normal(i, 2.0, size)
            count(counter, policies, returns)
            for k, value in zip(policies.tolist(), returns.tolist(), strict=True):
                told[NAMES[k]].append(value)
        earlier, found = interval(board, earlier)
        for name, values in told.items():
            record = found[name]
            if not values:
                assert (record.return_min, record.return_max, record.return_deviation) == (
                    (None,) * 3
                )
                continue
            assert record.return_min == min(values)
            assert record.return_max == max(values)
            assert record.return_deviation == pytest.approx(np.std(values), rel=1e-6, abs=1e-6)


def test_an_interval_begins_anew_and_the_totals_go_on():
    scoreboard, board, (counter,) = make()
    count(counter, [0, 0], [5.0, -5.0], [3, 6])
    earlier, found = interval(board, board.start)
    assert (found["a"].return_min, found["a"].return_max) == (-5.0, 5.0)
    assert (found["a"].return_deviation, found["a"].episode_length) == (5.0, 4.5)
    count(counter, [0], [1.0], [10])
    earlier, found = interval(board, earlier)
    assert (found["a"].return_min, found["a"].return_max) == (1.0, 1.0)
    assert (found["a"].return_deviation, found["a"].episode_length) == (0.0, 10.0)
    earlier, found = interval(board, earlier)
    assert (found["a"].return_min, found["a"].episode_length) == (None, None)
    assert found["a"].episodes == 3
    assert scoreboard.acted("a").tolist() == [3.0, 1.0, 0.0, 0.0, 19.0]


def test_records_of_other_intervals_than_the_marked_one_tell_no_extremes():
    """The live view has a record four times a second, of the last few seconds."""
    _, board, (counter,) = make()
    count(counter, [0], [5.0])
    during = board.read()
    count(counter, [0], [7.0])
    later = board.read()
    assert board.between(during, later).policies["a"].return_min is None
    assert board.between(board.start, later).policies["a"].return_min == 5.0
    board.mark(later)
    count(counter, [0], [9.0])
    now = board.read()
    assert board.between(board.start, now).policies["a"].return_min is None
    assert board.between(later, now).policies["a"].return_max == 9.0


def test_what_ends_between_a_reading_and_its_mark_never_lies_outside():
    """It is in the mean of the next interval, and in no extremes: the mean itself is one then."""
    _, board, (counter,) = make()
    count(counter, [0], [1.0])
    now = board.read()
    count(counter, [0], [100.0])
    board.mark(now)
    count(counter, [0], [2.0])
    found = board.between(now, board.read()).policies["a"]
    assert found.mean_return == 51.0
    assert (found.return_min, found.return_max) == (2.0, 51.0)
    assert found.return_min <= found.mean_return <= found.return_max


@pytest.mark.parametrize("field", [Policy.RETURNS, Policy.ABOVE_SUM, Policy.ABOVE_SQUARES])
def test_rows_that_are_read_while_they_are_written_do_no_harm(field):
    """An actor is read, or dies, between any two words of its row."""
    scoreboard, board, (counter,) = make()
    count(counter, [0, 0], [1.0, 3.0])
    scoreboard.policy("a")[field] = 0.0
    found = board.between(board.start, board.read()).policies["a"]
    if field == Policy.RETURNS:
        assert found.return_deviation is None
    else:
        assert np.isfinite(found.return_deviation)
    assert found.mean_return == 2.0


def test_a_row_that_just_began_an_interval_tells_nothing_of_the_one_before():
    """Its mark is new, and no return is counted yet: what else stands there is of the old one."""
    scoreboard, board, (counter,) = make()
    count(counter, [0], [1000.0])
    now, _ = interval(board, board.start)
    row = scoreboard.policy("a")
    row[Policy.RETURNS] = 0.0
    row[Policy.MARK] = scoreboard.mark[0]
    row[[Policy.EPISODES, Policy.RETURN_SUM]] += 1.0, 5.0
    found = board.between(now, board.read()).policies["a"]
    assert (found.mean_return, found.return_min, found.return_max) == (5.0, None, None)


def test_a_resumed_run_counts_lengths_on_and_extremes_anew():
    scoreboard, _, (counter,) = make()
    count(counter, [0], [5.0], [3])
    state = unpack(pack(scoreboard.state()))
    assert state["policy"].shape == (3, Policy.MARK)
    other, board, (successor,) = make()
    other.restore(state)
    start = board.read()
    board.mark(start)
    count(successor, [0], [7.0], [4])
    found = board.between(start, board.read()).policies["a"]
    assert (found.return_min, found.return_max, found.episode_length) == (7.0, 7.0, 4.0)
    assert other.acted("a")[Policy.TURNS_SUM] == 7.0
