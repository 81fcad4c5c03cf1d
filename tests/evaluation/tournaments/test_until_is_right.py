"""How often a tournament that ended because it was sure names the wrong ones."""

from types import SimpleNamespace

import numpy as np
import pytest

from remuda.analysis.ranking.next_matches import parse_until
from remuda.evaluation.tournaments.entrants import Participant
from remuda.evaluation.tournaments.record import MatchResults
from remuda.evaluation.tournaments.schedule import Schedule
from remuda.evaluation.tournaments.sequential_test import share_of
from remuda.evaluation.tournaments.until import _PairRounds

TOP_THREE, BEST = "rank of the top 3 is 95% sure", "the best is 95% sure"
GRAPH = "the response graph is 95% sure"


def of_spread(seed, count, spread):
    """How often the row wins against the column: [N, N].

    By the logistic function of the difference of their strengths, which are drawn from a normal
    distribution of this spread.
    """
    strengths = np.random.default_rng(seed).normal(0.0, spread, count)
    return 1.0 / (1.0 + np.exp(strengths[None, :] - strengths[:, None]))


def of_strengths(strengths):
    """Likewise, so that the differences of strengths are those of returns."""
    strengths = np.array(strengths)
    return np.clip(0.5 + (strengths[:, None] - strengths[None, :]) / 2.0, 0.02, 0.98)


def claimed(seed, wins, until, most):
    """Play policies of which is known how often each wins 1 against each: [N, N].

    Whether it was sure, whether it was wrong, and the matches.
    """
    rng, count = np.random.default_rng([seed, 1]), len(wins)
    question, wanted = parse_until(until)
    names = tuple(f"p{i}" for i in range(count))
    schedule = Schedule([Participant(name, ((name,),) * 2) for name in names], 2, 0)
    results = MatchResults(schedule, 2)
    opened = SimpleNamespace(
        setup=SimpleNamespace(
            participants=[SimpleNamespace(name=name) for name in names],
            seed=seed,
            game="known",
            taken={},
            env=SimpleNamespace(names=("", ""), teams=("", "")),
        ),
        schedule=schedule,
        results=results,
        directory=None,
    )
    rounds = _PairRounds(opened, question, wanted, most)
    while rounds.plan():
        numbers = results.unfinished_among(rounds.planned())
        one, other = schedule.entrants_of(numbers).T
        won = rng.random(len(numbers)) < wins[one, other]
        returns = np.where(won, 1.0, -1.0)[:, None] * [1.0, -1.0]
        results.add(numbers, numbers, returns, won)
        look = rounds.look()
        if look.reached:
            right = question.in_words(question.answers(2.0 * wins[None] - 1.0)[0], names)
            return True, look.words != right, look.matches
    return False, False, int(rounds.planned().size)


@pytest.mark.slow_cases("12-1.0-20000")
@pytest.mark.parametrize(
    ("populations", "spread", "most"),
    [
        (12, 1.0, 20_000),
        pytest.param(100, 1.0, 20_000, marks=pytest.mark.long),
        # Doubt that is shared among all looks needs more matches where all are close.
        pytest.param(100, 0.3, 60_000, marks=pytest.mark.long),
    ],
)
def test_the_claimed_top_three_are_wrong_no_more_often_than_said(populations, spread, most):
    found = [
        claimed(seed, of_spread(seed, 5, spread), TOP_THREE, most) for seed in range(populations)
    ]
    sure = sum(was for was, _, _ in found)
    wrong = sum(was for _, was, _ in found)
    assert sure >= populations // 3
    # Two standard errors above one in twenty of the claims.
    assert wrong <= 0.05 * sure + 2.0 * np.sqrt(0.05 * 0.95 * sure)


NEAR = [
    ("two, nearly alike", (0.02, 0.0), BEST),
    ("two, near", (0.05, 0.0), BEST),
    ("two", (0.2, 0.0), BEST),
    ("two near, one far", (0.02, 0.0, -0.8), BEST),
    ("two near, one far, in order", (0.05, 0.0, -0.8), "rank of the top 2 is 95% sure"),
    ("three", (0.1, 0.05, 0.0), BEST),
    ("three, each pair", (0.1, 0.05, 0.0), GRAPH),
    ("five", (0.08, 0.06, 0.04, 0.02, 0.0), TOP_THREE),
    ("five, two near", (0.02, 0.0, -0.6, -0.7, -0.8), BEST),
]
QUICK = ("two, nearly alike", "two near, one far")


@pytest.mark.slow_cases("two near, one far, 150", "two, nearly alike, 150")
@pytest.mark.parametrize(
    ("strengths", "until", "tournaments"),
    [
        pytest.param(
            strengths,
            until,
            count,
            id=f"{name}, {count}",
            marks=[pytest.mark.slow] if count == 400 else [],
        )
        for name, strengths, until in NEAR
        for count in (150, 400)
        if count == 400 or name in QUICK
    ],
)
def test_no_more_tournaments_end_wrong_than_said(strengths, until, tournaments, monkeypatch):
    """Over all tournaments, whatever the differences: also those that would end by luck alone."""
    if tournaments < 400:
        monkeypatch.setattr(
            "remuda.analysis.ranking.next_matches.WORLDS", 3
        )  # a rougher plan, and a quick one
    wins = of_strengths(strengths)
    most = 3000 if tournaments < 400 else 10_000
    wrong = sum(claimed(seed, wins, until, most)[1] for seed in range(tournaments))
    assert wrong <= 0.05 * tournaments + 2.0 * np.sqrt(0.05 * 0.95 * tournaments)


def test_what_is_clear_is_called_soon():
    """Doubt that is shared out among looks makes no tournament of unequal policies a long one."""
    found = [claimed(seed, of_strengths((0.8, 0.0)), BEST, 3000) for seed in range(30)]
    assert all(was and not wrong for was, wrong, _ in found)
    assert np.median([matches for *_, matches in found]) <= 40


def test_the_shares_of_all_looks_are_one_in_all():
    assert sum(share_of(look) for look in range(1, 100_000)) == pytest.approx(1.0, abs=1e-4)
