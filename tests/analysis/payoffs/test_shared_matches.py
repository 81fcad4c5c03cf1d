"""Payoffs of matches of more than two seats: how sure they are, and of how many matches."""

import numpy as np
import pytest
from rich.console import Console

from remuda.analysis.payoffs.from_ledger import read_payoffs
from remuda.analysis.payoffs.game_of_meetings import game_of_meetings
from remuda.analysis.payoffs.ledger_seats import LedgerSeats
from remuda.analysis.payoffs.payoffs import count_matches, exact, from_sums
from remuda.analysis.payoffs.sums import ROWS, add_up
from remuda.analysis.population_report import analyse
from remuda.coordinator.analysis_helper import measure
from remuda.coordinator.recent_payoffs import RECENT, RecentPayoffs
from remuda.population.ledger.ledger import MATCH, LedgerFile, record_type
from remuda.ui.analysis.screen import print_analysis
from remuda.ui.plots.drawing import matches_in_words


def payoffs_of(places, returns, sides):
    number = int(np.max(places)) + 1
    sums = np.zeros((ROWS, number, number))
    add_up(np.array(places), np.array(returns, np.float64), np.array(sides), True, False, sums)
    return from_sums([f"p{place}" for place in range(number)], sums, True)


@pytest.mark.parametrize("seats", [2, 3, 8])
@pytest.mark.parametrize("matches", [2, 8, 30])
def test_the_covariance_of_shared_out_matches_is_the_unbiased_one(seats, matches):
    returns = np.random.default_rng(0).normal(size=(matches, seats))
    found = payoffs_of([range(seats)] * matches, returns, range(seats))
    assert found.covariances[:, :, 0, 1] == pytest.approx(np.cov(returns[:, 0], returns[:, 1]))
    assert found.counts[0, 1] == pytest.approx(matches / (seats - 1))
    assert found.met[0, 1] == matches
    # A policy's matches are shared out among its opponents, and so is what they tell of its noise.
    assert found.own_freedom[0].sum() == pytest.approx(matches - 1)
    assert found.pooled.diagonal() == pytest.approx(returns.var(0, ddof=1).mean())


def test_a_team_that_earns_together_is_one_observation_of_a_match():
    earned = np.random.default_rng(0).normal(size=5)
    returns = np.stack([earned, earned, -earned, -earned], 1)
    found = payoffs_of([(0, 0, 1, 1)] * 5, returns, (0, 0, 1, 1))
    assert found.counts[0, 1] == 5
    assert found.own_freedom[0, 1] == pytest.approx(4.0)
    assert found.covariances[0, 0, 0, 1] == pytest.approx(earned.var(ddof=1))


def test_one_match_tells_no_variance_however_often_two_met_in_it():
    found = payoffs_of([(0, 1, 0, 1)], [(1.0, 2.0, 3.0, 5.0)], range(4))
    assert np.isnan(found.covariances[0, 0, 0, 1])
    assert (found.own_freedom == 0.0).all()


GAMES = {
    "two against two": ([0, 0, 1, 1], 4),
    "three": ([0, 1, 2], 3),
    "eight": (list(range(8)), 8),
}


@pytest.mark.slow_cases("two against two-4")
@pytest.mark.parametrize("matches", [4, 10])
@pytest.mark.parametrize("game", list(GAMES))
def test_intervals_of_payoffs_against_all_others_hold_the_truth(game, matches):
    """Equal policies; those of one team earn the same. The truth is 0, a deviation of a match 1."""
    sides, seats = GAMES[game]
    rng = np.random.default_rng(5)
    held = []
    for _ in range(150):
        places = rng.permuted(np.tile(np.arange(seats), (matches, 1)), axis=1)
        of_sides = rng.normal(size=(matches, max(sides) + 1))
        found = payoffs_of(places, of_sides[:, sides], sides)
        apart = ~np.eye(seats, dtype=bool)
        if found.missing[apart].any():
            continue  # two never sat on two sides
        # Over opponents, whose cells the intervals take to be independent.
        error = np.sqrt(np.nansum(found.errors[0] ** 2, 1)) / (seats - 1)
        held.append(np.abs(np.nansum(found.matrix * apart, 1) / (seats - 1)) <= 2.0 * error)
    assert len(held) > 30
    assert 0.92 <= np.mean(held) <= 0.985


