"""Who sits how often: live policies in every match, the past as often as configured."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from scipy.stats import chisquare

from assembled import assemble
from refusals import refuses
from remuda.config import load_config
from remuda.envs.registry import make_env
from remuda.errors import ConfigError
from remuda.population.ledger.ledger import Ledger
from remuda.population.ledger.records import Member, PolicyRef, Population
from remuda.population.matchmaking.by_strength import Prioritized, SimilarRatings
from remuda.population.matchmaking.by_turn import Random, RoundRobin, SelfPlay
from remuda.population.matchmaking.matchmaker import Matchmaker
from remuda.population.roster import Roster
from remuda.population.setup import check_population, expected_shares, make_matchmaker
from remuda.population.specs import policy_specs
from remuda.runtime.layout import make_layout

NAMES = [f"p{i}" for i in range(8)]
TEAMS = {name: frozenset({0, 3} if name in NAMES[:2] else {1, 2}) for name in NAMES}


class OnlyThePast(Matchmaker):
    """A matchmaker of a user's own, that knows nothing of who learns."""

    def seat(self, population, ledger, random):
        return tuple(m.ref for m in population.members[-self.num_seats :])


class Favours(Matchmaker):
    """Another, that seats its favourite in every match."""

    def seat(self, population, ledger, random):
        refs = [m.ref for m in population.members]
        return (refs[0], *(refs[1 + int(random.integers(len(refs) - 1))] for _ in range(1)))


MATCHMAKERS = {
    "random": lambda: Random(4),
    "round_robin": lambda: RoundRobin(4),
    "fitness": lambda: SimilarRatings(4, 3),
    "fitness, one in reach": lambda: SimilarRatings(4, 1),
    "self_play": lambda: SelfPlay(4),
    "prioritized": lambda: Prioritized(4),
    "teams": lambda: Random(4),
    "own": lambda: OnlyThePast(4),
}


def with_past(copies=10, names=NAMES, seats=None):
    population = Population([Member(PolicyRef(name), (seats or {}).get(name)) for name in names])
    random = np.random.default_rng(5)
    for version in range(copies):
        for name in names:
            population.freeze(name, version).rate(25.0 + random.normal(), 1.0)
    return population


def play(matchmaker, population, count, seed=0):
    ledger = Ledger(population)
    return [
        match.seats
        for match in matchmaker.propose(population, ledger, count, np.random.default_rng(seed))
    ]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("name", MATCHMAKERS)
def test_in_every_match_a_policy_learns(name, share):
    """At 10 copies each 82 to 89% of matches were frozen copies among themselves."""
    matchmaker = MATCHMAKERS[name]()
    matchmaker.past_share = share
    population = with_past(seats=TEAMS if name == "teams" else None)
    for seats in play(matchmaker, population, 400):
        assert not all(ref.is_frozen for ref in seats)


def many_shares():
    """Return each matchmaker with each share and number of copies; quick is one number of each."""
    names = ("random", "round_robin", "fitness", "self_play", "prioritized", "teams")
    for (i, name), (k, share) in product(enumerate(names), enumerate((0.0, 0.3, 1.0))):
        quick = 2 if name == "fitness" or (i + k) % 2 == 0 else 12  # 12 are slow for fitness
        for copies in (2, 12):
            marks = () if copies == quick else pytest.mark.slow
            yield pytest.param(name, share, copies, marks=marks)


@pytest.mark.parametrize(("name", "share", "copies"), list(many_shares()))
def test_the_past_takes_its_share_of_the_other_seats_however_much_of_it_there_is(
    name, share, copies
):
    matchmaker = MATCHMAKERS[name]()
    matchmaker.past_share = share
    population = with_past(copies, seats=TEAMS if name == "teams" else None)
    found = play(matchmaker, population, 3000)
    frozen = sum(ref.is_frozen for seats in found for ref in seats)
    if share in (0.0, 1.0):
        assert frozen == share * 3 * 3000
    else:
        others = 3 * 3000
        assert (
            chisquare([frozen, others - frozen], [share * others, (1 - share) * others]).pvalue
            > 0.001
        )
    if name not in ("self_play",):
        assert all(len(set(seats)) == 4 for seats in found)
    # Each seat is a live policy's as often as any other.
    live = [sum(not seats[i].is_frozen for seats in found) for i in range(4)]
    assert chisquare(live).pvalue > 0.001
    if share and name in ("random", "round_robin"):
        seen = Counter(ref for seats in found for ref in seats if ref.is_frozen)
        assert len(seen) == copies * len(NAMES)
        assert chisquare(list(seen.values())).pvalue > 0.001


