"""Ratings keep their level whoever is born and retires: only their differences mean something."""

import numpy as np
import pytest

from population.test_number_of_policies import Stage
from remuda.population.records import FRESH, RATING, PolicyRef


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


def test_who_comes_or_goes_moves_all_ratings_alike():
    """Live policies, frozen copies, and who is expected or plays a last match: no order changes."""
    stage = Stage(4, 2, 10, 20, 1)
    population, table = stage.league.population, stage.table
    copy = population.freeze("p1", 1, place=None)
    for i, member in enumerate(population.members):
        member.rate(30.0 + 2.0 * i, 3.0)
    before = ratings(stage)
    population.retire(PolicyRef("p0"))
    stage.league._level()
    after = ratings(stage)
    moved = {round(after[ref] - before[ref], 9) for ref in after}
    assert len(moved) == 1
    assert np.mean([m.rating for m in population.learning]) == pytest.approx(25.0)
    assert copy.ref in after
    assert table.numbers[0, RATING] == pytest.approx(before[PolicyRef("p0")] + moved.pop())
