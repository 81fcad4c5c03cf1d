"""After every fault test nothing may be left: no process, shared memory, file or descriptor."""

import gc
import os
import tempfile
import time

import psutil
import pytest

from remuda.forkserver import client as forkserver


def _children():
    found = {p.pid for p in psutil.Process().children(recursive=True)}
    return found - {forkserver.server_pid()}


def _descriptors():
    """What the open descriptors lead to, by number."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
    return found


@pytest.fixture(autouse=True)
def nothing_is_left():
    forkserver.begin()  # it serves all tests of this process
    before = _children(), set(os.listdir("/dev/shm")), set(os.listdir(tempfile.gettempdir()))
    descriptors = _descriptors()
    yield
    gc.collect()
    limit = time.monotonic() + 10
    while _children() - before[0] and time.monotonic() < limit:
        time.sleep(0.01)
    assert _children() - before[0] == set(), "a process is left"
    assert set(os.listdir("/dev/shm")) - before[1] == set(), "shared memory is left"
    left = set(os.listdir(tempfile.gettempdir())) - before[2]
    assert {name for name in left if "pytest" not in name} == set(), "a temporary file is left"
    now = _descriptors()
    opened = {n: to for n, to in now.items() if descriptors.get(n) != to}
    opened = {n: to for n, to in opened.items() if "site-packages" not in to}  # fonts are cached
    assert opened == {}, "a descriptor is left"
