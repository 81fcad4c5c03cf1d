"""The contract of an `ExperienceStore`."""

import pytest

from contracts.conftest import CAPACITY, LENGTH


def test_steps_are_counted_as_they_are_committed(make_experience):
    made = make_experience()
    store = made.store
    assert (store.written, store.lost, store.fill) == (0, 0, 0.0)
    made.write([*range(6)], ends=True)
    assert store.written == 6
    assert 0.0 < store.fill < 1.0
    assert sum(store.closed) == 1, "the second segment has room for another episode"
    made.write([*range(4 * CAPACITY)], ends=True)
    assert store.written == 6 + 4 * CAPACITY
    assert store.fill > 0.7


def test_a_learner_is_rung_once_there_are_as_many_steps_as_it_asked_for(make_experience):
    made = make_experience()
    assert not made.store.has(5)
    made.write([0, 1, 2], ends=True)
    assert not made.store.has(5)
    made.write([3, 4], ends=True)
    assert made.learner.wait(lambda: made.store.has(5), 5.0)
    assert made.store.has(5)


def test_a_rollout_is_handed_over_whole_in_order_and_once(make_experience):
    made = make_experience(rollout=8)
    made.write([*range(7)])
    assert made.take() == []
    made.write([7], ends=True)
    assert made.store.untaken == 8
    assert made.take() == [*range(8)]
    assert made.take() == []
    assert made.store.untaken == 0
    assert made.store.passed == 8
    made.write([*range(8, 16)], ends=True)
    assert made.take() == [*range(8, 16)]


def test_what_is_skipped_is_handed_to_nobody(make_experience):
    made = make_experience(rollout=8)
    made.write([*range(4)], ends=True)
    closed = made.store.closed
    made.write([*range(4, 8)], ends=True)
    made.store.skip(closed)  # what had been closed then
    assert made.store.untaken == 4
    made.write([*range(8, 12)], ends=True)
    assert made.take() == [*range(4, 12)]
    made.write([*range(12, 16)], ends=True)
    made.store.skip()
    assert made.store.untaken == 0
    assert made.store.passed == made.store.written == 16


def test_an_actor_waits_where_the_user_says_so_until_the_learner_has_had_its_share(
    make_experience,
):
    made = make_experience(on_full="wait")
    assert made.store.may_wait
    assert made.may_write
    made.write([*range(CAPACITY + LENGTH)], ends=True)
    assert not made.may_write
    made.store.consume(2 * LENGTH)
    assert made.may_write
    free = make_experience()
    assert not free.store.may_wait
    free.write([*range(2 * CAPACITY)], ends=True)
    assert free.may_write


def test_a_learner_that_is_released_takes_nothing_and_is_never_urgent(make_experience):
    made = make_experience(rollout=8, on_full="wait")
    made.write([*range(8)], ends=True)
    assert made.store.is_urgent
    made.store.release()
    assert made.store.passed is None
    assert made.store.untaken == 0
    assert not made.store.is_urgent
    made.write([*range(8)], ends=True)
    assert not made.store.is_urgent


@pytest.mark.parametrize("rollout", [0, 8])
def test_what_was_saved_is_held_again(make_experience, rollout):
    made = make_experience(rollout)
    made.write([*range(8)], ends=True)
    saved = made.store.state()
    again = make_experience(rollout)
    again.store.restore(saved, made.store.written)
    assert again.store.written == 8
    assert sum(again.store.closed) == 8 // LENGTH
    if rollout:
        assert again.take() == [*range(8)]
    lost = make_experience(rollout)
    lost.store.restore(None, 8)
    assert lost.store.written == lost.store.lost == 8
    assert lost.take() == []
