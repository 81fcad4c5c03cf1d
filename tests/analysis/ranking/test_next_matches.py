"""Matches are planned where the answer hangs on them."""

import numpy as np
import pytest
from scipy.special import ndtr

from refusals import refuses
from remuda.analysis.payoffs.payoffs import from_sums
from remuda.analysis.payoffs.sums import add_up
from remuda.analysis.ranking.next_matches import (
    FIRST,
    WRONG,
    Order,
    ResponseGraph,
    _shares,
    allocate,
    parse_until,
)
from remuda.errors import UsageError


class World:
    """A population whose true payoffs are known, and which plays what it is told to."""

    def __init__(self, truth, deviation, rng):
        self.truth, self.deviation, self.rng = truth, deviation, rng
        self.names = [f"p{i}" for i in range(len(truth))]
        self.sums = np.zeros((6, len(truth), len(truth)))

    def play(self, matches):
        one, other = (np.repeat(axis, matches.reshape(-1)) for axis in places_of(matches))
        returns = self.rng.normal(self.truth[one, other], self.deviation)
        add_up(
            np.stack([one, other], 1),
            np.stack([returns, -returns], 1),
            np.arange(2),
            True,
            False,
            self.sums,
        )

    @property
    def payoffs(self):
        return from_sums(self.names, self.sums, True)

    @property
    def matches(self):
        return int(np.triu(self.sums[0], 1).sum())


def places_of(matches):
    one, other = np.indices(matches.shape)
    return one.reshape(-1), other.reshape(-1)


def world_of(seed, count=16, cyclic=0.15, deviation=1.0):
    rng = np.random.default_rng(seed)
    skill = rng.normal(0.0, 0.5, count)
    noise = np.triu(rng.normal(0.0, cyclic, (count, count)), 1)
    return World(skill[:, None] - skill[None] + noise - noise.T, deviation, rng)


