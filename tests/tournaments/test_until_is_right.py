"""How often a tournament that ended because it was sure names the wrong ones."""

from types import SimpleNamespace

import numpy as np
import pytest

from remuda.analysis.plan import parse_until
from remuda.tournaments.entrants import Participant
from remuda.tournaments.record import MatchResults
from remuda.tournaments.schedule import Schedule
from remuda.tournaments.until import _Rounds

QUESTION, WANTED = parse_until("rank of the top 3 is 95% sure")


def claimed(seed, count, spread, most):
    """Play policies of known strengths: whether it was sure, whether it was wrong, the matches.

    One wins 1 against another by the logistic function of the difference of their strengths, which
    are drawn from a normal distribution of this spread.
    """
    rng = np.random.default_rng(seed)
    strengths = rng.normal(0.0, spread, count)
    wins = 1.0 / (1.0 + np.exp(strengths[None, :] - strengths[:, None]))
    names = tuple(f"p{i}" for i in range(count))
    schedule = Schedule([Participant(name, ((name,),) * 2) for name in names], 2, 0)
    results = MatchResults(schedule, 2)
    opened = SimpleNamespace(
        setup=SimpleNamespace(
            participants=[SimpleNamespace(name=name) for name in names], seed=seed, game="known"
        ),
        agents=(0, 1),
        schedule=schedule,
        results=results,
    )
    rounds = _Rounds(opened, QUESTION, WANTED, None, most)
    while rounds.plan():
        numbers = results.left_of(rounds.planned())
        one, other = schedule.entrants_of(numbers).T
        won = rng.random(len(numbers)) < wins[one, other]
        returns = np.where(won, 1.0, -1.0)[:, None] * [1.0, -1.0]
        results.add(numbers, numbers, returns, won)
        look = rounds.look()
        if look.reached:
            order = np.argsort(-(wins.sum(1) - 0.5))[:3]
            right = " before ".join(names[place] for place in order)
            return True, look.words != right, look.matches
    return False, False, int(rounds.planned().size)


@pytest.mark.parametrize(
    ("populations", "spread"),
    [
        (12, 1.0),
        pytest.param(100, 1.0, marks=pytest.mark.slow),
        pytest.param(100, 0.3, marks=pytest.mark.slow),
    ],
)
def test_the_claimed_top_three_are_wrong_no_more_often_than_said(populations, spread):
    found = [claimed(seed, 5, spread, 20_000) for seed in range(populations)]
    sure = sum(was for was, _, _ in found)
    wrong = sum(was for _, was, _ in found)
    assert sure >= populations // 3
    # Two standard errors above one in twenty of the claims.
    assert wrong <= 0.05 * sure + 2.0 * np.sqrt(0.05 * 0.95 * sure)
