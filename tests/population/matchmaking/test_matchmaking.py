"""Matchmakers, by counting what they propose."""

from collections import Counter
from itertools import combinations, permutations

import numpy as np
import pytest
from scipy.stats import chisquare

from population.results import Result, append
from refusals import refuses
from remuda.errors import ConfigError
from remuda.population.ledger.ledger import Ledger
from remuda.population.ledger.records import GAMES, Member, PolicyRef, Population
from remuda.population.matchmaking.by_strength import WEIGHTINGS, Prioritized, SimilarRatings
from remuda.population.matchmaking.by_turn import (
    Fixed,
    Random,
    RoundRobin,
    SelfPlay,
)
from remuda.system.checkpoint.state import pack, unpack


def people(count, **options):
    return Population([Member(PolicyRef(f"p{i}"), **options) for i in range(count)])


def seatings(matchmaker, population, count, ledger=None, seed=0):
    random = np.random.default_rng(seed)
    matches = matchmaker.propose(population, ledger or Ledger(population), count, random)
    return [tuple(str(ref) for ref in match.seats) for match in matches]


def test_matches_are_numbered():
    random = np.random.default_rng(0)
    matchmaker, population = Random(2), people(3)
    first = matchmaker.propose(population, Ledger(population), 3, random)
    second = matchmaker.propose(population, Ledger(population), 2, random)
    assert [match.id for match in first + second] == [0, 1, 2, 3, 4]


def test_fixed_is_ever_the_same():
    assert set(seatings(Fixed(["p2", "p0", "p2"]), people(3), 10)) == {("p2", "p0", "p2")}


@pytest.mark.slow_cases("4-3", "4-4")
@pytest.mark.parametrize(("policies", "seats"), [(5, 2), (4, 3), (4, 4)])
def test_random_seatings_are_uniform_and_seat_no_policy_twice(policies, seats):
    found = Counter(seatings(Random(seats), people(policies), 24_000))
    expected = list(permutations([f"p{i}" for i in range(policies)], seats))
    assert set(found) == set(expected)
    assert chisquare([found[seating] for seating in expected]).pvalue > 0.001


def test_random_keeps_policies_on_the_seats_they_may_take():
    population = people(4)
    population[PolicyRef("p3")].seats = frozenset({1})
    population[PolicyRef("p0")].seats = frozenset({0})
    found = Counter(seatings(Random(2), population, 14_000))
    allowed = [
        s for s in permutations(["p0", "p1", "p2", "p3"], 2) if s[0] != "p3" and s[1] != "p0"
    ]
    assert set(found) == set(allowed)
    assert chisquare([found[seating] for seating in allowed]).pvalue > 0.001


def test_fewer_policies_than_seats_sit_more_than_once():
    assert set(seatings(Random(3), people(1), 5)) == {("p0", "p0", "p0")}
    assert all(set(s) <= {"p0", "p1"} for s in seatings(Random(3), people(2), 50))


