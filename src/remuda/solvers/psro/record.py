"""The record of a double oracle on disk: one line for each finished step.

The first line of `psro.jsonl` is the description, which holds the settings. Every further line is
an iteration, trained oracles, or played matches.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

from remuda.errors import RunDirectoryError
from remuda.system.checkpoint.opening import APPEND, open_file, read_file
from remuda.system.checkpoint.state import sweep

LINES, LOCK = "psro.jsonl", "lock"
CHECK = "check"  # the key of a line's checksum, which covers the rest of the line
KIND = "psro"  # the key of the format version in the first line
VERSION = 2
FIRST = f'{{"{KIND}": '.encode()  # the start of the first line


class Record:
    """The lines of a record, and the file to which new lines are appended.

    Guarantees:

    1. An appended line is durable, however the process ends afterwards.
    2. A partly written last line, or a last line with a wrong checksum, is ignored and overwritten.
    3. Any other damage raises a `RunDirectoryError`.
    4. One process at a time writes to a directory.
    5. A failed write raises a `RunDirectoryError`, and earlier lines are kept.
    """

    def __init__(self, directory: Path, file: FileIO, lines: list[dict[str, Any]]) -> None:
        self.directory, self._file = directory, file
        self.lines = lines  # the description, then all further lines

    @property
    def description(self) -> dict[str, Any]:
        return self.lines[0]

    def check(self, place: int, fits: bool) -> None:
        """Raise a `RunDirectoryError` for a line that does not follow from the lines before it."""
        if not fits:
            raise RunDirectoryError(
                f"{self.directory / LINES} is damaged in line {place + 1}: it does not follow from "
                "the lines before it; start over in another directory"
            )

    def append(self, line: Mapping[str, Any]) -> None:
        plain = json.loads(json.dumps(line, allow_nan=False))
        data = memoryview(json.dumps({**plain, CHECK: _digest(plain)}).encode() + b"\n")
        try:
            # Unbuffered: a buffer would be written again on close, and fail again.
            while data:
                data = data[self._file.write(data) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise RunDirectoryError(
                f"cannot write {self.directory / LINES}: {error.strerror or error}; earlier "
                f"lines are kept, and `remuda psro --resume {self.directory}` resumes"
            ) from None
        self.lines.append(plain)


def open_record(
    directory: Path, resume: bool, description: Mapping[str, Any]
) -> AbstractContextManager[Record]:
    """Resume a record, or start one in a new or empty directory."""
    return go_on(directory) if resume else begin(directory, description)


@contextmanager
def begin(directory: Path, description: Mapping[str, Any]) -> Iterator[Record]:
    """Start a record in a new or empty directory."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        present = {each.name for each in directory.iterdir()} - {LOCK}
    except OSError as error:
        raise RunDirectoryError(
            f"{directory} cannot be made: {error.strerror or error}; name another with --out"
        ) from None
    # A process that was killed at its start leaves a partly written first line.
    restart = present == {LINES} and _is_begun(directory / LINES)
    taken = RunDirectoryError(
        f"{directory} is not empty; name another directory with --out, or resume it with "
        f"--resume {directory}"
    )
    if present and not restart:
        raise taken
    with _opened(directory) as record:
        if record.lines:
            raise taken
        record.append({KIND: VERSION, **description})
        yield record


@contextmanager
def go_on(directory: Path) -> Iterator[Record]:
    """Open a record to append to it."""
    description_of(directory)
    with _opened(directory) as record:
        yield record


def description_of(directory: Path) -> dict[str, Any]:
    """Return a directory's description."""
    lines = read(directory)
    if not lines:
        raise RunDirectoryError(f"{directory} holds no double oracle: its {LINES} is empty")
    return lines[0]


def read(directory: Path) -> list[dict[str, Any]]:
    """Return all complete lines of a directory."""
    path = directory / LINES
    try:
        data = read_file(path)
    except OSError:
        raise RunDirectoryError(
            f"{directory} holds no double oracle: there is no {LINES} in it"
        ) from None
    return _lines(data, path)


@contextmanager
def _opened(directory: Path) -> Iterator[Record]:
    try:
        lock = open_file(directory / LOCK, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise _unwritable(directory / LOCK, error) from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunDirectoryError(
                f"{directory} is in use by another process; wait for it, or name another with --out"
            ) from None
        sweep(directory)
        path = directory / LINES
        try:
            file = FileIO(open_file(path, APPEND), "a+")
        except OSError as error:
            raise _unwritable(path, error) from None
        with file:
            file.seek(0)
            data = file.readall()
            lines = _lines(data, path)
            file.truncate(_complete(data))
            yield Record(directory, file, lines)
    finally:
        os.close(lock)


def _unwritable(path: Path, error: OSError) -> RunDirectoryError:
    return RunDirectoryError(
        f"{path} cannot be written: {error.strerror or error}; make it writable, or name another "
        "directory with --out"
    )


def _is_begun(path: Path) -> bool:
    """Return whether a file holds only a partly written first line."""
    try:
        data = read_file(path)
    except OSError:
        return False
    return data[: len(FIRST)] == FIRST[: len(data)] and not _complete(data)


def _complete(data: bytes) -> int:
    """Return the number of bytes of complete lines, without a partly written last line."""
    end = data.rfind(b"\n") + 1
    before = data.rfind(b"\n", 0, max(end - 1, 0)) + 1
    return end if end == 0 or _parsed(data[before : end - 1]) is not None else before


def _lines(data: bytes, path: Path) -> list[dict[str, Any]]:
    found = []
    for number, text in enumerate(data[: _complete(data)].splitlines(), 1):
        line = _parsed(text)
        if line is None or (number == 1 and line.get(KIND) != VERSION):
            raise RunDirectoryError(
                f"{path} is damaged in line {number}; start over in another directory"
            )
        found.append(line)
    return found


def _parsed(text: bytes) -> dict[str, Any] | None:
    """Return a line without its checksum; None: damaged."""
    try:
        line = json.loads(text)
    except ValueError:
        return None
    if not isinstance(line, dict) or line.pop(CHECK, None) != _digest(line):
        return None
    return line


def _digest(line: Mapping[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(line, sort_keys=True).encode(), digest_size=8).hexdigest()
