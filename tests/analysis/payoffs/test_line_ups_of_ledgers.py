"""Games with roles are read from ledgers: teams, interchangeable seats and unlike seats."""

import numpy as np
import pytest

from ledgers import A, B, C, write_ledger
from refusals import refuses
from remuda.analysis.payoffs.counted_returns import shared_returns, won
from remuda.analysis.payoffs.from_ledger import read_line_ups, read_payoffs, with_team_mates
from remuda.analysis.payoffs.ledger_seats import SeatGroup
from remuda.errors import UsageError

PLAYERS = SeatGroup("players", (0, 1, 2))
TEAMS = [SeatGroup("red", (0, 1)), SeatGroup("blue", (2,))]


def test_seats_of_a_group_are_interchangeable(tmp_path):
    rows = [
        ((A, A, B), (1.0, 3.0, 6.0)),
        ((B, A, A), (8.0, 4.0, 0.0)),
        ((A, B, C), (1.0, 2.0, 3.0)),
    ]
    game = read_line_ups(write_ledger(tmp_path, rows, seats=3), [PLAYERS])
    assert [game.describe(each) for each in game.profiles] == ["2 x a, b", "a, b, c"]
    assert game.counts.tolist() == [2, 1]
    assert game.means[0, :2].tolist() == [2.0, 7.0]  # a: the means 2 and 2 of two matches
    assert game.covariances[0, :2, :2].tolist() == [[0.0, 0.0], [0.0, 2.0]]
    assert game.num_profiles == 10


def test_teams_are_roles_with_policies_of_their_own(tmp_path):
    rows = [
        ((A, B, C), (1.0, 3.0, -2.0)),
        ((B, A, C), (5.0, 7.0, -6.0)),
        ((A, A, C), (0.0, 2.0, 1.0)),
    ]
    path = write_ledger(tmp_path, rows, seats=3)
    game = read_line_ups(path, TEAMS)
    assert [role.strategies for role in game.roles] == [("a", "b"), ("c",)]
    assert [game.describe(each) for each in game.profiles] == [
        "red: 2 x a against blue: c",
        "red: a, b against blue: c",
    ]
    assert game.means[1].tolist() == [4.0, 4.0, -4.0]

    def shared(returns, _):
        return shared_returns(returns, (0, 0, 1), np.full(returns.shape, 0.5))

    assert read_line_ups(path, TEAMS, adjust=shared).means[1].tolist() == [4.0, 4.0, -4.0]
    assert read_line_ups(path, TEAMS, adjust=shared).covariances[1, 0, 0] == 12.5  # of 1.5 and 6.5
    wins = read_line_ups(path, TEAMS, adjust=lambda returns, _: won(returns, (0, 0, 1)))
    assert wins.means[0].tolist()[0] == 0.5  # 0 loses to 1, and 2 beats it
    assert wins.means[1].tolist() == [1.0, 1.0, 0.0]


def test_matches_of_others_and_absent_seats_are_left_out(tmp_path):
    rows = [
        ((A, B, C), (1.0, 2.0, 3.0)),
        ((A, B, (2, 7)), (9.0, 9.0, 9.0)),
        ((A, B, C), (9.0, np.nan, 9.0)),
    ]
    path = write_ledger(tmp_path, rows, seats=3)
    game = read_line_ups(path, [PLAYERS], keep=lambda ref: not ref.is_frozen)
    assert game.roles[0].strategies == ("a", "b", "c")
    assert game.counts.tolist() == [1]
    assert game.means[0].tolist() == [1.0, 2.0, 3.0]
    with_copies = read_line_ups(path, [PLAYERS])
    assert with_copies.roles[0].strategies == ("a", "b", "c", "c@7")
    with refuses(UsageError):
        read_line_ups(path, TEAMS, keep=lambda ref: ref.policy != "c")


def test_team_mates_fill_the_cells_of_those_that_never_met(tmp_path):
    rows = [((A, B, C), (1.0, 3.0, -2.0)), ((B, A, C), (5.0, 7.0, -6.0))]
    path = write_ledger(tmp_path, rows, seats=3)
    sides = (0, 0, 1)
    payoffs = read_payoffs(path, sides=sides)
    assert np.isnan(payoffs.matrix[0, 1])
    found = with_team_mates(payoffs, path, sides)
    assert found.matrix[0, 1] == pytest.approx(4.0)  # a beside b: 1 and 7
    assert found.matrix[1, 0] == pytest.approx(4.0)
    assert np.isnan(found.matrix[0, 0])
    for name in ("means", "counts"):
        own, other = getattr(found, name)[..., :2, 2], getattr(payoffs, name)[..., :2, 2]
        assert own == pytest.approx(other)