def round_robin(count, matches):
    upper = np.triu(np.ones((count, count), np.int64), 1)
    return upper * max(1, matches // int(upper.sum()))


def is_right(world, question, rng):
    """How often payoffs that were estimated with so many matches anew would give the true answer.

    That is what is compared: how sure the payoffs themselves say they are is also a matter of luck.
    """
    count = len(world.truth)
    matches = np.triu(world.payoffs.counts, 1)
    noise = np.triu(rng.standard_normal((1000, count, count)), 1)
    noise = (noise - noise.swapaxes(1, 2)) / np.sqrt(np.maximum(matches + matches.T, 1))
    said = question.answers(world.truth + world.deviation * noise)
    return (said == question.answers(world.truth[None])).all(1).mean()


def matches_until(world, question, sure, plan, most=200_000):
    count = len(world.truth)
    rng = np.random.default_rng(1)
    world.play(np.triu(np.full((count, count), FIRST), 1))
    while world.matches < most and is_right(world, question, rng) < sure:
        batch = max(count * (count - 1) // 2, world.matches // 10)
        if plan:
            world.play(allocate(world.payoffs, question, batch, rng))
        else:
            world.play(round_robin(count, batch))
    return world.matches


def median_ratio(seeds, question):
    ratios = []
    for seed in seeds:
        planned = matches_until(world_of(seed), question, 0.95, plan=True)
        ratios.append(planned / matches_until(world_of(seed), question, 0.95, plan=False))
    return float(np.median(ratios))


@pytest.mark.slow
def test_a_plan_needs_fewer_matches_than_a_round_robin():
    assert median_ratio(range(9), Order(3)) <= 0.65


@pytest.mark.long
def test_a_plan_needs_fewer_matches_than_a_round_robin_for_200_populations():
    assert median_ratio(range(100, 300), Order(3)) <= 0.5


def test_what_decides_nothing_is_not_played():
    """The last of twelve, far behind, cannot change who is first, whomever of the last it meets."""
    skill = np.array([3.0, 2.9, *np.linspace(-3.0, -6.0, 10)])
    world = World(skill[:, None] - skill[None], 1.0, np.random.default_rng(0))
    world.play(round_robin(12, 66 * 20))
    planned = allocate(world.payoffs, Order(1), 1000, np.random.default_rng(0))
    assert planned.sum() == 1000
    assert planned[:2].sum() > 900
    assert planned[2:, 2:].sum() < 100


def test_the_graph_asks_for_the_pairs_that_are_close():
    truth = np.zeros((4, 4))
    truth[np.triu_indices(4, 1)] = [2.0, 2.0, 2.0, 2.0, 0.05, 2.0]
    world = World(truth - truth.T, 1.0, np.random.default_rng(0))
    world.play(round_robin(4, 6 * 30))
    planned = allocate(world.payoffs, ResponseGraph(), 100, np.random.default_rng(0))
    assert planned[1, 3] > 90
    found = ResponseGraph().answers(world.payoffs.matrix[None])[0]
    assert ResponseGraph().in_words(found, world.payoffs.names).startswith("p0 beats 3")


def test_pairs_that_hardly_met_come_first():
    world = world_of(0, count=4)
    one = np.zeros((4, 4), np.int64)
    one[0, 1] = 50
    world.play(one)
    planned = allocate(world.payoffs, Order(1), 1000, np.random.default_rng(0))
    assert planned[0, 1] == 0
    assert planned.sum() == 5 * FIRST
    assert (planned[np.triu_indices(4, 1)][1:] == FIRST).all()
    assert allocate(world.payoffs, Order(1), 3, np.random.default_rng(0)).sum() == 3


def test_an_answer_that_is_certain_may_be_played_on():
    skill = np.array([30.0, 20.0, 10.0])
    world = World(skill[:, None] - skill[None], 0.1, np.random.default_rng(0))
    world.play(round_robin(3, 3 * 10))
    assert Order(2).in_words([0, 1], world.payoffs.names) == "p0 before p1"
    planned = allocate(world.payoffs, Order(2), 30, np.random.default_rng(0))
    assert planned.sum() == 30
    assert (planned[np.triu_indices(3, 1)] > 3).all()


def test_what_cannot_be_planned_is_refused():
    world = world_of(0, count=3)
    world.play(round_robin(3, 30))
    with refuses(UsageError):
        allocate(world.payoffs, Order(1), 0, np.random.default_rng(0))
    apart = from_sums(world.names, world.sums, False)
    with refuses(UsageError):
        allocate(apart, Order(1), 5, np.random.default_rng(0))
    alone = World(np.zeros((1, 1)), 1.0, np.random.default_rng(0))
    with refuses(UsageError):
        allocate(alone.payoffs, Order(1), 5, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("text", "question", "sure"),
    [
        ("rank of the top 3 is 95% sure", Order(3), 0.95),
        ("The order of the top 2 is  99.5 % sure", Order(2), 0.995),
        ("the best is 90% sure", Order(1), 0.9),
        ("the response graph is 95% sure", ResponseGraph(), 0.95),
    ],
)
def test_until_is_read(text, question, sure):
    assert parse_until(text) == (question, pytest.approx(sure))


@pytest.mark.parametrize(
    "text",
    ["", "95%", "rank of the top 0 is 95% sure", "the best is 100% sure", "the best is sure"],
)
def test_until_of_another_form_is_refused(text):
    with refuses(UsageError):
        parse_until(text)


def test_one_comparison_takes_the_shares_of_neyman():
    """With one comparison each pair gets matches by its weight times its deviation."""
    weights, deviations = np.array([2.0, 1.0, 1.0, 0.0]), np.array([1.0, 3.0, 0.5, 1.0])
    asked = (weights * deviations) ** 2
    found = _shares(asked[None, None], np.array([[0.3]]))
    assert found[0] == pytest.approx(weights * deviations / 5.5, abs=1e-6)


def test_no_other_shares_need_fewer_matches():
    """Matches that make three comparisons sure, by search along random directions."""
    rng = np.random.default_rng(5)
    asked, apart = rng.uniform(0.0, 1.0, (3, 6)) ** 2, np.array([0.2, 0.3, 0.9])

    def needed(shares):
        clear = apart / np.sqrt((asked / shares).sum(1))
        many = np.geomspace(1.0, 1e5, 20_001)
        wrong = ndtr(-clear[:, None] * np.sqrt(many)).sum(0)
        return many[np.argmax(wrong <= WRONG)]

    found = _shares(asked[None], apart[None])[0]
    least = needed(found)
    assert least < 0.95 * needed(np.full(6, 1.0 / 6.0))
    for size in (0.03, 0.3):
        for _ in range(100):
            other = found * np.exp(size * rng.standard_normal(6))
            assert needed(other / other.sum()) >= 0.999 * least
