"""Cycles: by brute force in small games, and in bounded time in large ones."""

import json
from itertools import combinations, permutations

import numpy as np
import pytest

from refusals import refuses
from remuda.analysis.payoffs.payoffs import Payoffs, exact
from remuda.analysis.structure.cycles import cycles, strongest_cycle
from remuda.errors import UsageError

RPS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])


def transitive(skills):
    return np.subtract.outer(np.asarray(skills), skills)


def uncertain(matrix, deviation, matches):
    """A symmetric zero-sum game with these means, this deviation of a match, and [n, n] matches."""
    matrix = np.asarray(matrix, np.float64)
    count = len(matrix)
    variance = np.full((count, count), deviation**2)
    covariances = np.array([[variance, -variance], [-variance, variance]])
    names = tuple(f"p{i}" for i in range(count))
    counts = np.broadcast_to(np.asarray(matches, np.int64), (count, count)).copy()
    matrix = np.where(counts > 0, matrix, np.nan)
    return Payoffs((names,) * 2, np.stack([matrix, matrix.T]), covariances, counts, True)


def all_cycles(beats):
    """Every cycle, from its least strategy on."""
    for size in range(3, len(beats) + 1):
        for members in combinations(range(len(beats)), size):
            for rest in permutations(members[1:]):
                cycle = [members[0], *rest]
                if all(beats[a, b] for a, b in zip(cycle, [*rest, members[0]], strict=True)):
                    yield cycle


def sparse_game(rng, count, share):
    half = rng.normal(size=(count, count))
    kept = np.triu(rng.random((count, count)) < share, 1)
    of_pairs = (half - half.T) * (kept | kept.T)
    return of_pairs, of_pairs > 0.0


def test_cycles_are_those_of_brute_force():
    rng = np.random.default_rng(0)
    without = 0
    for trial in range(45):
        of_pairs, beats = sparse_game(rng, 6, (0.4, 0.7, 1.0)[trial % 3])
        if trial % 2:  # many cycles are as strong as each other
            of_pairs = np.sign(of_pairs) * np.ceil(np.abs(of_pairs))
        found = list(all_cycles(beats))
        strongest = strongest_cycle(of_pairs, beats)
        without += not found
        if not found:
            assert strongest == []
            continue

        def weakest(cycle, of_pairs=of_pairs):
            return of_pairs[cycle, [*cycle[1:], cycle[0]]].min()

        top = max(weakest(cycle) for cycle in found)
        assert strongest in found
        assert weakest(strongest) == top
        assert len(strongest) == min(len(cycle) for cycle in found if weakest(cycle) == top)
        names = [[str(place) for place in cycle] for cycle in found if len(cycle) == 3]
        told = cycles(exact(of_pairs, symmetric=True), most=100)
        assert told.num_triangles == len(names)
        assert sorted(list(cycle.names) for cycle in told.triangles) == sorted(names)
        strengths = [cycle.weakest for cycle in told.triangles]
        assert strengths == sorted(strengths, reverse=True)
    assert 0 < without < 30


def test_a_game_of_skill_has_no_cycle():
    found = cycles(exact(transitive(np.arange(6.0)), symmetric=True))
    assert (found.edges, found.pairs) == (15, 15)
    assert found.strongest is None
    assert found.groups == found.triangles == ()
    assert json.dumps(found.as_summary())


def test_a_cycle_is_named_in_its_order_with_its_margins():
    payoffs = exact(2.0 * RPS, names=(("rock", "paper", "scissors"),) * 2, symmetric=True)
    found = cycles(payoffs)
    assert found.strongest.names == ("rock", "scissors", "paper")
    assert found.strongest.margins.tolist() == [2.0, 2.0, 2.0]
    assert found.strongest.intervals.tolist() == [[2.0] * 3, [2.0] * 3]
    assert found.triangles[0].names == found.strongest.names
    assert found.groups == (("rock", "paper", "scissors"),)
    assert json.dumps(found.as_summary())


def test_an_edge_that_noise_may_explain_is_in_no_cycle():
    """The margin of 1 has the error deviation / sqrt(100): ten to one, or one to one."""
    assert cycles(uncertain(RPS, 1.0, 100)).strongest is not None
    unsure = cycles(uncertain(RPS, 10.0, 100))
    assert unsure.strongest is None
    assert unsure.edges == 0
    # 2.3 deviations: enough for one pair at 95%, not for three together.
    between = uncertain(RPS, 10.0 / 2.3, 100)
    assert cycles(between, joint=False).edges == 3
    assert cycles(between, joint=True).edges == 0
    assert cycles(between, level=0.9).edges == 3
    low, high = cycles(between, joint=False).strongest.intervals
    assert (low > 0.0).all()
    assert (low + high) / 2 == pytest.approx(np.ones(3))


def test_noise_alone_makes_no_cycle_nearly_always():
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(200):
        noise = np.triu(rng.normal(size=(8, 8)) / np.sqrt(50.0), 1)
        wrong += cycles(uncertain(noise - noise.T, 1.0, 50), level=0.9).edges > 0
    assert wrong <= 32  # 20 are expected


def test_who_never_met_has_no_edge():
    counts = np.array([[0, 50, 0, 50], [50, 0, 50, 0], [0, 50, 0, 50], [50, 0, 50, 0]])
    matrix = np.zeros((4, 4))
    for i in range(4):
        matrix[i, (i + 1) % 4], matrix[(i + 1) % 4, i] = 1.0, -1.0
    found = cycles(uncertain(matrix, 0.1, counts))
    assert found.pairs == found.edges == 4
    assert found.strongest.names == ("p0", "p1", "p2", "p3")
    assert found.num_triangles == 0


def test_one_way_round_a_chain_of_skill_is_found_whole():
    """Each beats all later ones, but the last beats the first: every cycle has that edge."""
    matrix = transitive(-np.arange(30.0))
    matrix[0, 29], matrix[29, 0] = -1.0, 1.0
    found = cycles(exact(-matrix.T, symmetric=True))
    assert found.num_triangles == 28
    assert found.strongest.weakest == 1.0


def test_games_without_an_answer_are_refused():
    with refuses(UsageError):
        cycles(exact(RPS))
    with refuses(UsageError):
        cycles(uncertain(RPS, 1.0, 1))
    with refuses(UsageError):
        cycles(exact(RPS, symmetric=True), level=1.0)
