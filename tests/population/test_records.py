"""Who is in a population, what came of their matches, and what they are rated."""

import json

import numpy as np
import pytest

from remuda.checkpoint.state import pack, unpack
from remuda.errors import ConfigError
from remuda.population.ledger import Ledger, from_lines, to_line
from remuda.population.ratings import rate
from remuda.population.records import Match, Member, PolicyRef, Population, Result

A, B, C = PolicyRef("a"), PolicyRef("b"), PolicyRef("c")


def result(seats, returns, number=0, purpose="training"):
    return Result(Match(number, tuple(seats), purpose), tuple(returns))


def test_members_are_born_frozen_and_retired():
    population = Population([Member(A, hyperparameters={"learning_rate": 1e-3}), Member(B)])
    population[A].rating = 30.0
    copy = population.freeze("a", 7, born=12)
    assert (copy.parent, copy.born, copy.rating, copy.learns) == (A, 12, 30.0, False)
    copy.hyperparameters["learning_rate"] = 5.0
    assert population[A].hyperparameters["learning_rate"] == 1e-3  # nothing is shared
    population.freeze("a", 3)
    assert [m.ref.version for m in population.past_of("a")] == [3, 7]
    assert [m.ref for m in population.learning] == [A, B]
    assert str(copy.ref) == "a@7"
    with pytest.raises(ConfigError, match="there is a policy a@7 in the population already"):
        population.freeze("a", 7)
    population.retire(PolicyRef("a", 3))
    assert PolicyRef("a", 3) not in population
    assert len(population) == 3


def test_a_population_is_saved_and_restored():
    population = Population([Member(A, frozenset({1, 0})), Member(B, parent=A, born=3)])
    population.freeze("b", 2).games = 5
    population[A].hyperparameters["hidden"] = [64, 64]
    other = Population()
    other.restore(unpack(pack(population.state())))
    assert other.members == population.members


def test_the_ledger_counts_wins_draws_and_payoffs_between_seats():
    ledger = Ledger()
    ledger.append(result([A, B], [3.0, 1.0]))
    ledger.append(result([B, A], [2.0, 2.0]))
    ledger.append(result([A, B], [0.0, 1.0], purpose="evaluation"))  # not of this ledger
    assert len(ledger.results) == 2
    assert ledger.meetings(A, B) == ledger.meetings(B, A) == 2
    assert ledger.win_rate(A, B, doubt=0.0) == 0.75
    assert ledger.win_rate(B, A, doubt=0.0) == 0.25
    assert ledger.win_rate(A, B, doubt=2.0) == pytest.approx(2.5 / 4)
    assert ledger.win_rate(A, C) == ledger.win_rate(A, C, doubt=0.0) == 0.5
    assert ledger.payoff(A, B) == 2.5
    assert np.isnan(ledger.payoff(A, C))
    ledger.append(result([A, A, C], [1.0, 0.0, 0.5]))  # on two seats: two meetings with c
    assert ledger.meetings(A, C) == 2
    assert ledger.win_rate(A, C, doubt=0.0) == 0.5


def test_results_are_lines_and_come_back():
    some = [
        Result(Match(4, (A, PolicyRef("b", 9))), (1.5, -1.5), ((3, 5), (9, 9)), truncated=True),
        result([A, B, C], [1, 2, 3], 5, "evaluation"),
    ]
    lines = [to_line(each) + "\n" for each in some]
    assert list(from_lines([*lines, to_line(some[0])[:30]])) == some
    assert json.loads(lines[0])["seats"] == [["a", -1], ["b", 9]]


def test_ratings_tell_who_is_better_and_how_sure_that_is():
    population = Population([Member(A), Member(B), Member(C)])
    skill, random = {A: 1.0, B: 0.0, C: -1.0}, np.random.default_rng(0)
    for i in range(300):
        pair = [(A, B), (B, C), (C, A)][i % 3]
        rate(population, result(pair, [skill[ref] + random.normal() for ref in pair], i))
    a, b, c = (population[ref] for ref in (A, B, C))
    assert a.rating > b.rating + 2 > c.rating + 4
    assert all(member.uncertainty < 3.0 for member in (a, b, c))
    assert (a.games, b.games, c.games) == (200, 200, 200)
    assert a.total_reward == pytest.approx(200, abs=60)


def test_ratings_of_teams_and_of_many_at_once():
    population = Population([Member(PolicyRef(f"p{i}")) for i in range(4)])
    refs = [member.ref for member in population.members]
    for i in range(40):
        rate(
            population, result(refs, [1.0, 0.0, 0.0, 0.6], i), teams=["red", "blue", "blue", "red"]
        )
    red, blue = [population[refs[i]].rating for i in (0, 3)], [population[refs[1]].rating]
    assert min(red) > max(blue) + 5
    assert red[0] == pytest.approx(red[1])
    everyone = Population([Member(PolicyRef(f"p{i}")) for i in range(4)])
    for i in range(60):
        rate(everyone, result(refs, [4.0, 3.0, 2.0, 1.0], i))
    ratings = [member.rating for member in everyone.members]
    assert ratings == sorted(ratings, reverse=True)


def test_a_match_against_oneself_changes_no_rating_by_much_and_the_retired_none():
    population = Population([Member(A), Member(B)])
    rate(population, result([A, A], [1.0, 0.0]))
    assert population[A].rating == pytest.approx(25.0)
    assert population[A].games == 2
    population.retire(B)
    rate(population, result([A, B], [1.0, 0.0], 1))
    assert population[A].rating == pytest.approx(25.0)
    assert population[A].games == 3
