"""Several actors that deal one population: who plays whom, and what becomes of their results."""

import threading
import time
from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from population.birth_worlds import World as RealWorld
from population.follower_worlds import A, B, World, refs_of
from refusals import refuses
from remuda.coordinator.ledger_writer import LedgerWriter
from remuda.errors import ConfigError
from remuda.population.directors.director import Birth, Freeze, Retire, Vacate
from remuda.population.ledger.ledger import MATCH, MET, WON, Ledger, count
from remuda.population.ledger.ratings import rate_all
from remuda.population.ledger.records import GAMES, PolicyRef
from remuda.population.matchmaking.by_turn import Fixed, Random, RoundRobin
from remuda.population.members.follower_views import FINISHED, LOST, SEEN, TAKEN, WRITTEN, Shard
from remuda.population.members.table import Table
from remuda.population.members.table_parts import MATCHES, PROPOSED, REVISION, SINCE
from remuda.system.scoreboard import Learn, Policy
from support import Script

NAMES = ("a", "b", "c", "d")


class Told:
    """A director that commands what it is told to, once."""

    def __init__(self):
        self.commands = []

    def step(self, population, ledger, versions):
        commands, self.commands = self.commands, []
        return commands

    def state(self):
        return {}

    def restore(self, state):
        pass


def begun(names, make, **options):
    """All actors begin; returns the world and the director of the lead."""
    world, told = World(names, make, **options), Told()
    for actor in range(len(world.copies)):
        world.begin(actor, told)
    world.round()
    return world, told


@pytest.mark.parametrize("absent", [0.0, 0.3])
def test_sums_and_ratings_are_those_of_one_actor_that_had_all_results(absent):
    world, _ = begun(NAMES, lambda: Random(2), copies=(3, 2, 4), absent=absent)
    for _ in range(200):
        world.round()
    assert not world.lead.settled()  # the others have not said that they are through
    world.check()
    matches, alone = world.matches(), Table(dict.fromkeys(NAMES, 1), 2, 1)
    assert len(matches) == world.table.word(MATCHES) == len(world.closed) > 500
    slots, returns = matches["policy"].astype(np.int64), matches["returns"].astype(np.float64)
    over = np.ones(len(matches), np.bool_)
    count(slots, returns, over, alone.pairs, alone.numbers, alone.recent, 1.0)
    rate_all(slots, returns, over, world.lead.sides, alone.numbers)
    assert np.array_equal(world.table.pairs, alone.pairs)
    assert alone.numbers[:4, GAMES].sum() == np.isfinite(returns).sum()
    assert np.isfinite(alone.numbers).all()
    assert np.allclose(world.table.numbers[:4, :7], alone.numbers[:4, :7])
    for shard in world.table.shards:
        shard.set_word(FINISHED, 1)
    assert world.lead.settled()


def test_what_games_tell_is_added_up_of_all_actors():
    world, _ = begun(NAMES, lambda: Random(2), copies=(3, 2), metric=True)
    for _ in range(50):
        world.round()
    world.lead.settled()
    sums, matches = world.table.numbers[:4, -2:], world.matches()
    for slot in range(4):
        told = [2.0 * m["returns"].sum() for m in matches for p in m["policy"] if p == slot]
        assert sums[slot, 0] == sum(told)
        assert sums[slot, 1] == sum(value**2 for value in told)


def test_the_counts_of_a_round_robin_differ_by_one_for_each_actor_at_most():
    world, _ = begun(NAMES, lambda: RoundRobin(2), copies=(5, 3, 4))
    for _ in range(100):
        world.round()
        world.lead.settled()
        seatings = Counter(tuple(pair) for pair in world.matches()["policy"].tolist())
        dealt = Counter()
        for actor, league in enumerate(world.leagues):
            own = Counter()
            for match in world.matches():
                if match["number"] % 3 == actor:
                    own[tuple(match["policy"].tolist())] += 1
            own.update(tuple(seats) for seats in league.seated.tolist())
            assert len(own) < 12 or max(own.values()) - min(own.values()) <= 1
            dealt.update(own)
        counts = [dealt[seats] for seats in permutations(range(4), 2)]
        assert sum(counts) == sum(dealt.values())
        assert max(counts) - min(counts) <= 3
    assert sum(seatings.values()) == world.table.word(MATCHES)


