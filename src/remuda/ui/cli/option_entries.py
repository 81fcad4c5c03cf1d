"""Options and keys of the configuration in words, for help texts and the site's reference."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from remuda.config import Config, Section, describe_fields

PLURAL = re.compile(r"(number|text|path)\b")
CONSTRAINTS = {"Gt": "above {}", "Ge": "at least {}", "Lt": "below {}", "Le": "at most {}"}


class Entry(NamedTuple):
    """A key or option."""

    facts: str  # type, bounds, default
    meaning: str


def sections_of(model: type[Section], name: str = "") -> dict[str, type[Section]]:
    """Return a model and all sections below it, by their full names; its own name is empty."""
    found = {name: model}
    for key, info in model.model_fields.items():
        if _is_section(info):
            found |= sections_of(info.annotation, f"{name}.{key}".lstrip("."))  # type: ignore[arg-type]
    return found


def entries_of(model: type[Section], section: str = "") -> dict[str, Entry]:
    """Return the entries of a section's own keys, without those of sections below it."""
    describe_fields(model)
    found = {}
    for name, info in model.model_fields.items():
        if _is_section(info):
            continue
        facts = [_words(info.annotation), *_bounds(info.metadata)]
        if not info.is_required():
            value = info.get_default(call_default_factory=True, validated_data={})
            facts.append(f"default `{_plain(value)}`" if value != "" else "empty by default")
        meaning = " ".join((info.description or "").split())
        found[f"{section}.{name}".lstrip(".")] = Entry(", ".join(facts), meaning)
    return found


def own_entries(model: type[Section]) -> dict[str, Entry]:
    """Return the entries of a command's options, without sections that it takes from a run's."""
    left_out = sections_of_runs(model)
    return {
        key: entry
        for section, kind in sections_of(model).items()
        if section.split(".")[0] not in left_out
        for key, entry in entries_of(kind, section).items()
    }


def sections_of_runs(model: type[Section]) -> list[str]:
    """Return the names of the sections that are the same in the configuration of a run."""
    of_runs = {name: info.annotation for name, info in Config.model_fields.items()}
    return [
        name
        for name, info in model.model_fields.items()
        if _is_section(info) and of_runs.get(name) is info.annotation
    ]


def _is_section(info: FieldInfo) -> bool:
    return isinstance(info.annotation, type) and issubclass(info.annotation, Section)


def _words(kind: Any) -> str:
    """Describe a type for readers who do not know Python."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return ", ".join([_words(parts[0]), *_bounds(parts[1:])])
    if origin is Literal:
        return " or ".join(f"`{part}`" for part in parts)
    if origin in (Union, types.UnionType):
        return " or ".join(_words(part) for part in parts)
    if origin in (tuple, list):
        return "list of " + PLURAL.sub(r"\1s", _words(parts[0]), count=1)
    if origin is dict:
        return f"mapping to {_words(parts[1])}"
    plain = {
        int: "whole number",
        float: "number",
        str: "text",
        bool: "`true` or `false`",
        Path: "path",
        types.NoneType: "`null`",
        Any: "any value",
        object: "any value",
    }
    return plain.get(kind, getattr(kind, "__name__", str(kind)))


def _bounds(marks: Any) -> Iterator[str]:
    for mark in marks:
        name = type(mark).__name__
        if name in CONSTRAINTS:
            yield CONSTRAINTS[name].format(getattr(mark, name.lower()))
        elif isinstance(mark, FieldInfo):
            yield from _bounds(mark.metadata)


def _plain(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_plain, value))}]"
    return str(value)
