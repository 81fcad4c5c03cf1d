"""Safe opening of a run's files for reading and appending, and checks of their JSON.

A run may belong to another user, or be damaged, edited or half written. A named pipe in place of a
file would block its reader, and a huge or deeply nested file would exhaust the memory. These
functions open only regular files of bounded size and never block. Errors name the file.
"""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import stat
from collections.abc import Callable, Mapping
from functools import cache
from io import BufferedRandom, BufferedReader
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from remuda.errors import RunDirectoryError

# maximum bytes of a file that is read at once, except weights and parts of checkpoints
LARGEST = 256 * 2**20
ANY_SIZE = 2**63
# Links are refused: in another user's run they may point to any of this user's files.
APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW


def open_file(path: Path, flags: int = os.O_RDONLY) -> int:
    """Return a descriptor of a regular file; opening never blocks."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return descriptor


def lock_directory(directory: Path, option: str) -> int:
    """Lock a directory for one process; return a descriptor, which holds the lock until closed.

    `option`: the option that names another directory.
    """
    descriptor = open_file(directory / "lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise RunDirectoryError(
            f"{directory} is in use by another process; wait for it, or name another {option}"
        ) from None
    return descriptor


def open_stream(path: Path) -> BufferedReader:
    """Open a regular file for reading."""
    return os.fdopen(open_file(path), "rb")


def open_to_append(path: Path) -> BufferedRandom:
    """Open a regular file for reading and appending; create it if it is missing."""
    return os.fdopen(open_file(path, APPEND), "a+b")


def read_file(path: Path, largest: int = LARGEST) -> bytes:
    """Return the content of a regular file."""
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


D = TypeVar("D")
NUMBER = (int, float)
LARGEST_WHOLE, LARGEST_REAL = 2**63 - 1, 1e100  # larger numbers show that a file is damaged
Kinds = Mapping[str, type | tuple[type, ...]]  # the allowed types of each named value


def checked(data: object, kinds: Kinds) -> dict[str, Any]:
    """Return data as a dictionary if each name of `kinds` is present and has its type."""
    if not isinstance(data, dict):
        raise ValueError("it is not a JSON object")
    for name, kind in kinds.items():
        if name not in data:
            raise ValueError(f"it has no {name}")
        value = data[name]
        if isinstance(value, int) and abs(value) > LARGEST_WHOLE:
            raise ValueError(f"{name} cannot be a whole number of more than 64 bits")
        is_huge = isinstance(value, float) and LARGEST_REAL < abs(value) < math.inf
        if not isinstance(value, kind) or is_huge:
            raise ValueError(f"{name} cannot be {json.dumps(value)[:40]}")
    return data


def checked_all(data: object, kinds: Kinds) -> dict[str, dict[str, Any]]:
    """Return a dictionary whose values are all `checked`."""
    return {name: checked(value, kinds) for name, value in checked(data, {}).items()}


def read_checked(path: Path, check: Callable[[object], D], missing: str) -> D:
    """Return the checked JSON of a run's file."""
    try:
        data = read_file(path)
    except FileNotFoundError:
        raise RunDirectoryError(f"{path} is missing: {missing}") from None
    except OSError as error:
        raise RunDirectoryError(f"cannot read {path}: {error.strerror}") from None
    try:
        return check(json.loads(data))
    except (ValueError, RecursionError) as error:
        raise RunDirectoryError(f"{path} is damaged: {error}") from None


@cache
def kinds_of(record: type) -> Kinds:
    """Return the allowed types of a dataclass's fields; contents of containers are not checked."""
    in_json: Mapping[Any, tuple[type, ...]] = {float: NUMBER, Mapping: (dict,)}
    kinds = {}
    for name, annotation in get_type_hints(record).items():
        parts = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
        plain = [get_origin(part) or part for part in parts]
        kinds[name] = tuple(kind for part in plain for kind in in_json.get(part, (part,)))
    return kinds