def test_a_slot_is_emptied_once_no_other_actor_plays_there():
    world, told = begun(NAMES, lambda: Random(2))
    follower, occupants = world.leagues[1], world.table.occupants
    while 3 not in follower.seated:
        world.turn(1)
    told.commands = [Retire(PolicyRef("d"))]
    while told.commands:
        world.turn(0)
    for _ in range(10):  # the other has not looked
        world.turn(0)
        assert occupants.is_there(3)
        assert occupants.leaving == [3]
    assert "d" in {member.ref.policy for member in follower.population.members}
    while 3 in follower.seated:
        world.turn(1)
        world.turn(0) if 3 in follower.seated else None
        assert occupants.is_there(3)
    assert "d" not in {member.ref.policy for member in follower.population.members}
    world.turn(0)
    world.turn(0)
    assert not occupants.is_there(3)
    # The rings of the other are not clear yet: nobody may be born there.
    world.turn(0)
    assert world.lead.population.empty == ()
    assert world.lead.population.leaving == ("d",)
    assert world.acting[1].rings["d"]
    world.turn(1)
    assert not world.acting[1].rings["d"]
    while world.lead.population.empty != ("d",):
        world.turn(0)
    world.check()


@pytest.mark.parametrize("cleared", [False, True])
@pytest.mark.parametrize("actor", [0, 1], ids=["lead", "follower"])
def test_a_policy_is_born_though_an_actor_begins_anew_while_its_slot_is_empty(actor, cleared):
    world, told = begun(NAMES, lambda: Random(2))
    told.commands = [Retire(PolicyRef("d"))]
    while world.table.occupants.is_there(3):
        world.turn(1)
        world.turn(0)
    assert world.table.followers.clearing == [3]
    if cleared:
        while world.table.followers.clearing:
            world.turn(1)
    world.begin(actor, told)
    for _ in range(100):
        if "d" in world.lead.population.empty and not world.table.births.ordered(3):
            told.commands = [Birth("d", B)]
        world.round()
    for league in world.leagues:
        assert league.population[PolicyRef("d")].parent == B._replace(version=1)


def test_a_newborn_is_dealt_by_who_acts_with_its_weights_and_a_copy_stands_in_until_then():
    world, told = begun(("a", "b"), lambda: Fixed(["a", "b"]), stand_ins=True)
    spare = world.table.slots.stand_in_of("a")
    told.commands = [Vacate("a")]
    while world.lead.population.empty != ("a",):
        world.round()
    assert {spare, 1} == set(world.leagues[1].seated.ravel().tolist())
    told.commands = [Birth("a", B)]
    while not (pending := world.births.pending()):
        world.turn(0)
        world.turn(1)
    assert pending == "a"
    late = world.acting[1]
    before = dict(world.versions)
    world.learn()
    take, world.versions = world.versions, before
    for _ in range(10):  # neither acts with its weights yet
        world.turn(0)
        world.turn(1)
        assert 0 in world.table.births.expected
    world.versions = take
    while A not in world.lead.population:
        world.turn(0)
    world.versions = before  # what the other takes over at the beginning of its turns
    for _ in range(10):
        world.turn(1)
        assert late.versions["a"] < world.table.births.all[0, SINCE]
        assert {spare, 1} == set(world.leagues[1].seated.ravel().tolist())
    world.versions = take
    while spare in world.leagues[1].seated:
        world.turn(1)
    assert {0, 1} == set(world.leagues[1].seated.ravel().tolist())
    world.round()
    world.check()


def test_followers_play_frozen_copies_and_give_them_up():
    world, told = begun(("a", "b", "c"), lambda: Random(2), frozen=2)
    follower = world.leagues[1]
    told.commands = [Freeze("b")]
    for _ in range(20):
        world.round()
    copy = PolicyRef("b", 1)
    assert copy in follower.population
    assert follower.population[copy].parent == B
    slot = follower.population[copy].slot
    assert any(copy == m.ref for pair in world.dealt[1].values() for m in pair) or any(
        slot in match["policy"] or 1 in match["version"]
        for match in world.matches()
        if match["number"] % 2
    )
    told.commands = [Retire(copy)]
    for _ in range(20):
        world.round()
    assert copy not in follower.population
    assert not world.table.occupants.is_there(slot)
    assert refs_of(follower) == refs_of(world.lead)


