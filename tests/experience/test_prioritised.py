"""Prioritised replay: drawn as often as errors say, by hand and by counting."""

import numpy as np
import pytest
from scipy import stats

from remuda.config import ExperienceConfig
from remuda.experience.experience import Experience
from remuda.experience.priorities import LEAST, Drawn, Priorities, PrioritisedReplay
from remuda.experience.replay import Batch
from remuda.experience.ring import StreamShape
from remuda.system.memory.waiting import Wakeup
from ring_writers import ExperienceWriter
from spawned import child_of

ALL = np.ones(1, bool)
NONE = np.zeros(1, bool)


def make(capacity=40, length=10, size=1):
    config = ExperienceConfig(capacity=capacity, segment_length=length, learning_starts=1)
    shape = StreamShape((size,), np.float32, 1)
    return Experience(shape, config, (1,), Wakeup(), (Wakeup(),))


def play(writer, episodes, start=0):
    """Episodes of these lengths; step i does i."""
    i = start
    for length in episodes:
        for t in range(length):
            seen = np.full((1, 1), i, np.float32)
            writer.decide(seen, np.array([[i]]), 0, ALL)
            ends = np.array([t == length - 1])
            writer.outcome(np.ones(1, np.float32), ends, NONE, seen, ALL)
            i += 1
    return i


def drawn(replay, size, beta=1.0):
    """The actions of a batch, and their weights."""
    out = Batch.empty(replay.experience, 1, size, weighed=True)
    assert replay.sample(out, 0, size, beta)
    return out.a_tm1[0].copy(), out.weights[0].copy()


def teach(replay, errors, tries=200):
    """Let every step have been drawn once, with the error that is told of its action."""
    left = set(errors)
    for _ in range(tries):
        actions, _ = drawn(replay, 16)
        replay.learn(np.array([errors[a] for a in actions.tolist()], np.float32))
        left -= set(actions.tolist())
        if not left:
            return
    raise AssertionError(f"never drawn: {left}")


def counts(replay, kinds, draws, size=1):
    found = np.zeros(kinds, np.int64)
    for _ in range(draws):
        found += np.bincount(drawn(replay, size)[0], minlength=kinds)
    return found


def test_a_tree_by_hand():
    """Two segments of two places, three of which are taken; alpha 1/2."""
    tree = Priorities(0.5, 2, 2)
    ends = np.array([2, 3])
    tree.follow(np.array([2, 4]), ends)
    assert tree.leaves.tolist() == [[1.0, 1.0], [1.0, 0.0]]  # the greatest so far is 1
    out = Drawn.empty(3)
    picks = tree.draw(np.array([0.5, 0.5, 0.5]), ends, np.ones(3, bool), out)
    assert picks.tolist() == out.leaves.tolist() == [0, 1, 2]
    assert out.shares.tolist() == pytest.approx([1.0, 1.0, 1.0])
    tree.learn(out, np.array([4.0, -9.0, 0.0], np.float32))
    assert tree.leaves.ravel() == pytest.approx([2.0, 3.0, LEAST**0.5, 0.0], rel=1e-5)
    # A new step has the greatest priority so far; the sum is 8.001.
    ends = np.array([2, 4])
    tree.follow(np.array([2, 4]), ends)
    assert tree.leaves.ravel() == pytest.approx([2.0, 3.0, 0.001, 3.0], rel=1e-5)
    picks = tree.draw(np.full(2, 0.99), ends, np.ones(2, bool), out := Drawn.empty(2))
    assert picks.tolist() == [1, 3]  # 3.96 and 7.96 of 8.001
    assert out.shares.tolist() == pytest.approx([4 * 3 / 8.001] * 2, rel=1e-5)
    # A segment that was begun anew is all new.
    tree.follow(np.array([4, 4]), np.array([1, 3]))
    assert tree.leaves.ravel() == pytest.approx([3.0, 0.0, 0.001, 3.0], rel=1e-5)
    # What is learned of steps that are gone is of no use to those in their place.
    tree.learn(Drawn(np.array([0, 1]), np.array([2, 2]), np.ones(2)), np.full(2, 100.0, np.float32))
    assert tree.leaves.ravel() == pytest.approx([3.0, 0.0, 0.001, 3.0], rel=1e-5)
    # Errors that are no numbers tell nothing.
    tree.learn(Drawn(np.array([0]), np.array([4]), np.ones(1)), np.full(1, np.nan, np.float32))
    assert tree.leaves[0, 0] == pytest.approx(3.0, rel=1e-5)


def test_weights_by_hand():
    """Drawn half as often as on average, as often, twice as often."""
    out = Drawn(np.zeros(3, np.int64), np.zeros(3, np.int64), np.array([0.5, 1.0, 2.0]))
    assert out.weights(1.0).tolist() == [1.0, 0.5, 0.25]
    assert out.weights(0.5).tolist() == pytest.approx([1.0, 0.5**0.5, 0.5])
    assert out.weights(0.0).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.slow_cases("1")
