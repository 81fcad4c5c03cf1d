"""What a child process is started from: a file without a name, so that no pipe can fill up.

A child reads its recipe by itself, whenever it comes to it. The process that asks for the child
writes into memory only: it never waits for a child, whatever becomes of that one.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pickle
import resource
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import context, reduction, spawn
from typing import Any, Protocol


class Descriptor(Protocol):
    """A descriptor of the parent, as it crosses in a recipe."""

    def detach(self) -> int:
        """For the child: the descriptor, which is its own from now on."""


@dataclass(frozen=True)
class Reopened:
    """A descriptor that the child opens through `/proc`, while its parent holds it open.

    Neither the number of descriptors nor their weight is limited by what fits into a message. Files
    and pipes can be opened so; each child has a file description of its own.
    """

    parent: int
    number: int
    flags: int

    def detach(self) -> int:
        """Open it."""
        return reopen(self.parent, self.number, self.flags)


@dataclass(frozen=True)
class Inherited:
    """A descriptor that the child has by the same number."""

    number: int

    def detach(self) -> int:
        """It is there already."""
        os.set_inheritable(self.number, False)
        return self.number


@dataclass
class Recipe:
    """A call that a child process is to make, with all that it must have before."""

    target: Callable[..., object]
    args: tuple[Any, ...]
    name: str
    log: str
    """Where all output of the child goes; empty: where its parent's goes."""
    inherited: list[int] = field(default_factory=list)
    """Where a child inherits descriptors: which."""

    def write(self, inherits: bool) -> int:
        """Write it into a file without a name.

        Args:
            inherits: whether the child has its parent's descriptors by number, or opens them.

        Returns:
            A descriptor at the beginning of the file.
        """
        header = {
            "log": self.log,
            "environment": dict(os.environ),
            "affinity": os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None,
            "files": resource.getrlimit(resource.RLIMIT_NOFILE),
        }
        buffer = io.BytesIO()
        pickle.dump(header, buffer)
        descriptors: Any = _Descriptors(self.inherited if inherits else None)
        context.set_spawning_popen(descriptors)
        try:
            # What multiprocessing's own children need: the path, the directory, the main module.
            reduction.dump(spawn.get_preparation_data(self.name), buffer)
            reduction.dump((self.target, self.args), buffer)
        finally:
            context.set_spawning_popen(None)
        descriptor = nameless_file("remuda-recipe")
        try:
            view = memoryview(buffer.getbuffer())
            while view:
                view = view[os.write(descriptor, view) :]
            os.lseek(descriptor, 0, os.SEEK_SET)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


class _Descriptors:
    """What `multiprocessing.reduction.DupFd` asks for while a recipe is written."""

    def __init__(self, inherited: list[int] | None) -> None:
        self._inherited = inherited

    def duplicate_for_child(self, descriptor: int) -> int:
        """Note a descriptor that the child needs."""
        if self._inherited is not None:
            self._inherited.append(descriptor)
        return descriptor

    def DupFd(self, descriptor: int) -> Descriptor:  # noqa: N802
        """How it crosses."""
        if self._inherited is not None:
            return Inherited(descriptor)
        return Reopened(os.getpid(), descriptor, fcntl.fcntl(descriptor, fcntl.F_GETFL))


def reopen(process: int | str, number: int, flags: int) -> int:
    """Open what a descriptor of some process leads to, with the same access. Linux only.

    Raises:
        OSError: that process is gone, or has closed it.
    """
    flags &= os.O_ACCMODE | os.O_NONBLOCK | os.O_APPEND
    # Opening the end of a pipe may wait for somebody at the other; so never wait.
    opened = os.open(f"/proc/{process}/fd/{number}", flags | os.O_NONBLOCK | os.O_CLOEXEC)
    os.set_blocking(opened, not flags & os.O_NONBLOCK)
    return opened


def nameless_file(name: str) -> int:
    """A descriptor of an empty file that no path leads to."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name, os.MFD_CLOEXEC)
    descriptor, path = tempfile.mkstemp(prefix=name)
    with contextlib.suppress(OSError):
        os.unlink(path)
    return descriptor