def test_a_follower_goes_on_as_it_was_while_a_lead_is_away_in_the_middle_of_a_change():
    world, _ = begun(NAMES, lambda: Random(2))
    follower, table = world.leagues[1], world.table
    before = refs_of(follower)
    table.followers.begin_change()
    table.occupants.leave(3)
    for _ in range(20):
        world.turn(1)
    assert refs_of(follower) == before
    world.begin(0, Told())  # the successor
    assert table.word(REVISION) % 2 == 0
    while PolicyRef("d") in follower.population:
        world.turn(1)
    for _ in range(20):
        world.round()
    assert not table.occupants.is_there(3)
    world.check()


def test_a_follower_that_begins_waits_for_the_end_of_a_change():
    world, _ = begun(NAMES, lambda: Random(2))
    world.table.followers.begin_change()
    begins = threading.Thread(target=lambda: world.begin(1))
    begins.start()
    time.sleep(0.1)
    assert begins.is_alive()
    world.table.followers.end_change()
    begins.join(30.0)
    assert not begins.is_alive()
    assert refs_of(world.leagues[1]) == refs_of(world.lead)


def test_a_follower_whose_lead_is_away_waits_for_nothing_and_what_is_lost_is_counted(
    monkeypatch, tmp_path
):
    monkeypatch.setattr("remuda.population.members.follower_views.MOST", 8)
    monkeypatch.setattr("remuda.population.members.follower_views.LEAST", 8)
    world, _ = begun(NAMES, lambda: Random(2), copies=(3, 3))
    (shard,), said = world.table.shards, []
    ledger_writer = LedgerWriter(world.table, tmp_path / "ledger.bin", said.append)
    begin = shard.word(WRITTEN), len(world.closed)
    for _ in range(20):
        world.turn(1)
    played = len(world.closed) - begin[1]
    lost = shard.word(LOST)
    assert shard.word(WRITTEN) - shard.word(TAKEN) == 8
    assert played - lost == shard.word(WRITTEN) - begin[0]
    world.begin(0, Told())
    world.turn(0)
    ledger_writer.write()
    assert shard.word(WRITTEN) == shard.word(TAKEN)
    assert f"{lost:,} results of the other actors were lost" in said[-1]
    for _ in range(50):
        world.round()
    world.lead.settled()
    assert shard.word(LOST) == lost
    assert len(world.matches()) == len(world.closed) - lost == world.table.word(MATCHES)
    ledger_writer.write()
    assert len(said) == 1


def test_no_match_has_the_number_of_another_however_many_actors_go_on():
    world, _ = begun(NAMES, lambda: Random(2), copies=(3, 2, 4))
    for _ in range(50):
        world.round()
    state = world.table.state()
    for copies in ((5,), (2, 3), (1, 2, 1, 1)):
        later = World(NAMES, lambda: Random(2), copies=copies)
        later.table.restore(state)
        for actor in range(len(copies)):
            later.begin(actor)
        flat = [number for league in later.leagues for number in league.matches.tolist()]
        assert len(set(flat)) == len(flat) == sum(copies)
        assert min(flat) > max(world.closed)
    one = World(NAMES, lambda: Random(2), copies=(4,))
    one.begin(0)
    before = one.table.word(PROPOSED)
    again = World(NAMES, lambda: Random(2), copies=(4,))
    again.table.restore(one.table.state())
    assert again.table.word(PROPOSED) == before == 4


def test_win_rates_that_are_read_while_they_are_counted_stay_shares():
    """A meeting may be counted and its win not yet, or the other way round."""
    table = Table(dict.fromkeys("ab", 1), 2, 0)
    population = table.population()
    ledger = Ledger(population, table.pairs, table.recent)
    for met, won in ((0.0, 1.0), (1.0, 2.0), (1.0, 3.0)):
        table.recent[MET, 0, 1], table.recent[WON, 0, 1] = met, won
        assert ledger.win_rate(A, B) == 1.0
        assert ledger.win_rates(A, [B]).tolist() == [1.0]


def test_a_result_is_taken_whole_and_once_and_in_order():
    shard, size = Shard(2, 2, 1, 1), 5
    table = Table({"a": 1}, 2, 0)
    seen = []
    for begin in range(0, 4 * shard.size, size):
        records = table.records.empty(size)
        records["number"] = np.arange(begin, begin + size)
        slots, returns = np.full((size, 2), begin), np.full((size, 2), begin + 0.5)
        shard.add(records, slots, returns, np.full((size, 1), begin, np.float32))
        count = shard.word(WRITTEN) - shard.word(TAKEN)
        found = shard.results(shard.word(TAKEN), count)
        shard.set_word(TAKEN, shard.word(TAKEN) + count)
        seen += found[0]["number"].tolist()
        assert (found[1] == begin).all()
        assert (found[2] == begin + 0.5).all()
        assert (found[3] == begin).all()
    assert seen == list(range(len(seen)))
    assert shard.word(LOST) == 0


