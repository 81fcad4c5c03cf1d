"""Publishing: a snapshot is seen whole or not at all, in both modes, whoever dies."""

import multiprocessing

import numpy as np
import pytest

from remuda.config import PublishConfig
from remuda.memory.atomic import store
from remuda.publish.snapshot import PublishedWeights, Publisher, SnapshotReader

SPAWN = multiprocessing.get_context("spawn")
MODES = ["snapshot", "double_buffer"]


def make(mode, size=6, policies=("a", "b")):
    return PublishedWeights({name: (size, 7, PublishConfig(mode=mode)) for name in policies})


@pytest.mark.parametrize("mode", MODES)
def test_what_is_published_is_read_once(mode):
    published = make(mode)
    reader = SnapshotReader(published)
    assert not reader.is_news()
    publisher = Publisher(published, "b", 7)
    for version in (1, 2, 3):
        assert publisher.publish(np.full(6, version, np.float32), 10 * version, 1 / version)
        assert reader.is_news()
        news = reader.newer()
        assert list(news) == ["b"]
        assert news["b"].weights.tolist() == [version] * 6
        assert (news["b"].version, news["b"].learner_step) == (version, 10 * version)
        assert news["b"].epsilon == 1 / version
        assert not reader.is_news()
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
    assert list(late) == ([] if mode == "snapshot" else ["a"])
    successor = Publisher(published, "a", 7)
    assert successor.publish(np.full(6, 2, np.float32), 2, 0.4) == 2
    assert reader.newer()["a"].weights.tolist() == [2] * 6


def test_a_successor_does_not_give_a_version_twice():
    published = make("double_buffer")
    Publisher(published, "a", 7).publish(np.ones(6, np.float32), 1, 0.5)
    published.board["versions"][0] = 0  # it died between making a version active and counting it
    assert Publisher(published, "a", 7).publish(np.ones(6, np.float32), 1, 0.5) == 2


def test_a_network_of_another_layout_is_refused():
    with pytest.raises(ValueError, match="policy a"):
        Publisher(make("snapshot"), "a", 8)


def _publish_for_ever(published):
    publisher = Publisher(published, "a", 7)
    size = published.slots["a"]["weights"].shape[1]
    while True:
        version = publisher.version + 1
        weights = np.full(size, version, np.float32)
        publisher.publish(weights, version, float(version))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("check", "wanted"),
    [
        (True, 4_000),
        (False, 400_000),  # a double buffer is torn only when the reader is overtaken twice
        pytest.param(True, 1_000_000, marks=[pytest.mark.slow, pytest.mark.timeout(1200)]),
    ],
)
def test_no_snapshot_is_torn(mode, check, wanted):
    """With the sequence check nothing is torn; without it, the same test does see torn weights."""
    size = 50_000 if wanted < 1_000_000 else 10_000
    published = make(mode, size=size, policies=("a",))
    child = SPAWN.Process(target=_publish_for_ever, args=(published,), daemon=True)
    child.start()
    try:
        reader, reads, torn, last = SnapshotReader(published, check), 0, 0, 0
        while reads < wanted:
            if not reader.is_news():
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
