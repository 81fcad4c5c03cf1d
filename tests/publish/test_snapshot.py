"""Publishing: a snapshot is seen whole or not at all, in both modes, whichever process dies."""

import numpy as np
import pytest

from line_deaths import AtLine, DiedError
from refusals import refuses
from remuda.config import PublishConfig
from remuda.errors import RemudaError
from remuda.publish import snapshot as module
from remuda.publish import training_state
from remuda.publish.snapshot import PublishedWeights, Publisher, SnapshotReader
from remuda.publish.training_state import TrainingLayout, TrainingState
from remuda.system.memory.atomic import store
from spawned import child_of

MODES = ["snapshot", "double_buffer"]
LAYOUT = TrainingLayout(("mean", "square"), ("steps", "explored"))
WATCHED = (module, training_state)


def make(mode, size=6, policies=("a", "b"), training=()):
    layouts = {name: (size, 7, PublishConfig(mode=mode)) for name in policies}
    return PublishedWeights(layouts, training=dict.fromkeys(training, LAYOUT))


def trained(value, size=6):
    """A training state that tells which publication it belongs to."""
    vectors = {name: np.full(size, value, np.float32) for name in LAYOUT.vectors}
    return TrainingState(vectors, dict.fromkeys(LAYOUT.numbers, float(value)))


def is_of(training, value):
    """Whether all of a training state belongs to that publication."""
    return all((vector == value).all() for vector in training.vectors.values()) and all(
        number == value for number in training.numbers.values()
    )


@pytest.mark.parametrize("mode", MODES)
def test_what_is_published_is_read_once(mode):
    published = make(mode)
    reader = SnapshotReader(published)
    assert not reader.has_update()
    publisher = Publisher(published, "b", 7)
    for version in (1, 2, 3):
        assert publisher.publish(np.full(6, version, np.float32), 10 * version, 1 / version)
        assert reader.has_update()
        news = reader.newer()
        assert list(news) == ["b"]
        assert news["b"].weights.tolist() == [version] * 6
        assert (news["b"].version, news["b"].learner_step) == (version, 10 * version)
        assert news["b"].epsilon == 1 / version
        assert not reader.has_update()
        assert reader.newer() == {}


@pytest.mark.parametrize("mode", MODES)
def test_a_publisher_that_dies_while_writing_harms_nobody(mode):
    published = make(mode)
    reader, publisher = SnapshotReader(published), Publisher(published, "a", 7)
    publisher.publish(np.full(6, 1, np.float32), 1, 0.5)
    reader.newer()
    slots = published.slots["a"]
    slot = (int(slots["active"][0]) + 1) % len(slots["sequence"])
    store(slots["sequence"], slot, int(slots["sequence"][slot]) | 1)
    slots["weights"][slot, :3] = 99.0  # half a vector, and then it is killed
    late = SnapshotReader(published).newer()
    assert late["a"].weights.tolist() == [1] * 6
    successor = Publisher(published, "a", 7)
    assert successor.publish(np.full(6, 2, np.float32), 2, 0.4) == 2
    assert reader.newer()["a"].weights.tolist() == [2] * 6


@pytest.mark.parametrize("mode", MODES)
def test_both_modes_keep_two_copies_and_one_is_whole_at_any_instant_of_a_publication(mode):
    published = make(mode, size=1000)
    slots = published.slots["a"]
    assert slots["weights"].nbytes == 2 * 1000 * 4
    publisher, writes = Publisher(published, "a", 7), 0
    publisher.publish(np.ones(1000, np.float32), 1, 0.5)

    class Watched:
        """Stands in for weights: looks at both rows whenever one of them is being written."""

        def __array__(self, dtype=None, copy=None):
            nonlocal writes
            writes += 1
            torn = slots["sequence"] % 2 == 1
            assert torn.sum() == 1
            assert SnapshotReader(published).newest("a").version in (1, 2)
            return np.full(1000, 2, np.float32)

    publisher.publish(Watched(), 2, 0.4)
    assert writes == {"snapshot": 2, "double_buffer": 1}[mode]
    assert SnapshotReader(published).newer()["a"].weights.tolist() == [2] * 1000


