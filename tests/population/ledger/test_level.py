"""Ratings keep their level through births and retirements: only differences mean something."""

import threading
import time

import numpy as np
import pytest

from population.directors.test_number_of_policies import SIZE, Stage
from remuda.population.births.inheritance import LearnerBirths
from remuda.population.dealing.lead import League
from remuda.population.ledger.records import FRESH, RATING, PolicyRef
from remuda.population.matchmaking.by_turn import Random
from remuda.population.members import table as table_module
from remuda.population.members.table import Table
from remuda.population.members.table_parts import MOVES
from remuda.population.roster import Roster
from remuda.system.memory.shared import SharedArrays


def ratings(stage):
    return {m.ref: m.rating for m in stage.league.population.members}


def test_ratings_do_not_rise_with_births():
    """A child began as high as its parent and the lowest went: 290 where all began at 25."""
    stage, births = Stage(6, 2, 10, 20, 0), 0
    for _ in range(2000):
        before = set(ratings(stage))
        stage.turn(0.3, learns=True)
        births += len(set(ratings(stage)) - before)
    assert births > 100
    assert np.mean(list(ratings(stage).values())) == pytest.approx(FRESH[RATING], abs=3.0)


class Unequal(Stage):
    """One seat against three, by the sum of their strengths."""

    def begin(self, director):
        self.table = getattr(self, "wide", None) or Table(
            dict.fromkeys(self.table.policies, SIZE), 4, 0, {}, self.table.policies[self.first :]
        )
        self.wide, self.births = self.table, LearnerBirths(self.table, self.table.policies)
        self.director, sides = director, ("a", "b", "b", "b")
        roster = Roster(sides, teams=sides)
        self.league = League(self.table, Random(4), director, self.random, self.copies, roster)
        self.league.deal(np.ones(self.copies, np.bool_))

    def turn(self, share, learns):
        over = self.random.random(self.copies) < share
        acted = np.ones((self.copies, 4), np.int64)
        earned = 0.3 * np.arange(len(self.table.policies))[self.league.seated] + 4.0
        earned += self.random.normal(size=earned.shape) * 4.0
        alone = earned[:, 0] * 2.0 > earned[:, 1:].sum(1)  # so the one wins some of them
        returns = np.where(alone[:, None], [1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, 1.0])
        if over.any():
            self.league.close(over, returns, acted, acted, ~over)
            self.league.step(dict(self.versions), self)
            self.league.deal(over)
        policy = self.births.pending()
        if learns and policy is not None:
            self.versions[policy] += 1
            self.births.confirm(policy, self.versions[policy])


def test_sides_of_unlike_sizes_keep_the_level_that_matches_found():
    """Ratings of a side are added up, so 25 for each said that three beat one nearly always."""
    stage, births, levels = Unequal(6, 2, 10, 20, 0), 0, []
    for _ in range(2000):
        before = ratings(stage)
        stage.turn(0.3, learns=True)
        born = set(ratings(stage)) - set(before)
        births += len(born)
        levels.append(np.mean([m.rating for m in stage.league.population.learning]))
    assert births > 30
    settled = levels[1000:]
    assert max(settled) < 15.0, "it went back to 25"
    assert min(settled) > -15.0, "it went away"


def test_births_and_retirements_move_no_rating_where_sides_are_of_unlike_sizes():
    stage = Unequal(6, 2, 10, 20, 0)
    for i, member in enumerate(stage.league.population.members):
        member.rate(3.0 + 2.0 * i, 3.0)
    before = ratings(stage)
    stage.league.population.retire(PolicyRef("p0"))
    stage.league.level_ratings()
    after = ratings(stage)
    assert after == {ref: before[ref] for ref in after}


def test_who_comes_or_goes_moves_all_ratings_alike():
    """Live policies, frozen copies, and who is expected or plays a last match: no order changes."""
    stage = Stage(4, 2, 10, 20, 1)
    population, table = stage.league.population, stage.table
    copy = population.freeze("p1", 1, slot=None)
    for i, member in enumerate(population.members):
        member.rate(30.0 + 2.0 * i, 3.0)
    before = ratings(stage)
    population.retire(PolicyRef("p0"))
    stage.league.level_ratings()
    after = ratings(stage)
    moved = {round(after[ref] - before[ref], 9) for ref in after}
    assert len(moved) == 1
    assert np.mean([m.rating for m in population.learning]) == pytest.approx(25.0)
    assert copy.ref in after
    assert table.numbers[0, RATING] == pytest.approx(before[PolicyRef("p0")] + moved.pop())


class DiedError(BaseException):
    """The process is gone: nothing of it may clear anything away."""


def moving(died, monkeypatch):
    """A table whose ratings are moved by 7, by an actor that dies after so many writes to it."""
    writes, moves = 0, False

    class Dying(np.ndarray):
        def __setitem__(self, key, value):
            nonlocal writes
            for i in range(6):  # each number is a write of its own
                if writes >= died:
                    raise DiedError
                writes += 1
                if self.ndim == 2:
                    np.asarray(self)[i, RATING] = value[i]
                else:
                    np.asarray(self)[i] = value[i]

    class Memory(SharedArrays):
        def __getitem__(self, name):
            found = super().__getitem__(name)
            return found.view(Dying) if moves and name in ("numbers", "moved") else found

    monkeypatch.setattr(table_module, "SharedArrays", Memory)
    table = Table(dict.fromkeys(("a", "b", "c"), SIZE), 2, 1)
    table.numbers[:, RATING] = np.arange(6.0)
    moves = True
    try:
        table.member_numbers.move_ratings(7.0)
        alive = True
    except DiedError:
        alive = False
    moves = False
    return table, alive


def test_ratings_are_moved_all_or_none_wherever_the_actor_dies(monkeypatch):
    """A checkpoint that was taken meanwhile held some of them moved and others not."""
    before, outcomes = np.arange(6.0), set()
    for died in range(14):
        table, alive = moving(died, monkeypatch)
        saved = table.state()["numbers"][:, RATING].tolist()
        assert saved in (before.tolist(), (before + 7.0).tolist())
        shown = table.rows()
        assert [row[RATING] for *_, row in shown] == [saved[slot] for *_, slot, _ in shown]
        members = table.population().members
        assert [m.rating for m in members] == [saved[m.slot] for m in members]
        outcomes.add((saved[0], alive, table.word(MOVES) % 2))
        table.repair()
        assert table.numbers[:, RATING].tolist() == saved, "its successor goes another way"
        assert table.word(MOVES) % 2 == 0
    assert outcomes == {(0.0, False, 0), (7.0, False, 1), (7.0, True, 0)}


def test_who_reads_while_ratings_are_moved_sees_all_or_none():
    """Two threads at full speed, one of which moves them by one."""
    table = Table(dict.fromkeys([f"p{i}" for i in range(200)], SIZE), 2, 20)
    stop, torn, seen = threading.Event(), [], set()

    def read():
        while not stop.is_set():
            found = table.member_numbers.whole()[:, RATING]
            seen.add(found[0])
            if (found != found[0]).any():
                torn.append(found)

    table.numbers[:, RATING] = 0.0
    reader = threading.Thread(target=read)
    reader.start()
    try:
        end = time.monotonic() + 60.0
        while len(seen) < 50 and time.monotonic() < end:
            table.member_numbers.move_ratings(1.0)
    finally:
        stop.set()
        reader.join()
    assert len(seen) >= 50
    assert not torn
