"""When policies of a league are copied, and when they begin anew, in their own slots."""

from collections import Counter

import numpy as np
import pytest

from equivalence.runs import PPO, assert_same, outcome, run
from line_deaths import AtLine
from population.birth_worlds import World
from population.dealing import test_deaths as deaths
from remuda.config import LeagueConfig, SnapshotsConfig, overlay
from remuda.population.dealing.lead import League
from remuda.population.directors.director import Birth, Freeze, Retire, Vacate
from remuda.population.directors.exploiter_league import LeagueDirector, league_matchmaker
from remuda.population.ledger.ledger import (
    BIRTH,
    BORN_WITH,
    FREEZE,
    MATCH,
    RETIRE,
    Ledger,
    read_records,
)
from remuda.population.ledger.records import Member, PolicyRef, Population
from remuda.population.members.table_parts import MATCHES
from remuda.system.checkpoint.names import COORDINATOR
from remuda.system.checkpoint.state import pack, unpack
from remuda.system.checkpoint.store import Checkpoints

MAIN, EXPLOITER, LEAGUE = "main_0", "main_exploiter_0", "league_exploiter_0"
NAMES = (MAIN, EXPLOITER, LEAGUE)


class Played:
    """A director that is asked, and whose commands are carried out at once."""

    def __init__(self, seed=0, keep=3, **config):
        options = {"after": 10, "timeout": 40, "games": 20} | config
        random = np.random.default_rng(seed)
        self.director = LeagueDirector(LeagueConfig(**options), SnapshotsConfig(keep=keep), random)
        self.population = Population([Member(PolicyRef(name)) for name in NAMES])
        self.ledger = Ledger(self.population)
        self.versions = dict.fromkeys(NAMES, 1)

    def wins(self, one, rate, *others):
        """Say what a policy won of very many meetings with others."""
        for other in others:
            row, column = self.population[PolicyRef(one)].slot, self.population[other].slot
            self.ledger.pairs[:2, row, column] = 1e6, rate * 1e6
            self.ledger.recent[:, row, column] = 1e6, rate * 1e6

    def ask(self, **learned):
        for name, versions in learned.items():
            self.versions[name] += versions
        return self.director.step(self.population, self.ledger, self.versions)

    def step(self, **learned):
        """Ask, and do what is commanded."""
        commands = self.ask(**learned)
        for command in commands:
            if isinstance(command, Freeze):
                version = self.versions[command.policy]
                self.population.freeze(command.policy, version)
            elif isinstance(command, Retire):
                self.population.retire(command.ref)
            elif isinstance(command, Vacate):
                self.population.retire(PolicyRef(command.policy))
                self.population.leaving = (command.policy,)
            else:
                self.population.empty = ()
                self.population.matches += 1
                newborn = Member(PolicyRef(command.policy), born=self.population.matches)
                self.population.add(newborn)
        return commands

    def leave(self):
        """The last matches of who retired are over."""
        self.population.empty, self.population.leaving = self.population.leaving, ()


def copies(played, policy):
    return [member.ref.version for member in played.population.past_of(policy)]


def test_main_agents_are_copied_when_they_begin():
    played = Played()
    assert played.step() == [Freeze(MAIN)]
    assert played.step() == played.step() == []


def test_nobody_is_copied_before_its_time_and_everybody_after():
    played = Played()
    played.step()
    played.step()
    played.wins(EXPLOITER, 1.0, PolicyRef(MAIN))
    played.wins(MAIN, 1.0, PolicyRef(MAIN, 1))
    for name in NAMES:
        assert played.step(**{name: 9}) == []  # they win, but have not learned long enough
    assert played.step(league_exploiter_0=29) == []  # 38: it has met nobody, so it wins nothing
    assert played.step(league_exploiter_0=2) == [Freeze(LEAGUE)]


@pytest.mark.parametrize(("rate", "copied"), [(0.69, False), (0.72, True)])
def test_a_main_exploiter_is_copied_once_it_beats_each_main_agent(rate, copied):
    played = Played()
    played.step()
    played.step()
    played.wins(EXPLOITER, rate, PolicyRef(MAIN))
    assert played.step(main_exploiter_0=10) == ([Freeze(EXPLOITER)] if copied else [])


