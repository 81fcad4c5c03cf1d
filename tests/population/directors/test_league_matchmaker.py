"""Who plays whom in a league of main agents and exploiters, by counting."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from refusals import refuses
from remuda.config import LeagueConfig, load_config
from remuda.envs.registry import make_env
from remuda.errors import ConfigError
from remuda.population.directors.exploiter_league import (
    AgainstMains,
    Verification,
    fill,
    league_matchmaker,
    without_monotonic_suffix,
)
from remuda.population.ledger.ledger import Ledger
from remuda.population.ledger.records import Member, PolicyRef, Population
from remuda.population.matchmaking.by_strength import WEIGHTINGS
from remuda.population.matchmaking.mixed import Mixed
from remuda.population.roster import Roster
from remuda.population.setup import check_population, expected_shares, make_matchmaker
from remuda.system.checkpoint.state import pack, unpack

MAIN, OTHER, EXPLOITER, LEAGUE = "main_0", "main_1", "main_exploiter_0", "league_exploiter_0"
NAMES = (MAIN, OTHER, EXPLOITER, LEAGUE)
CONFIG = LeagueConfig(main=2)
MATCHES = 4_000


def league(copies=3, names=NAMES):
    population = Population([Member(PolicyRef(name)) for name in names])
    for version in range(copies):
        for name in names:
            population.freeze(name, version)
    return population


def rated(population, rates):
    """A ledger in which a policy won such shares of very many meetings."""
    ledger = Ledger(population)
    for (one, other), rate in rates.items():
        rows = [population[PolicyRef(one)].slot]
        rows += [population[ref].slot for ref in [PolicyRef(*other)]]
        ledger.recent[:, rows[0], rows[1]] = 1e6, rate * 1e6
    return ledger


def opponents(part, learner, population, ledger, count=MATCHES, seed=0):
    random, member = np.random.default_rng(seed), population[PolicyRef(learner)]
    found = Counter()
    for i in range(count):
        seats = part.seat_for(member, i % 2, population, ledger, random)
        assert seats[i % 2] == member.ref
        found[str(seats[1 - i % 2])] += 1
    return found


def assert_shares(found, weights):
    """Within 5 sigma, and none that has no weight."""
    count, total = sum(found.values()), sum(weights.values())
    assert set(found) <= {name for name, weight in weights.items() if weight}
    for name, weight in weights.items():
        share = weight / total
        noise = 5 * np.sqrt(count * share * (1 - share))
        assert abs(found[name] - share * count) <= noise, name


def test_the_weightings_are_those_of_the_paper():
    wins = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
    assert WEIGHTINGS["hard"](1 - wins).tolist() == [1.0, 0.5625, 0.25, 0.0625, 0.0]
    assert WEIGHTINGS["even"](1 - wins).tolist() == [0.0, 0.1875, 0.25, 0.1875, 0.0]
    assert WEIGHTINGS["capped"](1 - wins).tolist() == [0.5, 0.5, 0.5, 0.25, 0.0]
    assert WEIGHTINGS["uniform"](1 - wins).tolist() == [1.0] * 5


def test_main_agents_meet_alike_where_neither_is_too_strong():
    population = league()
    ledger = rated(population, {(MAIN, (OTHER,)): 0.31})
    found = opponents(AgainstMains(2, (MAIN, OTHER), 0.3), MAIN, population, ledger)
    assert_shares(found, {MAIN: 1, OTHER: 1})


def test_who_is_too_strong_is_met_as_it_was_by_the_variance():
    population = league()
    wins = {0: 0.9, 1: 0.5, 2: 0.1}
    rates = {(EXPLOITER, (OTHER, version)): rate for version, rate in wins.items()}
    ledger = rated(population, rates | {(EXPLOITER, (OTHER,)): 0.19, (EXPLOITER, (MAIN,)): 0.21})
    found = opponents(AgainstMains(2, (MAIN, OTHER), 0.2), EXPLOITER, population, ledger)
    weights = {f"{OTHER}@{v}": 0.5 * x * (1 - x) / 0.43 for v, x in wins.items()}
    assert_shares(found, {MAIN: 0.5, **weights})


def test_where_a_main_agent_has_no_past_it_plays_as_it_is():
    population = league(copies=0)
    ledger = rated(population, {(EXPLOITER, (MAIN,)): 0.0, (EXPLOITER, (OTHER,)): 0.0})
    found = opponents(AgainstMains(2, (MAIN, OTHER), 0.2), EXPLOITER, population, ledger)
    assert_shares(found, {MAIN: 1, OTHER: 1})


def verification():
    return Verification(2, AgainstMains(2, (MAIN, OTHER), 0.3), (MAIN, OTHER), (EXPLOITER,))


def test_copies_of_exploiters_that_win_are_verified_first():
    population = league()
    wins = {0: 0.2, 1: 0.5, 2: 0.9}
    ledger = rated(population, {(MAIN, (EXPLOITER, v)): x for v, x in wins.items()})
    found = opponents(verification(), MAIN, population, ledger)
    assert_shares(found, {f"{EXPLOITER}@{v}": (1 - x) ** 2 for v, x in wins.items()})


def test_forgotten_copies_of_main_agents_are_verified_next():
    """Its own newest is the hardest, as it should be; of the other's, the first is forgotten."""
    population = league()
    wins = {(MAIN, 0): 0.95, (MAIN, 1): 0.9, (MAIN, 2): 0.5}
    wins |= {(OTHER, 0): 0.4, (OTHER, 1): 0.8, (OTHER, 2): 0.1}
    wins |= {(EXPLOITER, v): 0.31 for v in range(3)}
    ledger = rated(population, {(MAIN, other): x for other, x in wins.items()})
    found = opponents(verification(), MAIN, population, ledger)
    # Where its own past is looked at, nothing is forgotten: self-play, with either.
    weights = {MAIN: 0.25, OTHER: 0.25}
    weights |= {f"{OTHER}@0": 0.5 * 0.36 / 0.4, f"{OTHER}@1": 0.5 * 0.04 / 0.4}
    assert_shares(found, weights)