class HalfWritten:
    """Stands in for weights: the learner dies when half of them are copied out."""

    def __init__(self, slots):
        self.slots = slots

    def __array__(self, dtype=None, copy=None):
        for row in np.flatnonzero(self.slots["sequence"] % 2):
            self.slots["weights"][row, :3] = 99.0
        raise DiedError


def publish_and_die(published, version, line):
    """A learner's whole life: one publication, unless it dies at this line of it."""
    with AtLine(line, WATCHED) as crash:
        publisher = Publisher(published, "a", 7)
        training = trained(version) if publisher.training is not None else None
        publisher.publish(np.full(6, version, np.float32), version, float(version), training)
    return None if crash.reached else publisher.version


def check_whole(snapshot, among):
    assert snapshot.weights.tolist() == [snapshot.learner_step] * 6
    assert snapshot.epsilon == snapshot.learner_step
    assert snapshot.learner_step in among


def check_newest(published, among):
    """What can be had now is whole, with how it was trained if that is published."""
    found = SnapshotReader(published).newest("a", training=True)
    check_whole(found, among)
    if published.training_rows("a") is not None:
        assert is_of(found.training, found.learner_step)


@pytest.mark.slow_cases("double_buffer-training0", "double_buffer-training1", "snapshot-training1")
@pytest.mark.parametrize("training", [(), ("a",)])
@pytest.mark.parametrize("mode", MODES)
def test_a_learner_may_be_killed_at_every_line_of_a_publication(mode, training):
    """And so may its successor, at every line of the next: weights can be had all the time."""
    for first in range(200):
        for second in range(0, 200, 5 if training else 1):
            published = make(mode, training=training)
            Publisher(published, "b", 7).publish(np.zeros(6, np.float32), 0, 0.0)
            publish_and_die(published, 1, 1000)
            actor = SnapshotReader(published)
            actor.newer()
            one = publish_and_die(published, 2, first)
            check_newest(published, (1, 2))
            two = publish_and_die(published, 3, second)
            check_newest(published, (1, 2, 3))
            late = SnapshotReader(published).newer()  # of an actor that begins now
            assert list(late) == ["a", "b"]
            check_whole(late["a"], (1, 2, 3))
            for snapshot in actor.newer().values():  # of one that was there all the time
                check_whole(snapshot, (2, 3))
            version = publish_and_die(published, 4, 1000)
            assert version is not None
            for reader in (actor, SnapshotReader(published)):
                found = reader.newer()["a"]
                check_whole(found, (4,))
                assert found.version == version
            if two is not None:
                break
        if one is not None:
            break
    assert min(first, second) > 10


@pytest.mark.parametrize("mode", MODES)
def test_a_learner_may_be_killed_in_the_middle_of_a_copy_again_and_again(mode):
    published = make(mode)
    slots = published.slots["a"]
    publish_and_die(published, 1, 1000)
    for _ in range(5):
        with pytest.raises(DiedError):
            Publisher(published, "a", 7).publish(HalfWritten(slots), 2, 2.0)
        check_whole(SnapshotReader(published).newest("a"), (1,))
        assert slots["sequence"].tolist().count(0) <= 1  # one is torn, and always the same
    version = publish_and_die(published, 3, 1000)
    found = SnapshotReader(published).newest("a")
    check_whole(found, (3,))
    assert found.version == version


def test_what_was_never_published_is_told_from_weights():
    with refuses(RemudaError):
        SnapshotReader(make("snapshot")).newest("b")


