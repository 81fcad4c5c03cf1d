"""Several actors that deal one population, led by hand: leagues, rings, and the learners' end."""

from collections import Counter, defaultdict
from itertools import chain

import numpy as np

from line_deaths import AtLine, die
from population.dealing import test_deaths as deaths
from remuda.config.hyperparameters import HYPERPARAMETERS
from remuda.population.births.inheritance import LearnerBirths
from remuda.population.dealing import follower
from remuda.population.dealing import lead as league_module
from remuda.population.dealing.follower import FollowingLeague
from remuda.population.dealing.lead import League
from remuda.population.ledger.ledger import MATCH
from remuda.population.ledger.records import PolicyRef
from remuda.population.members import follower_views
from remuda.population.members.table import Table
from remuda.population.members.table_parts import REVISION
from remuda.publish.snapshot import Snapshot

WATCHED = (*deaths.WATCHED, follower_views, follower, league_module)
COPIES = (3, 2)
"""Of the game, by actor."""


def at_line(line, action=die):
    return AtLine(line, WATCHED, action)


class Acting:
    """The live policies as one actor plays them; its rings hold who lived through what is there."""

    def __init__(self, world):
        self.world, self.versions = world, dict(world.versions)
        self.rings = defaultdict(set)

    def look(self, policy):
        version = self.versions[policy]
        return Snapshot(self.world.weights(policy, version), version, version, 0.0)

    def draw(self, policy, generation):
        return self.world.weights(policy, generation)

    def fits(self, policy, other):
        return True

    def convert(self, policy, other, weights, generation):
        return None  # they are alike

    def clear(self, policy):
        self.rings[policy].clear()

    def wake(self, policy):
        pass


class World:
    """A table, the actors that deal from it one after another, and the learners of all."""

    def __init__(
        self, names, make, copies=COPIES, frozen=1, empty=(), metric=False, absent=0.0, **options
    ):
        self.names, self.make, self.copies = names, make, copies
        self.absent = absent
        """The share of seats that take no part in their match."""
        self.metrics = [1] if metric else []  # of two that the game tells
        specified = {name: {HYPERPARAMETERS[0]: 0.5} for name in names}
        sizes = dict.fromkeys(names, deaths.SIZE)
        options |= {"followers": copies[1:], "episode_metrics": len(self.metrics)}
        self.table = Table(sizes, 2, frozen, specified, empty, **options)
        self.births, self.versions = LearnerBirths(self.table, names), dict.fromkeys(names, 1)
        self.random = np.random.default_rng(0)
        self.acting = [Acting(self) for _ in copies]
        self.leagues = [None for _ in copies]
        self.dealt = [{} for _ in copies]
        """By actor and copy, the members that were dealt its seats."""
        self.closed, self.sure = set(), set()
        """The numbers of the matches that were over, and those that were surely handed over."""

    def weights(self, policy, version):
        return np.full(deaths.SIZE, 100.0 * self.names.index(policy) + version, np.float32)

    @property
    def lead(self):
        return self.leagues[0]

    def begin(self, actor, director=None):
        """An actor starts; the one before it is gone."""
        random, copies = np.random.default_rng([actor, len(self.closed)]), self.copies[actor]
        known = {"episode_metrics": self.metrics}
        if actor:
            league = FollowingLeague(self.table, actor, self.make(), random, copies, **known)
        else:
            league = League(self.table, self.make(), director, random, copies, **known)
        self.leagues[actor], self.dealt[actor] = league, {}
        self.deal(actor, np.ones(copies, np.bool_))

    def deal(self, actor, over):
        league = self.leagues[actor]
        league.deal(over)
        for copy in np.flatnonzero(over):
            self.dealt[actor][copy] = [league.population.at(p) for p in league.seated[copy]]

    def turn(self, actor):
        """An actor plays a turn, with which some of its matches are over."""
        league, acting, copies = self.leagues[actor], self.acting[actor], self.copies[actor]
        acting.versions = dict(self.versions)
        for member in chain.from_iterable(self.dealt[actor].values()):
            there = self.table.occupants.read(member.slot)
            assert there is not None, f"{member.ref} plays, and its slot is empty"
            assert there[0] == member.ref, f"{member.ref} plays, and {there[0]} has its slot"
            if member.learns:
                acting.rings[member.ref.policy].add(member.born)
        over, acted = self.random.random(copies) < 0.5, np.ones((copies, 2), np.int64)
        numbers = set(league.matches[over].tolist())
        self.closed |= numbers
        returns = self.random.integers(0, 2, (copies, 2)).astype(np.float64)
        if self.absent:
            returns[self.random.random(returns.shape) < self.absent] = np.nan
        if over.any():
            told = np.stack([returns.sum(1), 2.0 * returns.sum(1)]).astype(np.float32)
            league.close(over, returns, acted, acted, ~over, told)
        self.sure |= numbers
        if over.any() or league.has_news():
            for slot in league.step(dict(acting.versions), acting):
                kept = self.table.snapshot(slot)
                assert np.array_equal(kept.weights, self.weights(*league.population.at(slot).ref))
        if over.any():
            self.deal(actor, over)

    def learn(self):
        """Learners do what they were told."""
        policy = self.births.pending()
        if policy is not None:
            for actor, acting in enumerate(self.acting):
                assert not acting.rings[policy], f"steps of the one before, with actor {actor}"
            self.versions[policy] += 1
            self.births.confirm(policy, self.versions[policy])

    def round(self):
        for actor in range(len(self.copies)):
            self.turn(actor)
        self.learn()

    def matches(self):
        records = self.table.records.since(0)[0]
        return records[records["kind"] == MATCH]

    def check(self):
        """What must hold of results, and of who is there, between two turns."""
        numbers = Counter(self.matches()["number"].tolist())
        assert max(numbers.values(), default=1) == 1, "a result is in the ledger twice"
        assert set(numbers) <= self.closed
        waiting = {
            number
            for each in self.table.shards
            for number in each.results(
                each.word(follower_views.TAKEN),
                each.word(follower_views.WRITTEN) - each.word(follower_views.TAKEN),
            )[0]["number"].tolist()
        }
        assert self.sure <= set(numbers) | waiting, "a result is lost"
        assert not set(numbers) & waiting, "a result will be taken twice"
        assert self.table.word(REVISION) % 2 == 0
        kept = {member.slot for member in self.lead.population.members}
        kept |= set(self.table.occupants.leaving)
        gone = [slot for slot in range(len(self.table.numbers)) if slot not in kept]
        assert self.table.pairs[:, :, gone].sum() == 0, "results of a slot that was emptied"
        for league in filter(None, self.leagues[1:]):
            if not league.has_news():
                assert refs_of(league) == refs_of(self.lead)

    def games(self):
        """By live policy that was never replaced, its games as they are added up."""
        return {m.ref.policy: m.games for m in self.lead.population.learning if not m.parent}

    def games_in_ledger(self):
        records = self.matches()
        live = records["policy"][records["version"] == -1]
        return {name: int((live == i).sum()) for i, name in enumerate(self.names)}


def refs_of(league):
    return {member.ref: member.slot for member in league.population.members}


A, B = PolicyRef("a"), PolicyRef("b")
