"""Tournaments of line-ups, until the equilibrium of their game is known to have a small regret."""

import numpy as np
import pytest

from refusals import refuses
from remuda.analysis.ranking.next_matches import SmallRegret, parse_until
from remuda.errors import UsageError
from remuda.evaluation.tournaments.entrants import setup_of_entrants
from remuda.evaluation.tournaments.rounds import filled
from remuda.evaluation.tournaments.until import play_until
from remuda.ui.analysis.sources import Choice, open_sources, population_of
from tournament_games import always

DILEMMA, PENNIES = "prisoners_dilemma", "matching_pennies"
REGRET = "regret below 0.1 is 95% sure"


def dilemma():
    entrants = {"cooperates": always(0, DILEMMA), "defects": always(1, DILEMMA)}
    return setup_of_entrants(DILEMMA, {}, entrants)


def pennies(**seats):
    entrants = {f"{coin}{seat}": always(int(coin == "tails"), PENNIES, agent=seat)
                for seat in (0, 1) for coin in ("heads", "tails")}  # fmt: skip
    line_ups = {name: [f"agent_{name[-1]}"] for name in entrants} | seats
    return setup_of_entrants(PENNIES, {}, entrants, line_ups=line_ups)


def test_the_question_is_read():
    assert parse_until("regret below 0.5 is 90% sure") == (SmallRegret(0.5), 0.9)


def test_matches_go_to_the_seatings_with_the_fewest():
    assert filled(np.array([4, 0, 2]), 5).tolist() == [0, 4, 1]
    assert filled(np.array([1, 1]), 3).tolist() == [2, 1]


def test_a_dominant_strategy_is_the_answer(tmp_path):
    found = play_until(dilemma(), REGRET, tmp_path / "t")
    assert found.line_ups
    assert found.until.reached
    assert found.until.words == "regret 0 in only defects"
    # cooperates: beside itself and beside who defects; all line-ups were played
    assert np.isfinite(found.means).all()
    again = play_until(dilemma(), REGRET, tmp_path / "t")
    assert again.num_matches == found.num_matches
    assert again.until == found.until


def test_roles_are_the_seats_of_their_entrants(tmp_path):
    found = play_until(pennies(), REGRET, tmp_path / "t")
    assert found.until.reached
    assert found.until.words.startswith("regret 0.0")
    assert "heads0 50%" in found.until.words
    (source,) = open_sources([tmp_path / "t"])
    population = population_of(source, Choice())
    assert [role.strategies for role in population.roles] == [
        ("heads0", "tails0"),
        ("heads1", "tails1"),
    ]
    analysis = population.analyse(np.random.default_rng(0), 60)
    assert analysis.equilibrium.kind == "zero-sum"
    for mixture in analysis.equilibrium.answer.mixtures:
        assert mixture == pytest.approx([0.5, 0.5], abs=1e-6)


def test_what_makes_no_line_ups_is_refused(tmp_path):
    for setup, options in (
        (pennies(heads0=["agent_0", "agent_1"]), {}),
        (pennies(heads1=["agent_0"], tails1=["agent_0"]), {}),
        (pennies(), {"max_matches": 10}),
    ):
        with refuses(UsageError):
            play_until(setup, REGRET, tmp_path / "t", **options)
