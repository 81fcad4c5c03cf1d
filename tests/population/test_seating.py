"""Draws of seatings: all that seat nobody twice are equally likely, and none is drawn in vain."""

from collections import Counter
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from scipy.stats import chisquare

from remuda.config import load_config
from remuda.envs.registry import make_env
from remuda.population import seating, setup
from remuda.population.ledger import Ledger
from remuda.population.matchmaking import Fitness, Random, RoundRobin, Teams
from remuda.population.records import Member, PolicyRef, Population
from remuda.population.seating import Seatings, count_seatings
from remuda.population.setup import expected_shares, make_matchmaker, policy_names, seats_of

STUCK = {  # games and populations in which no seating is without repetition, or hardly one draw
    "three on four seats": (
        "bucket_brigade",
        {"policies": ("a", "b", "c"), "seats": {"a": ("agent_0",)}},
    ),
    "ten, one on a seat": ("cleanup", {"policies": 10, "seats": {"policy_0": ("agent_0",)}}),
}


def league_of(game, **population):
    config = load_config({"game": game, "policy": {"algorithm": "ppo"}, "population": population})
    agents = make_env(game, 1).agents
    names = policy_names(config, agents)
    allowed = seats_of(config, agents, names)
    found = Population([Member(PolicyRef(name), allowed.get(name)) for name in names])
    return config, agents, names, found


class Counting:
    """Random numbers, and how often somebody asked for some."""

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
    config, agents, names, population = league_of(game, matchmaker=matchmaker, **tree)
    random, matches = Counting(), 50
    maker = make_matchmaker(config, agents, names)
    maker.propose(population, Ledger(population), matches, random)
    assert random.asked < 20 * matches


def test_shares_are_counted_once_for_a_start(monkeypatch):
    """The memory plan, the rings and the learners ask, each for minutes."""
    config, agents, names, _ = league_of(
        "cleanup", matchmaker="random", **STUCK["ten, one on a seat"][1]
    )
    first = expected_shares(config, agents, names)
    monkeypatch.setattr(setup, "_count_shares", None)
    again = expected_shares(config, agents, list(names))
    assert again == first
    again.clear()  # what one caller does to his is nothing to the next
    assert expected_shares(config, agents, names) == first
    other = load_config(
        {**config.model_dump(), "population": {"matchmaker": "random", "policies": 10}}
    )
    with pytest.raises(TypeError):
        expected_shares(other, agents, names)


@some.composite
def restrictions(draw):
    """Seats, and by policy the seats that it may take; every seat is somebody's."""
    seats = draw(some.integers(1, 4))
    own = some.sets(some.integers(0, seats - 1), min_size=1)
    may = draw(some.lists(own, min_size=1, max_size=5))
    return [[i for i, each in enumerate(may) if seat in each] or [0] for seat in range(seats)]


@settings(max_examples=200, deadline=None)
@given(restrictions())
def test_seatings_are_counted_right(able):
    """What comes out with probability above 0 is every seating without repetition, each alike."""
    expected = {s for s in product(*able) if len(set(s)) == len(s)}
    seatings = Seatings(able)
    assert seatings.possible == bool(expected)
    found = Counter(seatings.draw(np.random.default_rng(i)) for i in range(40))
    assert set(found) <= (expected or set(product(*able)))


ABLE = {
    "one kept to a seat": [[0, 1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]],
    "a chain": [[0, 1], [1, 2], [2, 3, 4], [3, 4, 0]],
    "each to two": [[0, 3, 4], [0, 1, 4], [1, 2], [2, 3]],
    "only one": [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]],
    "three kinds": [[0, 1, 2, 3], [0, 1, 2, 3], [2, 3, 4, 5], [2, 3, 4, 5]],
}


@pytest.mark.parametrize("name", ABLE)
@pytest.mark.parametrize("counted", [True, False])
def test_all_seatings_that_overlap_are_equally_likely(name, counted, monkeypatch):
    able = ABLE[name]
    count_seatings.cache_clear()
    if not counted:
        monkeypatch.setattr(seating, "COUNTED", 1)
    expected = sorted(s for s in product(*able) if len(set(s)) == len(s))
    seatings, random = Seatings(able), np.random.default_rng(1)
    assert (seatings._choices is None) is not counted
    found = Counter(seatings.draw(random) for _ in range(200 * len(expected)))
    count_seatings.cache_clear()
    assert set(found) == set(expected)
    if len(expected) > 1:
        assert chisquare([found[each] for each in expected]).pvalue > 0.001


def test_where_nobody_can_be_spared_each_seat_is_drawn_by_itself():
    able = [[0, 1, 2], [1, 2], [1, 2], [1, 2]]
    seatings, random = Seatings(able), np.random.default_rng(2)
    assert not seatings.possible
    expected = list(product(*able))
    found = Counter(seatings.draw(random) for _ in range(200 * len(expected)))
    assert chisquare([found[each] for each in expected]).pvalue > 0.001


def test_a_group_that_is_not_counted_on_is_seated_in_any_order():
    population = Population(
        [Member(PolicyRef(f"p{i}"), None if i else frozenset({0})) for i in range(4)]
    )
    random, matches = np.random.default_rng(0), 6_000
    found = Counter(
        match.seats
        for match in Fitness(4, 50.0).propose(population, Ledger(population), matches, random)
    )
    refs = [m.ref for m in population.members]
    expected = [(refs[0], *rest) for rest in permutations(refs[1:])]
    assert set(found) == set(expected)
    assert chisquare([found[each] for each in expected]).pvalue > 0.001


def test_many_seats_that_are_each_kept_to_others_are_filled():
    """More states than can be counted: by augmenting paths, within milliseconds."""
    random = np.random.default_rng(3)
    seats, policies = 40, 60
    may = [random.choice(policies, 6, replace=False).tolist() for _ in range(seats)]
    seatings = Seatings(may)
    assert seatings._choices is None
    assert seatings.possible
    found = [seatings.draw(random) for _ in range(20)]
    assert all(len(set(s)) == seats and all(map(list.__contains__, may, s)) for s in found)
    assert len(set(found)) == 20


def test_counting_what_is_too_much_gives_up():
    kinds = tuple((tuple(sorted({i, (i * 7 + 3) % 30, (i * 11 + 5) % 30})), 1) for i in range(40))
    assert count_seatings((1,) * 30, kinds) is None


@pytest.mark.parametrize("name", ["random", "round_robin", "teams", "some seats"])
def test_a_match_of_hundreds_takes_few_draws(name):
    names = [f"p{i}" for i in range(256)]
    seats = frozenset({0}) if name == "some seats" else None
    members = [Member(PolicyRef(each), None if i else seats) for i, each in enumerate(names)]
    makers = {
        "random": lambda: Random(8),
        "some seats": lambda: Random(8),
        "round_robin": lambda: RoundRobin(8),
        "teams": lambda: Teams(["red", "blue"] * 4, {"red": names[:128], "blue": names[128:]}),
    }
    population, random = Population(members), Counting()
    makers[name]().propose(population, Ledger(population), 100, random)
    assert random.asked <= 6 * 100
