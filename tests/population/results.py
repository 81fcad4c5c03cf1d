"""Results of matches that tests count and rate one by one."""

from typing import NamedTuple

import numpy as np

from remuda.population.ledger.ledger import MATCH, count, read_records
from remuda.population.ledger.ratings import rate_all, sides_of
from remuda.population.ledger.records import PolicyRef


class Result(NamedTuple):
    """The members on the seats of a match, and what they earned; NaN: no part was taken."""

    number: int
    seats: tuple
    returns: tuple
    acted: tuple = ()
    truncated: bool = False


def append(ledger, result):
    """Add a result to a ledger's sums; False if one of its members is gone."""
    population = ledger.population
    if any(ref not in population for ref in result.seats):
        return False
    slots = np.array([[population[ref].slot for ref in result.seats]])
    returns = np.array([result.returns], np.float64)
    over = np.ones(1, np.bool_)
    sums = (ledger.pairs, population.numbers, ledger.recent, ledger.retention)
    count(slots, returns, over, *sums)
    return True


def rate(population, result, teams=()):
    """Update the ratings of a result's members; not if one of them is gone."""
    if any(ref not in population for ref in result.seats):
        return
    slots = np.array([[population[ref].slot for ref in result.seats]])
    returns, sides = np.array([result.returns], np.float64), sides_of(teams, len(result.seats))
    rate_all(slots, returns, np.ones(1, np.bool_), sides, population.numbers)


def results(path):
    """Iterate over the results in a ledger on disk."""
    names, records = read_records(path)
    for record in records[records["kind"] == MATCH]:
        members = zip(record["policy"].tolist(), record["version"].tolist(), strict=True)
        seats = tuple(PolicyRef(names[policy], version) for policy, version in members)
        acted = tuple(zip(record["oldest"].tolist(), record["newest"].tolist(), strict=True))
        returns, truncated = tuple(record["returns"].tolist()), bool(record["truncated"])
        yield Result(int(record["number"]), seats, returns, acted, truncated)
