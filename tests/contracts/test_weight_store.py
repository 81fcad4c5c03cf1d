"""The contract of a `WeightStore`."""

import numpy as np
import pytest

from refusals import refuses
from remuda.errors import CheckpointError, RemudaError
from remuda.publish.training_state import TrainingLayout, TrainingState
from remuda.system.checkpoint.state import pack, unpack

LAYOUTS = {"a": (3, 7), "b": (5, 8)}
TRAINING = {"b": TrainingLayout(("mean", "target"), ("steps",))}


def full(size, value):
    return np.full(size, value, np.float32)


def test_what_is_published_is_news_once_and_whole(make_weights):
    store = make_weights(LAYOUTS)
    reader, publisher = store.reader(), store.publisher("b", 8)
    assert publisher.version == 0
    assert not reader.has_update()
    assert publisher.publish(full(5, 1.5), 10, 0.25) == publisher.version == 1
    assert reader.has_update()
    (policy, found), *others = reader.newer().items()
    assert (policy, others) == ("b", [])
    assert found.weights.tolist() == [1.5] * 5
    assert (found.version, found.learner_step, found.epsilon) == (1, 10, 0.25)
    assert not reader.has_update()
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
    with refuses(RemudaError):
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
    with refuses(ValueError):
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
    assert not known.has_update()
    with pytest.raises(CheckpointError):
        again.publisher("b", 8).restore(saved)


def test_the_status_is_told_which_copy_is_read(make_weights):
    store = make_weights(LAYOUTS)
    store.publisher("a", 7).publish(full(3, 1), 1, 0.0)
    assert store.active("a") >= 0


def trained(value):
    vectors = {name: full(5, value + i) for i, name in enumerate(TRAINING["b"].vectors)}
    return TrainingState(vectors, {"steps": float(value)})


def test_a_training_state_is_of_the_weights_that_it_was_published_with(make_weights):
    store = make_weights(LAYOUTS, TRAINING)
    publisher, reader = store.publisher("b", 8), store.reader()
    assert publisher.training == TRAINING["b"]
    for version in (1, 2):
        publisher.publish(full(5, version), version, 0.5, trained(10 * version))
        found = reader.newest("b", training=True)
        assert found.version == version
        assert found.training.numbers == {"steps": 10.0 * version}
        assert found.training.vectors["target"].tolist() == [10.0 * version + 1] * 5
    assert reader.newer()["b"].training is None  # an actor has no use for it
    publisher.publish(full(5, 3), 3, 0.5)
    assert reader.newest("b", training=True).training is None
    assert store.publisher("a", 7).training is None
    store.publisher("a", 7).publish(full(3, 1), 1, 0.0)
    assert reader.newest("a", training=True).training is None


def test_a_training_state_is_a_copy(make_weights):
    store = make_weights(LAYOUTS, TRAINING)
    given = trained(1)
    store.publisher("b", 8).publish(full(5, 1), 1, 0.0, given)
    given.vectors["mean"][:] = 9.0
    store.reader().newest("b", training=True).training.vectors["mean"][:] = 8.0
    found = store.reader().newest("b", training=True).training
    assert found.vectors["mean"].tolist() == [1.0] * 5


def test_a_checkpoint_keeps_the_training_state_where_it_is_published(make_weights):
    store = make_weights(LAYOUTS, TRAINING)
    store.publisher("b", 8).publish(full(5, 1), 1, 0.0, trained(4))
    saved = unpack(pack(store.reader().newest("b", training=True).state()))
    plain = store.reader().newest("b").state()
    again = make_weights(LAYOUTS, TRAINING)
    again.publisher("b", 8).restore(saved)
    found = again.reader().newest("b", training=True).training
    assert found.numbers == {"steps": 4.0}
    assert [found.vectors[name].tolist() for name in ("mean", "target")] == [[4.0] * 5, [5.0] * 5]
    again.publisher("b", 8).restore(plain)  # of an earlier version
    assert again.reader().newest("b", training=True).training is None
    without = make_weights(LAYOUTS)
    without.publisher("b", 8).restore(saved)
    assert without.reader().newest("b", training=True).training is None
    other = {**saved, "training": {"vectors": {"mean": full(4, 0)}, "numbers": {}}}
    with refuses(CheckpointError):
        again.publisher("b", 8).restore(other)
