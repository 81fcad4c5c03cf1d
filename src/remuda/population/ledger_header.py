"""The first line of a ledger: its policies, seats and the names of hyperparameters.

Records refer to a hyperparameter by its place among these names.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from remuda.checkpoint.opening import open_stream
from remuda.checkpoint.plain import checked
from remuda.types import Array, Bools, Integers

UNKNOWN = 1 << 32  # the place of a name that is not in the file
LONGEST_HEADER = 1 << 24
MOST_SEATS = 1 << 16


class Header(NamedTuple):
    """The first line of a ledger."""

    policies: tuple[str, ...]
    seats: int
    numbers: tuple[str, ...]


def parse_header(line: bytes) -> Header:
    """Parse the first line of a ledger; a `ValueError` if it is none."""
    try:
        found = checked(json.loads(line), {"policies": list, "seats": int})
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    names, seats, numbers = found["policies"], found["seats"], found.get("numbers", [])
    texts = isinstance(numbers, list) and all(isinstance(name, str) for name in names + numbers)
    if not texts or not 0 < seats <= MOST_SEATS:
        raise ValueError("it does not hold policies and seats")
    return Header(tuple(names), seats, tuple(numbers))


def read_header(path: Path) -> Header | None:
    """Return the header of a file; None if it is missing or no ledger."""
    if not path.exists():
        return None
    with open_stream(path) as file:
        line = file.readline(LONGEST_HEADER)
    try:
        return parse_header(line)
    except ValueError:
        return None


def translated(records: Array, which: Bools, names: Sequence[str], in_file: Sequence[str]) -> Array:
    """Return records whose places among `names` are replaced by those among `in_file`."""
    if tuple(names) == tuple(in_file):
        return records
    places = {name: place for place, name in enumerate(in_file)}
    places_of: Integers = np.array([places.get(name, UNKNOWN) for name in names], np.int64)
    found, which = records.copy(), which & (records["version"][:, 0] >= 0)
    found["version"][which, 0] = places_of[found["version"][which, 0]]
    return found
