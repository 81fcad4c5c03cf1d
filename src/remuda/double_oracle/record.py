"""What a double oracle keeps on disk: one line for each thing that is not to be done again.

`psro.jsonl` begins with a line that tells what is asked. Every further line tells of something that
was found out: an iteration, oracles that were trained, matches that were played. Lines are only
appended.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

from remuda.checkpoint.opening import APPEND, open_file, read_file
from remuda.checkpoint.state import sweep
from remuda.errors import RunDirectoryError

LINES, LOCK = "psro.jsonl", "lock"
"""Files of a directory."""
CHECK = "check"
"""The key of a line's checksum, of all that stands before it."""
KIND = "psro"
"""The key of the first line's version."""
VERSION = 1
FIRST = f'{{"{KIND}": '.encode()
"""How the first line begins."""


class Record:
    """The lines of a directory.

    What it guarantees:

    1. A line that was appended is there for good, whatever ends the process after that.
    2. A last line that was written in part, or does not fit its checksum, is as if it had never
       been, and the next takes its place.
    3. A line that is damaged in any other way is refused.
    4. One process at a time writes to a directory.
    5. Where a line cannot be written it is told in one line, and what was written before is kept.
    """

    def __init__(self, directory: Path, file: FileIO, lines: list[dict[str, Any]]) -> None:
        self.directory, self._file = directory, file
        self.lines = lines
        """What is known, the description first."""

    @property
    def description(self) -> dict[str, Any]:
        """What is asked."""
        return self.lines[0]

    def check(self, place: int, fits: bool) -> None:
        """Refuse what is known where a line does not follow from those before it.

        Args:
            place: of the line, from 0.
            fits: whether it does.

        Raises:
            RunDirectoryError: it does not.
        """
        if not fits:
            raise RunDirectoryError(
                f"{self.directory / LINES} is damaged in line {place + 1}: it does not follow from "
                "the lines before it; begin anew in another directory"
            )

    def append(self, line: Mapping[str, Any]) -> None:
        """Keep a further line.

        Raises:
            RunDirectoryError: the disk is full or not writable.
        """
        plain = json.loads(json.dumps(line, allow_nan=False))
        data = memoryview(json.dumps({**plain, CHECK: _digest(plain)}).encode() + b"\n")
        try:
            # Without a buffer, which would be written once more, and fail again, as it is closed.
            while data:
                data = data[self._file.write(data) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise RunDirectoryError(
                f"cannot write {self.directory / LINES}: {error.strerror or error}; what was "
                f"written is kept, and `remuda psro --resume {self.directory}` goes on"
            ) from None
        self.lines.append(plain)


@contextmanager
def begin(directory: Path, description: Mapping[str, Any]) -> Iterator[Record]:
    """Begin a record in a new or empty directory.

    Args:
        directory: made where there is none.
        description: plain data, what is asked.

    Raises:
        RunDirectoryError: something is in it, it is in use, or it cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        there = {each.name for each in directory.iterdir()} - {LOCK}
    except OSError as error:
        raise RunDirectoryError(
            f"{directory} cannot be made: {error.strerror or error}; name another with --out"
        ) from None
    # A first line that was written in part is that of a process that was killed as it began.
    begun = there == {LINES} and _is_begun(directory / LINES)
    taken = RunDirectoryError(
        f"{directory} is not empty; name another directory with --out, or go on with it by "
        f"--resume {directory}"
    )
    if there and not begun:
        raise taken
    with _opened(directory) as record:
        if record.lines:
            raise taken
        record.append({KIND: VERSION, **description})
        yield record


@contextmanager
def go_on(directory: Path) -> Iterator[Record]:
    """Open a record to append to it.

    Raises:
        RunDirectoryError: it is none, damaged, or in use.
    """
    description_of(directory)
    with _opened(directory) as record:
        yield record


def description_of(directory: Path) -> dict[str, Any]:
    """What is asked in a directory.

    Raises:
        RunDirectoryError: there is no record in it, or it is damaged.
    """
    lines = read(directory)
    if not lines:
        raise RunDirectoryError(f"{directory} holds no double oracle: its {LINES} is empty")
    return lines[0]


def read(directory: Path) -> list[dict[str, Any]]:
    """All lines of a directory that were written whole.

    Raises:
        RunDirectoryError: there is no record in it, or it is damaged.
    """
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
    """Whether a file holds a part of a first line of ours, and nothing else."""
    try:
        data = read_file(path)
    except OSError:
        return False
    return data[: len(FIRST)] == FIRST[: len(data)] and not _complete(data)


def _complete(data: bytes) -> int:
    """How many bytes of a file are whole lines: all but a last one that was written in part."""
    end = data.rfind(b"\n") + 1
    before = data.rfind(b"\n", 0, max(end - 1, 0)) + 1
    return end if end == 0 or _parsed(data[before : end - 1]) is not None else before


def _lines(data: bytes, path: Path) -> list[dict[str, Any]]:
    found = []
    for number, text in enumerate(data[: _complete(data)].splitlines(), 1):
        line = _parsed(text)
        if line is None or (number == 1 and line.get(KIND) != VERSION):
            raise RunDirectoryError(
                f"{path} is damaged in line {number}; begin anew in another directory"
            )
        found.append(line)
    return found


def _parsed(text: bytes) -> dict[str, Any] | None:
    """A line without its checksum; None: it is damaged."""
    try:
        line = json.loads(text)
    except ValueError:
        return None
    if not isinstance(line, dict) or line.pop(CHECK, None) != _digest(line):
        return None
    return line


def _digest(line: Mapping[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(line, sort_keys=True).encode(), digest_size=8).hexdigest()
