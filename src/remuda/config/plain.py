"""Plain data for free-form options, and its YAML format."""

from __future__ import annotations

import datetime
import enum
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel

WHOLE, REAL = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
MERGE = "tag:yaml.org,2002:merge"  # tags of PyYAML; the last is that of the key `<<`
MOST_DIGITS = 4000  # digits of an integer; Python's limit is slightly higher
EXPONENT = re.compile(r"^[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9_]+)[eE][-+]?[0-9]+$")
"""A number with an exponent in YAML 1.2; PyYAML reads YAML 1.1, where `1e-3` is text."""

HALF_CHARACTER = re.compile(r"[\ud800-\udc7f\udd00-\udfff]")
"""A lone surrogate, which UTF-8 cannot encode; not those that Python uses for undecodable paths."""

WHOLES = re.compile(r"^[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)$")
"""Integers of YAML 1.1 without base 60. In YAML 1.1, `08` is text."""
REALS = re.compile(
    r"^(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
"""Floats of YAML 1.1 without base 60."""


def plain_data(value: Any, key: str = "") -> Any:
    """Convert a value to its form in a saved configuration; idempotent.

    Tuples become lists; paths and dates become text. NumPy scalars and members of `IntEnum` and
    `StrEnum` become plain numbers and text.
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
        "into the run's configuration; use plain numbers, strings, lists and mappings"
    )


def _text(name: Any, key: str) -> str:
    found = plain_data(name, _under(key, name)) if isinstance(name, str) else name
    if isinstance(found, str):
        return found
    raise ValueError(
        f"{key} has the key {name!r}, of the type {type(name).__name__}: in the run's "
        f"configuration keys must be text; write {str(name)!r}"
    )


def _under(key: str, name: Any) -> str:
    return f"{key}.{name}" if key else str(name)


Options = Annotated[dict[str, Any], AfterValidator(plain_data)]
"""Named values of any kind, as plain data."""


class RefusedYAMLError(ValueError):
    """YAML with an ambiguous or unbounded meaning; the message contains the line number."""


MOST_REPEATED = 10_000
"""Maximum values that aliases may add to a file; nested aliases could expand without bound."""


def read_yaml(text: str) -> Any:
    """Parse YAML, with `1e-3` as a number, `010` as ten, and dates as text."""
    import yaml

    try:
        return yaml.load(text, Loader=_formats()[0])
    except RecursionError:
        raise RefusedYAMLError("it is nested too deeply") from None


def write_yaml(tree: object) -> str:
    """Write text that `read_yaml` reads back."""
    import yaml

    return yaml.dump(tree, Dumper=_formats()[1], sort_keys=False)


@cache
def _formats() -> tuple[Any, Any]:
    """Make PyYAML's safe loader and dumper, with the same rules for numbers."""
    import yaml

    class Loader(yaml.SafeLoader):
        def get_single_node(self) -> Any:
            node = super().get_single_node()
            if node is not None:
                _check(node, {})
            return node

        def construct_object(self, node: Any, deep: bool = False) -> Any:
            try:
                return super().construct_object(node, deep)
            except (KeyError, AttributeError, IndexError):  # raised by PyYAML for a wrong tag
                raise RefusedYAMLError(
                    f"{_line(node)}: a value is not what its tag (`!!bool`, `!!timestamp`) says; "
                    "leave the tag out"
                ) from None

    class Dumper(yaml.SafeDumper):  # it quotes dates, for other programs
        pass

    left_out = ("tag:yaml.org,2002:timestamp", WHOLE, REAL)
    Loader.yaml_implicit_resolvers = {
        first: [pair for pair in pairs if pair[0] not in left_out]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver(REAL, REALS, list("-+.0123456789"))
    Loader.add_implicit_resolver(WHOLE, WHOLES, list("-+0123456789"))
    for kind in (Loader, Dumper):
        kind.add_implicit_resolver(REAL, EXPONENT, list("-+.0123456789"))
    Loader.add_constructor(WHOLE, _whole)
    return Loader, Dumper


def _whole(loader: Any, node: Any) -> Any:
    """Construct an integer; `010` is ten, as in YAML 1.2."""
    digits = loader.construct_scalar(node).replace("_", "")
    return int(digits) if digits.lstrip("+-").isdecimal() else loader.construct_yaml_int(node)


def _check(node: Any, sizes: dict[int, int], around: frozenset[int] = frozenset()) -> int:
    """Refuse nodes that PyYAML would drop or never finish; return their number, aliases expanded.

    `sizes` contains this number for every node seen so far, and `around` the nodes that enclose
    `node`.
    """
    if id(node) in around:
        raise RefusedYAMLError(
            f"{_line(node)}: an alias is inside its own anchor, which would have no end; write out "
            "what is meant"
        )
    if id(node) in sizes:
        return sizes[id(node)]
    if isinstance(node.value, str):
        if HALF_CHARACTER.search(node.value):
            raise RefusedYAMLError(
                f"{_line(node)}: {ascii(node.value)[:40]} holds half of a character (a surrogate); "
                "write the whole one"
            )
        sizes[id(node)] = 1
        return 1
    parts = node.value
    if parts and isinstance(parts[0], tuple):
        _check_keys(node)
        parts = [part for pair in parts for part in pair]
    inside = around | {id(node)}
    sizes[id(node)] = size = 1 + sum(_check(part, sizes, inside) for part in parts)
    if size - len(sizes) > MOST_REPEATED:
        raise RefusedYAMLError(
            f"{_line(node)}: its aliases repeat more than {MOST_REPEATED:,} values; write out what "
            "is meant"
        )
    return size


def _check_keys(node: Any) -> None:
    import yaml

    first: dict[tuple[str, str], Any] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        text: str = key.value
        if key.tag == WHOLE:  # without leading zeros and underscores
            text = text[: text.startswith("-")] + text.replace("_", "").lstrip("+-0")
        before = first.setdefault((key.tag, text), key)
        if before is not key and key.tag != MERGE:
            raise RefusedYAMLError(
                f"{_line(key)}: the key {key.value} is in {_line(before)} already, and one of "
                "them would be ignored; merge them"
            )
        is_number = isinstance(value, yaml.ScalarNode) and value.tag == WHOLE
        if is_number and len(value.value) > MOST_DIGITS:
            raise RefusedYAMLError(
                f"{_line(value)}: {key.value} is a number of {len(value.value):,} digits, which "
                "are too many for any key"
            )


def _line(node: Any) -> str:
    return f"line {node.start_mark.line + 1}"