def test_no_policy_sits_twice_for_the_sake_of_the_share():
    one_copy = Population([Member(PolicyRef(name)) for name in NAMES[:4]])
    one_copy.freeze("p0", 1)
    few_live = with_past(3, NAMES[:1])
    for share in (0.0, 1.0):
        matchmaker = Random(4)
        matchmaker.past_share = share
        for population in (one_copy, few_live):
            for seats in play(matchmaker, population, 200):
                assert len(set(seats)) == 4
                assert not all(ref.is_frozen for ref in seats)


def test_restricted_policies_keep_their_seats_and_so_do_their_copies():
    population = Population([Member(PolicyRef(f"p{i}"), frozenset({i % 2, 2})) for i in range(6)])
    for i in range(6):
        population.freeze(f"p{i}", 1)
    for matchmaker in (Random(3), RoundRobin(3), Prioritized(3), SimilarRatings(3, 50)):
        for seats in play(matchmaker, population, 500):
            assert len(set(seats)) == 3
            assert not all(ref.is_frozen for ref in seats)
            for seat, ref in enumerate(seats):
                assert population[ref].may_sit(seat)


def test_a_freeze_does_not_begin_a_round_robin_anew():
    matchmaker, random = RoundRobin(2), np.random.default_rng(0)
    matchmaker.past_share = 0.0
    population = Population([Member(PolicyRef(name)) for name in NAMES])
    ledger, found = Ledger(population), []
    for i in range(7 * 8 // 2 * 2):
        (match,) = matchmaker.propose(population, ledger, 1, random)
        found.append(match.seats)
        population.freeze(f"p{i % 8}", i)
        if i > 20:
            population.retire(PolicyRef(f"p{(i - 20) % 8}", i - 20))
    assert len(set(found)) == 56


def test_a_policy_meets_every_other_however_often_copies_are_frozen():
    """The cycle began anew at each freeze: what came late in it was never played."""
    matchmaker, random = RoundRobin(2), np.random.default_rng(0)
    population = Population([Member(PolicyRef(name)) for name in NAMES])
    ledger, met = Ledger(population), Counter()
    for i in range(3000):
        (match,) = matchmaker.propose(population, ledger, 1, random)
        if not any(ref.is_frozen for ref in match.seats):
            met[match.seats] += 1
        population.freeze(f"p{i % 8}", i)
        if i >= 40:
            population.retire(PolicyRef(f"p{(i - 40) % 8}", i - 40))
    assert len(met) == 56
    assert chisquare(list(met.values())).pvalue > 0.001


def config_of(**population):
    return load_config(
        {
            "game": "treasure_hunt",
            "env": {"num_envs": 32, "options": {"num_agents": 4}},
            "policy": {"algorithm": "ppo"},
            "population": population,
        }
    )


AGENTS = [f"agent_{i}" for i in range(4)]
SPLIT = {
    "red": {"policies": ["r0"], "agents": AGENTS[:1]},
    "blue": {"policies": [f"b{i}" for i in range(8)], "agents": AGENTS[1:]},
}
SOME_SEATS = {"policy_0": AGENTS[:1], "policy_1": AGENTS[:2]}
POPULATIONS = {
    "teams of 1 and 8": {"matchmaker": "teams", "teams": SPLIT},
    "fixed": {"matchmaker": "fixed", "policies": 3},
    **{
        matchmaker: {"matchmaker": matchmaker, "policies": 6}
        for matchmaker in ("random", "round_robin", "fitness", "prioritized", "self_play")
    },
    **{
        f"{matchmaker} on some seats": {
            "matchmaker": matchmaker,
            "policies": 6,
            "seats": SOME_SEATS,
        }
        for matchmaker in ("random", "round_robin", "prioritized")
    },
    "random among fewer than seats": {"matchmaker": "random", "policies": 3},
    "births": {"matchmaker": "random", "policies": 5, "births": {"slots": 2}},
}


@pytest.mark.slow_cases("prioritized on some seats")
@pytest.mark.parametrize("name", POPULATIONS)
def test_the_expected_share_is_what_the_matchmaker_deals(name):
    """Shares went by the seats that policies may take, not by who is dealt them."""
    config = config_of(**POPULATIONS[name])
    agents = make_env(config.game, 1, **config.env.options).agents
    roster = Roster.of(config, agents)
    names = roster.policies
    shares = expected_shares(config.population, roster)
    there = [each for each in names if not each.startswith("born")]
    assert sum(shares[each] for each in there) == pytest.approx(4.0)
    assert set(shares) == set(names)
    allowed = POPULATIONS[name].get("seats", {})
    if name.startswith("teams"):
        allowed = {p: t["agents"] for t in SPLIT.values() for p in t["policies"]}
    seats = {each: frozenset(AGENTS.index(a) for a in found) for each, found in allowed.items()}
    population = Population([Member(PolicyRef(each), seats.get(each)) for each in there])
    matches = 2400
    dealt = play(make_matchmaker(config.population, roster), population, matches, seed=9)
    counts = Counter(ref.policy for seating in dealt for ref in seating)
    expected = np.array([shares[each] * matches for each in there])
    found = np.array([counts[each] for each in there], float)
    assert not found[expected == 0.0].any()
    found, expected = found[expected > 0.0], expected[expected > 0.0]
    assert chisquare(found, expected * found.sum() / expected.sum()).pvalue > 0.001


@pytest.mark.parametrize("matchmaker", ["random", "round_robin", "fitness", "prioritized"])
def test_chance_alone_gives_no_two_kinds_of_policies_unlike_shares(matchmaker):
    """Each kept to another seat of two, as mirror images: 0.108 and 0.104, so other rollouts."""
    seats = [frozenset({0}), frozenset({1})] + [None] * 10
    names = [f"p{i}" for i in range(12)]
    population = Population(
        [Member(PolicyRef(name), own) for name, own in zip(names, seats, strict=True)]
    )
    makers = {
        "random": lambda: Random(2),
        "round_robin": lambda: RoundRobin(2),
        "fitness": lambda: SimilarRatings(2, 3),
        "prioritized": lambda: Prioritized(2),
    }
    shares = makers[matchmaker]().expected_shares(population)
    assert shares["p0"] == shares["p1"]
    assert len({shares[name] for name in names[2:]}) == 1
    assert sum(shares.values()) == pytest.approx(2.0)


def test_what_more_than_chance_sets_apart_stays_apart():
    seats = [frozenset({0}), frozenset({0})] + [None] * 10
    population = Population([Member(PolicyRef(f"p{i}"), own) for i, own in enumerate(seats)])
    shares = Random(2).expected_shares(population)
    assert shares["p0"] == shares["p1"] < 0.8 * shares["p2"]


@pytest.mark.parametrize(
    "population",
    [
        {"matchmaker": "self_play", "policies": 3, "seats": {"policy_1": AGENTS[:2]}},
        {"matchmaker": "fixed", "policies": 6},
        {
            "matchmaker": "self_play",
            "policies": 2,
            "births": {"slots": 1},
            "seats": {"born_0": ["agent_2"]},
        },
    ],
)
def test_a_policy_that_would_never_be_dealt_is_refused(population):
    """It was accepted, had a learner, and never played."""
    config = config_of(**population)
    agents = make_env(config.game, 1, **config.env.options).agents
    with refuses(ConfigError):
        check_population(config, Roster.of(config, agents))


@pytest.mark.parametrize("name", POPULATIONS)
def test_a_population_of_which_all_are_dealt_is_not_refused(name):
    config = config_of(**POPULATIONS[name])
    agents = make_env(config.game, 1, **config.env.options).agents
    check_population(config, Roster.of(config, agents))


def test_rollouts_are_as_large_as_the_streams_that_a_policy_plays():
    """1 red on one seat against 8 blue on three: red trained on 640 steps instead of 4,096."""
    config = config_of(**POPULATIONS["teams of 1 and 8"])
    agents = make_env(config.game, 1, **config.env.options).agents
    specs = policy_specs(config, agents)
    assembly = assemble(config, specs, make_layout(config, len(specs)), agents=agents)
    rollouts = {name: found.rollout for name, found in assembly.experience.items()}
    assert rollouts == {"r0": 4096, **{f"b{i}": 128 * (32 * 3 // 8) for i in range(8)}}


def test_the_shares_of_a_matchmaker_of_ones_own_are_counted():
    population = Population([Member(PolicyRef(name)) for name in NAMES])
    shares = Favours(2).expected_shares(population)
    assert shares["p0"] == pytest.approx(1.0)
    others = {shares[name] for name in NAMES[1:]}
    assert len(others) == 1  # what chance alone sets apart is the same
    assert others.pop() == pytest.approx(1 / 7)


def short_of_members():
    """A team of one policy with three seats, against one of four with three; all have a past."""
    seats = {f"p{i}": frozenset({1, 3, 5} if i else {0, 2, 4}) for i in range(5)}
    population = Population([Member(PolicyRef(name), own) for name, own in seats.items()])
    for version in range(6):
        for name in seats:
            population.freeze(name, version)
    return Random(6), population


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_team_that_is_short_of_members_takes_them_from_its_past_and_the_others_do_not(share):
    """All seats of the match were drawn from all members, so mostly from the past."""
    matchmaker, population = short_of_members()
    matchmaker.past_share = share
    matches = 4000
    found = play(matchmaker, population, matches)
    assert all(len(set(seats)) == 6 for seats in found)
    assert all([ref.policy == "p0" for ref in seats] == [True, False] * 3 for seats in found)
    assert all(any(not ref.is_frozen for ref in seats) for seats in found)
    live = np.array([[not ref.is_frozen for ref in seats] for seats in found])
    blue, red = live[:, 1::2], live[:, ::2]
    assert red.sum(1).max() == 1, "the only policy of a team sat twice"
    # Half of the sure seats are blue's, and of the others the past takes its share.
    expected = 3 * (1 / 6 + 5 / 6 * (1.0 - share))
    assert blue.sum(1).mean() == pytest.approx(expected, abs=0.05)
    some_red = red[red.any(1)]
    if len(some_red):
        assert chisquare(some_red.sum(0)).pvalue > 0.001, "its seats are not alike"
    if share == 0.0:
        assert red.any(1).all()
        assert blue.all()


def test_a_team_without_a_past_sits_twice_and_the_others_do_not():
    own = [frozenset({2, 3} if i else {0, 1}) for i in range(4)]
    population = Population([Member(PolicyRef(f"p{i}"), own[i]) for i in range(4)])
    population.freeze("p1", 1)
    for seats in play(Random(4), population, 400):
        assert seats[:2] == (PolicyRef("p0"), PolicyRef("p0"))
        assert seats[2] != seats[3]


def test_a_team_of_which_only_the_past_is_left_costs_the_other_no_live_seat():
    """The seat that is sure to be live was drawn among all seats, and some no live one may take."""
    own = [frozenset({2} if i else {0, 1}) for i in range(4)]
    population = Population([Member(PolicyRef(f"p{i}"), own[i]) for i in range(4)])
    for version in range(3):
        population.freeze("p0", version)
        population.freeze("p1", version)
    population.retire(PolicyRef("p0"))
    matchmaker = Random(3)
    matchmaker.past_share = 1.0
    for seats in play(matchmaker, population, 200):
        assert [ref.policy for ref in seats[:2]] == ["p0", "p0"]
        assert seats[2].policy != "p0"
        assert not seats[2].is_frozen


@pytest.mark.parametrize("name", ["random", "round_robin", "prioritized", "fitness"])
def test_few_copies_for_some_seats_make_no_policy_sit_twice(name):
    """Two seats that only one frozen copy may take, and that the past was to take."""
    makers = {
        "random": lambda: Random(4),
        "round_robin": lambda: RoundRobin(4),
        "prioritized": lambda: Prioritized(4),
        "fitness": lambda: SimilarRatings(4, 50),
    }
    own = [frozenset({0, 1})] * 3 + [frozenset({2, 3})] * 3
    population = Population([Member(PolicyRef(f"p{i}"), own[i]) for i in range(6)])
    population.freeze("p0", 1)
    for version in range(5):
        population.freeze("p3", version)
    matchmaker = makers[name]()
    matchmaker.past_share = 1.0
    for seats in play(matchmaker, population, 300):
        assert len(set(seats)) == 4
        assert not all(ref.is_frozen for ref in seats)
        assert all(population[ref].may_sit(seat) for seat, ref in enumerate(seats))


def test_only_the_seats_that_clash_go_to_the_past():
    """Of three seats the outer ones are one policy's each, and both may take the one between."""
    population = Population(
        [Member(PolicyRef("a"), frozenset({0, 1})), Member(PolicyRef("b"), frozenset({1, 2}))]
    )
    for version in range(5):
        population.freeze("a", version)
        population.freeze("b", version)
    matchmaker = Random(3)
    matchmaker.past_share = 0.0
    found = play(matchmaker, population, 900)
    assert all(len(set(seats)) == 3 for seats in found)
    assert all(population[ref].may_sit(s) for seats in found for s, ref in enumerate(seats))
    frozen = Counter(sum(ref.is_frozen for ref in seats) for seats in found)
    assert frozen == {1: 900}, "more live policies gave up their seats than had to"


@pytest.mark.parametrize("share", [0.5, 1.0])
@pytest.mark.parametrize("seats", [2, 4])
def test_by_fitness_frozen_members_have_their_share_of_restricted_seats(share, seats):
    """Red before: half as many, since the first policy sat on their seats too."""
    found = []
    for allowed in ([None] * 4, [frozenset({i % seats}) for i in range(2 * seats)]):
        population = Population([Member(PolicyRef(f"p{i}"), own) for i, own in enumerate(allowed)])
        for i in range(len(allowed)):
            population.freeze(f"p{i}", 1)
        matchmaker = SimilarRatings(seats, 4)
        matchmaker.past_share = share
        matches = matchmaker.propose(
            population, Ledger(population), 4_000, np.random.default_rng(0)
        )
        found.append(np.mean([ref.is_frozen for match in matches for ref in match.seats]))
    assert found[1] == pytest.approx(found[0], abs=0.02)
