"""The contract of a `WeightStore`."""

import numpy as np
import pytest

from remuda.errors import CheckpointError, RemudaError

LAYOUTS = {"a": (3, 7), "b": (5, 8)}


def full(size, value):
    return np.full(size, value, np.float32)


def test_what_is_published_is_news_once_and_whole(make_weights):
    store = make_weights(LAYOUTS)
    reader, publisher = store.reader(), store.publisher("b", 8)
    assert publisher.version == 0
    assert not reader.is_news()
    assert publisher.publish(full(5, 1.5), 10, 0.25) == publisher.version == 1
    assert reader.is_news()
    (policy, found), *others = reader.newer().items()
    assert (policy, others) == ("b", [])
    assert found.weights.tolist() == [1.5] * 5
    assert (found.version, found.learner_step, found.epsilon) == (1, 10, 0.25)
    assert not reader.is_news()
    assert reader.newer() == {}


def test_readers_are_told_of_the_newest_only_and_each_for_itself(make_weights):
    store = make_weights(LAYOUTS)
    publisher, one = store.publisher("a", 7), store.reader()
    publisher.publish(full(3, 1), 1, 0.0)
    assert one.newer()["a"].version == 1
    for version in (2, 3):
        publisher.publish(full(3, version), version, 0.0)
    assert one.newer()["a"].version == 3
    late = store.reader()
    assert late.newer()["a"].weights.tolist() == [3.0] * 3
    assert late.newest("a").version == 3
    assert late.overtaken == one.overtaken == 0


def test_what_was_never_published_cannot_be_had(make_weights):
    store = make_weights(LAYOUTS)
    with pytest.raises(RemudaError, match="policy a"):
        store.reader().newest("a")


def test_what_a_caller_does_with_a_copy_or_the_original_changes_nothing_published(make_weights):
    store = make_weights(LAYOUTS)
    weights = full(3, 1)
    store.publisher("a", 7).publish(weights, 1, 0.0)
    weights[:] = 9.0
    store.reader().newest("a").weights[:] = 8.0
    assert store.reader().newest("a").weights.tolist() == [1.0] * 3


def test_a_successor_goes_on_with_the_versions(make_weights):
    store = make_weights(LAYOUTS)
    for expected in (1, 2, 3):
        assert store.publisher("a", 7).publish(full(3, expected), expected, 0.0) == expected
    with pytest.raises(ValueError, match="policy a is laid out in another way"):
        store.publisher("a", 8)


def test_a_checkpoint_is_published_under_its_own_version(make_weights):
    store = make_weights(LAYOUTS)
    for version in (1, 2):
        store.publisher("a", 7).publish(full(3, version), 5 * version, 0.5)
    reader = store.reader()
    reader.newer()
    saved, versions = reader.newest("a").state(), reader.state()
    again = make_weights(LAYOUTS)
    again.publisher("a", 7).restore(saved)
    found = again.reader().newest("a")
    assert (found.version, found.learner_step, found.epsilon) == (2, 10, 0.5)
    known = again.reader()
    known.restore(versions)
    assert not known.is_news()
    with pytest.raises(CheckpointError):
        again.publisher("b", 8).restore(saved)


def test_the_status_is_told_which_copy_is_read(make_weights):
    store = make_weights(LAYOUTS)
    store.publisher("a", 7).publish(full(3, 1), 1, 0.0)
    assert store.active("a") >= 0
