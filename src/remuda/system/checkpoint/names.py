"""Names of files and directories, made from names of policies and games."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from remuda.errors import RunDirectoryError
from remuda.system.checkpoint.state import sweep

COORDINATOR = "coordinator"  # the part of a checkpoint for counters and published snapshots
LONGEST = 80  # characters of a file name, beyond which a checksum replaces the rest


def file_name(name: str) -> str:
    """Return the file name for a policy's part of a checkpoint, its weights and its log.

    The file name is unique, differs from those of other parts, and never leads to another
    directory: all characters except ASCII letters, digits, `_` and `-` are escaped as in URLs.
    """
    escaped = quote(name, safe="", errors="surrogatepass").replace(".", "%2E").replace("~", "%7E")
    is_role = re.fullmatch(r"actor(-\d+)?|coordinator", escaped)
    if is_role or escaped.startswith("-"):
        escaped = f"%{ord(escaped[0]):02X}{escaped[1:]}"
    if len(escaped) > LONGEST:
        escaped = f"{escaped[:LONGEST]}%{hashlib.sha256(escaped.encode()).hexdigest()[:24]}"
    return escaped or "%"


def new_directory(parent: Path, name: str, suffix: str = "") -> Path:
    """Make a directory named after `name` and the time, unique among all processes."""
    base = f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)[:LONGEST]}-{time.strftime('%Y%m%d-%H%M%S')}"
    number = 1
    while True:
        path = parent / (base + suffix + (f"-{number}" if number > 1 else ""))
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            number += 1
        else:
            return path


@contextmanager
def claimed_directory(parent: Path, name: str) -> Iterator[Path]:
    """Make a directory; if an error leaves it empty, remove it and the parents made for it."""
    parents = [each for each in (parent, *parent.parents) if not each.exists()]
    try:
        path = new_directory(parent, name)
    except OSError as error:
        raise RunDirectoryError(f"cannot write into {parent}: {error.strerror}") from None
    try:
        yield path
    except BaseException:
        with suppress(OSError):  # a directory with content is kept
            for each in (path, *parents):
                each.rmdir()
        raise


def make_directory(directory: Path, ignored: str) -> set[str]:
    """Make a directory if it is missing; return the names in it, except `ignored`."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        sweep(directory)
        return {each.name for each in directory.iterdir()} - {ignored}
    except OSError as error:
        raise RunDirectoryError(
            f"{directory} cannot be made: {error.strerror or error}; name another with --out"
        ) from None
