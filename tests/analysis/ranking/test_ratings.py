"""Ratings: closed forms, openskill itself, and intervals that hold what they promise."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from openskill.models import PlackettLuce

from refusals import refuses
from remuda.analysis.payoffs.payoffs import exact, from_sums
from remuda.analysis.ranking.alpha_rank import alpha_rank
from remuda.analysis.ranking.ratings import elo, elo_of, ledger_history
from remuda.analysis.structure.transitivity import margins
from remuda.errors import RemudaError, RunDirectoryError, UsageError
from remuda.population.ledger.ledger import BIRTH, FREEZE, MATCH, LedgerFile, record_type


def expected_rates(skills):
    return 1.0 / (1.0 + 10.0 ** (np.subtract.outer(skills, skills).T / 400.0))


def test_two_players_differ_by_the_logarithm_of_their_odds():
    """With a prior of next to nothing 30 to 10 is 400 * log10(3) points."""
    found = elo([[0, 30], [10, 0]], prior=1e-6)
    assert found.ratings == pytest.approx([200 * math.log10(3), -200 * math.log10(3)], rel=1e-5)
    # The error of log(odds) is 1 / sqrt(n p q); each stands half of the difference from the mean.
    error = 400 / math.log(10) / math.sqrt(40 * 0.75 * 0.25)
    assert found.errors == pytest.approx([error / 2, error / 2], rel=1e-5)
    assert found.matches.tolist() == [40, 40]


def test_draws_are_half_a_win_for_both():
    drawn = elo([[0, 10], [0, 0]], [[0, 20], [20, 0]])
    assert drawn.ratings == pytest.approx(elo([[0, 20], [10, 0]]).ratings)
    assert elo(np.zeros((2, 2)), [[0, 9], [9, 0]]).ratings == pytest.approx([0.0, 0.0])


def test_who_won_all_is_rated_by_the_stated_prior():
    """x against -x: the slope w - w s(2x) + (0.5 - s(x)) is 0 at the maximum."""
    found = elo([[0, 50], [0, 0]], prior=2.0)
    x = found.ratings[0] * math.log(10) / 400
    s = lambda value: 1 / (1 + math.exp(-value))  # noqa: E731
    assert 50 * (1 - s(2 * x)) + 2.0 * (0.5 - s(x)) == pytest.approx(0.0, abs=1e-8)
    assert np.isfinite(found.intervals).all()
    many = elo([[0, 10**9], [0, 0]])
    assert np.isfinite(many.ratings).all()
    assert many.ratings[0] > found.ratings[0] + 500


def test_those_who_never_met_are_rated_all_the_same():
    found = elo(np.zeros((3, 3)), prior=2.0)
    assert found.ratings.tolist() == [0.0, 0.0, 0.0]
    # Two matches at even odds have the information 2 / 4; the mean of three takes a third away.
    assert found.errors == pytest.approx(np.full(3, np.sqrt(2 * 2 / 3) * 400 / math.log(10)))
    apart = elo([[0, 8, 0, 0], [2, 0, 0, 0], [0, 0, 0, 9], [0, 0, 1, 0]])
    assert apart.ratings[2] > apart.ratings[0] > 0.0 > apart.ratings[1] > apart.ratings[3]


def test_exact_win_rates_give_the_skills_back():
    skills = np.array([300.0, 100.0, -50.0, -350.0])
    wins = expected_rates(skills) * 1e7
    assert elo(wins).ratings == pytest.approx(skills, abs=0.01)


def test_the_true_difference_lies_in_its_interval_as_often_as_promised():
    rng = np.random.default_rng(0)
    skills = np.array([150.0, 50.0, 0.0, -200.0])
    rates, inside, number = expected_rates(skills), 0, 300
    for _ in range(number):
        upper = np.triu(rng.binomial(40, rates), 1)
        found = elo(upper + np.triu(40 - upper, 1).T, level=0.9)
        inside += ((found.intervals[0] <= skills) & (skills <= found.intervals[1])).sum()
    assert 0.86 < inside / (4 * number) < 0.94


def test_many_strategies_are_fitted_and_order_is_kept():
    rng = np.random.default_rng(1)
    skills = np.sort(rng.normal(0.0, 300.0, 200))
    upper = np.triu(rng.binomial(200, expected_rates(skills)), 1)
    found = elo(upper + np.triu(200 - upper, 1).T)
    assert found.ratings == pytest.approx(skills - skills.mean(), abs=60.0)
    assert np.abs(found.ratings - skills + skills.mean()).std() < 15.0


def test_payoffs_of_wins_are_rated_where_pairs_are_missing_too():
    sums = np.zeros((6, 3, 3))
    sums[:, 0, 1], sums[:, 1, 0] = (8, 6, 2, 6, 2, 0), (8, 2, 6, 2, 6, 0)
    found = elo_of(from_sums("abc", sums, True))
    assert found.ratings == pytest.approx(elo([[0, 6, 0], [2, 0, 0], [0, 0, 0]]).ratings)
    assert found.names == ("a", "b", "c")
    with refuses(UsageError):
        elo_of(exact([[0.0, 3.0], [-3.0, 0.0]], symmetric=True))
    with refuses(UsageError):
        elo_of(exact([[0.5, 0.7], [0.3, 0.5]], [[0.5, 0.3], [0.7, 0.5]], symmetric=True))
    with refuses(UsageError):
        elo_of(exact([[0.5, 0.7]]))


@pytest.mark.parametrize(
    ("wins", "options"),
    [
        ([[0, 1]], {}),
        ([[0, -1], [1, 0]], {}),
        ([[0, 1], [1, 0]], {"draws": [[0, 1], [2, 0]]}),
        ([[0, 1], [1, 0]], {"prior": 0.0}),
        ([[0, 1], [1, 0]], {"names": ("a",)}),
        ([[0, 1], [1, 0]], {"level": 95}),
    ],
)
def test_what_cannot_be_fitted_is_refused(wins, options):
    with refuses(UsageError):
        elo(wins, **options)


def rated(directory, places, returns, **options):
    """Rate matches by the indices of their policies, from a ledger."""
    places = np.asarray(places)
    records = np.zeros(len(places), record_type(places.shape[1]))
    records["kind"], records["version"] = MATCH, -1
    records["policy"], records["returns"] = places, returns
    path = directory / f"ledger {len(list(directory.iterdir()))}"
    LedgerFile(path, tuple("abcde"), places.shape[1]).append(records)
    return ledger_history(path, **options)


def test_one_win_of_two_new_players_is_openskills(tmp_path):
    model = PlackettLuce(tau=25.0 / 600.0)
    (one,), (two,) = model.rate([[model.rating()], [model.rating()]], ranks=[0, 1])
    found = rated(tmp_path, [[0, 1]], [[1.0, 0.0]])
    assert found.ratings[-1] == pytest.approx([one.mu, two.mu])
    assert found.uncertainties[-1] == pytest.approx([one.sigma, two.sigma])
    assert found.played.tolist() == [[1, 1]]


def test_a_history_is_what_openskill_says_after_so_many_matches(tmp_path):
    rng = np.random.default_rng(2)
    places = np.array([rng.permutation(5)[:4] for _ in range(70)])
    returns = rng.integers(0, 3, places.shape).astype(float)
    found = rated(tmp_path, places, returns, sides=(7, 7, 3, 5), checkpoints=7)
    assert found.matches.tolist() == [10, 20, 30, 40, 50, 60, 70]
    model = PlackettLuce(tau=25.0 / 600.0)
    ratings = [model.rating() for _ in range(5)]
    for number, (who, what) in enumerate(zip(places, returns, strict=True), 1):
        teams = [[ratings[who[0]], ratings[who[1]]], [ratings[who[2]]], [ratings[who[3]]]]
        scores = [what[:2].mean(), what[2], what[3]]
        new = model.rate(teams, scores=scores)
        for place, rating in zip(who, [*new[0], *new[1], *new[2]], strict=True):
            ratings[place] = rating
        if number in found.matches:
            at = found.matches.tolist().index(number)
            assert found.ratings[at] == pytest.approx([r.mu for r in ratings])
            assert found.uncertainties[at] == pytest.approx([r.sigma for r in ratings])
            assert found.played[at].sum() == 4 * number
    assert json.dumps(found.as_summary())
    low, high = found.intervals(0.95)
    assert high - low == pytest.approx(2 * 1.959964 * found.uncertainties)


def test_a_match_against_oneself_or_within_one_side_changes_nothing(tmp_path):
    alone = rated(tmp_path, [[0, 0]], [[1.0, 0.0]])
    team = rated(tmp_path, [[0, 1]], [[1.0, 0.0]], sides=(1, 1))
    for found in (alone, team):
        assert set(found.ratings[-1].tolist()) == {25.0}
        assert set(found.uncertainties[-1].tolist()) == {25.0 / 3.0}
        assert not found.played.any()


def test_seats_on_no_side_are_each_for_itself(tmp_path):
    matches = [[0, 1, 2, 3], [3, 2, 1, 0]], [[3.0, 1.0, 2.0, 0.0], [1.0, 5.0, 0.0, 2.0]]
    alone = rated(tmp_path, *matches)
    for sides in ((0, 1, -1, -1), (-1, -1, -1, -1)):
        assert rated(tmp_path, *matches, sides=sides).ratings == pytest.approx(alone.ratings)


def test_a_policy_on_two_seats_of_a_match_becomes_uncertain_once(tmp_path):
    found = rated(tmp_path, [[0, 0, 1]], [[2.0, 1.0, 0.0]])
    model = PlackettLuce(tau=25.0 / 600.0)
    one, two, three = model.rate([[model.rating()] for _ in range(3)], scores=[2, 1, 0])
    assert found.ratings[0] == pytest.approx([(one[0].mu + two[0].mu) / 2, three[0].mu])
    assert found.played.tolist() == [[1, 1]]


def ledger(path, rows):
    """Rows of (((policy, version), ...), (return, ...)), and a command that is no match."""
    found = np.zeros(len(rows) + 1, record_type(2))
    found["kind"] = MATCH
    found["kind"][1] = FREEZE
    for place, (who, returns) in zip([0, *range(2, len(rows) + 1)], rows, strict=True):
        found["policy"][place], found["version"][place] = zip(*who, strict=True)
        found["returns"][place] = returns
    LedgerFile(path, ("a", "b"), 2).append(found)
    return path


def test_a_ledger_is_rated_in_its_order_and_noted_evenly(tmp_path):
    rng = np.random.default_rng(3)
    members = [(0, -1), (0, 4), (1, -1), (1, 0)]
    who = [tuple(rng.permutation(4)[:2]) for _ in range(30)]
    returns = rng.integers(0, 3, (30, 2)).astype(float)
    rows = [((members[i], members[j]), what) for (i, j), what in zip(who, returns, strict=True)]
    path = ledger(tmp_path / "ledger", rows)
    found = ledger_history(path, checkpoints=3)
    assert found.names == ("a", "a@4", "b", "b@0")
    assert found.matches.tolist() == [10, 20, 30]
    expected = rated(tmp_path, who, returns, checkpoints=3)
    assert np.array_equal(found.ratings, expected.ratings)
    assert np.array_equal(found.uncertainties, expected.uncertainties)
    assert len(ledger_history(path, checkpoints=1000).matches) == 30


@pytest.mark.parametrize("piece", [3, 1 << 18])
def test_a_newborn_is_rated_as_its_parent_and_not_as_who_was_there_before(
    tmp_path, monkeypatch, piece
):
    """As in the run itself: `a` lost to `b` all the time, until a copy of `b` was born there."""
    monkeypatch.setattr("remuda.analysis.payoffs.ledger_reader.PIECE", piece)
    path = ledger(tmp_path / "ledger", [(((0, -1), (1, -1)), (0.0, 1.0))] * 40)
    before = ledger_history(path, checkpoints=1)
    born = np.zeros(2, record_type(2))
    born["kind"] = BIRTH
    born["oldest"], born["newest"] = [[1], [-1]], [[7], [-1]]
    file = LedgerFile(path, ("a", "b"), 2)
    file.append(born[:1])
    draw = np.zeros(1, record_type(2))
    draw["policy"], draw["version"], draw["returns"] = (0, 1), -1, 0.5
    file.append(draw)
    found = ledger_history(path, checkpoints=1)
    assert before.ratings[-1, 0] < before.ratings[-1, 1] - 10.0
    assert abs(found.ratings[-1, 0] - found.ratings[-1, 1]) < 1.0
    assert found.uncertainties[-1, 0] > 7.0 > before.uncertainties[-1, 0]
    file.append(born[1:])  # has no parent
    file.append(draw)
    assert abs(ledger_history(path, checkpoints=1).ratings[-1, 0] - 25.0) < 6.0


def test_pieces_of_a_ledger_are_rated_as_one(tmp_path, monkeypatch):
    rows = [(((0, -1), (1, -1)), (float(i % 3), 1.0)) for i in range(11)]
    path = ledger(tmp_path / "ledger", rows)
    whole = ledger_history(path, checkpoints=4)
    monkeypatch.setattr("remuda.analysis.payoffs.ledger_reader.PIECE", 3)
    cut = ledger_history(path, checkpoints=4)
    assert np.array_equal(whole.matches, cut.matches)
    assert np.array_equal(whole.ratings, cut.ratings)


def test_a_ledger_that_cannot_be_rated_is_refused(tmp_path):
    with pytest.raises(RunDirectoryError):
        ledger_history(tmp_path / "none")
    path = tmp_path / "ledger"
    LedgerFile(path, ("a", "b"), 2).append(np.zeros(0, record_type(2)))
    with refuses(UsageError):
        ledger_history(path)
    with refuses(UsageError):
        ledger_history(path, checkpoints=0)
    with refuses(UsageError):
        ledger_history(path, sides=(0, 1, 2))


def test_a_damaged_ledger_is_told_by_its_name(tmp_path):
    """Every byte of a record, one after the other; a `RunDirectoryError` or an answer."""
    rows = [(((0, -1), (1, 3)), (0.0, 1.0))] * 3
    whole = ledger(tmp_path / "ledger", rows).read_bytes()
    begin = whole.index(b"\n") + 1
    refused = 0
    for place in range(begin, begin + record_type(2).itemsize):
        for value in (0x80, 0xFF):
            (tmp_path / "ledger").write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
            try:
                ledger_history(tmp_path / "ledger")
            except RemudaError:
                refused += 1
    assert refused > 8


def test_payoffs_of_a_run_are_accepted():
    """Red before: float() argument must be a string or a real number, not 'Payoffs'."""
    shares = [[0.5, 0.75, 1.0], [0.25, 0.5, 0.5], [0.0, 0.5, 0.5]]
    found = replace(exact(shares, symmetric=True), counts=np.full((3, 3), 8))
    assert elo(found).ratings.tolist() == elo_of(found).ratings.tolist()
    assert elo(found).names == found.names
    assert alpha_rank(found).masses.tolist() == alpha_rank(shares).masses.tolist()
    assert np.array_equal(margins(found), margins(shares))
    with refuses(UsageError, "leave both out"):
        elo(found, names=("a", "b", "c"))
    roles = exact([[1.0, 2.0], [0.0, 3.0]], [[1.0, 0.0], [2.0, 0.5]])
    assert alpha_rank(roles).masses.tolist() == alpha_rank(roles.means).masses.tolist()
