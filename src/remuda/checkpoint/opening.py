"""The one way in which files of runs are opened, but for those that are written whole.

A run may be another person's, or half written. A named pipe in place of a file would block its
reader, and a huge or deeply nested file would take its memory. Here a file is an ordinary file of
bounded size, and opening it never blocks.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from io import BufferedRandom, BufferedReader
from pathlib import Path
from typing import Any

LARGEST = 256 * 2**20
"""Bytes of a file that is read whole, but for weights and parts of checkpoints."""
ANY_SIZE = 2**63
APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
"""A link is refused: in another person's run it may lead to any file of the user's."""


def open_file(path: Path, flags: int = os.O_RDONLY) -> int:
    """Return a descriptor of an ordinary file, opened without waiting for anything."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no ordinary file", str(path))
    return descriptor


def open_stream(path: Path) -> BufferedReader:
    """Return an ordinary file, opened to be read piece by piece."""
    return os.fdopen(open_file(path), "rb")


def open_to_append(path: Path) -> BufferedRandom:
    """Return an ordinary file, made if it is missing, to be read and to be appended to."""
    return os.fdopen(open_file(path, APPEND), "a+b")


def read_file(path: Path, largest: int = LARGEST) -> bytes:
    """Return the content of an ordinary file."""
    with open_stream(path) as file:
        if os.fstat(file.fileno()).st_size > largest:
            raise OSError(errno.EFBIG, f"it has more than {largest:,} bytes", str(path))
        return file.read()


def read_json(path: Path, largest: int = LARGEST) -> Any:
    """Return what a JSON file holds."""
    try:
        return json.loads(read_file(path, largest))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
