"""Known keys, and messages about unknown keys and refused values."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import get_args, get_origin

from pydantic import BaseModel, ValidationError

from remuda.config.plain import read_yaml

ELSEWHERE = {
    "training": "set policy, as in --policy.learning_rate, and policies for single policies",
    "seeds": "set seed for one run; `remuda train --seeds 3` trains several runs that differ in it",
}
"""Settings that are not part of a run's configuration, with where they are set."""
LONGEST_SHOWN = 160  # characters of a value in a message


@cache
def common_names() -> dict[str, str]:
    """Return Remuda's keys by the names that the literature and other libraries use."""
    path = Path(__file__).with_name("common_names.yaml")
    keys = read_yaml(path.read_text(encoding="utf-8"))
    return {name: key for key, names in keys.items() for name in names.split()}


def fields_of(model: type[BaseModel], prefix: str = "") -> dict[str, type[BaseModel] | None]:
    """Return every dotted key under `model`, with the section that it opens (None for a leaf)."""
    keys: dict[str, type[BaseModel] | None] = {}
    for name, info in model.model_fields.items():
        section = info.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            keys[prefix + name] = section
            keys |= fields_of(section, f"{prefix}{name}.")
        else:
            keys[prefix + name] = None
    return keys


def unknown_key(key: str, model: type[BaseModel], prefix: str = "") -> str:
    """Return one line about an unknown key: the nearest key, or those of its section."""
    if key in ELSEWHERE:
        return f"{prefix}{key} is no key of the configuration; {ELSEWHERE[key]}"
    keys = fields_of(model)
    parent, _, last = key.rpartition(".")
    siblings = [k for k in keys if k.rpartition(".")[0] == parent]
    near = _by_common_name(key, keys) or _by_common_name(last, keys)
    # Do not suggest a section for a key inside it.
    others = [k for k in keys if not key.startswith(f"{k}.")]
    leaf = {k.rpartition(".")[2]: k for k in others}
    near = near or difflib.get_close_matches(key, others, n=1, cutoff=0.8)
    near = near or [leaf[name] for name in difflib.get_close_matches(last, leaf, n=1)]
    if near:
        return f"{prefix}{key} is no key of the configuration; did you mean {prefix}{near[0]}?"
    allowed = ", ".join(prefix + k for k in siblings or [k for k in keys if "." not in k])
    return f"{prefix}{key} is no key of the configuration; there are {allowed}"


def _by_common_name(name: str, keys: Collection[str]) -> list[str]:
    """Return Remuda's key for a name that other libraries use, if that key is in `keys`."""
    key = common_names().get(name.lower())
    while key:
        if key in keys:
            return [key]
        key = key.partition(".")[2]
    return []


def _is_within(key: str, keys: Mapping[str, object]) -> bool:
    """Return whether a dotted key, or a prefix that may hold anything, is in `keys`."""
    parts = key.split(".")
    before = (".".join(parts[:count]) for count in range(1, len(parts)))
    return key in keys or any(keys.get(one, ...) is None for one in before)


def _nested(key: str, value: object) -> str:
    """Write a value nested under a key that had dots."""
    found = repr(value)
    parts = key.split(".")
    for part in reversed(parts[1:]):
        found = f"{{{part}: {found}}}"
    return f"{parts[0]}: {found}"


def _holds_names(model: type[BaseModel], key: str) -> bool:
    """Return whether the user chooses the names under a key, as under `env.scripted`."""
    return get_origin(_kind(model, key)) is dict


def _holds_sections(model: type[BaseModel], key: str) -> bool:
    """Return whether a key holds named sections, as `population.teams` does."""
    held = get_args(_kind(model, key))
    is_section = len(held) == 2 and isinstance(held[1], type) and issubclass(held[1], BaseModel)
    return _holds_names(model, key) and is_section


def _kind(model: type[BaseModel], key: str) -> object:
    at: object = model
    for part in key.split("."):
        if not (isinstance(at, type) and issubclass(at, BaseModel)) or part not in at.model_fields:
            return None
        at = at.model_fields[part].annotation
    return at


def explain(error: ValidationError, model: type[BaseModel], prefix: str = "") -> str:
    """Return the first fault of a validation as one line: key, value, and what is allowed."""
    fault = error.errors(include_url=False)[0]
    # Pydantic adds the branch of a union that it tried; a user knows only the keys.
    keys = fields_of(model)
    key, inside, where = "", False, fault["loc"]
    is_key = fault["type"] == "invalid_key" or where[-1:] == ("[key]",)
    for part in where[: -1 if fault["type"] == "invalid_key" else -2] if is_key else where:
        longer = f"{key}.{part}" if key else str(part)
        if fault["type"] != "extra_forbidden" and longer not in keys and not inside:
            if not _holds_names(model, key):
                break
            inside = _holds_sections(model, key)  # else the rest of the path is no key
        key = longer
    if is_key:
        return (
            f"{prefix}{key or 'the configuration'} has the key {_shown(fault['input'])}, which is "
            "not text; keys must be text"
        )
    if fault["type"] == "extra_forbidden":
        whole = prefix + key
        if "." in str(fault["loc"][-1]) and _is_within(key, keys):
            value = fault["input"]
            return f"{whole} has dots: write it nested, as in {_nested(whole, value)}"
        return unknown_key(key, model, prefix)
    if fault["type"] == "value_error":
        message = str(fault["ctx"]["error"])
        branch = f"{key}." if key else ""
        return message if message.startswith("policies.") else f"{prefix}{branch}{message}"
    if fault["type"] == "missing":
        needed: Mapping[str, str] = getattr(model, "NEEDED", {})
        return needed.get(key, f"{prefix}{key} is missing")
    message = fault["msg"].replace(" after validation, not ", ", not ")
    return f"{prefix}{key} is {_shown(fault['input'])}: {message[0].lower()}{message[1:]}"


def _shown(value: object) -> str:
    try:
        written = repr(value)
    except ValueError:  # Python formats no integer of more than 4,300 digits
        return "a number of thousands of digits"
    return written if len(written) <= LONGEST_SHOWN else f"{written[:LONGEST_SHOWN]}…"
