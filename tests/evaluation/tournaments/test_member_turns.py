"""Which members of entrants meet, seat by seat, over many shapes of games."""

from itertools import permutations

import numpy as np
import pytest

from remuda.evaluation.tournaments.entrants import Participant
from remuda.evaluation.tournaments.member_turns import MemberTurns
from remuda.evaluation.tournaments.schedule import Schedule


def meetings(seats, matches):
    """By each two seats, [matches, pairs]: how often they had met after each match."""
    played = MemberTurns(seats).of(np.arange(matches))
    longest = max(map(len, seats))
    found = {}
    for one, other in permutations(range(len(seats)), 2):
        met = np.zeros((matches, longest, longest), np.int64)
        met[np.arange(matches), played[:, one], played[:, other]] = 1
        found[one, other] = met.cumsum(0)
    return found, played


def spread(seats, matches, apart):
    """The most that two pairs of members differ in how often they met, at any time."""
    found, _ = meetings(seats, matches)
    worst = 0
    for (one, other), met in found.items():
        pairs = [
            met[:, i, j]
            for i, a in enumerate(seats[one])
            for j, b in enumerate(seats[other])
            if a != b or not apart
        ]
        worst = max(worst, int(np.ptp(pairs, axis=0).max()))
    return worst


@pytest.mark.parametrize("first", range(1, 9))
@pytest.mark.parametrize("second", range(1, 9))
def test_of_two_seats_all_pairs_meet_equally_often_within_one(first, second):
    """Lengths that divide each other too: there only some pairs met."""
    seats = [range(first), range(10, 10 + second)]
    assert spread(seats, 3 * first * second + 5, apart=False) <= 1


@pytest.mark.parametrize("members", range(2, 9))
def test_members_of_one_entrant_meet_all_others_and_not_only_neighbours(members):
    seats = [range(members)] * 2
    assert spread(seats, 3 * members * members, apart=True) <= 1
    _, played = meetings(seats, members * (members - 1))
    assert (played[:, 0] != played[:, 1]).all()
    assert len(np.unique(played, axis=0)) == members * (members - 1)


@pytest.mark.parametrize("count", [3, 4])
@pytest.mark.parametrize("first", [1, 2, 3, 5, 6, 8])
@pytest.mark.parametrize("second", [1, 2, 4, 6, 7])
def test_of_more_seats_pairs_are_within_two_and_most_within_one(count, first, second):
    """One of an entrant among the members of another: a design within one need not exist."""
    for seat in range(count):
        seats = [range(first) if s == seat else range(10, 10 + second) for s in range(count)]
        apart = second >= count - 1
        assert spread(seats, 200, apart) <= 2


@pytest.mark.parametrize(("count", "members"), [(3, 3), (3, 5), (4, 4), (4, 5), (4, 8), (5, 7)])
def test_a_population_on_all_seats_never_sits_beside_itself(count, members):
    seats = [range(members)] * count
    assert spread(seats, 200, apart=True) <= 2
    _, played = meetings(seats, 200)
    assert all(len(set(match)) == count for match in played.tolist())


def test_what_is_played_does_not_depend_on_what_was_asked_before():
    seats = [range(3), range(5, 9), range(5, 9)]
    whole = MemberTurns(seats).of(np.arange(700))
    later = MemberTurns(seats)
    assert (later.of(np.array([600])) == whole[600]).all()
    assert (later.of(np.array([699, 3])) == whole[[699, 3]]).all()
    again = MemberTurns(seats)
    assert all((again.of(np.array([k])) == whole[k]).all() for k in range(0, 700, 50))


@pytest.mark.parametrize("seats", [2, 3])
def test_entrants_of_unlike_many_members_meet_in_each_cell(seats):
    """Between any two entrants, on each seat: all pairs of members meet."""
    sizes = (1, 2, 4, 6)
    participants = [
        Participant(f"{i}", (tuple(f"{i}.{j}" for j in range(size)),) * seats)
        for i, size in enumerate(sizes)
    ]
    schedule = Schedule(participants, seats, 60)
    numbers = np.arange(schedule.num_matches)
    places = schedule.players_of(numbers)
    names = np.array(schedule.players)[places]
    for row, size in enumerate(sizes):
        for column, others in enumerate(sizes):
            if row == column:
                continue
            for seat in range(seats):
                own = numbers % len(schedule.seatings) == schedule.cells[row, column, seat]
                beside = (seat + 1) % seats
                pairs, counts = np.unique(names[own][:, [seat, beside]], axis=0, return_counts=True)
                assert len(pairs) == size * others
                assert np.ptp(counts) <= (1 if seats == 2 else 2)
