"""Which matches there are, who sits where, and what they amount to."""

import numpy as np
import pytest

from remuda.evaluation.tournaments.entrants import Participant
from remuda.evaluation.tournaments.schedule import Schedule


def single(count, seats):
    return [Participant(f"p{i}", ((f"policy {i}",),) * seats) for i in range(count)]


def played_of(returns):
    """By seating the returns [episodes, I, S] of the matches that were played."""
    return [each[~np.isnan(each).any(1)] for each in np.moveaxis(returns, 1, 0)]


@pytest.mark.parametrize(
    ("entrants", "seats", "seatings"), [(3, 1, 3), (3, 2, 9), (3, 4, 3 + 3 * 2 * 4), (1, 2, 1)]
)
def test_each_cell_has_each_seat_and_no_match_is_played_twice(entrants, seats, seatings):
    schedule = Schedule(single(entrants, seats), seats, 5)
    assert schedule.num_matches == 5 * seatings
    assert len({tuple(seating) for seating in schedule.seatings.tolist()}) == seatings
    for row in range(entrants):
        for column in range(entrants):
            for seat in range(seats):
                found = schedule.seatings[schedule.cells[row, column, seat]].tolist()
                expected = [row if s == seat else column for s in range(seats)]
                assert found == expected


def test_matches_in_order_take_all_seatings_in_turn():
    schedule = Schedule(single(3, 2), 2, 4)
    entrants = schedule.entrants_of(np.arange(schedule.num_matches)).reshape(4, 9, 2)
    assert (entrants == schedule.seatings).all()


def test_eight_policies_of_an_entrant_take_four_seats_in_turn():
    """With eight policies on four seats four of them never played."""
    two = [Participant(name, (tuple(f"{name} {i}" for i in range(8)),) * 4) for name in ("a", "b")]
    schedule = Schedule(two, 4, 128)
    numbers = np.arange(schedule.num_matches)
    places = schedule.players_of(numbers)
    assert places.shape == (len(numbers), 4)
    for seat in range(4):
        counts = np.bincount(places[:, seat], minlength=16)
        assert np.ptp(counts) <= len(schedule.seatings)
    assert all(len(set(match)) == 4 for match in places.tolist())
    # One of the first meets all of the other, from the same seat.
    cell = numbers[numbers % len(schedule.seatings) == schedule.cells[0, 1, 0]]
    pairs, met = np.unique(schedule.players_of(cell)[:, :2], axis=0, return_counts=True)
    assert len(pairs) == 64
    assert np.ptp(met) <= 2


def test_seats_that_only_some_may_take_are_theirs():
    members = (("x", "y"), ("y",), ("z", "x"))
    schedule = Schedule([Participant("all", members)], 3, 6)
    names = [
        [schedule.players[place] for place in match]
        for match in schedule.players_of(np.arange(6)).tolist()
    ]
    assert all(name in members[seat] for match in names for seat, name in enumerate(match))
    assert {match[0] for match in names} == {"x", "y"}
    assert {match[2] for match in names} == {"z", "x"}


def test_means_and_errors_by_hand():
    schedule = Schedule(single(2, 2), 2, 3)
    returns = np.zeros((3, 4, 2), np.float32)
    one, other = schedule.cells[0, 1]  # entrant 0 on seat 0, and on seat 1
    returns[:, one] = [[1, -1], [2, -2], [3, -3]]
    returns[:, other] = [[5, 7], [5, 7], [5, 10]]
    returns[:, schedule.cells[1, 1, 0]] = [[4, -4], [5, -5], [9, -9]]
    means, errors, matches = schedule.means_and_errors(played_of(returns))
    assert means[0, 1] == pytest.approx((2 + 8) / 2)
    assert means[1, 0] == pytest.approx((-2 + 5) / 2)
    assert errors[0, 1] == pytest.approx(np.sqrt(1 / 3 + 3 / 3) / 2)
    assert means[1, 1] == 0.0
    assert errors[1, 1] == 0.0  # both seats are of the same matches
    assert matches.tolist() == [[3, 6], [6, 3]]


def test_what_was_not_played_is_not_known():
    schedule = Schedule(single(2, 2), 2, 2)
    returns = np.zeros((2, 4, 2), np.float32)
    returns[:, schedule.cells[0, 1, 1]] = np.nan
    returns[1, schedule.cells[0, 0, 0]] = np.nan
    means, errors, matches = schedule.means_and_errors(played_of(returns))
    assert np.isnan(means[0, 1])
    assert np.isnan(means[1, 0])
    assert means[1, 1] == means[0, 0] == 0.0
    assert np.isnan(errors[0, 0])
    assert matches.tolist() == [[1, 2], [2, 2]]
