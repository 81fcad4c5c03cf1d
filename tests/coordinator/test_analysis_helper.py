"""What an analysis during a run tells: of payoffs that are known, and of a ledger as it grows."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest

from refusals import refuses
from remuda.analysis.payoffs.from_ledger import read_payoffs
from remuda.analysis.payoffs.game_of_meetings import game_of_meetings
from remuda.analysis.payoffs.ledger_seats import LedgerSeats
from remuda.analysis.payoffs.payoffs import exact
from remuda.config import load_config
from remuda.config.unused_settings import unused_settings
from remuda.coordinator.analysis_helper import gapless, measure
from remuda.coordinator.recent_payoffs import RECENT, RecentPayoffs
from remuda.errors import ConfigError
from remuda.population.ledger.ledger import BIRTH, LOST, MATCH, LedgerFile, record_type
from remuda.runs.metrics import AnalysisNumbers, population_record

ROCK_PAPER_SCISSORS = [[0, -1, 1], [1, 0, -1], [-1, 1, 0]]
LIVE = np.array([True, True, True])
TWO_SEATS = LedgerSeats((0, 1), (0, 1))


def matches(*played, seats=2):
    """Records of matches: pairs of members, each (policy, version), and what the first earned."""
    records = np.zeros(len(played), record_type(seats))
    for record, (one, other, earned) in zip(records, played, strict=True):
        record["kind"] = MATCH
        record["policy"], record["version"] = (one[0], other[0]), (one[1], other[1])
        record["returns"] = earned, -earned
    return records


def of(*members):
    return np.array(members, np.int64)


def symmetric(matrix):
    m = np.array(matrix, np.float64)
    return exact(m, m.T, names=[[str(i) for i in range(len(m))]] * 2, symmetric=True)


def test_rock_paper_scissors():
    numbers, earned, mixed = measure(game_of_meetings(symmetric(ROCK_PAPER_SCISSORS)), LIVE)
    assert numbers.analysed == numbers.nash_support == 3
    assert numbers.nash_entropy == pytest.approx(math.log(3), abs=1e-9)
    assert numbers.nash_live == pytest.approx(1.0)
    assert numbers.transitive_share == pytest.approx(0.0, abs=1e-12)
    assert numbers.exploitability == pytest.approx(0.0, abs=1e-12)
    assert numbers.unmet == 0.0
    assert earned == pytest.approx(0.0)
    assert mixed == pytest.approx(1 / 3)


def test_one_that_beats_all_is_the_whole_equilibrium_and_all_is_skill():
    """Ratings 2, 1 and 0; the first is a frozen copy, which exploits those that learn."""
    ratings = np.array([2.0, 1.0, 0.0])
    game = symmetric(np.subtract.outer(ratings, ratings))
    numbers, earned, mixed = measure(game_of_meetings(game), np.array([False, True, True]))
    assert (numbers.nash_support, numbers.nash_entropy, numbers.nash_live) == (1, 0.0, 0.0)
    assert numbers.transitive_share == pytest.approx(1.0)
    assert numbers.exploitability == pytest.approx(1.5), "2 - the mean of 1 and 0"
    assert earned == pytest.approx([1.5, 0.0, -1.5])
    assert mixed == pytest.approx([1.0, 0.0, 0.0])


def test_equal_members_are_not_diverse_and_different_ones_are():
    alike, *_ = measure(game_of_meetings(symmetric(np.zeros((3, 3)))), LIVE)
    different, *_ = measure(game_of_meetings(symmetric(ROCK_PAPER_SCISSORS)), LIVE)
    assert alike.diversity is None
    assert alike.transitive_share is None
    # L = M M^T / (2/3 + 1/3) has eigenvalues 0, 3, 3, so that 2 * 3/4 are expected.
    assert different.diversity == pytest.approx(1.5)


def test_a_symmetric_game_that_is_not_zero_sum_has_an_equilibrium():
    """Prisoner's dilemma: to defect (the second) is the only one; the best reply gains 1 or 2."""
    numbers, _, mixed = measure(
        game_of_meetings(symmetric([[3, 0], [5, 1]])), np.array([True, True])
    )
    assert mixed == pytest.approx([0.0, 1.0])
    assert numbers.exploitability == pytest.approx(3.0 - 9 / 4)


