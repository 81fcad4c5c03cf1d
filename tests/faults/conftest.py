"""After every fault test nothing may be left: no process, shared memory, file or descriptor."""

import gc
import os
import time

import pytest

from places import named_memory, processes
from remuda.system.processes import client as forkserver


def _children():
    return processes() - {forkserver.server_pid()}


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
def nothing_is_left(temporary_directory):
    forkserver.begin()  # it serves all tests of this process
    before, descriptors = _children(), _descriptors()
    yield
    assert named_memory() == set(), "shared memory has a name, by which it may be left"
    gc.collect()
    limit = time.monotonic() + 30
    while _children() - before and time.monotonic() < limit:
        time.sleep(0.05)
    assert _children() - before == set(), "a process is left"
    assert os.listdir(temporary_directory) == [], "a temporary file is left"
    now = _descriptors()
    opened = {n: to for n, to in now.items() if descriptors.get(n) != to}
    fonts = (".ttf", ".otf", ".ttc", ".pfb", ".afm")  # matplotlib keeps the fonts it drew with open
    opened = {n: to for n, to in opened.items() if not to.endswith(fonts)}
    assert opened == {}, "a descriptor is left"
