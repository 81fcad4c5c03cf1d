"""Tournaments that are played until a question is answered."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from refusals import refuses
from remuda.analysis.payoffs.from_ledger import read_payoffs
from remuda.analysis.ranking.next_matches import allocate, parse_until
from remuda.errors import RunDirectoryError, UsageError, UserCodeError
from remuda.evaluation.results import Limits
from remuda.evaluation.tournaments import until as rounds_of
from remuda.evaluation.tournaments.entrants import setup_of_entrants
from remuda.evaluation.tournaments.until import missing_matches, play_until
from remuda.population.ledger.ledger import read_records
from tournament_games import always

PULL, KUHN = "tournament_games:Pull", "kuhn_poker"
BEST = "the best is 95% sure"


def kuhn(seed=3):
    entrants = {"pass": always(1, KUHN), "bet": always(2, KUHN), "random": "random"}
    return setup_of_entrants(KUHN, {}, entrants, seed)


def by_number(directory):
    records = read_records(directory / "ledger.bin")[1]
    numbers = records["number"].tolist()
    assert len(set(numbers)) == len(numbers)
    return dict(zip(numbers, records["returns"].tolist(), strict=True))


def test_it_ends_as_soon_as_it_is_sure_and_is_right(tmp_path):
    """Who bets wins the pot from who passes, and is even with random; who passes loses to both."""
    looks = []
    found = play_until(
        kuhn(), "rank of the top 2 is 90% sure", tmp_path / "t", on_look=looks.append
    )
    assert found.until.reached
    assert not found.cut
    assert found.until.words == "bet before random"
    assert found.until.sure >= 0.9
    assert [look.reached for look in looks] == [False] * (len(looks) - 1) + [True]
    assert len(by_number(tmp_path / "t")) == found.until.matches == looks[-1].matches
    assert found.matches[np.eye(3, dtype=bool)].sum() == 0
    assert np.isnan(np.diag(found.means)).all()
    # It is an input of an analysis like any other.
    payoffs = read_payoffs(tmp_path / "t" / "ledger.bin")
    assert int(payoffs.counts[0, 1]) == found.matches[0, 1]
    assert payoffs.matrix[0, 1] == pytest.approx(-1.0)
    assert missing_matches(tmp_path / "t") == 0


def test_each_pair_plays_its_seatings_equally_often_within_one(tmp_path):
    play_until(kuhn(), BEST, tmp_path / "t")
    records = read_records(tmp_path / "t" / "ledger.bin")[1]
    for one in range(3):
        for other in range(one + 1, 3):
            counts = [
                (records["policy"] == seats).all(1).sum() for seats in ((one, other), (other, one))
            ]
            assert abs(int(counts[0]) - int(counts[1])) <= 1


def test_matches_go_where_the_answer_hangs_on_them(tmp_path):
    """Two of Pull are alike, so that only their order is open; the others are soon out of it."""
    entrants = {"a": "random", "b": "random", "c": always(0, PULL), "d": always(0, PULL)}
    setup = setup_of_entrants(PULL, {}, entrants, 1)
    look = play_until(setup, BEST, tmp_path / "t", max_matches=3000).until
    payoffs = read_payoffs(tmp_path / "t" / "ledger.bin")
    assert look.matches <= 3000
    assert payoffs.counts[2, 3] < payoffs.counts[0, 1] or look.reached


def test_a_limit_ends_it_and_tells_what_is_not_sure():
    entrants = {"a": "random", "b": "random", "c": "random"}
    setup = setup_of_entrants(KUHN, {}, entrants, 1)
    played = play_until(setup, "rank of the top 3 is 99.9% sure", max_matches=120)
    assert played.cut == "the matches were spent"
    assert played.num_matches == played.until.matches == 120
    assert not played.until.reached
    assert " before " in played.until.unsure
    assert played.until.unsure.endswith(" (undecided)")
    played = play_until(setup, BEST, limits=Limits(seconds=0.0))
    assert played.cut == "the time was up"
    assert played.until is None


KILLED = """
import os, signal, sys
from pathlib import Path
import remuda.evaluation.tournaments.record as record
from remuda.evaluation.tournaments.entrants import setup_of_entrants
from remuda.evaluation.results import Limits
from remuda.evaluation.tournaments.until import play_until

record.FLUSHED_EVERY = 0.0
def watch(done, wanted):
    if done >= 150:
        os.kill(os.getpid(), signal.SIGKILL)

