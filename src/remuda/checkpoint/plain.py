"""Checks of JSON data from a run's files: required names are there and have the right types.

A user may edit, cut or mix up the files of a run, and a disk may damage them. Readers check here
first, so that errors name the damaged file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

from remuda.checkpoint.opening import read_file
from remuda.errors import RunDirectoryError

D = TypeVar("D")
NUMBER = (int, float)
LARGEST_WHOLE, LARGEST = 2**63 - 1, 1e100  # larger numbers in a file of a run are damage
Kinds = Mapping[str, type | tuple[type, ...]]  # the allowed types of each named value


def checked(data: object, kinds: Kinds) -> dict[str, Any]:
    """Return data as a dictionary if each of these names is there and has its type."""
    if not isinstance(data, dict):
        raise ValueError("it holds no names and values")
    for name, kind in kinds.items():
        if name not in data:
            raise ValueError(f"it has no {name}")
        if not isinstance(data[name], kind) or not _is_possible(data[name]):
            raise ValueError(f"{name} cannot be {_shown(data[name])}")
    return data


def _is_possible(value: object) -> bool:
    if isinstance(value, int):
        return -LARGEST_WHOLE <= value <= LARGEST_WHOLE
    return not isinstance(value, float) or not math.isfinite(value) or abs(value) <= LARGEST


def _shown(value: object) -> str:
    if isinstance(value, int) and not _is_possible(value):
        return "a whole number of more than 64 bits"
    return json.dumps(value)[:40]


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
    found = {}
    for field in fields(record):
        container, bracket, _ = str(field.type).partition("[")
        words = [container] if bracket else container.split(" | ")
        found[field.name] = tuple(kind for word in words for kind in _BY_ANNOTATION[word])
    return found


_BY_ANNOTATION: Mapping[str, tuple[type, ...]] = {
    "int": (int,),
    "float": NUMBER,
    "bool": (bool,),
    "str": (str,),
    "dict": (dict,),
    "Mapping": (dict,),
    "None": (NoneType,),
}
