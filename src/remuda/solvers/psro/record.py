"""The record of a double oracle on disk: one line for each finished step.

The first line of `psro.jsonl` is the description, which holds the settings. Every further line is
an iteration, trained oracles, or played matches.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

from remuda.errors import RunDirectoryError
from remuda.runs.run_directory import PSRO_RECORD
from remuda.system.checkpoint.names import make_directory
from remuda.system.checkpoint.opening import APPEND, lock_directory, open_file, read_file
from remuda.system.checkpoint.state import sweep, write_whole

LINES, LOCK = PSRO_RECORD, "lock"
CHECK = "check"  # the key of a line's checksum, which covers the rest of the line
PREVIOUS = "previous"  # the key of the previous line's checksum
KIND = "psro"  # the key of the format version in the first line
VERSION = 7


class Record:
    """The lines of a record, and the file to which new lines are appended.

    Guarantees:

    1. An appended line is durable, however the process ends afterwards.
    2. A partly written last line, or a last line with a wrong checksum, is ignored and overwritten.
    3. Any other damage raises a `RunDirectoryError`.
    4. One process at a time writes to a directory.
    5. A failed write raises a `RunDirectoryError`, and earlier lines are kept.
    """

    def __init__(
        self, directory: Path, file: FileIO, lines: list[dict[str, Any]], previous: str
    ) -> None:
        self.directory, self._file, self._previous = directory, file, previous
        self.lines = lines  # the description, then all further lines

    @property
    def description(self) -> dict[str, Any]:
        return self.lines[0]

    def append(self, line: Mapping[str, Any]) -> None:
        plain = json.loads(json.dumps(line, allow_nan=False))
        encoded, check = _encoded(plain, self._previous)
        data = memoryview(encoded)
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
        self._previous = check
        self.lines.append(plain)


@contextmanager
def begin(directory: Path, description: Mapping[str, Any]) -> Iterator[Record]:
    """Start a record in a new or empty directory."""
    if make_directory(directory, LOCK):
        raise _not_empty(directory)
    with _opened(directory, {KIND: VERSION, **description}) as record:
        yield record


def _not_empty(directory: Path) -> RunDirectoryError:
    return RunDirectoryError(
        f"{directory} is not empty; name another directory with --out, or resume it with "
        f"--resume {directory}"
    )


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
    return _lines(data, path)[0]


@contextmanager
def _opened(directory: Path, first: Mapping[str, Any] | None = None) -> Iterator[Record]:
    """Lock and open a record; `first` is the first line of a new one."""
    path = directory / LOCK
    with ExitStack() as stack:
        try:
            stack.callback(os.close, lock_directory(directory, "with --out"))
            sweep(directory)
            path = directory / LINES
            if first is not None:
                if path.exists():  # another process was faster
                    raise _not_empty(directory)
                write_whole(path, _encoded(json.loads(json.dumps(first)), "")[0])
            file = stack.enter_context(FileIO(open_file(path, APPEND), "a+"))
        except OSError as error:
            raise RunDirectoryError(
                f"{path} cannot be written: {error.strerror or error}; make it writable, or name "
                "another directory with --out"
            ) from None
        file.seek(0)
        data = file.readall()
        record = Record(directory, file, *_lines(data, path))
        file.truncate(_complete(data))
        yield record


def _complete(data: bytes) -> int:
    """Return the number of bytes of complete lines, without a partly written last line."""
    end = data.rfind(b"\n") + 1
    before = data.rfind(b"\n", 0, max(end - 1, 0)) + 1
    return end if end == 0 or _parsed(data[before : end - 1]) is not None else before


def _lines(data: bytes, path: Path) -> tuple[list[dict[str, Any]], str]:
    """Return all complete lines, and the checksum of the last."""
    lines: list[dict[str, Any]] = []
    previous = ""
    for number, text in enumerate(data[: _complete(data)].splitlines(), 1):
        line, why = _parsed(text), ""
        if line is not None and line.pop(PREVIOUS, None) != previous:
            line, why = None, ": it does not follow from the line before it"
        if line is not None and number == 1 and line.get(KIND) != VERSION:
            raise RunDirectoryError(
                f"{path} was written by another version of Remuda; start over in another directory"
            )
        if line is None:
            raise RunDirectoryError(
                f"{path} is damaged in line {number}{why}; start over in another directory"
            )
        previous = line.pop(CHECK)
        lines.append(line)
    return lines, previous


def _parsed(text: bytes) -> dict[str, Any] | None:
    """Return a line; None: damaged."""
    try:
        line = json.loads(text)
    except ValueError:
        return None
    if not isinstance(line, dict):
        return None
    content = {name: value for name, value in line.items() if name != CHECK}
    return line if line.get(CHECK) == _digest(content) else None


def _encoded(line: Mapping[str, Any], previous: str) -> tuple[bytes, str]:
    """Return a line, linked to the checksum of the previous one, and its own checksum."""
    linked = {**line, PREVIOUS: previous}
    check = _digest(linked)
    return json.dumps({**linked, CHECK: check}).encode() + b"\n", check


def _digest(line: Mapping[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(line, sort_keys=True).encode(), digest_size=8).hexdigest()
