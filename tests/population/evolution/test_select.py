"""Selection: who takes over from whom, and that none is replaced on noise."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from scipy import stats

from evolving import joined, of_estimates, of_samples
from remuda.population.evolution.fitness import Fitness
from remuda.population.evolution.select import (
    TakeOver,
    binary_tournament,
    non_dominated,
    order_by_crowding,
    t_test,
    truncation,
)

SELECTIONS = [truncation, binary_tournament, t_test, non_dominated]


def rng(seed=0):
    return np.random.default_rng(seed)


def known(*means, **options):
    """Fitness that is known without noise."""
    return of_estimates([f"p{i}" for i in range(len(means))], means, [0.0] * len(means))


def of_returns(random, count, each, skill=None, scale=1.0, heavy=False):
    """Fitness by returns around each policy's skill, 0 unless said otherwise."""
    skill = np.zeros(count) if skill is None else skill
    draws = random.exponential(1.0, (count, each)) - 1.0 if heavy else None
    draws = random.standard_normal((count, each)) if draws is None else draws
    return of_samples({f"p{i}": skill[i] + scale * draws[i] for i in range(count)})


@some.composite
def fitnesses(draw):
    """The fitness of any number of policies, some of them unknown, in 1 to 3 objectives."""
    count, objectives = draw(some.integers(0, 7)), draw(some.integers(1, 3))
    number = some.one_of(some.sampled_from([0.0, 1.0, math.nan]), some.floats(-1e6, 1e6))
    parts = [
        of_estimates(
            [f"p{i}" for i in range(count)],
            [draw(number) for _ in range(count)],
            [abs(draw(number)) for _ in range(count)],
        )
        for _ in range(objectives)
    ]
    return joined(parts)


@pytest.mark.parametrize("select", SELECTIONS)
@settings(max_examples=60, deadline=None)
@given(fitness=fitnesses(), seed=some.integers(0, 1000), confidence=some.sampled_from([0.0, 0.9]))
def test_whatever_the_fitness_parents_are_better_and_stay(select, fitness, seed, confidence):
    if select is not non_dominated:
        fitness = Fitness(
            fitness.names,
            fitness.means[:, :1],
            fitness.errors[:, :1],
            fitness.freedom[:, :1],
        )
    found = select(fitness, rng(seed), confidence=confidence)
    assert found == select(fitness, rng(seed), confidence=confidence)
    replaced = [each.policy for each in found]
    assert len(set(replaced)) == len(replaced)
    assert not {each.parent for each in found} & set(replaced)
    for each in found:
        one, other = (fitness.names.index(name) for name in (each.policy, each.parent))
        assert fitness.judged[[one, other]].all()
        ahead = fitness.means[other] - fitness.means[one]
        assert (ahead >= 0.0).all()
        assert (ahead > 0.0).any()


@pytest.mark.slow_cases("False-non_dominated", "True-non_dominated")
@pytest.mark.parametrize("select", SELECTIONS)
@pytest.mark.parametrize("heavy", [False, True])
def test_equals_replace_each_other_no_more_often_than_was_allowed(select, heavy):
    """All are equally good: any replacement is noise."""
    random, asked, confidence = rng(1), 1000, 0.9
    replaced = sum(
        bool(select(of_returns(random, 6, 20, heavy=heavy), random, confidence=confidence))
        for _ in range(asked)
    )
    allowed = 1.0 - confidence
    assert replaced / asked <= allowed + 5 * math.sqrt(allowed * confidence / asked)


def test_the_rate_of_false_replacements_is_not_far_below_either():
    """Two policies, so that nothing is lost to the correction: it is what was asked for."""
    random, asked, confidence = rng(2), 1200, 0.9
    for select in (truncation, binary_tournament, t_test, non_dominated):
        replaced = sum(
            bool(select(of_returns(random, 2, 12), random, fraction=0.5, confidence=confidence))
            if select in (truncation, non_dominated)
            else bool(select(of_returns(random, 2, 12), random, confidence=confidence))
            for _ in range(asked)
        )
        assert abs(replaced / asked - 0.1) < 5 * math.sqrt(0.09 / asked)


