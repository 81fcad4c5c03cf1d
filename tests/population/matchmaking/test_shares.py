"""Every live policy plays, whatever its rating and the history of its population."""

from collections import Counter

import numpy as np
import pytest

from remuda.population.ledger.ledger import Ledger
from remuda.population.ledger.records import Member, PolicyRef, Population
from remuda.population.matchmaking.by_strength import Prioritized, SimilarRatings
from remuda.population.matchmaking.by_turn import Random, RoundRobin, SelfPlay
from remuda.population.matchmaking.mixed import Mixed

MATCHES = 400  # between two events; a share of 1 / (4 x policies) is at least 8 of them


def mixture(seats):
    parts = {"prioritized": Prioritized(seats), "self_play": SelfPlay(seats)}
    return Mixed(seats, parts, {"prioritized": 0.7, "self_play": 0.3})


MATCHMAKERS = {
    "random": Random,
    "round_robin": RoundRobin,
    "fitness": lambda seats: SimilarRatings(seats, 2),
    "self_play": SelfPlay,
    "prioritized": Prioritized,
    "teams": Random,
    "mixed": mixture,
}


def happen(population, rng, born, seats):
    """Freeze, retire or bear a member, and let all ratings drift."""
    live = population.learning
    event = rng.integers(3)
    if event == 0:
        policy = live[rng.integers(len(live))].ref.policy
        population.freeze(policy, born)
    elif event == 1 and len(live) > 6:
        population.retire(live[rng.integers(len(live))].ref)
    elif event == 2 and len(live) < 12:
        population.add(Member(PolicyRef(f"born{born}"), seats[born % len(seats)]))
    for member in population.members:
        member.rate(member.rating + rng.normal(0.0, 6.0), rng.uniform(0.5, 8.0))


@pytest.mark.parametrize("name", MATCHMAKERS)
@pytest.mark.parametrize("seats", [2, 4])
def test_each_live_policy_has_its_share_of_matches(name, seats):
    rng = np.random.default_rng([seats, *name.encode()])
    sides = [frozenset(range(seats // 2)), frozenset(range(seats // 2, seats))]
    allowed = sides if name == "teams" else [None]
    members = [Member(PolicyRef(f"p{i}"), allowed[i % len(allowed)]) for i in range(8)]
    population, matchmaker = Population(members), MATCHMAKERS[name](seats)
    for born in range(12):
        happen(population, rng, born, allowed)
        ledger = Ledger(population)
        played = Counter()
        for match in matchmaker.propose(population, ledger, MATCHES, rng):
            for ref in set(match.seats):
                played[ref] += 1
                population[ref].numbers[0] += 1  # a rated match
        live = [member.ref for member in population.learning]
        assert min(played[ref] for ref in live) >= MATCHES / (4 * len(live))