def test_with_nothing_to_verify_it_is_self_play():
    population = league(copies=0)
    found = opponents(verification(), MAIN, population, Ledger(population))
    assert_shares(found, {MAIN: 1, OTHER: 1})


@given(some.lists(some.sampled_from([0.0, 0.1, 0.3, 0.5, 0.9, 1.0]), max_size=8))
def test_the_suffix_is_that_of_the_pseudocode(rates):
    """Vinyals et al. 2019, supplement, `remove_monotonic_suffix`, as it is written there."""
    expected = 0
    for i in range(len(rates) - 1, 0, -1):
        if rates[i - 1] < rates[i]:
            expected = i + 1
            break
    assert without_monotonic_suffix(np.array(rates)) == expected


def test_no_opponent_sits_twice_while_there_are_others():
    population = league(copies=2)
    learner, copies = population[PolicyRef(MAIN)], population.frozen
    copies[0].seats = frozenset({1})
    random = np.random.default_rng(0)
    for weights in (np.zeros(8), np.arange(8.0)):
        for seats in (fill(learner, 2, 6, copies, weights, population, random) for _ in range(200)):
            assert seats[2] == learner.ref
            assert len(set(seats)) == 6
            assert all(population[ref].may_sit(seat) for seat, ref in enumerate(seats))
    few = fill(learner, 0, 6, copies[:2], np.ones(2), population, random)
    assert Counter(few[2:]) == {copies[1].ref: 4}  # too few, and one that may sit on seat 1 alone
    # A seat that none of them may take goes to any that may.
    alone = fill(learner, 0, 3, copies[:1], np.ones(1), population, random)
    assert alone[1] == copies[0].ref
    assert population[alone[2]].may_sit(2)