# The same with real actors, learners and rings, in one process.

TWO = {
    "game": "support:Tape",
    "schedule": "async",
    "actor": {"processes": 2},
    "env": {"num_envs": 7},
}
MATCHMAKERS = {
    "fixed": {"policies": 2, "snapshots": {"every": None}, "births": {"slots": 0}},
    "random": {},
    "round_robin": {},
    "fitness": {},
    "self_play": {},
    "prioritized": {},
    "mixed": {"shares": {"self_play": 0.5, "prioritized": 0.5}},
    "scripted": {"matchmaker": "random", "scripted": {"bot": "random"}},
    "teams": {
        "policies": None,
        "births": {"slots": 0},
        "teams": {
            "red": {"policies": ["r0", "r1"], "agents": ["agent_0"]},
            "blue": {"policies": ["b0", "b1"], "agents": ["agent_1"]},
        },
    },
}
QUICK = {"round_robin", "prioritized"}


def real_world(**tree):
    return RealWorld(**{**TWO, **tree})


@pytest.mark.slow_cases("round_robin")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in MATCHMAKERS]
)
def test_every_matchmaker_deals_in_both_actors(name):
    population = {"matchmaker": name, "director": "", "snapshots": {"every": 2, "keep": 2}}
    world = real_world(population=population | MATCHMAKERS[name])
    follower = world.actors[1].seats.league
    world.matches(600)
    assert world.league.settled() is False
    records = world.records(MATCH)
    numbers = records["number"]
    assert len(np.unique(numbers)) == len(numbers) == world.table.word(MATCHES)
    assert min((numbers % 2 == actor).sum() for actor in (0, 1)) > 200
    names = {m.ref.policy for m in world.league.population.learning}
    for actor in (0, 1):
        own = records[numbers % 2 == actor]
        live = {world.table.names[p] for p in own["policy"][own["version"] == -1].tolist()}
        assert live == names
        if name not in ("fixed",):
            assert (own["version"] >= 0).any(), "no frozen copy was dealt"
    # What each actor counted of episodes is in the ledger, once.
    for slot, policy in enumerate(world.table.policies):
        played = world.assembly.scoreboard.acted(policy)[Policy.EPISODES]
        told = ((records["policy"] == slot) & (records["version"] == -1)).sum()
        assert played == told, policy
    if not follower.has_news():
        assert refs_of(follower) == refs_of(world.league)
    for policy in names:  # it learns from what both played
        rings = world.assembly.experience[policy].rings
        assert len(rings) == 2
        assert all(ring.counters[0] > 0 for ring in rings)


@pytest.mark.parametrize(
    "algorithm",
    [
        "ppo",
        pytest.param("dqn", marks=pytest.mark.slow),
        pytest.param("iqn", marks=pytest.mark.slow),
    ],
)
def test_nothing_that_the_one_before_lived_through_comes_to_a_newborn(algorithm):
    experience = {"learning_starts": 64, "capacity": 2000, "replay_ratio": 1.0}
    own = {} if algorithm == "ppo" else {"experience": experience | {"segment_length": 5}}
    world = real_world(policy={"algorithm": algorithm, **own})
    table, name = world.table, "policy_1"
    world.matches(300)
    for generation in (1, 2):
        world.command(Retire(PolicyRef(name)))
        while name not in world.league.population.empty:
            assert world.table.births.ordered(1) == generation - 1
            world.play(1)
        world.command(Birth(name, PolicyRef("policy_0")))
        while PolicyRef(name) not in world.league.population:
            world.play(1)
        since = int(table.births.all[1, SINCE])
        for _ in range(60):
            world.play(1)
            for ring in world.assembly.experience[name].rings:
                committed, versions = ring.shared["committed"], ring.shared["versions"]
                for slot in np.flatnonzero(committed):
                    assert (versions[slot, : committed[slot]] >= since).all()
        for actor in world.actors:
            assert PolicyRef(name) in actor.seats.league.population
    for ring in world.assembly.experience[name].rings:
        assert ring.shared["committed"].sum() > 0
    assert table.shards[0].word(SEEN) == table.word(REVISION)