def test_a_successor_does_not_give_a_version_twice():
    published = make("double_buffer")
    Publisher(published, "a", 7).publish(np.ones(6, np.float32), 1, 0.5)
    published.board["versions"][0] = 0  # it died between making a version active and counting it
    assert Publisher(published, "a", 7).publish(np.ones(6, np.float32), 1, 0.5) == 2


def test_a_network_of_another_layout_is_refused():
    with refuses(ValueError):
        Publisher(make("snapshot"), "a", 8)


@pytest.mark.parametrize("mode", MODES)
def test_who_only_acts_does_not_copy_how_a_policy_is_trained(mode):
    published = make(mode, training=("a",))
    reader, publisher = SnapshotReader(published), Publisher(published, "a", 7)
    assert publisher.training == LAYOUT
    assert Publisher(published, "b", 7).training is None
    publisher.publish(np.ones(6, np.float32), 1, 1.0)
    assert reader.newest("a", training=True).training is None  # there was none of these weights
    publisher.publish(np.full(6, 2, np.float32), 2, 2.0, trained(2))
    assert reader.newer()["a"].training is None
    assert reader.newest("a").training is None
    assert is_of(reader.newest("a", training=True).training, 2)
    publisher.publish(np.full(6, 3, np.float32), 3, 3.0)
    assert reader.newest("a", training=True).training is None  # and not that of version 2


def _publish_for_ever(published):
    publisher = Publisher(published, "a", 7)
    size = published.slots["a"]["weights"].shape[1]
    while True:
        version = publisher.version + 1
        weights = np.full(size, version, np.float32)
        training = trained(version, size) if publisher.training is not None else None
        publisher.publish(weights, version, float(version), training)


@pytest.mark.process
@pytest.mark.slow_cases(
    "False-400000-double_buffer",
    "False-400000-snapshot",
    "True-4000-double_buffer",
    "True-4000-snapshot",
)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("check", "wanted"),
    [
        (True, 4_000),
        (False, 400_000),  # a double buffer is torn only when the reader is overtaken twice
        pytest.param(True, 1_000_000, marks=[pytest.mark.long, pytest.mark.timeout(1200)]),
    ],
)
def test_no_snapshot_is_torn(mode, check, wanted):
    """With the sequence check nothing is torn; without it, the same test does see torn weights."""
    size = 50_000 if wanted < 1_000_000 else 10_000
    published = make(mode, size=size, policies=("a",))
    child = child_of(_publish_for_ever, published)
    child.start()
    try:
        reader, reads, torn, last = SnapshotReader(published, check), 0, 0, 0
        while reads < wanted:
            if not reader.has_update():
                assert child.is_alive()
                continue
            for snapshot in reader.newer().values():
                reads += 1
                whole = (snapshot.weights == snapshot.version).all()
                whole &= snapshot.epsilon == snapshot.version == snapshot.learner_step
                torn += not whole
                assert snapshot.version > last
                last = snapshot.version
            if torn and not check:
                break
        assert (torn == 0) == check
    finally:
        child.kill()
        child.join(60)


@pytest.mark.process
@pytest.mark.slow_cases("double_buffer-training0", "double_buffer-training1", "snapshot-training1")
@pytest.mark.parametrize("training", [(), ("a",)])
@pytest.mark.parametrize("mode", MODES)
def test_the_newest_can_be_had_while_a_learner_publishes_all_the_time(mode, training):
    published = make(mode, size=20_000, policies=("a",), training=training)
    first = trained(1, 20_000) if training else None
    Publisher(published, "a", 7).publish(np.ones(20_000, np.float32), 1, 1.0, first)
    child = child_of(_publish_for_ever, published)
    child.start()
    try:
        reader = SnapshotReader(published)
        while reader.newest("a").version < 1000:
            assert child.is_alive()
        for _ in range(300):
            found = reader.newest("a", training=True)
            assert (found.weights == found.version).all()
            assert is_of(found.training, found.version) if training else found.training is None
            assert found.epsilon == found.version == found.learner_step
    finally:
        child.kill()
        child.join(60)
