"""The one way in which files of runs are opened for reading and appending.

A run may belong to another user, or be half written. A named pipe in place of a file would block
its reader, and a huge or deeply nested file would exhaust the memory. Here a file is an ordinary
file of bounded size, and opening it never blocks.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from io import BufferedRandom, BufferedReader
from pathlib import Path
from typing import Any

# bytes of a file that is read as a whole, except weights and parts of checkpoints
LARGEST = 256 * 2**20
ANY_SIZE = 2**63
# Links are refused: in another user's run they may lead to any file of this user.
APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW


def open_file(path: Path, flags: int = os.O_RDONLY) -> int:
    """Return a descriptor of an ordinary file; opening never blocks."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no ordinary file", str(path))
    return descriptor


def open_stream(path: Path) -> BufferedReader:
    """Open an ordinary file for reading."""
    return os.fdopen(open_file(path), "rb")


def open_to_append(path: Path) -> BufferedRandom:
    """Open an ordinary file for reading and appending; create it if it is missing."""
    return os.fdopen(open_file(path, APPEND), "a+b")


def read_file(path: Path, largest: int = LARGEST) -> bytes:
    """Return the content of an ordinary file."""
    with open_stream(path) as file:
        if os.fstat(file.fileno()).st_size > largest:
            raise OSError(errno.EFBIG, f"it has more than {largest:,} bytes", str(path))
        return file.read()


def read_json(path: Path, largest: int = LARGEST) -> Any:
    """Return the data of a JSON file."""
    try:
        return json.loads(read_file(path, largest))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