@pytest.mark.parametrize("size", [1, 8])
def test_steps_are_drawn_as_often_as_their_errors_say(size):
    experience = make()
    play(ExperienceWriter(experience), [3, 7, 2])
    replay = PrioritisedReplay([experience], 1, 0.9, np.random.default_rng(0), 0.6)
    assert stats.chisquare(counts(replay, 12, 12_000 // size, size)).pvalue > 1e-4, "at first"
    errors = {i: 0.1 * (i + 1) * (-1) ** i for i in range(12)}
    teach(replay, errors)
    chances = (0.1 * np.arange(1, 13) + LEAST) ** 0.6
    chances /= chances.sum()
    found = counts(replay, 12, 24_000 // size, size)
    assert stats.chisquare(found, found.sum() * chances).pvalue > 1e-4
    actions, weights = drawn(replay, 64, beta=0.7)
    expected = (12 * chances[actions]) ** -0.7
    assert weights == pytest.approx(expected / expected.max(), rel=1e-4)


def test_the_mean_of_weighted_samples_is_that_of_all_steps():
    """With beta 1, whatever is drawn more often: what importance weights are for."""
    experience = make()
    play(ExperienceWriter(experience), [10])
    replay = PrioritisedReplay([experience], 1, 0.9, np.random.default_rng(0), 0.8)
    teach(replay, {i: 0.1 + i for i in range(10)})
    actions, weights = drawn(replay, 4000)  # few enough of the first to weigh most
    assert np.bincount(actions)[0] < 40
    assert (actions * weights).sum() / weights.sum() == pytest.approx(4.5, abs=0.25)


def test_what_was_written_over_begins_with_the_greatest_priority():
    experience = make(capacity=20, length=10)
    writer = ExperienceWriter(experience)
    end = play(writer, [10, 10])
    replay = PrioritisedReplay([experience], 1, 0.9, np.random.default_rng(0), 1.0)
    teach(replay, {i: 3.0 if i == 4 else 0.01 for i in range(end)})
    play(writer, [10], start=end)  # in the place of the first ten
    found = counts(replay, 30, 3000)
    assert found[:10].sum() == 0
    chances = np.array([0.01] * 10 + [3.0] * 10)
    assert stats.chisquare(found[10:], 3000 * chances / chances.sum()).pvalue > 1e-4


def test_it_goes_on_where_it_was_saved():
    def prioritised(experience, seed):
        return PrioritisedReplay([experience], 1, 0.9, np.random.default_rng(seed), 0.6)

    experience = make()
    writer = ExperienceWriter(experience)
    end = play(writer, [10, 10, 3])
    replay = prioritised(experience, 0)
    teach(replay, {i: 0.1 + i for i in range(end)})
    saved, held = replay.state(whole=True), experience.state()
    again = make()
    ExperienceWriter(again)
    again.restore(held, experience.written)
    successor = prioritised(again, 9)
    successor.restore(saved)
    for _ in range(20):
        (one, weights), (other, others) = drawn(replay, 16), drawn(successor, 16)
        assert (one == other).all()
        assert (weights == others).all()
        for each in (replay, successor):
            each.learn(np.abs(np.sin(one)).astype(np.float32))
    # Without the steps, those that take their places are all alike.
    empty = make()
    empty.restore(None, 23)
    fresh = prioritised(empty, 9)
    fresh.restore(saved)
    play(ExperienceWriter(empty), [10, 10, 3])
    assert stats.chisquare(counts(fresh, 23, 4000)).pvalue > 1e-4
    assert replay.state()["priorities"] is None


def _write_for_ever(experience):
    writer = ExperienceWriter(experience)
    i = 0
    while True:
        i = play(writer, [8], start=i % 60_000)


@pytest.mark.slow
def test_what_is_overtaken_is_drawn_anew():
    """While a writer goes round a ring of two segments, nothing is torn, and the tree is right."""
    experience = make(capacity=16, length=8)
    child = child_of(_write_for_ever, experience)
    child.start()
    try:
        assert experience.learner.wait(lambda: experience.has(100), 60.0)
        replay = PrioritisedReplay([experience], 1, 0.9, np.random.default_rng(0), 0.6)
        out = Batch.empty(experience, 1, 64, weighed=True)
        for _ in range(100_000):
            if replay.sample(out, 0, 64):
                assert (out.s_tm1[0, :, 0] == out.a_tm1[0]).all()
                replay.learn(np.abs(np.sin(out.a_tm1[0])).astype(np.float32))
            if replay.redrawn > 100:
                break
        assert replay.redrawn > 100, "the writer never overtook the sampler"
    finally:
        child.kill()
        child.join(60)
    drawn(replay, 64)
    known = replay.state(whole=True)["priorities"]
    there = known["committed"][:, None] > np.arange(8)
    leaves = known["leaves"]
    assert ((leaves > 0.0) == there).all()
    actions = experience.rings[0].shared["actions"][:, :8, 0]
    found = np.array([(drawn(replay, 1024)[0][:, None] == actions[there]).sum(0) for _ in range(9)])
    expected = found.sum() * leaves[there] / leaves.sum()
    assert stats.chisquare(found.sum(0), expected).pvalue > 1e-4
