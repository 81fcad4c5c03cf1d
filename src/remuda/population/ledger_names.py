"""The first line of a ledger, and its names of numbers, which may be those of an earlier version.

Records tell a number by its place among these names. A run may be gone on with by a version, or by
an algorithm of the user's own, that has other names: those in the file stay as they are, and new
ones come after them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from remuda.checkpoint.opening import open_stream
from remuda.checkpoint.plain import checked
from remuda.checkpoint.state import write_whole
from remuda.types import Array, Bools, Integers

UNKNOWN = 1 << 32
"""In place of the number of a name that is not in the file: more than there are of them."""
CHUNK = 1 << 20
"""Bytes that are copied at once."""
LONGEST_HEADER = 1 << 24
"""Bytes of the first line."""
MOST_SEATS = 1 << 16


class Header(NamedTuple):
    """The first line of a ledger."""

    policies: tuple[str, ...]
    seats: int
    numbers: tuple[str, ...]


def parse_header(line: bytes) -> Header:
    """Return what the first line of a ledger holds."""
    try:
        found = checked(json.loads(line), {"policies": list, "seats": int})
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    names, seats, numbers = found["policies"], found["seats"], found.get("numbers", [])
    texts = isinstance(numbers, list) and all(isinstance(name, str) for name in names + numbers)
    if not texts or not 0 < seats <= MOST_SEATS:
        raise ValueError("it does not tell policies and seats")
    return Header(tuple(names), seats, tuple(numbers))


def names_in(path: Path, header_of: Callable[[Sequence[str]], bytes]) -> tuple[str, ...] | None:
    """The names that the first line of a file tells; None: it is no such ledger."""
    if not path.exists():
        return None
    with open_stream(path) as file:
        line = file.readline(LONGEST_HEADER)
    try:
        names = parse_header(line).numbers
    except ValueError:
        return None
    return names if line == header_of(names) else None


def told_by(records: Array, which: Bools, names: Sequence[str], told: Sequence[str]) -> Array:
    """Records whose numbers are told by other names: a copy, or these where names are the same."""
    if tuple(names) == tuple(told):
        return records
    places = {name: place for place, name in enumerate(told)}
    places_of: Integers = np.array([places.get(name, UNKNOWN) for name in names], np.int64)
    found, which = records.copy(), which & (records["version"][:, 0] >= 0)
    found["version"][which, 0] = places_of[found["version"][which, 0]]
    return found


def replace_header(path: Path, before: bytes, after: bytes) -> None:
    """Write a ledger with another first line, whole or not at all."""

    def parts() -> Iterator[bytes]:
        yield after
        with open_stream(path) as file:
            file.seek(len(before))
            while part := file.read(CHUNK):
                yield part

    write_whole(path, parts())
