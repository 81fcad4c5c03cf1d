"""From the name of a policy, which may be anything, to a part of a file's name."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from remuda.errors import RunDirectoryError

LONGEST = 80
"""Characters of a name's file beyond which a checksum stands for the rest."""
ROLES = re.compile(r"actor(-\d+)?|coordinator")
"""The parts of a checkpoint that belong to roles, which no policy may have."""


def file_name(name: str) -> str:
    """The file name of a policy's part of a checkpoint, of its weights and its log.

    Names differ wherever policies' names do, and none is that of a role's part. Letters and digits
    of ASCII, `_` and `-` stay; all else is escaped as in URLs, so that ordinary names stay as they
    are and none leads elsewhere.
    """
    found = quote(name, safe="", errors="surrogatepass").replace(".", "%2E").replace("~", "%7E")
    if ROLES.fullmatch(found) or found.startswith("-"):
        found = f"%{ord(found[0]):02X}{found[1:]}"
    if len(found) > LONGEST:
        found = f"{found[:LONGEST]}%{hashlib.sha256(found.encode()).hexdigest()[:24]}"
    return found or "%"


def new_directory(parent: Path, name: str, suffix: str = "") -> Path:
    """Make a directory named by a name and the time, one that no other process makes too."""
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
    """A new directory; an error that leaves it empty removes it, and what was made to hold it."""
    made = [each for each in (parent, *parent.parents) if not each.exists()]
    try:
        path = new_directory(parent, name)
    except OSError as error:
        raise RunDirectoryError(f"cannot write into {parent}: {error.strerror}") from None
    try:
        yield path
    except BaseException:
        with suppress(OSError):  # what is in it is kept
            for each in (path, *made):
                each.rmdir()
        raise
