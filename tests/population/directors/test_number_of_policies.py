"""Births and retirements never leave fewer policies than were configured."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from population.birth_worlds import World
from remuda.config import BirthsConfig
from remuda.population.births.inheritance import LearnerBirths
from remuda.population.dealing.lead import League
from remuda.population.directors.director import Birth, Replacement, Retire
from remuda.population.ledger.records import PolicyRef
from remuda.population.matchmaking.by_turn import Random
from remuda.population.members.table import Table
from remuda.publish.snapshot import Snapshot

SIZE = 4


class Stage:
    """The seats and learners of a population that only has numbers: learners begin when told."""

    def __init__(self, first, slots, every, copies, seed):
        names = (*(f"p{i}" for i in range(first)), *(f"born_{i}" for i in range(slots)))
        self.table = Table(dict.fromkeys(names, SIZE), 2, 0, {}, names[first:])
        self.births = LearnerBirths(self.table, names)
        self.versions = dict.fromkeys(names, 1)
        self.random, self.first, self.copies = np.random.default_rng(seed), first, copies
        self.config = BirthsConfig(slots=slots, every=every, games=1, confidence=0.3)
        self.director = Replacement(self.config)
        self.begin(self.director)

    def begin(self, director):
        """An actor starts; all matches that were being played are gone."""
        self.director = director
        self.league = League(self.table, Random(2), director, self.random, self.copies)
        self.league.deal(np.ones(self.copies, np.bool_))

    def turn(self, share, learns):
        over = self.random.random(self.copies) < share
        acted = np.ones((self.copies, 2), np.int64)
        strength = np.arange(len(self.table.policies), dtype=np.float64)
        returns = strength[self.league.seated] + self.random.normal(size=(self.copies, 2))
        if over.any():  # as an actor does
            self.league.close(over, returns, acted, acted, ~over)
            self.league.step(dict(self.versions), self)
            self.league.deal(over)
        policy = self.births.pending()
        if learns and policy is not None:
            self.versions[policy] += 1
            self.births.confirm(policy, self.versions[policy])

    def check(self):
        playing = len(self.league.population.learning)
        assert playing >= self.first, f"{playing} policies, and {self.first} were configured"
        assert playing == len(self.table.occupants.living)
        population = self.league.population
        absent = {*population.empty, *population.expected, *population.leaving}
        assert not absent & {m.ref.policy for m in population.learning}

    def look(self, policy):
        return Snapshot(np.zeros(SIZE, np.float32), self.versions[policy], 0, 0.0)

    def draw(self, policy, generation):
        return np.zeros(SIZE, np.float32)

    def convert(self, policy, other, weights, generation):
        return None

    def fits(self, policy, other):
        return True

    def clear(self, policy):
        pass

    def wake(self, policy):
        pass


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    some.integers(2, 8),
    some.integers(1, 3),
    some.integers(1, 40),
    some.integers(2, 40),
    some.integers(0, 2**32 - 1),
    some.lists(
        some.tuples(
            some.sampled_from([0.02, 0.2, 1.0]),  # how many matches end in a turn
            some.booleans(),  # whether learners do what was ordered
            some.sampled_from(["", "", "", "", "dies", "dies and forgets", "resumes"]),
        ),
        min_size=20,
        max_size=80,
    ),
)
def test_births_never_melt_a_population(first, slots, every, copies, seed, turns):
    """A slot whose policy had retired and still played was neither empty nor expected."""
    stage = Stage(first, slots, every, copies, seed)
    for share, learns, event in turns:
        if event:
            director = Replacement(stage.config)
            if event == "dies":
                director.restore(stage.director.state())
            if event == "resumes":
                stage.table.restore(stage.table.state())
            stage.begin(director)
        stage.turn(share, learns)
        stage.check()


def test_births_go_on_for_ever():
    stage = Stage(6, 2, 10, 20, 0)
    for _ in range(300):
        stage.turn(0.3, learns=True)
        stage.check()
    found, _ = stage.table.records.since(0)
    assert (found["kind"] == 3).sum() > 20
    assert (found["kind"] == 2).sum() > 18


def test_another_of_the_same_name_does_not_make_room():
    """Another director may have replaced the weakest while the child was expected."""
    stage = Stage(4, 2, 10, 20, 0)
    while not stage.league.population.expected:
        stage.turn(0.5, learns=False)
    (child,), weakest = stage.league.population.expected, stage.director.state()["expected"][1]
    ref, league = PolicyRef(weakest), stage.league
    league.lifecycle.carry_out(Retire(ref), stage, league.matchmaker)
    assert ref not in league.population
    while weakest not in league.population.empty:
        stage.turn(0.5, learns=False)
    league.lifecycle.carry_out(Birth(weakest), stage, league.matchmaker)
    while not (ref in league.population and PolicyRef(child) in league.population):
        stage.turn(0.5, learns=True)
    stage.turn(1.0, learns=True)
    assert ref in league.population
    assert Retire(ref) not in stage.director.step(league.population, league.ledger, {})


def test_connect_four_with_births_every_thirty_matches_keeps_its_twelve():
    """12 policies became 3 in 27 turns."""
    world = World(
        game="connect_four",
        env={"num_envs": 256},
        population={
            "policies": 12,
            "births": {"slots": 1, "every": 30, "games": 1, "confidence": 0.0},
            "director": "",
            "snapshots": {"every": None},
        },
    )
    turns = births = 0
    while births < 2 and turns < 60:
        world.play(1)
        turns += 1
        births = len(world.records(3))
        assert len(world.names()) >= 12
    assert births >= 2