@pytest.mark.parametrize(("policies", "seats"), [(8, 2), (8, 4), (5, 3), (3, 3)])
def test_a_round_robin_is_exact_within_a_cycle(policies, seats):
    names = [f"p{i}" for i in range(policies)]
    cycle = len(list(combinations(names, seats))) * seats
    matchmaker, population, random = RoundRobin(seats), people(policies), np.random.default_rng(0)
    found = [
        tuple(str(ref) for ref in match.seats)
        for match in matchmaker.propose(population, Ledger(population), 3 * cycle, random)
    ]
    for begin in range(0, 3 * cycle, cycle):
        played = found[begin : begin + cycle]
        groups = Counter(frozenset(seating) for seating in played)
        assert groups == dict.fromkeys(map(frozenset, combinations(names, seats)), seats)
        taken = Counter((name, seat) for s in played for seat, name in enumerate(s))
        assert len(taken) == policies * seats
        assert len(set(taken.values())) == 1  # every policy on every seat equally often
    # At no time have two seatings been played more than one game apart.
    for end in (1, cycle // 2, cycle + 3, 2 * cycle + cycle // 3):
        counts = Counter(found[:end])
        all_counts = [counts[s] for s in set(found)]
        assert max(all_counts) - min(all_counts) <= 1
    cycles = {tuple(found[begin : begin + cycle]) for begin in range(0, 3 * cycle, cycle)}
    assert len(cycles) > 1  # the order is drawn anew


def test_a_birth_begins_a_new_cycle_and_the_retired_play_no_more():
    matchmaker, population = RoundRobin(2), people(3)
    seatings(matchmaker, population, 4)
    population.add(Member(PolicyRef("born")))
    assert len(set(seatings(matchmaker, population, 12))) == 12
    population.retire(PolicyRef("p1"))
    assert not any("p1" in seating for seating in seatings(matchmaker, population, 50))
    population.retire(PolicyRef("p2"))
    population.retire(PolicyRef("born"))
    with refuses(ConfigError):
        seatings(matchmaker, population, 1)


def rated(ratings, uncertainty=0.1):
    population = people(len(ratings))
    for member, rating in zip(population.members, ratings, strict=True):
        member.rate(rating, uncertainty)
    return population


def test_by_fitness_policies_meet_their_nearest_neighbours():
    population = rated([0.0, 1.0, 2.5, 3.0, 4.5, 20.0, 21.0, 40.0])
    found = seatings(SimilarRatings(2, 1), population, 4000)
    pairs = Counter(frozenset(s) for s in found)
    nearest = [("p0", "p1"), ("p1", "p2"), ("p2", "p3"), ("p3", "p4"), ("p5", "p6"), ("p6", "p7")]
    assert set(pairs) == {frozenset(pair) for pair in nearest} - {frozenset(("p1", "p2"))}
    # All seats are alike.
    found = seatings(SimilarRatings(3, 2), population, 6000)
    assert all(len(set(s)) == 3 for s in found)
    taken = Counter(s.index("p2") for s in found if "p2" in s)
    assert chisquare([taken[seat] for seat in range(3)]).pvalue > 0.001
    assert {frozenset(s) for s in found if "p7" in s} == {frozenset(("p7", "p6", "p5"))}


def test_by_fitness_uncertain_ratings_widen_the_window():
    population = rated([0.0, 1.0, 2.0, 9.0])
    near = seatings(SimilarRatings(2, 1), population, 500)
    assert not any(set(s) == {"p0", "p2"} for s in near)
    population.members[2].rate(2.0, 2.5)
    wide = seatings(SimilarRatings(2, 1), population, 500)
    assert any(set(s) == {"p0", "p2"} for s in wide)
    assert not any(set(s) == {"p0", "p3"} for s in wide)


def test_by_fitness_every_second_match_has_the_policy_with_the_fewest():
    population = rated([25.0] * 6)
    for i, member in enumerate(population.members):
        member.numbers[GAMES] = 100 * i
    found = seatings(SimilarRatings(2, 1), population, 1200)
    assert all("p0" in s for s in found[1::2])
    first = Counter(name for s in found[::2] for name in s)
    assert min(first[f"p{i}"] for i in range(6)) >= 100  # they take turns


@pytest.mark.slow_cases("2-0", "2-3", "4-3")
@pytest.mark.parametrize("frozen", [0, 3])
@pytest.mark.parametrize("seats", [2, 4])
def test_by_fitness_every_live_policy_keeps_its_share_however_far_its_rating_drifts(seats, frozen):
    """One of eight that had drifted out of the window never played again."""
    for seed in range(5):
        random, population = np.random.default_rng(seed), people(8)
        live = list(population.members)
        for version in range(frozen):
            population.freeze("p0", version).rate(25.0, 1.0)
        matchmaker, ratings = SimilarRatings(seats, 4), np.full(8, 25.0)
        for _ in range(40):  # the ratings drift apart, the first by far the fastest
            ratings += random.normal(0.0, 1.0, 8) - np.array([2.0, *np.zeros(7)])
            for member, rating in zip(live, ratings, strict=True):
                member.rate(rating, 1.0)
            matches = matchmaker.propose(population, Ledger(population), 100, random)
            played = Counter(str(ref) for match in matches for ref in match.seats)
            assert min(played[f"p{i}"] for i in range(8)) >= 50 // 8


def test_by_fitness_policies_that_keep_to_their_seats_play_however_far_they_drift():
    members = [Member(PolicyRef(f"p{i}"), frozenset({i % 2})) for i in range(6)]
    population = Population(members)
    for i, member in enumerate(members):
        member.rate([90.0, 40.0, 24.0, 25.0, 26.0, 27.0][i], 1.0)
    played = Counter(name for s in seatings(SimilarRatings(2, 4), population, 1000) for name in s)
    assert min(played[f"p{i}"] for i in range(6)) >= 30


def test_by_fitness_policies_of_six_seats_meet_their_nearest_neighbours():
    """Red before: only 1 group of 100 had a policy for each seat, so most were drawn uniformly."""
    members = [
        Member(PolicyRef(f"p{seat}_{i}"), frozenset({seat})) for seat in range(6) for i in range(9)
    ]
    population = Population(members)
    for member in members:
        member.rate(10.0 * int(member.ref.policy[-1]), 1.0)
    for seating in seatings(SimilarRatings(6, 1), population, 300):
        strengths = [int(name[-1]) for name in seating]
        assert max(strengths) - min(strengths) <= 1


def test_self_play_meets_itself_and_its_past():
    population = people(2)
    for version in range(3):
        population.freeze("p0", version)
    matchmaker = SelfPlay(2, newest=0.5)
    found = seatings(matchmaker, population, 40_000)
    # The learners take turns, and each takes the seats in turn.
    assert [s[0] for s in found[2:4]] == ["p1", "p1"]
    mine = [s for s in found if "p0" in s]
    assert len(mine) == 20_000
    assert all(s[i % 2] == "p0" for i, s in enumerate(mine))
    others = Counter(s[1 - i % 2] for i, s in enumerate(mine))
    assert set(others) == {"p0", "p0@0", "p0@1", "p0@2"}
    expected = [10_000, *[10_000 / 3] * 3]
    counts = [others[name] for name in ("p0", "p0@0", "p0@1", "p0@2")]
    assert chisquare(counts, expected).pvalue > 0.001
    assert set(seatings(SelfPlay(3), people(1), 9)) == {("p0", "p0", "p0")}


def known_ledger(population, version=-1):
    """p0 against: p1, to whom it always loses; p2, even, by draws; p3, whom it always beats."""
    ledger = Ledger(population)
    returns = {"p1": (0.0, 1.0), "p2": (0.5, 0.5), "p3": (1.0, 0.0)}
    for i in range(60):
        other = f"p{1 + i % 3}"
        seats = (PolicyRef("p0"), PolicyRef(other, version))
        assert append(ledger, Result(i, seats, returns[other]))
    return ledger


@pytest.mark.slow_cases("hard-weights0")
@pytest.mark.parametrize(
    ("weighting", "weights"),
    [
        ("hard", {"p1": (20.5 / 21) ** 2, "p2": 0.25, "p3": (0.5 / 21) ** 2}),
        pytest.param(
            "even",
            {"p1": 20.5 / 21 * 0.5 / 21, "p2": 0.25, "p3": 20.5 / 21 * 0.5 / 21},
            marks=pytest.mark.slow,  # its chances are looked at below
        ),
    ],
)
def test_prioritized_frequencies_are_those_of_theory(weighting, weights):
    population = people(4)
    for name in ("p1", "p2", "p3"):  # only p0 learns
        population.retire(PolicyRef(name))
        population.add(Member(PolicyRef(name, 0)))
    ledger = known_ledger(population, version=0)
    found = seatings(Prioritized(2, weighting), population, 40_000, ledger)
    assert all(s[i % 2] == "p0" for i, s in enumerate(found))
    met = Counter(s[1 - i % 2].removesuffix("@0") for i, s in enumerate(found))
    total = sum(weights.values())
    for name, weight in weights.items():
        assert met[name] / 40_000 == pytest.approx(weight / total, abs=0.02)


@pytest.mark.parametrize(("weighting", "chances"), [("hard", [9, 4, 1]), ("even", [3, 4, 3])])
def test_prioritized_probabilities_are_by_the_weighting(weighting, chances):
    """Of those whom one beats once, twice and three times in four games."""
    found = WEIGHTINGS[weighting](np.array([0.75, 0.5, 0.25]))
    assert found / found.sum() == pytest.approx(np.array(chances) / sum(chances))


def test_prioritized_against_those_whom_one_always_beats_is_uniform():
    """No division by zero where every weight is 0."""
    population = people(3)
    for name in ("p1", "p2"):  # only p0 learns
        population.retire(PolicyRef(name))
        population.add(Member(PolicyRef(name, 0)))
    ledger = Ledger(population)
    ledger.win_rates_at = lambda slot, others: np.ones(len(others))
    met = Counter(
        s[1 - i % 2] for i, s in enumerate(seatings(Prioritized(2), population, 4000, ledger))
    )
    assert met["p1@0"] / 4000 == pytest.approx(0.5, abs=5 * 0.5 / 4000**0.5)
    assert met["p1@0"] + met["p2@0"] == 4000
    with refuses(ConfigError):
        Prioritized(2, "soft")


def test_prioritized_of_several_seats_seats_no_policy_twice():
    population = people(6)
    found = seatings(Prioritized(4), population, 600, known_ledger(population))
    assert all(len(set(s)) == 4 for s in found)
    learners = Counter(s[i % 4] for i, s in enumerate(found))
    assert learners == {f"p{i}": 100 for i in range(6)}


@pytest.mark.slow
def test_teams_are_never_mixed():
    red, blue = [f"r{i}" for i in range(8)], [f"b{i}" for i in range(8)]
    members = [Member(PolicyRef(name), frozenset({0, 2})) for name in red]
    members += [Member(PolicyRef(name), frozenset({1, 3, 4})) for name in blue]
    population = Population(members)
    population.freeze("r0", 3)
    matchmaker = Random(5)
    matchmaker.past_share = 0.25
    found = seatings(matchmaker, population, 18_000)
    for seating in found:
        assert [name[0] for name in seating] == ["r", "b", "r", "b", "b"]
        assert len(set(seating)) == 5
    firsts = Counter(seating[0] for seating in found)
    assert set(firsts) == {*red, "r0@3"}
    assert firsts.pop("r0@3") > 1000
    assert chisquare(list(firsts.values())).pvalue > 0.001


def test_a_seat_that_no_policy_may_take_is_refused():
    with refuses(ConfigError):
        seatings(Random(2), people(3, seats=frozenset({0})), 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Fixed(["p0", "p1"]),
        lambda: Random(2),
        lambda: RoundRobin(2),
        lambda: SimilarRatings(2, 2),
        lambda: SelfPlay(2),
        lambda: Prioritized(2),
    ],
)
def test_a_league_goes_on_exactly(make):
    population = people(4)
    ledger = known_ledger(population)
    random, matchmaker = np.random.default_rng(3), make()
    matchmaker.propose(population, ledger, 7, random)
    saved = unpack(pack({"maker": matchmaker.state(), "random": dict(random.bit_generator.state)}))
    rest = matchmaker.propose(population, ledger, 30, random)
    again, other = make(), np.random.default_rng(9)
    again.restore(saved["maker"])
    other.bit_generator.state = saved["random"]
    assert again.propose(population, ledger, 30, other) == rest


