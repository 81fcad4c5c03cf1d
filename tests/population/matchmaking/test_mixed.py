"""Matchmakers that are combined, by counting what they deal."""

from collections import Counter

import numpy as np
import pytest

from refusals import refuses
from remuda.config import load_config
from remuda.envs.registry import make_env
from remuda.errors import ConfigError
from remuda.population.ledger.ledger import Ledger
from remuda.population.ledger.records import Member, PolicyRef, Population
from remuda.population.matchmaking.by_strength import Prioritized
from remuda.population.matchmaking.by_turn import SelfPlay
from remuda.population.matchmaking.mixed import Mixed
from remuda.population.roster import Roster
from remuda.population.setup import (
    check_population,
    expected_shares,
    make_director,
    make_matchmaker,
)
from remuda.system.checkpoint.state import pack, unpack


def people(count, copies=0, **options):
    population = Population([Member(PolicyRef(f"p{i}"), **options) for i in range(count)])
    for version in range(copies):
        for i in range(count):
            population.freeze(f"p{i}", version)
    return population


def deal(matchmaker, population, count, seed=0, ledger=None):
    random = np.random.default_rng(seed)
    ledger = ledger or Ledger(population)
    return [match.seats for match in matchmaker.propose(population, ledger, count, random)]


def learner_of(population, number, seats=2):
    return population.learning[number // seats % len(population.learning)].ref


class Marks:
    """Deals its own opponent on all other seats, so that who dealt is seen."""

    def __init__(self, opponent, num_seats=2):
        self.opponent, self.num_seats = opponent, num_seats

    def seat_for(self, learner, own_seat, population, ledger, random):
        seats = [self.opponent] * self.num_seats
        seats[own_seat] = learner.ref
        return tuple(seats)


@pytest.mark.slow_cases("shares1", "shares2")
@pytest.mark.parametrize(
    "shares", [{"x": 0.5, "y": 0.35, "z": 0.15}, {"x": 0.0, "y": 1.0}, {"x": 0.02, "z": 0.98}]
)
def test_each_matchmaker_has_its_share_of_the_matches_of_a_learner(shares):
    population, matches = people(4, copies=1), 20_000
    parts = {
        name: Marks(PolicyRef("p3", 0)._replace(policy=f"p{i}")) for i, name in enumerate("xyz")
    }
    own = {"p1": {"z": 1.0}}
    found = deal(Mixed(2, parts, shares, own), population, matches)
    dealt = {f"p{i}": Counter() for i in range(4)}
    for i, seats in enumerate(found):
        learner = learner_of(population, i)
        assert seats[i % 2] == learner  # it has its turn, and each seat in turn
        dealt[learner.policy]["xyz"[int(seats[1 - i % 2].policy[1])]] += 1
    assert dealt["p1"] == {"z": matches // 4}
    for policy in ("p0", "p2", "p3"):
        for name in "xyz":
            share = shares.get(name, 0.0)
            noise = 5 * np.sqrt(matches / 4 * share * (1 - share))
            assert abs(dealt[policy][name] - share * matches / 4) <= noise


def test_a_policy_plays_itself_and_others_by_its_shares():
    population, matches = people(3, copies=3), 12_000
    self_play, others = SelfPlay(2, newest=0.75), Prioritized(2)
    others.past_share = 0.4
    parts = {"self_play": self_play, "prioritized": others}
    found = deal(Mixed(2, parts, {"self_play": 0.5, "prioritized": 0.5}), population, matches)
    kinds = Counter()
    for i, seats in enumerate(found):
        learner, other = learner_of(population, i), seats[1 - i % 2]
        kinds["itself" if other == learner else "past" if other.is_frozen else "live"] += 1
        assert any(not ref.is_frozen for ref in seats)
    for kind, share in (("itself", 0.5 * 0.75), ("live", 0.5 * 0.6), ("past", 0.125 + 0.2)):
        assert abs(kinds[kind] - share * matches) < 5 * np.sqrt(matches * share * (1 - share))


AGENTS = [f"agent_{i}" for i in range(4)]
SPLIT = {
    "red": {"policies": ["r0", "r1"], "agents": AGENTS[:2]},
    "blue": {"policies": ["b0", "b1", "b2"], "agents": AGENTS[2:]},
}
SHARES = {"self_play": 0.3, "prioritized": 0.3, "random": 0.2, "verification": 0.2}


def world(**population):
    tree = {
        "game": "treasure_hunt",
        "env": {"num_envs": 32, "options": {"num_agents": 4}},
        "policy": {"algorithm": "ppo"},
        "population": {"matchmaker": "mixed", "shares": SHARES, **population},
    }
    config = load_config(tree)
    agents = make_env(config.game, 1, **config.env.options).agents
    return config, Roster.of(config, agents)


def population_of(roster, copies=0):
    population = Population([Member(PolicyRef(p), roster.seats.get(p)) for p in roster.first])
    for version in range(copies):
        for policy in roster.first:
            population.freeze(policy, version)
    return population


@pytest.mark.parametrize(
    "options",
    [
        {"policies": 5},
        {"policies": 5, "seats": {"policy_0": AGENTS[:1], "policy_1": AGENTS[1:]}},
        {"teams": SPLIT},
        {"teams": SPLIT, "snapshots": {"every": 5, "share": 0.9}},
    ],
)
@pytest.mark.parametrize("copies", [0, 2])
def test_each_sits_where_it_may_and_one_learns(options, copies):
    config, roster = world(**options)
    check_population(config, roster)
    population = population_of(roster, copies)
    found = deal(make_matchmaker(config.population, roster), population, 2_000)
    own = Counter()
    for i, seats in enumerate(found):
        learner = population[learner_of(population, i, 4)]
        assert learner.ref in seats
        assert all(population[ref].may_sit(seat) for seat, ref in enumerate(seats))
        own[learner.ref.policy] += 1
    assert max(own.values()) - min(own.values()) <= 4
    # Each policy has had each seat that it may take.
    had = {(ref.policy, seat) for seats in found for seat, ref in enumerate(seats)}
    for member in population.learning:
        allowed = range(4) if member.seats is None else member.seats
        assert {(member.ref.policy, seat) for seat in allowed} <= had


def test_seats_of_a_policy_that_may_take_some_are_taken_in_turn():
    population = people(2)
    population[PolicyRef("p1")].seats = frozenset({1, 2, 3})
    found = deal(Mixed(4, {"x": Marks(PolicyRef("p0"), 4)}, {"x": 1.0}), population, 48)
    taken = Counter(seats.index(PolicyRef("p1")) for seats in found if PolicyRef("p1") in seats)
    assert taken == {1: 8, 2: 8, 3: 8}


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"policies": 4},
        {"policies": 3, "policy_shares": {"policy_1": {"self_play": 1.0}}},
        {"policies": 3, "seats": {"policy_0": AGENTS[:2]}},
    ],
)
def test_expected_shares_are_what_is_dealt(options, keeps):
    snapshots = {"snapshots": {"every": 10}} if keeps else {}
    config, roster = world(**options, **snapshots)
    shares = expected_shares(config.population, roster)
    population, matches = population_of(roster, copies=int(keeps)), 4_000
    matchmaker = make_matchmaker(config.population, roster)
    found = deal(matchmaker, population, matches, seed=3)
    dealt = Counter(ref.policy for seats in found for ref in seats if not ref.is_frozen)
    assert sum(shares.values()) < 4.0 if keeps else sum(shares.values()) == pytest.approx(4.0)
    for policy, share in shares.items():
        # Both are counted, 4 seats of a match at most hang together.
        noise = 5 * np.sqrt(4 * share / matches + 4 * share / 4096)
        assert abs(dealt[policy] / matches - share) < noise


