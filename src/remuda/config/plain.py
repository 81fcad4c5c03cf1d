"""Plain data: what options of any name are made of, and how it is read and written as YAML."""

from __future__ import annotations

import datetime
import enum
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel

EXPONENT = re.compile(r"^[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9_]+)[eE][-+]?[0-9]+$")
"""A number with an exponent, as YAML 1.2 has it; PyYAML reads YAML 1.1, where `1e-3` is a text."""


def plain_data(value: Any, key: str = "") -> Any:
    """What reading a value from a saved configuration would give; equal to what it is given again.

    Tuples are lists, paths and dates texts, scalars of NumPy and members of `IntEnum` and `StrEnum`
    the numbers and texts that they are.

    Args:
        value: anything; it is not changed.
        key: where it stands, for messages.

    Raises:
        ValueError: it would be something else, or it cannot be saved at all.
    """
    if isinstance(value, BaseModel):
        value = value.model_dump()
    if isinstance(value, enum.Enum) and isinstance(value, str | int | float):
        value = value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a scalar of NumPy
        value = value.item()
    if isinstance(value, Mapping):
        return {
            _text(name, key): plain_data(part, _under(key, name)) for name, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [plain_data(part, key) for part in value]
    if value is None or type(value) in (str, int, float, bool):
        return value
    for kind in (str, int, float):
        if isinstance(value, kind) and not isinstance(value, enum.Enum):
            return kind(value)
    raise ValueError(
        f"{key}: a {type(value).__module__}.{type(value).__qualname__} cannot be written "
        "into the run's configuration; give plain numbers, texts, lists and mappings"
    )


def _text(name: Any, key: str) -> str:
    found = plain_data(name, _under(key, name)) if isinstance(name, str) else name
    if isinstance(found, str):
        return found
    raise ValueError(
        f"{key} has the key {name!r}, of the type {type(name).__name__}: in the run's "
        f"configuration keys are texts; write {str(name)!r}"
    )


def _under(key: str, name: Any) -> str:
    return f"{key}.{name}" if key else str(name)


Options = Annotated[dict[str, Any], AfterValidator(plain_data)]
"""Values of any kind by name, as plain data."""


def read_yaml(text: str) -> Any:
    """What a text says as YAML, with numbers such as `1e-3`, and with days as texts.

    Raises:
        yaml.YAMLError: it is no YAML.
    """
    import yaml

    return yaml.load(text, Loader=_formats()[0])


def write_yaml(tree: object) -> str:
    """The text that `read_yaml` makes the same of."""
    import yaml

    return yaml.dump(tree, Dumper=_formats()[1], sort_keys=False)


@cache
def _formats() -> tuple[Any, Any]:
    """PyYAML's safe loader and dumper, changed alike: what looks like a number is one."""
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    class Dumper(yaml.SafeDumper):  # it keeps days in quotes, for other programs
        pass

    Loader.yaml_implicit_resolvers = {
        first: [pair for pair in pairs if pair[0] != "tag:yaml.org,2002:timestamp"]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    for kind in (Loader, Dumper):
        kind.add_implicit_resolver("tag:yaml.org,2002:float", EXPONENT, list("-+.0123456789"))
    return Loader, Dumper
