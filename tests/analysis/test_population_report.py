"""All parts of an analysis stand together, and say in words what the numbers say."""

import json

import numpy as np
import pytest

from refusals import refuses
from remuda.analysis.payoffs.game_of_meetings import game_of_meetings
from remuda.analysis.payoffs.payoffs import exact, from_sums
from remuda.analysis.payoffs.sums import add_up
from remuda.analysis.population_report import analyse, game_solution
from remuda.errors import UsageError

ROCK_PAPER_SCISSORS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])


def played(truth, matches, seed=0, zero_sum=True, own=True):
    """A population whose payoffs are known to the test, after so many matches of each pair."""
    rng = np.random.default_rng(seed)
    count = len(truth)
    one, other = np.triu_indices(count, 0 if own else 1)
    one, other = np.repeat(one, matches), np.repeat(other, matches)
    first = rng.normal(truth[one, other], 1.0)
    second = -first if zero_sum else rng.normal(truth[other, one], 1.0)
    sums = np.zeros((6, count, count))
    places, returns = np.stack([one, other], 1), np.stack([first, second], 1)
    add_up(places, returns, np.arange(2), True, False, sums)
    return from_sums([f"p{place}" for place in range(count)], sums, True)


def analysed(payoffs):
    return analyse(game_of_meetings(payoffs), np.random.default_rng(0), 200)


def test_skill_is_told_as_skill():
    skill = np.array([2.0, 0.0, -1.0, -3.0])
    found = analysed(played(skill[:, None] - skill[None], 200))
    words = found.in_words()
    assert words["ranking"].startswith("p0 has the highest mean payoff, ")
    assert words["ranking"].endswith("(100% sure).")
    assert "plays only p0 (in 100% of payoff draws)" in words["equilibrium"]
    assert "is skill" in words["structure"]
    assert "no cycle is significant" in words["structure"]
    assert found.structure.transitive > 0.97


def test_exploitability_is_told_as_a_lower_bound_within_the_population():
    skill = np.array([2.0, 0.0, -1.0])
    found = analysed(played(skill[:, None] - skill[None], 200))
    told = found.in_words()["exploitability"]
    assert told.startswith("Against p0 no policy gains significantly (0 to ")
    assert "a lower bound, within the population: a trained best response" in told
    assert found.exploitability.of("p2").value == pytest.approx(3.0, abs=0.3)
    told = analysed(played(ROCK_PAPER_SCISSORS, 200)).in_words()["exploitability"]
    assert "the least exploitable, p" in told
    open_ended = played(skill[:, None] - skill[None], 50, zero_sum=False, own=False)
    found = analysed(open_ended)
    assert found.exploitability is None
    assert found.in_words()["exploitability"].startswith("Unknown: self-play is missing")


def test_a_cycle_is_told_as_a_cycle():
    found = analysed(played(ROCK_PAPER_SCISSORS, 200))
    words = found.in_words()
    assert "the best may also be" in words["ranking"]
    assert "mixes 3 of 3 policies" in words["equilibrium"]
    assert "significant cycle: p0 beats p2 beats p1 beats p0" in words["structure"]
    assert found.structure.cyclic > 0.9


def test_equal_policies_are_told_as_equal():
    words = analysed(played(np.zeros((4, 4)), 50)).in_words()
    assert words["diversity"].startswith("Payoffs differ no more")
    assert "%" in words["ranking"]


def test_the_summary_is_plain_data():
    summary = analysed(played(ROCK_PAPER_SCISSORS, 20)).as_summary()
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert summary["policies"] == ["p0", "p1", "p2"]
    assert summary["ranking"]["ranking"][0]["rank"] == 1


def test_policies_that_never_met_themselves_have_no_equilibrium_unless_it_is_zero_sum():
    general = played(ROCK_PAPER_SCISSORS, 30, zero_sum=False, own=False)
    found = analysed(general)
    assert found.equilibrium is None
    assert found.diversity is None
    assert "Unknown: " in found.in_words()["diversity"]
    assert "The equilibrium is unknown" in found.in_words()["equilibrium"]
    assert found.ranking.ranks.tolist()
    summary = found.as_summary()
    assert summary["equilibrium"] is None
    assert summary["payoffs"]["means"][0][0] is None
    json.dumps(summary, allow_nan=False)
    assert analysed(played(ROCK_PAPER_SCISSORS, 30, own=False)).equilibrium is not None


def test_known_payoffs_have_an_analysis_too():
    found = analysed(exact(ROCK_PAPER_SCISSORS, names=[("r", "p", "s")] * 2))
    assert found.equilibrium.answer.mixtures[0] == pytest.approx([1 / 3] * 3)


def test_what_cannot_be_analysed_is_refused():
    with refuses(UsageError):
        analysed(played(np.zeros((1, 1)), 5))
    sums = np.zeros((6, 3, 3))
    places = np.array([[0, 1], [0, 1]])
    add_up(places, np.array([[1.0, -1.0], [0.0, 0.0]]), np.arange(2), True, False, sums)
    with refuses(UsageError):
        analysed(from_sums("abc", sums, True))


def test_an_equilibrium_that_is_not_found_takes_nothing_from_the_rest(monkeypatch):
    monkeypatch.setattr(
        "remuda.analysis.population_report.game_solution",
        lambda *arguments: game_solution(*arguments, seconds=0.0),
    )
    rng = np.random.default_rng(0)
    general = played(rng.normal(size=(30, 30)), 5, zero_sum=False)
    found = analysed(general)
    assert found.equilibrium is None
    assert found.in_words()["equilibrium"].startswith("The equilibrium is unknown: seconds is 0")
    assert len(found.ranking.ranks) == 30