@pytest.mark.parametrize("policy", [MAIN, LEAGUE])
def test_others_are_copied_once_they_beat_each_copy_of_the_league(policy):
    played = Played()
    played.step()
    played.population.freeze(EXPLOITER, 1)
    played.step()
    played.wins(policy, 0.9, PolicyRef(MAIN, 1), PolicyRef(EXPLOITER, 1))
    played.wins(policy, 0.6, PolicyRef(EXPLOITER, 1))
    assert played.step(**{policy: 10}) == []
    played.wins(policy, 0.9, PolicyRef(EXPLOITER, 1))
    assert played.step() == [Freeze(policy)]


def test_a_few_lucky_matches_are_not_enough():
    played = Played(games=20)
    played.step()
    played.step()
    row, column = (played.population[PolicyRef(name)].slot for name in (EXPLOITER, MAIN))
    for sums in (played.ledger.pairs[:2], played.ledger.recent):
        sums[:, row, column] = 19.0, 19.0
    assert played.step(main_exploiter_0=10) == []
    for sums in (played.ledger.pairs[:2], played.ledger.recent):
        sums[:, row, column] = 20.0, 20.0
    assert played.step() == [Freeze(EXPLOITER)]


def test_a_copied_main_exploiter_begins_anew_in_its_own_slot():
    played = Played()
    played.step()
    played.step()
    assert played.step(main_exploiter_0=40) == [Freeze(EXPLOITER)]
    assert played.step() == [Vacate(EXPLOITER)]
    assert played.step() == []  # its last matches are being played
    played.leave()
    assert played.step() == [Birth(EXPLOITER)]  # of its own, with no parent
    assert played.step() == []
    assert played.step(main_exploiter_0=39) == []
    assert played.step(main_exploiter_0=1) == [Freeze(EXPLOITER)]
    assert copies(played, EXPLOITER) == [41, 81]


def test_nobody_begins_anew_before_its_copy_is_there():
    played = Played()
    played.step()
    played.step()
    assert played.ask(main_exploiter_0=40) == [Freeze(EXPLOITER)]
    for _ in range(3):
        assert played.ask(main_exploiter_0=1) == []  # there was no slot for the copy yet
    played.population.freeze(EXPLOITER, played.versions[EXPLOITER])
    assert played.ask() == [Vacate(EXPLOITER)]


def test_one_that_could_not_leave_goes_on():
    """No match could be made without it, and the copy that stood in before still plays."""
    played = Played()
    played.step()
    played.step()
    played.step(main_exploiter_0=40)
    assert played.ask() == [Vacate(EXPLOITER)]
    assert played.ask() == []
    assert played.ask(main_exploiter_0=40) == [Freeze(EXPLOITER)]


def test_main_agents_never_begin_anew_and_league_exploiters_do_by_chance():
    played, resets, trials = Played(reset=0.25, keep=2000), Counter(), 1_000
    played.step()
    played.step()
    for _ in range(trials):
        for name in (MAIN, LEAGUE):
            assert played.step(**{name: 40}) == [Freeze(name)]
            commands = played.step()
            resets[name] += len(commands)
            if commands:
                assert commands == [Vacate(name)]
                played.leave()
                assert played.step() == [Birth(name)]
                assert played.step() == []
    assert resets[MAIN] == 0
    assert abs(resets[LEAGUE] - 0.25 * trials) < 5 * np.sqrt(trials * 0.25 * 0.75)


def test_as_many_copies_are_kept_as_are_asked_for():
    played = Played(keep=2)
    played.step()
    for i in range(5):
        played.step()
        commands = played.step(main_0=40)
        assert commands[-1] == Freeze(MAIN)
        assert [type(command) for command in commands[:-1]] == ([Retire] if i else [])
        assert len(copies(played, MAIN)) == 2
    assert copies(played, MAIN) == [161, 201]


