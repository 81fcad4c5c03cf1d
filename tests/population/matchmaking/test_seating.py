"""Draws of seatings: all without repetition are equally likely, and none is drawn in vain."""

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
from remuda.population.matchmaking import seating
from remuda.population.matchmaking.by_strength import SimilarRatings
from remuda.population.matchmaking.by_turn import Random, RoundRobin, Teams
from remuda.population.matchmaking.seating import Seatings, few_changes, match_up, seat_all
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
def test_seatings_have_no_repetition_where_there_are_any(able):
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


@pytest.fixture(params=["seat by seat", "crowded"])
def way(request, monkeypatch):
    """The way in which seatings are drawn: all of them draw alike."""
    if request.param != "seat by seat":
        monkeypatch.setattr(seating, "DRAWS", 0)
    return request.param


@pytest.mark.slow_cases("crowded-three kinds")
@pytest.mark.parametrize("name", ABLE)
def test_all_seatings_that_overlap_are_equally_likely(name, way):
    able = ABLE[name]
    expected = sorted(s for s in product(*able) if len(set(s)) == len(s))
    seatings, random = Seatings(able), np.random.default_rng(1)
    found = Counter(seatings.draw(random) for _ in range(200 * len(expected)))
    assert set(found) == set(expected)
    if len(expected) > 1:
        assert chisquare([found[each] for each in expected]).pvalue > 0.001


def test_all_orders_of_a_group_are_equally_likely(way):
    seats = [frozenset({0, 1}), frozenset({1, 2}), None, frozenset({0, 3}), None]
    group = [Member(PolicyRef(f"p{i}"), own) for i, own in enumerate(seats)]
    random, refs = np.random.default_rng(4), [member.ref for member in group]
    expected = [
        order
        for order in permutations(refs)
        if all(group[refs.index(ref)].may_sit(seat) for seat, ref in enumerate(order))
    ]
    found = Counter(seat_all(group, 5, random) for _ in range(200 * len(expected)))
    assert set(found) == set(expected)
    assert chisquare([found[each] for each in expected]).pvalue > 0.001


def test_a_group_is_seated_in_any_order():
    population = Population(
        [Member(PolicyRef(f"p{i}"), None if i else frozenset({0})) for i in range(4)]
    )
    random, matches = np.random.default_rng(0), 6_000
    found = Counter(
        match.seats
        for match in SimilarRatings(4, 50.0).propose(
            population, Ledger(population), matches, random
        )
    )
    refs = [m.ref for m in population.members]
    expected = [(refs[0], *rest) for rest in permutations(refs[1:])]
    assert set(found) == set(expected)
    assert chisquare([found[each] for each in expected]).pvalue > 0.001


def test_many_seats_that_are_each_kept_to_others_are_filled():
    random = np.random.default_rng(3)
    seats, policies = 40, 60
    may = [random.choice(policies, 6, replace=False).tolist() for _ in range(seats)]
    seatings = Seatings(may)
    assert seatings.possible
    found = [seatings.draw(random) for _ in range(20)]
    assert all(len(set(s)) == seats and all(map(list.__contains__, may, s)) for s in found)
    assert len(set(found)) == 20


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


def test_making_seatings_looks_at_no_policy():
    """Nothing is found out about thousands who may take eight seats until draws have failed."""

    class Unread(list):
        def __iter__(self):
            raise AssertionError("all of them were looked through")

    able = [Unread(range(seat, 2000 + seat)) for seat in range(8)]
    seatings, random = Seatings(able), np.random.default_rng(0)
    assert seatings.possible
    assert all(len(set(seatings.draw(random))) == 8 for _ in range(100))


def test_seats_that_share_no_policy_are_filled_apart():
    """Two seats of one policy do not spoil the others."""
    block = [[0, 1, 2], [1, 2, 3], [2, 3, 0], [3, 0, 1]]
    able = [[10 * i + who for who in members] for i in range(6) for members in block]
    able += [[100], [100]]
    seatings, random = Seatings(able), np.random.default_rng(6)
    assert not seatings.possible
    found = [seatings.draw(random) for _ in range(40 * 9)]
    assert all(len(set(s[:24])) == 24 for s in found)
    expected = [s for s in product(*block) if len(set(s)) == 4]
    firsts = Counter(s[:4] for s in found)
    assert set(firsts) == set(expected)
    assert chisquare([firsts[each] for each in expected]).pvalue > 0.001


@settings(max_examples=200, deadline=None)
@given(restrictions(), some.integers(0, 2**32 - 1))
def test_as_many_as_possible_are_seated(able, seed):
    best = max(len(set(s)) for s in product(*able))
    for random in (None, np.random.default_rng(seed)):
        found = match_up(able, random)
        assert len(found) == len(set(found.values())) == best
        assert all(who in able[seat] for seat, who in found.items())


@settings(max_examples=300, deadline=None)
@given(some.data(), some.integers(0, 2**32 - 1))
def test_seats_change_their_kind_only_so_that_fewer_sit_twice(data, seed):
    seats = data.draw(some.integers(1, 4))
    who = some.lists(some.integers(0, 3), unique=True, max_size=3)
    live = [data.draw(who) for _ in range(seats)]
    frozen = [[10 + i for i in data.draw(who)] for _ in range(seats)]
    for seat in range(seats):
        if not live[seat] and not frozen[seat]:
            live[seat] = [0]
    asked = data.draw(some.lists(some.booleans(), min_size=seats, max_size=seats))
    asked = [bool(f) and (a or not m) for a, m, f in zip(asked, live, frozen, strict=True)]

    def best(kinds):
        able = [f if k else m for k, m, f in zip(kinds, live, frozen, strict=True)]
        return len(match_up(able)) if all(able) else -1

    found = few_changes(asked, live, frozen, np.random.default_rng(seed))
    every = [list(kinds) for kinds in product([False, True], repeat=seats)]
    assert best(found) == max(map(best, every))
    if best(asked) == best(found):
        assert found == asked
    live_seats = [m for m, k in zip(live, asked, strict=True) if not k]
    assert any(live_seats) <= (False in found)
