"""Random numbers of matches: whoever asks, and in whatever order."""

import numpy as np

from remuda.evaluation.tournaments.random_numbers import MatchRandom, MatchSeeds, derive
from remuda.system.rng import make_rng


def drawing(keys, turns=None):
    turns = np.zeros(len(keys), np.int64) if turns is None else turns
    return MatchRandom(keys, turns, make_rng(0, "rest"))


def test_a_row_is_its_matches_own_wherever_it_stands():
    keys = derive(7, np.arange(100))
    random, few = drawing(keys), drawing(keys[40:44])
    random.aim(np.arange(100))
    few.aim(np.array([2, 0]))
    whole, part = random.random((100, 3)), few.random((2, 3))
    assert (part == whole[[42, 40]]).all()
    normal, of_part = random.standard_normal((100, 3)), few.standard_normal((2, 3))
    assert (of_part == normal[[42, 40]]).all()


def test_turns_calls_matches_and_seeds_draw_other_numbers():
    turns = np.zeros(50, np.int64)
    random = drawing(derive(7, np.arange(50)), turns)
    found = []
    for turn in range(5):
        turns[:] = turn
        random.aim(np.arange(50))
        found += [random.random((50, 4)), random.random(50)[:, None]]
    found.append(drawing(derive(8, np.arange(50))).random((50, 4)))
    everything = np.concatenate([each.ravel() for each in found])
    assert len(np.unique(everything)) == len(everything)


def test_numbers_are_uniform_and_normal():
    random = drawing(derive(1, np.arange(20_000)))
    uniform = random.random((20_000, 5))
    assert uniform.min() >= 0.0
    assert uniform.max() < 1.0
    assert abs(uniform.mean() - 0.5) < 0.005
    assert abs(uniform.var() - 1 / 12) < 0.001
    assert np.abs(np.corrcoef(uniform.T) - np.eye(5)).max() < 0.03
    normal = random.normal(2.0, 3.0, (20_000, 2))
    assert abs(normal.mean() - 2.0) < 0.1
    assert abs(normal.std() - 3.0) < 0.1
    whole = random.integers(0, 4, 20_000)
    assert np.abs(np.bincount(whole, minlength=4) / 20_000 - 0.25).max() < 0.02
    bounded = random.uniform(np.array([0.0, 10.0]), np.array([1.0, 11.0]), (20_000, 2))
    assert (bounded[:, 1] >= 10.0).all()
    assert np.abs(bounded.mean(0) - [0.5, 10.5]).max() < 0.02


def test_what_has_no_rows_is_drawn_as_ever():
    random = drawing(derive(1, np.arange(5)))
    assert sorted(random.permutation(6).tolist()) == list(range(6))
    assert random.random((3, 2)).shape == (3, 2)
    assert 0.0 <= random.random() < 1.0


def test_seeds_are_those_of_the_matches():
    keys = derive(1, np.arange(5))
    seeds = MatchSeeds(keys, make_rng(0, "rest")).integers(0, 2**63 - 1, 5)
    assert seeds.dtype == np.int64
    assert (seeds >= 0).all()
    assert len(set(seeds.tolist())) == 5
