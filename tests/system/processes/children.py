"""What the tests of child processes share."""

import contextlib
import gc
import os
import resource
import time

from remuda.system.processes import client as forkserver


def ended(process, seconds=120.0):
    """Wait for the end of a process, and let go of it; returns its exit code."""
    assert process.join(seconds)
    code = process.exitcode
    process.close()
    return code


def wait_for(condition, seconds=120.0):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "it never came"
        time.sleep(0.01)


def open_files(pid="self"):
    """The open files of a process: number, and what it leads to; of this one, those in use."""
    if pid == "self":
        gc.collect()  # what earlier tests left would be closed at any time
    found = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            found[int(name)] = os.readlink(f"/proc/{pid}/fd/{name}")
    return found


@contextlib.contextmanager
def room_for(count):
    """Let this process open so many files more, and no others."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(open_files()) + 16, hard))
    held = []
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(count):
            os.close(held.pop())
        yield
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def server_with(code, directory, monkeypatch):
    """Have a fork server that is quickly begun and runs some code of the test's first."""
    lines = [f"    {line}" for line in code.strip().splitlines()]
    (directory / "sitecustomize.py").write_text(
        "import errno, os, signal, sys, time\n"
        "if '-c' in sys.orig_argv and 'remuda.system.processes.server' in sys.orig_argv[-1]:\n"
        + "\n".join([*lines, "    pass\n"])
    )
    paths = (str(directory), os.environ.get("PYTHONPATH", ""))
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
        patch.setattr(forkserver, "MODULES", ())
        patch.setattr(forkserver.ProcessState, "why_not", "")
        forkserver.end()
        forkserver.begin()
        try:
            yield
        finally:
            forkserver.end()
