"""Kinds of tests, by marker. A quick test without one of these markers is a unit test.

A unit test starts no process. `watch` finds those that do: children of the fork server, forks, and
programs of Python or a shell. Small programs that libraries call (`git`, `ldconfig`) do not count.
"""

import os
import subprocess
from multiprocessing import util
from pathlib import Path

KINDS = ("process", "learning", "browser", "cluster", "long")
PROGRAMS = ("remuda", "make", "sh", "bash")
TIMED = ("analysis", "evaluation")  # children that a run starts by the clock: a slow one has them
LASTING = ("remuda.system.processes.server", "resource_tracker")  # they outlive the test


def is_unit(item):
    """Whether the test is a unit test; slow ones are not looked at."""
    return not any(item.get_closest_marker(kind) for kind in (*KINDS, "slow"))


def watch(monkeypatch, found):
    """Call `found` with a description of each process that starts until `monkeypatch` is undone."""
    from remuda.system.processes import client

    def noted(owner, name, describe):
        original = getattr(owner, name)

        def start(*args, **options):
            if words := describe(*args, **options):
                found(words)
            return original(*args, **options)

        monkeypatch.setattr(owner, name, start)

    noted(client, "start", lambda *_, name="", **__: "" if name in TIMED else f"the child {name}")
    noted(os, "fork", lambda: "a fork of itself")
    noted(util, "spawnv_passfds", lambda path, args, _: _program([path, *args]))
    noted(subprocess.Popen, "__init__", lambda _, args, *__, **___: _program(args))


def _program(args):
    words = [args] if isinstance(args, str | bytes | os.PathLike) else list(args)
    if any(name in str(word) for word in words for name in LASTING):
        return ""
    program = Path(os.fsdecode(words[0])).name
    is_one = program in PROGRAMS or program.startswith("python")
    return f"the program {program}" if is_one else ""