def test_it_goes_on_exactly():
    played, other = Played(reset=0.5), Played(seed=99, reset=0.5)
    played.step()
    for _ in range(3):
        played.step(main_0=40, main_exploiter_0=17, league_exploiter_0=23)
    other.director.restore(unpack(pack(played.director.state())))
    other.population, other.ledger = played.population, played.ledger
    other.versions = dict(played.versions)
    for _ in range(30):
        learned = dict.fromkeys(NAMES, 13)
        expected = played.ask(**learned)
        assert other.ask(**learned) == expected


def test_a_director_that_lost_all_fills_what_is_empty():
    played, other = Played(), Played()
    played.step()
    played.step()
    played.step(main_exploiter_0=40)
    played.step()
    played.leave()
    other.population = played.population
    assert other.ask() == [Birth(EXPLOITER)]
    assert Freeze(MAIN) not in other.ask()  # it has a past


LEAGUE_WORLD = {
    "matchmaker": "league",
    "policies": None,
    "births": {"slots": 0},
    "snapshots": {"every": None, "keep": 3},
    "director": "",
    "league": {"main_exploiters": ["eve"], "after": 2, "timeout": 4, "reset": 0.5},
    "memory": 50.0,
}


def test_a_league_plays_on_with_names_and_roles_as_they_were():
    world = World(game="support:Tape", population=LEAGUE_WORLD)
    names = ("main_0", "eve", "league_exploiter_0")
    assert world.table.policies == names
    began, parents = set(), set()
    while world.table.births.ordered(1) < 3:
        world.play(5)
        member = world.league.population
        began |= {m.born for m in member.learning if m.ref.policy == "eve"}
        parents |= {m.parent for m in member.learning}
        assert world.names() <= set(names)
        assert "main_0" in world.names()
    assert len(began) >= 3
    assert parents == {None}
    births, frozen = world.records(BIRTH), world.records(FREEZE)
    born = Counter(world.table.policies[slot] for slot in births["policy"][:, 0])
    assert set(born) <= {"eve", "league_exploiter_0"}
    # Whoever begins anew was copied and retired before, in this order.
    events = world.table.records.since(0)[0]
    events = events[(events["kind"] != MATCH) & (events["policy"][:, 0] == 1)]
    of_eve = [
        int(kind)
        for kind, v in zip(events["kind"], events["version"][:, 0], strict=True)
        if kind == FREEZE or v < 0
    ]
    while len(of_eve) % 3:
        of_eve.pop()
    assert of_eve == [FREEZE, RETIRE, BIRTH] * (len(of_eve) // 3)
    copied = {world.table.policies[slot] for slot in frozen["policy"][:, 0]}
    assert copied == set(names)
    digests = births["digest"][births["policy"][:, 0] == 1]
    assert len(set(digests.tolist())) == len(digests)  # drawn anew each time
    assert world.table.word(MATCHES) > 100


def test_an_exploiter_without_whom_no_match_could_be_made_begins_anew():
    """A copy of it plays meanwhile: main agents and exploiters are kept to seats of their own."""
    league = {"main": ["ann"], "main_exploiters": ["eve"], "league_exploiters": 0}
    kept = {"seats": {"ann": ["agent_0"], "eve": ["agent_1"]}}
    league |= {"after": 2, "timeout": 4}
    world = World(game="support:Tape", population=LEAGUE_WORLD | kept | {"league": league})
    slot, left = world.table.policies.index("eve"), 300
    while world.table.births.ordered(slot) < 2:
        world.play(5)
        left -= 1
        assert left, "nobody was born"
        assert "ann" in world.names()
    assert set(world.records(BIRTH)["policy"][:, 0]) == {slot}


LEAGUE_RUN = {
    "matchmaker": "league",
    "snapshots": {"keep": 2},
    "league": {"after": 1, "timeout": 2, "reset": 0.5},
    "memory": 20.0,
}


TREE = {
    "policy": {"algorithm": "ppo", "ppo": PPO | {"rollout_length": 10}},
    "env": {"num_envs": 4, "options": {"num_agents": 2, "max_turns": 10}},
    "learners": {"processes": 2},
    "population": LEAGUE_RUN,
    "run": {"turns": 1200},
}


OWN = {
    "policy": {"ppo": {"anchor_cost": 0.2, "anchor": "average", "anchor_every": 3}},
    "population": {"league": {"learn_from": "own"}},
    "run": {"turns": 2400},
}


@pytest.fixture(scope="module", params=[{}, OWN], ids=["all", "own"])
def whole(request, tmp_path_factory):
    """A league in one process that was not interrupted: configuration, directory, outcome."""
    tree = overlay(TREE, request.param)
    directory = tmp_path_factory.mktemp("league") / "whole"
    return tree, directory, run(directory, schedule="sequential", **tree)


def assert_same_league(whole, other):
    """Weights, counts, the ledger and the population are the same, byte by byte."""
    _, directory, found = whole
    assert_same(found, outcome(other), slice(3), updates=5)
    ledgers = [(each / "ledger.bin").read_bytes() for each in (directory, other)]
    assert ledgers[0] == ledgers[1]
    kinds = read_records(other / "ledger.bin")[1]["kind"]
    assert {MATCH, FREEZE, RETIRE, BIRTH, BORN_WITH} == set(kinds)
    tables = []
    for each in (directory, other):
        kept = Checkpoints(each / "checkpoints")
        tables.append(kept.read(kept.numbers()[-1], COORDINATOR)["population"])
    assert pack(tables[0]) == pack(tables[1])
    assert 0 < tables[0]["recent"][0].sum() < 0.9 * tables[0]["pairs"][0].sum()  # some is forgotten


@pytest.mark.slow
def test_lockstep_equals_sequential_in_a_league(whole, tmp_path):
    run(tmp_path / "lockstep", schedule="lockstep", **whole[0])
    assert_same_league(whole, tmp_path / "lockstep")


@pytest.mark.slow
def test_a_resumed_league_equals_an_uninterrupted_one(whole, tmp_path):
    tree = whole[0] | {"schedule": "sequential"}
    run(tmp_path / "parts", **tree | {"run": {"turns": 531}})  # in the middle of a match
    run(tmp_path / "parts", resume=True, **tree)
    assert_same_league(whole, tmp_path / "parts")


class LeagueOfDying(deaths.World):
    """A league whose actors die, and whose directors begin with nothing each time."""

    config = LeagueConfig(
        main=["a"], main_exploiters=["b"], league_exploiters=["c", "d"], after=2, timeout=3
    )

    def begin(self, director=None):
        random = np.random.default_rng(3)
        director = LeagueDirector(self.config, SnapshotsConfig(keep=1), random)
        maker = league_matchmaker(2, self.config)
        self.league = League(self.table, maker, director, self.random, deaths.COPIES, memory=5.0)
        self.league.deal(self.over)

    def turn(self):
        super().turn()
        for policy in self.versions:
            self.versions[policy] += 1

    def check(self):
        deaths.check(self)
        members = {member.slot for member in self.league.population.members}
        kept = members | set(self.table.occupants.leaving)
        gone = [slot for slot in range(len(self.table.slots)) if slot not in kept]
        assert not self.table.recent[:, :, gone].any()
        # Of one who leaves a part may be emptied: a successor empties all of it, once it is free.
        recent, pairs = self.table.recent[0][:, sorted(members)], self.table.pairs[0]
        rows = [slot for slot in sorted(members) if slot < len(pairs)]
        assert (recent[rows] <= pairs[rows][:, sorted(members)] + 1e-9).all()


@pytest.mark.parametrize("stride", [173, pytest.param(7, marks=pytest.mark.slow)])
def test_wherever_an_actor_dies_nobody_stays_away_and_exploiters_begin_anew(stride):
    for death in range(0, 100_000, stride):
        world = LeagueOfDying()
        world.begin()
        world.turn()
        with AtLine(death, deaths.WATCHED) as crash:
            for _ in range(10):
                world.turn()
        died = crash.reached
        if died:
            world.begin()
        world.check()
        before = world.table.births.ordered(1)
        for _ in range(14):
            world.turn()
        world.check()
        assert world.table.births.ordered(1) > before
        assert world.table.births.ordered(0) == 0
        seen = set()
        for _ in range(6):  # who is away begins anew, and comes back
            world.turn()
            seen |= set(world.table.occupants.living)
        assert seen == set(deaths.NAMES)
        if not died:
            break
    assert death > 1_000