def test_a_round_robin_of_many_takes_no_memory_and_passes_over_forbidden_seats():
    matchmaker, population = RoundRobin(8), people(64)  # 35 thousand million seatings
    found = seatings(matchmaker, population, 2_000)
    assert len(set(found)) == 2_000
    counts = Counter(name for seating in found for name in seating)
    assert len(counts) == 64
    assert chisquare(list(counts.values())).pvalue > 0.001
    picky = Population([Member(PolicyRef(f"p{i}"), frozenset({i % 2})) for i in range(4)])
    allowed = {("p0", "p1"), ("p0", "p3"), ("p2", "p1"), ("p2", "p3")}
    assert Counter(seatings(RoundRobin(2), picky, 40)) == dict.fromkeys(allowed, 10)
    stuck = Population([Member(PolicyRef(f"p{i}"), frozenset({0})) for i in range(3)])
    stuck.add(Member(PolicyRef("p3"), frozenset({0, 1})))
    assert set(seatings(RoundRobin(2), stuck, 9)) == {(f"p{i}", "p3") for i in range(3)}


@pytest.mark.parametrize("seats", [8, 10])
def test_no_policy_sits_twice_where_all_must_sit(seats):
    """A random draw for each seat would hardly ever be a seating of ten."""
    found = seatings(Random(seats), people(seats), 3_000)
    assert all(len(set(s)) == seats for s in found)
    first = Counter(s[0] for s in found)
    assert chisquare([first[f"p{i}"] for i in range(seats)]).pvalue > 0.001


