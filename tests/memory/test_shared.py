"""Shared memory: it crosses to a child, has no name, and leaves nothing behind."""

import gc
import multiprocessing
import os
import signal
from pathlib import Path

import numpy as np

from remuda.memory.shared import SharedArrays
from remuda.memory.waiting import Wakeup

SPAWN = multiprocessing.get_context("spawn")


def _write(shared, wakeup):
    shared["values"][:] = np.arange(6, dtype=np.float32).reshape(2, 3)
    wakeup.ring()
    signal.pause()


def test_child_writes_what_the_parent_reads_and_kill_leaves_nothing():
    before = set(os.listdir("/dev/shm"))
    shared, wakeup = SharedArrays({"values": ((2, 3), np.float32)}), Wakeup()
    child = SPAWN.Process(target=_write, args=(shared, wakeup))
    child.start()
    assert wakeup.wait(lambda: shared["values"][1, 2] == 5.0, 60)
    child.kill()
    child.join(60)
    assert shared["values"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert set(os.listdir("/dev/shm")) == before


def test_arrays_are_zero_aligned_and_apart():
    shared = SharedArrays({"a": ((3,), np.uint8), "b": ((2, 2), np.int64), "c": ((), np.float64)})
    assert not shared["a"].any()
    assert not shared["b"].any()
    for name in "abc":
        assert shared[name].ctypes.data % 64 == 0
    shared["a"][:] = 255
    assert not shared["b"].any()


def test_no_descriptor_is_left_open():
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        shared, wakeup = SharedArrays({"a": ((10,), np.int64)}), Wakeup()
        wakeup.ring()
        shared["a"][0] = 1
    del shared, wakeup
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