def test_it_goes_on_exactly():
    config, roster = world(policies=3)
    population, random = population_of(roster, 2), np.random.default_rng(4)
    ledger, matchmaker = Ledger(population), make_matchmaker(config.population, roster)
    matchmaker.propose(population, ledger, 7, random)
    saved = unpack(pack({"maker": matchmaker.state(), "random": dict(random.bit_generator.state)}))
    rest = matchmaker.propose(population, ledger, 40, random)
    again, other = make_matchmaker(config.population, roster), np.random.default_rng(9)
    again.restore(saved["maker"])
    other.bit_generator.state = saved["random"]
    assert again.propose(population, ledger, 40, other) == rest


def test_without_a_word_one_policy_plays_itself():
    config, roster = world(shares={"self_play": 1.0})
    assert roster.first == ("policy",)
    assert make_director(config.population) is None


@pytest.mark.parametrize(
    "population",
    [
        {"shares": {}},
        {"shares": {"self_play": 0.5, "prioritized": 0.35}},
        {"shares": {"selfplay": 1.0}},
        {"shares": {"fixed": 1.0}},
        {"policies": 2, "policy_shares": {"policy_1": {"random": 0.4}}},
        {"policies": 2, "policy_shares": {"policy_7": {"random": 1.0}}},
    ],
)
def test_faults_of_the_shares_are_told(population):
    config, roster = world(**population)
    with refuses(ConfigError) as error:
        check_population(config, roster)
    assert "\n" not in str(error.value)


def test_shares_of_those_who_all_have_their_own_need_no_others():
    config, roster = world(
        shares={},
        policies=2,
        policy_shares={"policy_0": {"random": 1.0}, "policy_1": {"self_play": 1.0}},
    )
    check_population(config, roster)


@pytest.mark.parametrize("matchmaker", ["mixed", "league"])
def test_a_game_of_one_agent_has_no_opponents(matchmaker):
    population = {"matchmaker": matchmaker, "shares": {"self_play": 1.0}}
    tree = {"game": "treasure_hunt", "env": {"options": {"num_agents": 1}}}
    config = load_config(tree | {"population": population})
    roster = Roster.of(config, make_env(config.game, 1, **config.env.options).agents)
    with refuses(ConfigError):
        check_population(config, roster)