def test_every_step_of_both_actors_is_trained_on_or_waits_or_is_being_written_or_lost():
    world = real_world(population={"director": "", "births": {"slots": 0}})
    for _ in range(20):
        world.matches(40)
        for name, experience in world.assembly.experience.items():
            learned = world.assembly.scoreboard.learn(name)
            open_steps = [ring.open_steps for ring in experience.rings]
            told = learned[Learn.TRAINED] + learned[Learn.LOST] + experience.untaken
            assert experience.written == told + sum(open_steps)
            assert len(open_steps) == 2
            assert experience.untaken <= 2 * experience.rollout + 2 * sum(world.layout.copies)
            assert learned[Learn.TRAINED] > 0 or world.table.word(MATCHES) < 100


@pytest.mark.slow_cases("{'learn_from': 'own', 'main_share': 0.75}")
@pytest.mark.parametrize("own", [{}, {"learn_from": "own", "main_share": 0.75}], ids=str)
def test_a_league_plays_on_in_both_actors_while_exploiters_begin_anew(own):
    begins_anew = {"after": 2, "timeout": 4, "reset": 0.5}
    population = {
        "matchmaker": "league",
        "policies": None,
        "births": {"slots": 0},
        "snapshots": {"every": None, "keep": 3},
        "director": "",
        "league": {"main_exploiters": ["eve"], **begins_anew, **own},
        "memory": 50.0,
    }
    world, names = real_world(population=population), ("main_0", "eve", "league_exploiter_0")
    assert world.table.policies == names
    while world.table.births.ordered(1) < 3:
        world.play(5)
        for actor in world.actors:
            members = actor.seats.league.population.members
            assert {m.ref.policy for m in members} <= set(names)
            assert PolicyRef("main_0") in actor.seats.league.population
    assert world.league.settled() is False
    records = world.records(MATCH)
    assert len(np.unique(records["number"])) == len(records) == world.table.word(MATCHES)
    if own:  # a third of the matches for each would be 2 of 3 here
        live = (records["version"] == -1) & (records["policy"] == names.index("main_0"))
        for actor in (0, 1):
            assert live[records["number"] % 2 == actor].any(1).mean() > 0.8


def test_policies_evolve_by_what_all_actors_play():
    evolution = {"every": 60, "games": 10, "confidence": 0.0}
    population = {"policies": 4, "births": {"slots": 0}, "director": "", "evolution": evolution}
    world = real_world(population=population)
    births = world.table.births
    while births.all[:, 0].sum() < 4:
        world.play(5)
    world.play(50)
    assert {m.ref for m in world.league.population.learning} == {
        PolicyRef(f"policy_{i}") for i in range(4)
    }
    assert sum(m.parent is not None for m in world.league.population.learning) >= 2
    follower = world.actors[1].seats.league
    if not follower.has_news():
        assert [(m.ref, m.parent, m.born) for m in follower.population.members] == [
            (m.ref, m.parent, m.born) for m in world.league.population.members
        ]


def test_a_lead_is_done_once_it_has_all_that_the_others_played():
    turns = 70
    world = real_world(run={"turns": turns})
    lead, follower = world.actors
    while world.assembly.scoreboard.turns() < turns:
        assert not lead.done
        assert not follower.done
        world.play(1)
    assert world.table.followers.have_results  # of the last turns, which the lead has not seen
    assert not lead.work()
    assert not lead.done
    assert not world.table.followers.have_results
    begin = time.monotonic()
    lead.wait(1.0, lambda: False)  # neither for as long nor not at all
    assert 0.001 < time.monotonic() - begin < 0.9
    assert not follower.work()
    assert follower.done
    assert lead.done
    assert len(world.records(MATCH)) == world.table.word(MATCHES) > 0


@pytest.mark.parametrize("schedule", ["sequential", "lockstep"])
def test_exact_schedules_keep_one_actor(schedule):
    with refuses(ConfigError):
        real_world(schedule=schedule)


def test_directors_are_the_leads_alone():
    world = real_world()
    world.matches(50)
    assert Script.seen
    assert world.actors[1].parts == ("actor-1",)
    assert world.actors[0].parts == ("actor",)
    assert "director" in world.actors[0].state("actor")["lasting"]["league"]
    assert "director" not in world.actors[1].state("actor-1")["lasting"]["league"]