def test_no_gap_is_filled():
    """Frozen copies never met each other: the newest, which stands first, is looked at."""
    live = np.array([True, True, False, False, False])
    known = live[:, None] | live
    assert gapless(known, live).tolist() == [0, 1, 2]
    nobody = np.zeros((3, 3), np.bool_)
    assert gapless(nobody, LIVE).tolist() == [0]


def test_members_of_whom_too_few_met_are_told_as_such():
    sums = RecentPayoffs(__file__, TWO_SEATS)
    sums.look_at(of((0, -1), (1, -1)))
    numbers, earned, mixed = measure(sums.game(), np.array([True, True]))
    assert numbers == AnalysisNumbers(analysed=0, unmet=1.0)
    assert np.isnan(earned).all()
    assert np.isnan(mixed).all()


@pytest.fixture
def ledger(tmp_path):
    return LedgerFile(tmp_path / "ledger.bin", ["a", "b"], 2)


LIVE_A, LIVE_B, OLD_A, OLD_B = (0, -1), (1, -1), (0, 7), (1, 9)


def test_a_ledger_that_grows_is_read_once_and_as_a_whole_one_is(tmp_path, ledger):
    rng = np.random.default_rng(0)
    members = [LIVE_A, LIVE_B, OLD_A, OLD_B]
    path = tmp_path / "ledger.bin"
    recent = RecentPayoffs(path, TWO_SEATS)
    recent.look_at(of(*members))
    recent.read()  # there is no ledger yet
    for _ in range(5):
        pairs = rng.integers(0, 4, (40, 2)).tolist()
        earned = rng.standard_normal(40).tolist()
        ledger.append(
            matches(*[(members[i], members[j], x) for (i, j), x in zip(pairs, earned, strict=True)])
        )
        recent.read()
    found, whole = recent.game().payoffs, read_payoffs(path)
    assert np.array_equal(found.counts, whole.counts)
    assert np.allclose(found.means, whole.means, equal_nan=True)
    assert np.allclose(found.covariances, whole.covariances, equal_nan=True)
    recent.read()
    assert np.array_equal(recent.game().payoffs.counts, whole.counts), "nothing is added up twice"


def test_members_who_come_and_go_keep_what_is_theirs(tmp_path, ledger):
    recent = RecentPayoffs(tmp_path / "ledger.bin", TWO_SEATS)
    recent.look_at(of(LIVE_A, LIVE_B))
    ledger.append(matches((LIVE_A, LIVE_B, 1.0), (LIVE_A, OLD_B, 5.0)))
    recent.read()
    recent.look_at(of(OLD_A, LIVE_B, LIVE_A))
    ledger.append(matches((OLD_A, LIVE_A, 2.0)))
    recent.read()
    counts = recent.game().payoffs.counts
    assert counts.tolist() == [[0, 0, 1], [0, 0, 1], [1, 1, 0]]
    assert recent.game().payoffs.means[0, 2].tolist()[:2] == [-2.0, 1.0]


def test_new_matches_of_those_that_learn_replace_old_ones(tmp_path, ledger):
    recent = RecentPayoffs(tmp_path / "ledger.bin", TWO_SEATS)
    recent.look_at(of(LIVE_A, LIVE_B, OLD_A, OLD_B))
    ledger.append(matches(*[(LIVE_A, LIVE_B, -1.0), (OLD_A, OLD_B, -1.0)] * (5 * RECENT)))
    recent.read()
    ledger.append(matches(*[(LIVE_A, LIVE_B, 1.0), (OLD_A, OLD_B, 1.0)] * RECENT))
    recent.read()
    found = recent.game().payoffs
    assert found.means[0, 0, 1] == pytest.approx(0.0), "as many old ones as new ones"
    assert found.means[0, 2, 3] == pytest.approx(-4 / 6), "what is frozen stays what it is"