entrants = {"a": "random", "b": "random", "c": "random"}
setup = setup_of_entrants("tournament_games:LongLoses", {}, entrants, 5)
limits = Limits(watch=watch)
play_until(setup, sys.argv[2], Path(sys.argv[1]), limits=limits, copies=16, max_matches=400)
"""


@pytest.mark.slow
def test_a_killed_one_goes_on_with_the_same_matches(tmp_path):
    until = "rank of the top 3 is 99.9% sure"
    tests = Path(__file__).resolve().parents[2]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tests), *sys.path])}
    words = [sys.executable, "-c", KILLED, str(tmp_path / "cut"), until]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert missing_matches(tmp_path / "cut") > 0
    with (tmp_path / "cut" / "rounds.jsonl").open("a") as file:
        file.write('{"seatings": [1')  # of the next round nothing was begun
    entrants = {"a": "random", "b": "random", "c": "random"}
    setup = setup_of_entrants("tournament_games:LongLoses", {}, entrants, 5)
    resumed = play_until(setup, until, tmp_path / "cut", max_matches=400)
    whole = play_until(setup, until, tmp_path / "whole", max_matches=400)
    assert resumed.num_matches == whole.num_matches == 400
    assert by_number(tmp_path / "cut") == by_number(tmp_path / "whole")
    rounds = [(tmp_path / each / "rounds.jsonl").read_text() for each in ("cut", "whole")]
    assert rounds[0] == rounds[1]
    assert all(json.loads(line) for line in rounds[0].splitlines())


def test_an_answered_question_is_not_asked_again_and_another_is_refused(tmp_path):
    first = play_until(kuhn(), BEST, tmp_path / "t")
    again = play_until(kuhn(), BEST, tmp_path / "t")
    assert again.until == first.until
    assert len(by_number(tmp_path / "t")) == first.until.matches
    with refuses(UsageError):
        play_until(kuhn(), "the best is 99% sure", tmp_path / "t")


@pytest.mark.parametrize(
    ("entrants", "until", "max_matches"),
    [
        ({"a": "random", "b": "random"}, "who is best", 1000),
        ({"a": "random"}, BEST, 1000),
        ({"a": "random", "b": "random"}, BEST, 3),
    ],
)
def test_mistakes_are_told(entrants, until, max_matches):
    setup = setup_of_entrants(KUHN, {}, entrants)
    with refuses(UsageError):
        play_until(setup, until, max_matches=max_matches)


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "[1]",
        "null",
        '{"seatings": [0], "matches": [1, 2]}',
        '{"seatings": [99], "matches": [1]}',
        '{"seatings": [0], "matches": [-1]}',
        '{"seatings": ["a"], "matches": [1]}',
    ],
)
def test_a_damaged_round_is_told(line, tmp_path):
    play_until(kuhn(), BEST, tmp_path)
    with (tmp_path / "rounds.jsonl").open("a") as file:
        file.write(line + "\n")
    with refuses(RunDirectoryError):
        play_until(kuhn(), BEST, tmp_path)


def test_too_few_matches_are_refused_before_anything_is_written(tmp_path):
    with refuses(UsageError):
        play_until(kuhn(), BEST, tmp_path / "t", max_matches=4)
    assert not (tmp_path / "t").exists()


def test_agents_of_one_team_do_not_meet(tmp_path, monkeypatch):
    """What is looked at is what `remuda analyse` reads: meetings of two teams."""
    seen = []
    monkeypatch.setattr(
        rounds_of, "answer_at_look", lambda payoffs, *_: seen.append(payoffs) or 1 / 0
    )
    setup = setup_of_entrants(PULL, {}, {"a": "random", "b": always(1, PULL)}, 1)
    with pytest.raises(UserCodeError):
        play_until(setup, BEST, tmp_path / "t")
    expected = read_payoffs(tmp_path / "t" / "ledger.bin", sides=[0, 0, 1, 1])
    assert expected.matrix[0, 1] != 0.0
    np.testing.assert_allclose(seen[0].matrix[0, 1], expected.matrix[0, 1])
    assert seen[0].counts[0, 1] == expected.counts[0, 1]


def test_planning_for_many_ends_when_it_is_told(tmp_path):
    """Between two draws of the payoffs."""
    asked = []
    setup = setup_of_entrants(PULL, {}, dict.fromkeys("abcd", "random"), 1)
    played = play_until(setup, BEST, tmp_path / "t", max_matches=100)
    payoffs = read_payoffs(tmp_path / "t" / "ledger.bin", sides=[0, 0, 1, 1])
    question, _ = parse_until(BEST)
    rng = np.random.default_rng(1)
    planned = allocate(payoffs, question, 10, rng, lambda: bool(asked.append(1)) or True)
    assert asked == [1]
    assert not planned.any()
    assert played.num_matches <= 100


def test_after_an_answer_there_is_no_second_look(tmp_path):
    """A second look at a round would use its share of the error probability twice."""
    looks = []
    found = play_until(kuhn(), BEST, tmp_path / "t", on_look=looks.append)
    assert found.until is looks[-1]
    assert [look.rounds for look in looks] == list(range(1, len(looks) + 1))
    again = play_until(kuhn(), BEST, tmp_path / "t", on_look=looks.append, max_matches=9000)
    assert again.until == looks[-1] == looks[-2]
    assert again.num_matches == found.num_matches


def test_a_look_within_a_round_is_no_answer():
    """The confidence may be reached by then, but nothing was planned to end there."""
    seen = [0]
    limits = Limits(interrupted=lambda: seen[-1] >= 4, watch=lambda done, _: seen.append(done))
    entrants = {"pass": always(1, KUHN), "bet": always(2, KUHN)}
    setup = setup_of_entrants(KUHN, {}, entrants, 3)
    found = play_until(setup, "the best is 50% sure", limits=limits, copies=1)
    assert found.cut
    assert 4 <= found.num_matches < 8
    assert found.until.words == "bet"
    assert found.until.sure > found.until.wanted == 0.5
    assert not found.until.reached
    assert play_until(setup, "the best is 50% sure").until.reached


def test_pairs_that_never_meet_end_at_the_limit_without_an_answer(tmp_path):
    setup = setup_of_entrants("absent_agents:never_together", {}, {"a": "random", "b": "random"})
    found = play_until(setup, BEST, tmp_path / "t", max_matches=60)
    assert found.cut == "the matches were spent"
    assert found.until is None
    assert found.num_matches == 60
    more = play_until(setup, BEST, tmp_path / "t", max_matches=90)
    assert (more.num_matches, more.until) == (90, None)