def test_two_objectives_of_equals_are_no_more_often_noise():
    random, asked, confidence = rng(3), 1000, 0.9
    replaced = sum(
        bool(
            non_dominated(
                joined([of_returns(random, 5, 15), of_returns(random, 5, 15)]),
                random,
                fraction=0.4,
                confidence=confidence,
            )
        )
        for _ in range(asked)
    )
    assert replaced / asked <= 0.1 + 5 * math.sqrt(0.09 / asked)


@pytest.mark.parametrize("select", SELECTIONS)
def test_what_is_clearly_better_takes_over(select):
    skill = np.array([0.0, 0.0, 0.0, 9.0])
    found = [
        each
        for seed in range(20)
        for each in select(of_returns(rng(seed), 4, 20, skill), rng(seed), confidence=0.95)
    ]
    assert len(found) >= 10
    assert {each.parent for each in found} == {"p3"}


def test_truncation_worked_out_by_hand():
    found = truncation(known(5.0, 1.0, 4.0, 0.0, 3.0, 2.0), rng(), fraction=0.34)
    assert [each.policy for each in found] == ["p1", "p3"]
    assert {each.parent for each in found} <= {"p0", "p2"}


@pytest.mark.parametrize(
    ("count", "fraction", "replaced"),
    [(10, 0.2, 2), (10, 0.1, 1), (10, 0.01, 1), (3, 0.5, 1), (2, 0.5, 1), (1, 0.5, 0), (0, 0.5, 0)],
)
def test_truncation_replaces_as_many_as_were_asked_for(count, fraction, replaced):
    fitness = known(*np.arange(count, dtype=float))
    assert len(truncation(fitness, rng(), fraction=fraction)) == replaced
    assert len(non_dominated(fitness, rng(), fraction=fraction)) == replaced


def test_parents_of_truncation_are_equally_likely():
    fitness, random = known(*np.arange(8.0)), rng()
    parents = [
        each.parent for _ in range(1000) for each in truncation(fitness, random, fraction=0.5)
    ]
    for parent in ("p4", "p5", "p6", "p7"):
        share = parents.count(parent) / len(parents)
        assert abs(share - 0.25) < 5 * math.sqrt(0.25 * 0.75 / len(parents))


def test_a_tournament_pairs_all_equally_often():
    fitness, random = known(*np.arange(5.0)), rng()
    seen = [binary_tournament(fitness, random) for _ in range(2000)]
    assert all(len(each) == 2 for each in seen)
    pairs = [frozenset((each.policy, each.parent)) for both in seen for each in both]
    for pair in set(pairs):
        share = pairs.count(pair) / 2000  # 2 of the 10 pairs each time
        assert abs(share - 0.2) < 5 * math.sqrt(0.2 * 0.8 / 2000)
    assert len(set(pairs)) == 10


def test_rivals_of_t_tests_are_equally_likely():
    fitness, random, asked = known(*np.arange(4.0)), rng(), 2000
    lone = sum(all(each.policy != "p2" for each in t_test(fitness, random)) for _ in range(asked))
    assert abs(lone / asked - 2 / 3) < 5 * math.sqrt(2 / 9 / asked)


def test_a_rival_that_is_replaced_hands_its_own_parent_on():
    fitness = known(0.0, 1.0, 2.0)
    chains = {tuple((x.policy, x.parent) for x in t_test(fitness, rng(seed))) for seed in range(60)}
    # p0 draws p1 or p2, p1 draws p0 or p2: with p1 replaced by p2, p0 never becomes p1.
    assert chains == {(("p0", "p1"),), (("p0", "p2"),), (("p0", "p2"), ("p1", "p2"))}