def test_a_policy_that_is_born_begins_anew(tmp_path, ledger):
    recent = RecentPayoffs(tmp_path / "ledger.bin", TWO_SEATS)
    recent.look_at(of(LIVE_A, LIVE_B, OLD_A))
    birth = matches((LIVE_B, LIVE_B, 0.0))
    birth["kind"] = BIRTH
    lost = matches((LIVE_A, LIVE_B, 9.0))
    lost["kind"], lost["policy"] = LOST, -1
    before = matches((LIVE_A, LIVE_B, 1.0), (LIVE_A, OLD_A, 1.0))
    ledger.append(np.concatenate([before, lost, birth, matches((LIVE_A, LIVE_B, -3.0))]))
    recent.read()
    found = recent.game().payoffs
    assert found.means[0, 0].tolist()[1:] == [-3.0, 1.0]
    assert found.counts[0].tolist() == [0, 1, 1]


def test_a_ledger_that_went_back_is_read_anew(tmp_path, ledger):
    recent = RecentPayoffs(tmp_path / "ledger.bin", TWO_SEATS)
    recent.look_at(of(LIVE_A, LIVE_B))
    ledger.append(matches(*[(LIVE_A, LIVE_B, 1.0)] * 5))
    recent.read()
    ledger.rewind(2)
    recent.read()
    assert recent.game().payoffs.counts[0, 1] == 2


def test_the_row_of_a_population():
    found = population_record([1.0, None, 4.0], [0.5, 1.5, None], 7, None, None)
    assert (found["fitness_mean"], found["fitness_best"]) == (2.5, 4.0)
    assert (found["fitness_spread"], found["staleness"], found["matches"]) == (1.5, 1.0, 7)
    assert found["diversity"] is found["analysis_age"] is None
    numbers = AnalysisNumbers(analysed=3, diversity=1.5)
    assert population_record([1.0], [None], 7, numbers, 2.0)["analysis_age"] == 2.0
    assert population_record([None], [None], 0, None, None)["fitness_best"] is None
    assert population_record([1.0], [None], None, None, None) == {}, "one policy is no population"


def test_what_chance_would_make_of_equal_members_is_not_told(tmp_path, ledger):
    """Forty matches a pair, and equal members seem as diverse as 3 wholly different ones."""
    rng = np.random.default_rng(1)
    members = [(0, -1), (1, -1), (0, 1), (1, 1), (0, 2), (1, 2)]
    pairs = [(a, b) for i, a in enumerate(members) for b in members[:i]]
    live = np.array([version < 0 for _, version in members])

    def told(skill):
        recent = RecentPayoffs(tmp_path / "ledger.bin", TWO_SEATS)
        recent.look_at(of(*members))
        ledger.rewind(0)
        played = []
        for a, b in pairs * 40:
            ahead = skill * (members.index(b) - members.index(a))
            played.append((a, b, 1.0 if rng.random() < 1.0 / (1.0 + np.exp(-ahead)) else -1.0))
        ledger.append(matches(*played))
        recent.read()
        return measure(recent.game(), live)[0]

    assert told(0.0).diversity is None
    found = told(2.0)
    assert 1.0 < found.diversity < 4.0
    assert found.transitive_share > 0.7, "chances saturate, which is no skill"
    assert (found.nash_support, found.nash_live) == (1, 1.0)


def test_where_seats_are_not_dealt_an_analysis_has_no_effect():
    (words,) = unused_settings(load_config({"analysis": {"every": 5.0}}))
    assert words.startswith("analysis.every has no effect without a population")
    dealt = load_config({"analysis": {"every": 5.0}, "population": {"policies": 3}})
    assert unused_settings(dealt) == []
    assert unused_settings(load_config({}), ["analysis.members"]) != []
    with refuses(ConfigError, "analysis.members"):
        load_config({"analysis": {"members": 1}})


@pytest.mark.slow
def test_linear_algebra_is_left_one_thread():
    """In a process of its own; NumPy and SciPy each have a copy of OpenBLAS."""
    code = (
        "import scipy.linalg\n"
        "from remuda.coordinator.analysis_helper import openblas_functions, use_one_thread\n"
        "for more in openblas_functions('set_num_threads'):\n"
        "    more(2)\n"
        "read = [get() for get in openblas_functions('get_num_threads')]\n"
        "use_one_thread()\n"
        "print(read, [get() for get in openblas_functions('get_num_threads')])\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    if "[] []" in done.stdout:
        pytest.skip("NumPy and SciPy have no OpenBLAS here")
    before, after = (part.strip("[] \n").split(", ") for part in done.stdout.split("] ["))
    assert len(after) == len(before) >= 1
    assert set(after) == {"1"}