def test_seats_that_overlap_are_filled_without_repetition():
    """p0 may only sit on seat 0, and so on: one seating in ten million draws."""
    population = Population(
        [Member(PolicyRef(f"p{i}"), frozenset(range(i + 1))) for i in range(10)]
    )
    assert set(seatings(Random(10), population, 3)) == {tuple(f"p{i}" for i in range(10))}
    stuck = Population([Member(PolicyRef(f"p{i}"), frozenset({0, i})) for i in range(2)])
    stuck.add(Member(PolicyRef("p2"), frozenset({1})))
    assert all(len(set(s)) == 2 for s in seatings(Random(2), stuck, 100))


def test_a_round_robin_keeps_policies_on_their_seats():
    """Of 32 policies, each kept to one of eight seats, one combination in 160 has an order."""
    population = Population([Member(PolicyRef(f"p{i}"), frozenset({i % 8})) for i in range(32)])
    found = seatings(RoundRobin(8), population, 300)
    assert all(int(name[1:]) % 8 == seat for s in found for seat, name in enumerate(s))
    assert len(Counter(name for s in found for name in s)) == 32


def test_a_round_robin_finds_an_order_for_policies_that_no_rotation_seats():
    own = [0, 2, 1]
    population = Population([Member(PolicyRef(f"p{i}"), frozenset({own[i]})) for i in range(3)])
    assert set(seatings(RoundRobin(3), population, 5)) == {("p0", "p2", "p1")}


def test_by_fitness_substitutes_are_near_too():
    """Red before: where no live policy was left, 43% of the opponents were far from the first."""
    kept = Member(PolicyRef("kept", 1), frozenset({1}))
    past = [Member(PolicyRef("live", version)) for version in range(1, 21)]
    for version, member in enumerate(past, 1):
        member.rate(-100.0 * version, 1.0)
    population = Population([Member(PolicyRef("live")), kept, *past])
    found = seatings(SimilarRatings(2, 2), population, 500)
    assert {name for seating in found for name in seating} <= {"live", "live@1", "live@2", "kept@1"}