def test_the_confidence_is_what_welch_says_times_the_pairs():
    random = rng(5)
    samples = {"a": random.normal(0.0, 1.0, 12), "b": random.normal(2.5, 3.0, 40)}
    p = stats.ttest_ind(samples["b"], samples["a"], equal_var=False, alternative="greater").pvalue
    assert p < 0.025
    fitness = of_samples(samples)
    assert fitness.p_value(1, 0) == pytest.approx(p, rel=1e-9)
    assert fitness.p_value(0, 1) == pytest.approx(1.0 - p, rel=1e-9)
    just, too_much = 1.0 - 2 * p - 1e-6, 1.0 - 2 * p + 1e-6
    for select, options in ((truncation, {"fraction": 0.5}), (t_test, {})):
        assert select(fitness, rng(), confidence=just, **options) == [TakeOver("a", "b")]
        assert select(fitness, rng(), confidence=too_much, **options) == []


def test_ratings_have_known_errors():
    fitness = of_estimates(["a", "b"], [25.0, 27.0], [3.0, 4.0])
    assert fitness.p_value(1, 0) == pytest.approx(stats.norm.sf(2.0 / 5.0))
    assert truncation(fitness, rng(), fraction=0.5) == []
    assert len(truncation(fitness, rng(), fraction=0.5, confidence=0.0)) == 1


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_errors_of_any_size_can_be_compared(scale):
    fitness = of_estimates(["a", "b"], [0.0, 3.0 * scale], [scale, scale])
    assert fitness.p_value(1, 0) == pytest.approx(stats.norm.sf(3.0 / math.sqrt(2.0)))


def test_few_returns_and_broken_ones_are_not_judged():
    samples = {
        "few": [9.0] * 9,
        "none": [],
        "broken": [1.0] * 30 + [math.nan],
        "low": np.linspace(-0.1, 0.1, 20),
        "high": np.linspace(0.9, 1.1, 20),
    }
    fitness = of_samples(samples)
    assert fitness.judged.tolist() == [False, False, False, True, True]
    for select in SELECTIONS:
        for found in select(fitness, rng()):
            assert (found.policy, found.parent) == ("low", "high")
    assert len(truncation(fitness, rng())) == 1


def test_the_order_of_nsga_is_by_front_then_by_crowding():
    means = np.array([[1.0, 5.0], [5.0, 1.0], [3.0, 3.0], [3.2, 2.9], [2.0, 2.0], [0.0, 0.0]])
    order = order_by_crowding(means).tolist()
    assert set(order[:2]) == {0, 1}
    assert set(order[2:4]) == {2, 3}
    assert order[4:] == [4, 5]


def test_of_two_that_trade_neither_is_replaced():
    trade = joined([known(1.0, 0.0), known(0.0, 1.0)])
    assert non_dominated(trade, rng(), fraction=0.5, confidence=0.0) == []
    better = joined([known(1.0, 1.0), known(1.0, 0.0)])
    assert non_dominated(better, rng(), fraction=0.5) == [TakeOver("p1", "p0")]
    equal = joined([known(1.0, 1.0), known(1.0, 1.0)])
    assert non_dominated(equal, rng(), fraction=0.5, confidence=0.0) == []


def test_every_objective_counts_as_looked_at():
    one = of_estimates(["a", "b"], [0.0, 3.0], [1.0, 0.0])
    other = of_estimates(["a", "b"], [0.0, 1.0], [1.0, 0.0])
    p, both = 4.0 * stats.norm.sf(3.0), joined([one, other])  # two ordered pairs, two objectives
    found = non_dominated(both, rng(), fraction=0.5, confidence=1.0 - p - 1e-6)
    assert found == [TakeOver("a", "b")]
    assert non_dominated(both, rng(), fraction=0.5, confidence=1.0 - p + 1e-6) == []


@pytest.mark.parametrize("select", SELECTIONS)
def test_one_policy_or_none_is_never_replaced(select):
    assert select(known(), rng()) == []
    assert select(known(1.0), rng()) == []
