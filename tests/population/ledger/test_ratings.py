"""Ratings: what openskill says, of every match; and what a birth may conclude from them."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some
from openskill.models import PlackettLuce

from remuda.config import BirthsConfig
from remuda.population.dealing.lead import League
from remuda.population.directors.director import Replacement
from remuda.population.ledger.ratings import TAU, probability_of_order, rate_all, sides_of
from remuda.population.ledger.records import (
    FRESH,
    RATING,
    UNCERTAINTY,
    Member,
    PolicyRef,
    Population,
)
from remuda.population.matchmaking.by_turn import Random
from remuda.population.members.table import Table

MODEL = PlackettLuce(tau=TAU)


def numbers_of(count):
    return np.tile(np.array(FRESH), (count, 1))


def by_openskill(slots, returns, sides, numbers):
    """What the library makes of one match, by slot; each on several seats by their mean."""
    groups = [[i for i in range(len(sides)) if sides[i] == side] for side in range(max(sides) + 1)]
    before = [
        [MODEL.rating(mu=numbers[slots[i], 2], sigma=numbers[slots[i], 3]) for i in group]
        for group in groups
    ]
    scores = [float(np.mean([returns[i] for i in group])) for group in groups]
    found = {}
    for group, rated in zip(groups, MODEL.rate(before, scores=scores), strict=True):
        for seat, rating in zip(group, rated, strict=True):
            found.setdefault(slots[seat], []).append((rating.mu, rating.sigma))
    return {slot: np.mean(ratings, axis=0) for slot, ratings in found.items()}


@some.composite
def matches(draw):
    """Who sat where, on which sides, what they earned, and how they were rated."""
    seats = draw(some.integers(2, 9))
    teams = draw(some.lists(some.sampled_from(["", "red", "blue"]), min_size=seats, max_size=seats))
    slots = draw(some.lists(some.integers(0, 9), min_size=seats, max_size=seats))
    returns = draw(some.lists(some.integers(-2, 2), min_size=seats, max_size=seats))
    return slots, [float(each) for each in returns], teams, draw(some.integers(0, 2**32 - 1))


@settings(max_examples=300, deadline=None)
@given(matches())
@example(([0] * 8 + [1], [0.0] * 5 + [-1.0, -2.0, 1.0, 2.0], [""] * 4 + ["red"] * 5, 0))
def test_a_match_is_rated_as_openskill_rates_it(match):
    slots, returns, teams, seed = match
    random = np.random.default_rng(seed)
    numbers = numbers_of(10)
    numbers[:, RATING] = random.normal(25.0, 10.0, 10)
    numbers[:, UNCERTAINTY] = random.uniform(0.4, 9.0, 10)
    sides, before = sides_of(teams, len(slots)), numbers.copy()
    rate_all(np.array([slots]), np.array([returns]), np.ones(1, np.bool_), sides, numbers)
    if len(set(slots)) < 2 or sides.max() == 0:
        assert np.array_equal(numbers, before)
        return
    expected = by_openskill(slots, returns, sides.tolist(), before)
    for slot, rating in expected.items():
        assert numbers[slot, [RATING, UNCERTAINTY]] == pytest.approx(rating, abs=1e-6)
    others = [slot for slot in range(10) if slot not in slots]
    assert np.array_equal(numbers[others], before[others])


def test_matches_that_are_not_over_are_not_rated():
    numbers = numbers_of(2)
    rate_all(np.array([[0, 1]]), np.ones((1, 2)), np.zeros(1, np.bool_), np.arange(2), numbers)
    assert np.array_equal(numbers, numbers_of(2))


def test_every_match_is_rated_however_many_are_over_at_once():
    """One match in eight turns was rated: at the first birth half had never been."""
    names = [f"p{i}" for i in range(12)]
    table = Table(dict.fromkeys(names, 4), 2, 0)
    random = np.random.default_rng(0)
    league = League(table, Random(2), None, random, 512)
    over = np.ones(512, np.bool_)
    acted = np.ones((512, 2), np.int64)
    expected = numbers_of(12)
    for _ in range(3):
        league.deal(over)
        returns = random.normal(size=(512, 2))
        rate_all(league.seated, returns, over, np.arange(2), expected)
        league.close(over, returns, acted, acted, ~over)
    rated = table.numbers[:, [RATING, UNCERTAINTY]]
    assert np.array_equal(rated, expected[:, [RATING, UNCERTAINTY]])
    assert (rated[:, 1] < 2.5).all()


@pytest.mark.parametrize(("policies", "seats"), [(2, 2), (12, 2), (8, 4), (8, 8), (12, 8)])
@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_after_a_thousand_games_the_uncertainty_is_below_two(policies, seats, spread):
    random = np.random.default_rng(1)
    skill, numbers = random.normal(0.0, spread, policies), numbers_of(policies)
    games = 1000 * policies // seats
    slots = np.array([random.permutation(policies)[:seats] for _ in range(games)])
    returns = skill[slots] + random.normal(size=slots.shape)
    rate_all(slots, returns, np.ones(games, np.bool_), np.arange(seats), numbers)
    assert numbers[:, UNCERTAINTY].max() < 2.0


def test_who_is_better_is_told_with_its_probability():
    one, other = Member(PolicyRef("a")), Member(PolicyRef("b"))
    assert probability_of_order(one, other) == 0.5
    one.rate(28.0, 3.0)
    other.rate(23.0, 4.0)
    assert probability_of_order(one, other) == pytest.approx(0.8413, abs=1e-4)  # a deviation
    assert probability_of_order(other, one) == pytest.approx(0.1587, abs=1e-4)
    one.rate(28.0, 0.0)
    other.rate(23.0, 0.0)
    assert probability_of_order(one, other) == 1.0


def births(skill, confidence, seed, games=12_000, every=30):
    """How often a director wants to replace one of these policies that play each other."""
    random, policies = np.random.default_rng(seed), len(skill)
    population = Population([Member(PolicyRef(f"p{i}")) for i in range(policies)])
    population.empty = ("born_0",)
    config = BirthsConfig(slots=1, every=every, games=20, confidence=confidence)
    wanted = 0
    director = Replacement(config)
    for begin in range(0, games, every):
        slots = np.array([random.permutation(policies)[:2] for _ in range(every)])
        returns = np.asarray(skill)[slots] + random.normal(size=slots.shape)
        rate_all(slots, returns, np.ones(every, np.bool_), np.arange(2), population.numbers)
        np.add.at(population.numbers[:, 0], slots, 1.0)
        population.matches = begin + every
        wanted += bool(director.step(population, None, {}))
        director.restore({"last": population.matches, "expected": []})
    return wanted


def test_among_equals_no_policy_is_replaced_on_noise():
    """Looked at 400 times: without the stated confidence almost each time one would be."""
    assert births([0.0] * 12, 0.0, 0) > 350
    assert sum(births([0.0] * 12, 0.95, seed) for seed in range(3)) == 0


def test_who_is_clearly_weakest_is_replaced_and_soon():
    assert births([-2.0, *[0.0] * 10, 1.0], 0.95, 0, games=1200) > 10
