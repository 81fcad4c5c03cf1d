"""Metrics: both files tell the same, and a full disk never leaves half a line."""

import json
import resource
import warnings
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from remuda.coordinator.metrics_log import MetricsLog, masked_checksum
from remuda.runs.metrics import Record, read_metrics

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c


def record(turns):
    return Record(
        seconds=1.0,
        turns=turns,
        agent_steps=2 * turns,
        turns_per_second=turns / 2,
        agent_steps_per_second=float(turns),
        waits=0,
        wait_seconds=0.0,
        overtaken=0,
        shares={"env": 0.5},
        policies={},
    )


def write(log, record):
    log.begin(record)
    log.work.finish()


@pytest.fixture
def run(tmp_path):
    (tmp_path / "tensorboard").mkdir()
    return SimpleNamespace(
        path=tmp_path, metrics=tmp_path / "metrics.jsonl", tensorboard=tmp_path / "tensorboard"
    )


def scalars(run):
    events = EventAccumulator(str(run.tensorboard), purge_orphaned_data=True)
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars("run/turns_per_second")]


def test_both_files_tell_the_same(run):
    log = MetricsLog(run, print, None)
    for turns in (10, 20, 30):
        write(log, record(turns))
    assert [r.turns for r in read_metrics(run.metrics)] == [10, 20, 30]
    assert scalars(run) == [(10, 5.0), (20, 10.0), (30, 15.0)]


@contextmanager
def room_for(size):
    """Let no file of this process become larger: what goes beyond is not written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_no_half_of_anything(run):
    said = []
    log = MetricsLog(run, said.append, None)
    write(log, record(10))
    whole = run.metrics.read_bytes()
    with room_for(len(whole) + 50):  # and some of the next line
        write(log, record(20))
        write(log, record(30))
    assert run.metrics.read_bytes() == whole
    assert len(said) == 1
    assert "No space left on device; training continues without them" in said[0]
    write(log, record(40))
    assert [r.turns for r in read_metrics(run.metrics)] == [10, 40]
    assert scalars(run) == [(10, 5.0), (40, 20.0)]
    assert all(json.loads(line) for line in run.metrics.read_text().splitlines())


@pytest.mark.parametrize("size", [0, 1, 8, 1000, 70_001])
def test_checksums_are_those_of_tensorboard(size):
    data = np.random.default_rng(size).bytes(size)
    assert masked_checksum(data) == masked_crc32c(data)
