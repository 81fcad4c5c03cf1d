"""Shared memory: it crosses to a child, has no name, and leaves nothing behind."""

import gc
import multiprocessing
import signal
from multiprocessing import resource_tracker
from pathlib import Path

import numpy as np
import pytest

from places import named_memory
from remuda.system.memory import shared as shared_module
from remuda.system.memory.shared import PAGE, Arena, SharedArrays
from remuda.system.memory.waiting import Wakeup

SPAWN = multiprocessing.get_context("spawn")


def _write(shared, wakeup):
    shared["values"][:] = np.arange(6, dtype=np.float32).reshape(2, 3)
    wakeup.ring()
    signal.pause()


@pytest.mark.process
def test_child_writes_what_the_parent_reads_and_kill_leaves_nothing():
    shared, wakeup = SharedArrays({"values": ((2, 3), np.float32)}), Wakeup()
    child = SPAWN.Process(target=_write, args=(shared, wakeup))
    child.start()
    assert wakeup.wait(lambda: shared["values"][1, 2] == 5.0, 60)
    assert named_memory() == named_memory(child.pid) == set()  # so none can be left
    child.kill()
    child.join(60)
    assert shared["values"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_arrays_are_zero_aligned_and_apart():
    shared = SharedArrays({"a": ((3,), np.uint8), "b": ((2, 2), np.int64), "c": ((), np.float64)})
    assert not shared["a"].any()
    assert not shared["b"].any()
    for name in "abc":
        assert shared[name].ctypes.data % 64 == 0
    shared["a"][:] = 255
    assert not shared["b"].any()


def test_no_descriptor_is_left_open():
    resource_tracker.ensure_running()  # the first child of a process leaves it its pipe
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        shared, wakeup = SharedArrays({"a": ((10,), np.int64)}), Wakeup()
        wakeup.ring()
        shared["a"][0] = 1
    del shared, wakeup
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def _read_all(many, other, wakeup):
    for i, shared in enumerate(many):
        assert (shared["values"] == i).all()
        shared["values"][:] = -i
    other["values"][:] = 7
    wakeup.ring()


@pytest.mark.process
def test_arrays_of_one_arena_share_a_file_and_nothing_else(monkeypatch):
    monkeypatch.setattr(shared_module, "SMALLEST_FILE", 8 * PAGE)
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    arena = Arena()
    many = [SharedArrays({"values": ((100 + i,), np.int64)}, arena) for i in range(200)]
    opened = len(list(Path("/proc/self/fd").iterdir())) - before
    assert opened <= 2 * 6  # 8 + 16 + 32 + 64 + 128 pages
    for i, shared in enumerate(many):
        assert not shared["values"].any()
        assert shared["values"].ctypes.data % PAGE == 0
        shared["values"][:] = i
    assert all((shared["values"] == i).all() for i, shared in enumerate(many))
    alone, wakeup = SharedArrays({"values": ((2,), np.int64)}), Wakeup()
    child = SPAWN.Process(target=_read_all, args=(many, alone, wakeup))
    child.start()
    child.join(120)
    assert child.exitcode == 0
    assert all((shared["values"] == -i).all() for i, shared in enumerate(many))
    assert alone["values"].tolist() == [7, 7]
    child.close()
    del many, shared, arena, alone, wakeup, child
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_large_block_has_room_in_an_arena(monkeypatch):
    monkeypatch.setattr(shared_module, "SMALLEST_FILE", PAGE)
    arena = Arena()
    small, large = (SharedArrays({"a": ((n,), np.uint8)}, arena) for n in (1, 50 * PAGE + 1))
    large["a"][:] = 1
    assert small["a"].tolist() == [0]
