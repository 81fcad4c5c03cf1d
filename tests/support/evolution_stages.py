"""A population that only has numbers, directed by evolution."""

import numpy as np

from remuda.config import EvolutionConfig
from remuda.population.births.inheritance import LearnerBirths
from remuda.population.dealing.lead import League
from remuda.population.evolution.director import Evolution
from remuda.population.evolution.explore import Explorer
from remuda.population.evolution.setup import numbers_of, selection
from remuda.population.ledger.ledger import BIRTH, BORN_WITH, value_of
from remuda.population.matchmaking.by_turn import Fixed, Random
from remuda.population.members.table import Table
from remuda.publish.snapshot import Snapshot
from remuda.publish.training_state import TrainingLayout, TrainingState
from remuda.system.rng import make_rng

SIZE, RATE = 4, "learning_rate"
FACTS = ("weather", "harmony", "trouble")
NUMBERS = {RATE: {"low": 1e-5, "high": 1e-1, "log": True}}
LAYOUT = TrainingLayout(("mean", "square", "target"), ("steps", "explored"))
FOUR = ("a", "b", "c", "d")
MATCHMAKERS = {"fixed": lambda names: Fixed(names), "random": lambda names: Random(2)}


class Stage:
    """Seats of policies whose returns have means of their own; learners begin when told."""

    def __init__(self, names, matchmaker, strengths, seed=0, copies=16, kinds=None, **config):
        self.names, self.strengths = tuple(names), np.array(strengths, np.float64)
        specified = {name: {RATE: 1e-3 * (i + 1)} for i, name in enumerate(names)}
        self.seats = config.pop("seats", len(names) if matchmaker == "fixed" else 2)
        self.versions = dict.fromkeys(self.names, 1)
        self.random, self.copies = np.random.default_rng(seed), copies
        self.make, self.seed, self.kinds = MATCHMAKERS[matchmaker], seed, kinds
        settings = {"every": 64, "games": 20, "numbers": NUMBERS} | config
        self.config = EvolutionConfig.model_validate(settings)
        self.metrics = [FACTS.index(name) for name in self.config.episode_metrics]
        self.table = Table(
            dict.fromkeys(names, SIZE),
            self.seats,
            1,
            specified,
            stand_ins=True,
            episode_metrics=len(self.metrics),
            training=dict.fromkeys(self.names, LAYOUT),
        )
        self.births = LearnerBirths(self.table, self.names)
        self.mutated, self.crossed = [], []
        self.gifts = np.zeros(len(names))  # what each brings the others
        self.begin()

    def director(self):
        config = self.config
        kinds = self.kinds or dict.fromkeys(self.names, 0)
        return Evolution(
            config,
            kinds,
            selection(config),
            lambda: Explorer(config, numbers_of(config)),
            lambda matches, purpose: make_rng(self.seed, "evolution", matches, purpose),
        )

    def begin(self, state=None):
        """An actor starts; all matches that were being played are gone."""
        self.evolution = self.director()
        if state is not None:
            self.evolution.restore(state)
        make = self.make(list(self.names))
        self.league = League(
            self.table,
            make,
            self.evolution,
            self.random,
            self.copies,
            episode_metrics=self.metrics,
        )
        self.league.deal(np.ones(self.copies, np.bool_))

    def noise(self):
        """What chance adds to returns: [copies, seats]."""
        return self.random.normal(size=(self.copies, self.seats))

    def told(self, given):
        """What the game tells of its episodes, by `FACTS`: [facts, copies]."""
        noise = self.random.normal(size=self.copies)
        return np.stack((noise, given + noise, noise - given)).astype(np.float32)

    def turn(self, share=0.5, learns=True):
        over = self.random.random(self.copies) < share
        acted = np.ones((self.copies, self.seats), np.int64)
        slots = self.league.seated
        mean = self.strengths[slots % len(self.names)]  # a stand-in's is some other's
        returns = mean + self.noise()
        gifts = self.gifts[slots % len(self.names)]
        returns += gifts.sum(1, keepdims=True) - gifts
        if over.any():
            told = self.told(gifts.sum(1))
            self.league.close(over, returns, acted, acted, ~over, told)
            self.league.step(dict(self.versions), self)
            self.league.deal(over)
        policy = self.births.pending()
        if learns and policy is not None:
            self.versions[policy] += 1
            self.births.confirm(policy, self.versions[policy])

    def born(self):
        records = self.table.records.since(0)[0]
        found = records[records["kind"] == BIRTH]
        return [
            (self.names[record["policy"][0]], self.names[record["oldest"][0]]) for record in found
        ]

    def begun_with(self):
        """By whom, and the learning rate that it began with, as the ledger has them."""
        records = self.table.records.since(0)[0]
        name = self.table.hyperparameters.names.index(RATE)
        found = records[(records["kind"] == BORN_WITH) & (records["version"][:, 0] == name)]
        return [(self.names[each["policy"][0]], value_of(each["digest"])) for each in found]

    def rates(self):
        """The learning rates of the newborn, as the ledger has them."""
        return [rate for _, rate in self.begun_with()][len(self.names) :]  # born later

    def look(self, policy):
        return Snapshot(np.ones(SIZE, np.float32), self.versions[policy], 0, 0.0)

    def published(self, policy):
        found = self.look(policy)
        vectors = {name: np.full(SIZE, i, np.float32) for i, name in enumerate(LAYOUT.vectors)}
        numbers = dict.fromkeys(LAYOUT.numbers, 10.0 * self.versions[policy])
        found.training = TrainingState(vectors, numbers)
        return found

    def mutate(self, policy, weights, strength, generation):
        self.mutated.append((policy, strength, generation))
        return weights + strength

    def cross(self, policy, weights, second, share, generation):
        self.crossed.append((policy, share, generation))
        return weights - second

    def convert(self, policy, other, weights, generation):
        return None

    def fits(self, policy, other):
        return True

    def clear(self, policy):
        pass

    def wake(self, policy):
        pass
