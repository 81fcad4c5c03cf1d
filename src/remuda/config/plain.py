"""Plain data for options of any name, and its YAML format."""

from __future__ import annotations

import datetime
import enum
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel

WHOLE, REAL = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
MERGE = "tag:yaml.org,2002:merge"  # tags of PyYAML; the last is that of the key `<<`
MOST_DIGITS = 4000  # digits of an integer; Python reads a few more
EXPONENT = re.compile(r"^[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9_]+)[eE][-+]?[0-9]+$")
"""A number with an exponent in YAML 1.2; PyYAML reads YAML 1.1, where `1e-3` is text."""

HALF_CHARACTER = re.compile(r"[\ud800-\udc7f\udd00-\udfff]")
"""A lone surrogate, which no file can hold, except those that encode bytes of odd paths."""

WHOLES = re.compile(r"^[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)$")
"""Integers of YAML 1.1 without base 60. `08` is no integer there, and stays text."""
REALS = re.compile(
    r"^(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
"""Other numbers of YAML 1.1 without base 60."""


def plain_data(value: Any, key: str = "") -> Any:
    """Convert a value to what a saved configuration would contain; idempotent.

    Tuples become lists, paths and dates text; NumPy scalars and members of `IntEnum` and `StrEnum`
    become plain numbers and text.
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
"""Named values of any kind, as plain data."""


class RefusedYAMLError(ValueError):
    """YAML with an ambiguous or unbounded meaning; the message names the line."""


MOST_REPEATED = 10_000
"""Values that the aliases of a file may expand to; nested aliases grow without bound."""


def read_yaml(text: str) -> Any:
    """Parse YAML, with `1e-3` as a number, `010` as ten, and dates as text."""
    import yaml

    try:
        return yaml.load(text, Loader=_formats()[0])
    except RecursionError:
        raise RefusedYAMLError("it is nested too deeply, as no configuration is") from None


def write_yaml(tree: object) -> str:
    """Write text that `read_yaml` reads back."""
    import yaml

    return yaml.dump(tree, Dumper=_formats()[1], sort_keys=False)


@cache
def _formats() -> tuple[Any, Any]:
    """Make PyYAML's safe loader and dumper, with the same rules for numbers."""
    import yaml

    class Loader(_careful(yaml.SafeLoader)):  # type: ignore[misc]
        pass

    class Dumper(yaml.SafeDumper):  # it keeps days in quotes, for other programs
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


def _expanded(node: Any, sizes: dict[int, int]) -> int:
    """Count the values in a node with aliases expanded; `sizes` caches known nodes."""
    if node is None or isinstance(node.value, str):
        return 1
    if id(node) not in sizes:
        parts = [each[1] if isinstance(each, tuple) else each for each in node.value]
        sizes[id(node)] = 1 + sum(_expanded(part, sizes) for part in parts)
    return sizes[id(node)]


def _careful(loader: Any) -> Any:
    """Make a loader that refuses YAML which PyYAML would drop, hang on or fail at."""
    import yaml

    class Careful(loader):  # type: ignore[misc]
        def __init__(self, stream: Any) -> None:
            super().__init__(stream)
            self._around: set[str] = set()
            self._sizes: dict[int, int] = {}  # of nodes, with all that their aliases repeat
            self._repeated = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                event = self.peek_event()
                if event.anchor in self._around:
                    raise RefusedYAMLError(
                        f"{_line(event)}: *{event.anchor} is inside &{event.anchor} itself, "
                        "which would have no end; write out what is meant"
                    )
                self._repeated += _expanded(self.anchors.get(event.anchor), self._sizes)
                if self._repeated > MOST_REPEATED:
                    raise RefusedYAMLError(
                        f"{_line(event)}: with *{event.anchor} its aliases repeat more than "
                        f"{MOST_REPEATED:,} values; write out what is meant"
                    )
            return super().compose_node(parent, index)

        def compose_scalar_node(self, anchor: Any) -> Any:
            node = super().compose_scalar_node(anchor)
            _check_text(node)
            return node

        def compose_sequence_node(self, anchor: Any) -> Any:
            with self._within(anchor):
                return super().compose_sequence_node(anchor)

        def compose_mapping_node(self, anchor: Any) -> Any:
            with self._within(anchor):
                node = super().compose_mapping_node(anchor)
            _check_keys(node)
            return node

        def construct_object(self, node: Any, deep: bool = False) -> Any:
            try:
                return super().construct_object(node, deep)
            except (KeyError, AttributeError, IndexError):  # PyYAML's own, of a wrong tag
                raise RefusedYAMLError(
                    f"{_line(node)}: a value is not what its tag (`!!bool`, `!!timestamp`) says; "
                    "leave the tag out"
                ) from None

        @contextmanager
        def _within(self, anchor: str | None) -> Iterator[None]:
            if anchor is not None:
                self._around.add(anchor)
            yield
            self._around.discard(anchor or "")

    return Careful


def _check_text(node: Any) -> None:
    if HALF_CHARACTER.search(node.value):
        raise RefusedYAMLError(
            f"{_line(node)}: {ascii(node.value)[:40]} holds half of a character (a surrogate); "
            "write the whole one"
        )


def _check_keys(node: Any) -> None:
    import yaml

    first: dict[tuple[str, str], Any] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        before = first.setdefault((key.tag, _spelled(key)), key)
        if before is not key and key.tag != MERGE:
            raise RefusedYAMLError(
                f"{_line(key)}: the key {key.value} is in {_line(before)} already, and one of "
                "them would count for nothing; put both together"
            )
        is_number = isinstance(value, yaml.ScalarNode) and value.tag == WHOLE
        if is_number and len(value.value) > MOST_DIGITS:
            raise RefusedYAMLError(
                f"{_line(value)}: {key.value} is a number of {len(value.value):,} digits, and no "
                "key takes one of so many"
            )


def _spelled(key: Any) -> str:
    """Return a key without insignificant zeros and underscores of a number."""
    word: str = key.value
    if key.tag != WHOLE:
        return word
    return word[: word.startswith("-")] + word.replace("_", "").lstrip("+-0")


def _line(node: Any) -> str:
    return f"line {node.start_mark.line + 1}"
