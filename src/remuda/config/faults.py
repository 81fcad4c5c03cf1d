"""Which keys there are, and what is said of one that is wrong."""

from __future__ import annotations

import difflib

from pydantic import (
    BaseModel,
    ValidationError,
)

from remuda.config.moved import moved_key


def fields_of(model: type[BaseModel], prefix: str = "") -> dict[str, type[BaseModel] | None]:
    """Every dotted key under `model`, and the section that a key opens (None: it is a leaf)."""
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
    """One line about a key that does not exist: where it is now, the nearest, or its section's."""
    moved = moved_key(key, prefix)
    if moved is not None:
        return moved
    keys = fields_of(model)
    parent = key.rpartition(".")[0]
    siblings = [k for k in keys if k.rpartition(".")[0] == parent]
    leaf = {k.rpartition(".")[2]: k for k in keys}
    near = difflib.get_close_matches(key, keys, n=1, cutoff=0.8)
    near = near or [
        leaf[name] for name in difflib.get_close_matches(key.rpartition(".")[2], leaf, n=1)
    ]
    if near:
        return f"{prefix}{key} is no key of the configuration; did you mean {prefix}{near[0]}?"
    allowed = ", ".join(prefix + k for k in siblings or [k for k in keys if "." not in k])
    return f"{prefix}{key} is no key of the configuration; there are {allowed}"


def explain(error: ValidationError, model: type[BaseModel], prefix: str = "") -> str:
    """The first fault of a validation as one line: the key, what was found, what is allowed."""
    fault = error.errors(include_url=False)[0]
    # Pydantic adds the branch of a union that it tried; a user knows only the keys.
    keys = fields_of(model)
    key = ""
    for part in fault["loc"]:
        longer = f"{key}.{part}" if key else str(part)
        if fault["type"] != "extra_forbidden" and longer not in keys:
            break
        key = longer
    if fault["type"] == "extra_forbidden":
        return unknown_key(key, model, prefix)
    if fault["type"] == "value_error":
        message = str(fault["ctx"]["error"])
        branch = f"{key}." if key else ""
        return message if message.startswith("policies.") else f"{prefix}{branch}{message}"
    if fault["type"] == "missing":
        return f"{prefix}{key} is missing"
    said = fault["msg"]
    return f"{prefix}{key} is {fault['input']!r}: {said[0].lower()}{said[1:]}"
