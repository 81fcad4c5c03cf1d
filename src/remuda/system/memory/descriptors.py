"""The limit on open files, checked against a run's needs before it starts."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import tempfile
from collections.abc import Iterator

from remuda.errors import RemudaError

PER_PROCESS = 6  # the coordinator's descriptors per process, rounded up
BESIDES = 64  # descriptors for everything else: logs, metrics, checkpoints, shared memory
HIGHEST = 1 << 16  # the limit to request if the system has none


def raise_limit() -> int:
    """Raise this process's limit on open files as far as possible; children inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = HIGHEST if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # some systems allow less than they report
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            return wanted
    return soft if soft != resource.RLIM_INFINITY else HIGHEST


def check_limit(processes: int) -> None:
    """Raise the limit on open files, and refuse the run if it is still too low."""
    limit = raise_limit()
    try:
        open_now = len(os.listdir("/dev/fd"))
    except OSError:
        open_now = BESIDES
    needed = open_now + BESIDES + PER_PROCESS * processes
    if needed > limit:
        raise RemudaError(
            f"{processes} processes need about {needed:,} open files, and the limit is {limit:,} "
            f"(`ulimit -Hn`); raise it, for instance by `ulimit -n {2 * needed}`, or lower "
            "actor.processes or learners.processes"
        )


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turn "too many open files" into an error that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        raise RemudaError(
            f"too many open files: the limit is {limit:,} (`ulimit -n`); raise it, or lower "
            "actor.processes or learners.processes"
        ) from None


def nameless_file(name: str) -> int:
    """Return a descriptor of an empty file without a path."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name, os.MFD_CLOEXEC)
    descriptor, path = tempfile.mkstemp(prefix=name)
    with contextlib.suppress(OSError):
        os.unlink(path)
    return descriptor