def test_main_agents_have_their_shares_and_exploiters_their_opponents():
    population, config = league(), LeagueConfig(main=2, self_play=0.5)
    # It beats all copies but two: each part is seen by whom it deals.
    rates = {(MAIN, (policy, v)): 0.95 for policy in NAMES for v in range(3)}
    rates |= {(MAIN, (EXPLOITER, 1)): 0.0, (MAIN, (LEAGUE, 0)): 0.0}
    ledger = rated(population, rates)
    random, matches = np.random.default_rng(1), 24_000
    found = {name: Counter() for name in NAMES}
    for match in league_matchmaker(2, config).propose(population, ledger, matches, random):
        learner = population.learning[match.id // 2 % 4].ref
        assert match.seats[match.id % 2] == learner
        found[learner.policy][match.seats[1 - match.id % 2]] += 1
    main, own = found[MAIN], matches // 4
    lives = sum(count for ref, count in main.items() if not ref.is_frozen)
    past = Counter({ref: n for ref, n in main.items() if ref.is_frozen})
    # (1 - x)^2 is 1 for two copies, and 0.0025 for the ten others.
    in_past, in_verified = 1 / (2 + 10 * 0.0025), 1 / (1 + 2 * 0.0025)
    expected = {
        "self-play": (lives, 0.5),
        "league": (past[PolicyRef(LEAGUE, 0)], 0.35 * in_past),
        "exploiter": (past[PolicyRef(EXPLOITER, 1)], 0.35 * in_past + 0.15 * in_verified),
    }
    for name, (count, share) in expected.items():
        assert abs(count - share * own) < 5 * np.sqrt(own * share * (1 - share)), name
    assert set(found[EXPLOITER]) == {PolicyRef(MAIN), PolicyRef(OTHER)}
    # For a league exploiter all copies are alike until they have met.
    assert set(found[LEAGUE]) == {m.ref for m in population.frozen}
    least = min(found[LEAGUE].values())
    assert least > own / 12 - 5 * np.sqrt(own / 12)


def test_a_league_exploiter_leaves_out_whom_it_beats():
    population = league()
    rates = {(LEAGUE, (policy, v)): 0.0 for policy in NAMES for v in range(3)}
    rates |= {(LEAGUE, (MAIN, 0)): 1.0, (LEAGUE, (MAIN, 1)): 0.75}
    ledger, random = rated(population, rates), np.random.default_rng(2)
    part = league_matchmaker(2, CONFIG).parts["league"]
    member, found = population[PolicyRef(LEAGUE)], Counter()
    for i in range(MATCHES):
        found[str(part.seat_for(member, i % 2, population, ledger, random)[1 - i % 2])] += 1
    weights = {f"{p}@{v}": 0.5 for p in NAMES for v in range(3)} | {f"{MAIN}@1": 0.25}
    assert found[f"{MAIN}@0"] < 5  # 1e6 meetings, and the half that is always doubted
    del found[f"{MAIN}@0"], weights[f"{MAIN}@0"]
    assert_shares(found, weights)


def test_a_league_without_a_past_plays_all_the_same():
    population = league(copies=0, names=(MAIN, EXPLOITER, LEAGUE))
    maker, random = league_matchmaker(2, LeagueConfig()), np.random.default_rng(0)
    for match in maker.propose(population, Ledger(population), 600, random):
        assert population.learning[match.id // 2 % 3].ref in match.seats
    population.retire(PolicyRef(EXPLOITER))
    population.retire(PolicyRef(LEAGUE))
    (match,) = maker.propose(population, Ledger(population), 1, random)
    assert match.seats == (PolicyRef(MAIN), PolicyRef(MAIN))


def world(game="connect_four", **population):
    tree = {
        "game": game,
        "env": {"num_envs": 32, "options": {"num_agents": 4} if game == "treasure_hunt" else {}},
        "policy": {"algorithm": "ppo"},
        "population": {"matchmaker": "league", **population},
    }
    config = load_config(tree)
    agents = make_env(config.game, 1, **config.env.options).agents
    return config, Roster.of(config, agents)


def test_names_are_roles_or_ones_own():
    _, roster = world(league={"main": 2, "league_exploiters": 0})
    assert roster.policies == (MAIN, OTHER, EXPLOITER)
    _, roster = world(league={"main": ["ada"], "main_exploiters": ["eve"]})
    assert roster.policies == ("ada", "eve", LEAGUE)


@pytest.mark.parametrize("game", ["connect_four", "treasure_hunt"])
def test_expected_shares_are_what_is_dealt_with_a_past(game):
    config, roster = world(game, league={"main": 1, "main_exploiters": 2})
    shares = expected_shares(config.population, roster)
    population, matches = league(1, roster.first), 6_000
    random, dealt = np.random.default_rng(8), Counter()
    maker = make_matchmaker(config.population, roster)
    for match in maker.propose(population, Ledger(population), matches, random):
        dealt.update(ref.policy for ref in match.seats if not ref.is_frozen)
    seats = len(roster.agents)
    for policy, share in shares.items():
        noise = 5 * np.sqrt(seats * share * (1 / matches + 1 / 4096))
        assert abs(dealt[policy] / matches - share) < noise
    assert shares["main_exploiter_0"] == shares["main_exploiter_1"] == pytest.approx(0.25, abs=0.01)
    assert shares["main_0"] > 2.5 * shares["main_exploiter_0"]


def test_it_goes_on_exactly():
    population, random = league(), np.random.default_rng(3)
    ledger, maker = Ledger(population), league_matchmaker(2, CONFIG)
    maker.propose(population, ledger, 9, random)
    saved = unpack(pack({"maker": maker.state(), "random": dict(random.bit_generator.state)}))
    rest = maker.propose(population, ledger, 60, random)
    again, other = league_matchmaker(2, CONFIG), np.random.default_rng(9)
    again.restore(saved["maker"])
    other.bit_generator.state = saved["random"]
    assert isinstance(again, Mixed)
    assert again.propose(population, ledger, 60, other) == rest


@pytest.mark.parametrize(
    "population",
    [
        {"league": {"main_exploiters": 0, "league_exploiters": 0}},
        {"league": {"main": []}},
        {"league": {"self_play": 0.9}},
        {"policies": 3},
        {"births": {"slots": 1}, "director": "support:Script"},
        {"evolution": {"every": 100}},
        {"snapshots": {"every": 5}},
        {"teams": {"red": {"policies": ["main_0"], "agents": ["agent_0", "agent_1"]}}},
        {"league": {"main_share": 1}},
        {"league": {"main_share": 0}},
        {
            "league": {
                "main": 2,
                "main_exploiters": 0,
                "league_exploiters": 0,
                "main_share": 0.5,
            }
        },
    ],
)
def test_faults_of_a_league_are_told(population):
    config, roster = world(**population)
    with refuses(ConfigError) as error:
        check_population(config, roster)
    assert "\n" not in str(error.value)


def test_a_name_in_two_roles_is_told():
    with refuses(ConfigError, "population.league"):
        world(league={"main": ["a", "b"], "main_exploiters": ["a"]})


def test_an_unknown_role_is_told():
    with refuses(ConfigError, "population.league.minor") as error:
        load_config({"population": {"matchmaker": "league", "league": {"minor": 1}}})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("learn_from", ["all", "own"])
def test_of_its_own_matches_alone_a_policy_learns_where_that_is_asked_for(learn_from):
    config = LeagueConfig(main=2, learn_from=learn_from)
    matchmaker, population = league_matchmaker(2, config), league()
    matches = matchmaker.propose(population, Ledger(population), 800, np.random.default_rng(0))
    live = [[seat for seat, ref in enumerate(m.seats) if not ref.is_frozen] for m in matches]
    if learn_from == "all":
        assert {match.learns for match in matches} == {None}
        return
    both = 0
    for number, (match, seats) in enumerate(zip(matches, live, strict=True)):
        learner = NAMES[number // 2 % len(NAMES)]  # they take turns, and each its two seats
        own = {seat for seat in seats if match.seats[seat].policy == learner}
        assert match.learns == own
        assert number % 2 in own
        both += len(own) == 2
    # A main agent against itself learns on both seats; against the other, on its own alone.
    assert 0.1 < both / len(matches) < 0.25
    assert any(
        len(seats) == 2 and len(match.learns) == 1
        for match, seats in zip(matches, live, strict=True)
    )


def test_shares_of_seats_count_those_that_are_learned_from():
    population = Population([Member(PolicyRef(name)) for name in (MAIN, EXPLOITER, LEAGUE)])
    shares = league_matchmaker(2, LeagueConfig(learn_from="own")).expected_shares(population)
    # A third of the matches are for each; about half of the main agent's are against itself.
    assert shares[EXPLOITER] == pytest.approx(1 / 3, abs=0.03)
    assert shares[LEAGUE] == pytest.approx(1 / 3, abs=0.03)
    assert 0.45 < shares[MAIN] < 0.65


@pytest.mark.parametrize("share", [0.05, 0.5, 0.8])
def test_main_agents_have_the_share_of_matches_that_is_asked_for(share):
    config = LeagueConfig(main=2, learn_from="own", main_share=share)
    matchmaker, population = league_matchmaker(2, config), league()
    matches = matchmaker.propose(population, Ledger(population), 800, np.random.default_rng(0))
    learners = [match.seats[min(match.learns)].policy for match in matches]
    mains = [i for i, name in enumerate(learners) if name in (MAIN, OTHER)]
    assert abs(len(mains) - 800 * share) <= 1
    # At any time, too; and within each kind they take turns, on each seat in turn.
    told = np.cumsum([name in (MAIN, OTHER) for name in learners])
    assert np.abs(told - share * np.arange(1, 801)).max() <= 1
    exploiters = sorted(set(range(800)) - set(mains))
    for names, numbers in (((MAIN, OTHER), mains), ((EXPLOITER, LEAGUE), exploiters)):
        for k, i in enumerate(numbers):
            assert learners[i] == names[k // 2 % 2]
            assert k % 2 in matches[i].learns
    shares = league_matchmaker(2, config).expected_shares(
        Population([Member(PolicyRef(name)) for name in NAMES])
    )
    assert shares[EXPLOITER] == pytest.approx((1 - share) / 2, abs=0.03)
    assert shares[EXPLOITER] == shares[LEAGUE]
    assert shares[MAIN] == shares[OTHER]
    assert share / 2 < shares[MAIN] < share


def test_the_turn_of_a_slot_that_is_empty_is_taken_by_the_others():
    config = LeagueConfig(learn_from="own", main_share=0.25)
    matchmaker = league_matchmaker(2, config)
    population = league(names=(MAIN,))
    matches = matchmaker.propose(population, Ledger(population), 40, np.random.default_rng(0))
    assert {match.seats[min(match.learns)].policy for match in matches} == {MAIN}
    assert {min(match.learns) for match in matches} == {0, 1}
