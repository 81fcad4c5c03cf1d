"""Plain data that was read from a file: what is needed is there, and of the kind it should be.

A user may open, cut or mix up the files of a run, and a disk may spoil them. What reads them checks
here first, so that it can say which file is damaged.
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
LARGEST_WHOLE, LARGEST = 2**63 - 1, 1e100
"""The largest numbers in a file of a run; larger ones were damaged."""
Kinds = Mapping[str, type | tuple[type, ...]]
"""By name, what the value of that name may be."""


def checked(data: object, kinds: Kinds) -> dict[str, Any]:
    """The data as names and values, where each of these names is there and of its kind."""
    if not isinstance(data, dict):
        raise ValueError("it holds no names and values")
    for name, kind in kinds.items():
        if name not in data:
            raise ValueError(f"it has no {name}")
        if not isinstance(data[name], kind) or not _is_possible(data[name]):
            raise ValueError(f"{name} cannot be {_shown(data[name])}")
    return data


def _is_possible(value: object) -> bool:
    """Whether a number may be one of a run: what computes with it must not overflow."""
    if isinstance(value, int):
        return -LARGEST_WHOLE <= value <= LARGEST_WHOLE
    return not isinstance(value, float) or not math.isfinite(value) or abs(value) <= LARGEST


def _shown(value: object) -> str:
    if isinstance(value, int) and not _is_possible(value):
        return "a whole number of more than 64 bits"
    return json.dumps(value)[:40]


def checked_all(data: object, kinds: Kinds) -> dict[str, dict[str, Any]]:
    """Names and values, each of which is `checked`."""
    return {name: checked(value, kinds) for name, value in checked(data, {}).items()}


def read_checked(path: Path, check: Callable[[object], D], missing: str) -> D:
    """The JSON in a file of a run, once it is checked."""
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
    """What the fields of a dataclass may be, by their annotations.

    Of containers only that they are: not what they hold.
    """
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