def eight_seats(tmp_path, matches):
    path = tmp_path / "ledger.bin"
    records = np.zeros(matches, record_type(8))
    rng = np.random.default_rng(0)
    records["kind"], records["number"] = MATCH, np.arange(matches)
    records["policy"] = rng.permuted(np.tile(np.arange(8), (matches, 1)), axis=1)
    records["version"] = -1
    records["returns"] = rng.normal(size=(matches, 8))
    LedgerFile(path, [f"p{place}" for place in range(8)], 8).append(records)
    return path


def test_the_number_of_matches_is_that_of_the_ledger(tmp_path):
    payoffs = read_payoffs(eight_seats(tmp_path, 40))
    assert payoffs.matches == 40
    assert matches_in_words(payoffs) == "40 matches"
    console = Console(width=120, record=True)
    analysis = analyse(game_of_meetings(payoffs), np.random.default_rng(0), samples=20)
    print_analysis(analysis, console)
    assert "8 policies, 40 matches" in console.export_text()
    assert analysis.as_summary()["payoffs"]["matches"][0][1] == 40
    part = payoffs.part([0, 1, 2])
    assert count_matches(part) == "120 meetings", "how many matches these were is unknown"


def test_a_match_counts_where_two_are_looked_at_who_sit_on_two_sides(tmp_path):
    path = eight_seats(tmp_path, 10)
    assert read_payoffs(path, keep=lambda ref: ref.policy in ("p0", "p1")).matches == 10
    assert read_payoffs(path, sides=[0] * 8).matches == 0


def test_matches_of_two_seats_are_meetings():
    sums = np.zeros((ROWS, 2, 2))
    add_up(np.array([[0, 1]]), np.array([[1.0, 2.0]]), np.arange(2), True, False, sums)
    assert count_matches(from_sums("ab", sums, True)) == "1 match"
    assert count_matches(exact([[0.0, 1.0], [-1.0, 0.0]])) == ""


def test_members_met_as_often_as_they_sat_in_one_match(tmp_path):
    path = eight_seats(tmp_path, 12)
    recent = RecentPayoffs(path, LedgerSeats(tuple(range(8)), tuple(range(8))))
    recent.look_at(np.array([(place, -1) for place in range(8)]))
    recent.read()
    numbers, earned, _ = measure(recent.game(), np.ones(8, np.bool_))
    assert numbers.unmet == 0.0
    assert np.isfinite(earned).all()


def test_of_those_that_learn_as_many_meetings_count_in_any_game(tmp_path):
    path = eight_seats(tmp_path, RECENT)
    recent = RecentPayoffs(path, LedgerSeats(tuple(range(8)), tuple(range(8))))
    recent.look_at(np.array([(place, -1) for place in range(8)]))
    recent.read()
    more = np.zeros(RECENT, record_type(8))
    more["kind"], more["version"], more["policy"] = MATCH, -1, np.arange(8)
    LedgerFile(path, [f"p{place}" for place in range(8)], 8).append(more)
    recent.read()
    recent.read()
    assert recent.game().payoffs.met[0, 1] == pytest.approx(2 * RECENT)
    more["returns"] = 1.0
    LedgerFile(path, [f"p{place}" for place in range(8)], 8).append(more)
    recent.read()
    assert recent.game().payoffs.means[0, 0, 1] == pytest.approx(0.5, abs=0.05)
    assert recent.game().payoffs.met[0, 1] == pytest.approx(2 * RECENT)
    # One match of weight 1/7, and old ones of half of it and of a quarter.
    halves = RECENT * (1.0 + 0.5 + 0.5) / 7
    assert recent.game().payoffs.counts[0, 1] == pytest.approx(halves)


def test_a_policy_counts_once_for_each_side_whoever_sits_beside_it():
    apart = payoffs_of([(0, 1, 2, 3)], np.zeros((1, 4)), (0, 0, 1, 1))
    assert apart.counts[0].tolist() == [0, 0, 0.5, 0.5]
    mixed = payoffs_of([(0, 0, 1, 2)], np.zeros((1, 4)), (0, 0, 1, 1))
    assert mixed.counts[0].tolist() == [0, 0.5, 0.5]
