"""Draws of seatings: without repetition if possible, and after few attempts."""

from collections import Counter
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from scipy.stats import chisquare

from remuda.config import load_config
from remuda.envs.registry import make_env
from remuda.population.ledger.ledger import Ledger
from remuda.population.ledger.records import Member, PolicyRef, Population
from remuda.population.matchmaking.by_strength import SimilarRatings
from remuda.population.matchmaking.by_turn import Random, RoundRobin
from remuda.population.matchmaking.seating import draw_different
from remuda.population.roster import Roster
from remuda.population.setup import expected_shares, make_matchmaker

STUCK = {  # games and populations in which no seating is without repetition, or hardly one draw
    "three on four seats": (
        "bucket_brigade",
        {"policies": ("a", "b", "c"), "seats": {"a": ("agent_0",)}},
    ),
    "ten, one on a seat": ("cleanup", {"policies": 10, "seats": {"policy_0": ("agent_0",)}}),
}


def league_of(game, **population):
    config = load_config({"game": game, "policy": {"algorithm": "ppo"}, "population": population})
    roster = Roster.of(config, make_env(game, 1).agents)
    members = [Member(PolicyRef(name), roster.seats.get(name)) for name in roster.policies]
    return config.population, roster, Population(members)


class Counting:
    """Random numbers, and how often some were drawn."""

    def __init__(self):
        self._generator, self.asked = np.random.default_rng(0), 0

    def __getattr__(self, name):
        self.asked += 1
        return getattr(self._generator, name)


@pytest.mark.parametrize("name", STUCK)
@pytest.mark.parametrize("matchmaker", ["random", "fitness"])
def test_no_match_is_drawn_a_thousand_times(name, matchmaker):
    """34 and 44 ms a match, so minutes without a word before a run began."""
    game, tree = STUCK[name]
    config, roster, population = league_of(game, matchmaker=matchmaker, **tree)
    random, matches = Counting(), 50
    maker = make_matchmaker(config, roster)
    maker.propose(population, Ledger(population), matches, random)
    assert random.asked < 20 * matches


def test_shares_are_counted_once_for_a_start(monkeypatch):
    """The memory plan, the rings and the learners ask, each for minutes."""
    config, roster, _ = league_of("cleanup", matchmaker="random", **STUCK["ten, one on a seat"][1])
    first = expected_shares(config, roster)
    monkeypatch.setattr(Random, "expected_shares", None)  # what counts them
    again = expected_shares(config, replace(roster))
    assert again == first
    again.clear()  # what one caller does to his is nothing to the next
    assert expected_shares(config, roster) == first
    other = config.model_copy(update={"seats": {}})
    with pytest.raises(TypeError):
        expected_shares(other, roster)
    with pytest.raises(TypeError):
        expected_shares(config, replace(roster, seats={}).among(roster.policies[1:]))


@some.composite
def restrictions(draw):
    """Seats, and by policy the seats that it may take; every seat has a policy that may take it."""
    seats = draw(some.integers(1, 4))
    own = some.sets(some.integers(0, seats - 1), min_size=1)
    may = draw(some.lists(own, min_size=1, max_size=5))
    return [[i for i, each in enumerate(may) if seat in each] or [0] for seat in range(seats)]


@settings(max_examples=200, deadline=None)
@given(restrictions())
def test_every_seat_goes_to_a_member_that_may_take_it(able):
    found = [draw_different(able, np.random.default_rng(i)) for i in range(20)]
    assert all(who in able[seat] for seating in found for seat, who in enumerate(seating))


ABLE = {
    "one kept to a seat": [[0, 1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]],
    "a chain": [[0, 1], [1, 2], [2, 3, 4], [3, 4, 0]],
    "each to two": [[0, 3, 4], [0, 1, 4], [1, 2], [2, 3]],
    "only one": [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]],
    "three kinds": [[0, 1, 2, 3], [0, 1, 2, 3], [2, 3, 4, 5], [2, 3, 4, 5]],
}


@pytest.mark.parametrize("name", ABLE)
def test_all_seatings_that_overlap_are_drawn(name):
    able = ABLE[name]
    expected = sorted(s for s in product(*able) if len(set(s)) == len(s))
    random = np.random.default_rng(1)
    found = Counter(tuple(draw_different(able, random)) for _ in range(200 * len(expected)))
    assert set(found) == set(expected)
    assert min(found.values()) > 100


def test_a_group_is_seated_in_any_order():
    population = Population(
        [Member(PolicyRef(f"p{i}"), None if i else frozenset({0})) for i in range(4)]
    )
    random, matches = np.random.default_rng(0), 6_000
    found = Counter(
        match.seats
        for match in SimilarRatings(4, 50).propose(population, Ledger(population), matches, random)
    )
    refs = [m.ref for m in population.members]
    expected = [(refs[0], *rest) for rest in permutations(refs[1:])]
    assert set(found) == set(expected)
    assert chisquare([found[each] for each in expected]).pvalue > 0.001


@pytest.mark.parametrize("name", ["random", "round_robin", "some seats"])
def test_a_match_of_hundreds_takes_few_draws(name):
    names = [f"p{i}" for i in range(256)]
    seats = frozenset({0}) if name == "some seats" else None
    members = [Member(PolicyRef(each), None if i else seats) for i, each in enumerate(names)]
    makers = {
        "random": lambda: Random(8),
        "some seats": lambda: Random(8),
        "round_robin": lambda: RoundRobin(8),
    }
    population, random = Population(members), Counting()
    makers[name]().propose(population, Ledger(population), 100, random)
    assert random.asked <= 6 * 100


def test_substitutes_sit_only_where_too_few_may():
    """Members of the other kind, such as frozen copies for live policies."""
    able, others = [[0], [0, 1], [0, 1], [2, 3]], [[10, 11]] * 4
    for seed in range(50):
        found = draw_different(able, np.random.default_rng(seed), others)
        assert len(set(found)) == 4
        assert sum(who >= 10 for who in found) == 1
        assert found[3] < 10
