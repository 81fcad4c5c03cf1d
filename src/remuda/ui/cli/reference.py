"""Generate docs/configuration.md and docs/commands.md from the declarations of keys and options.

python -m remuda.ui.cli.reference docs
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from remuda.config import Config, Section
from remuda.ui.cli.main import COMMANDS, EXIT_CODES

TEXTS = Path(__file__).parents[1] / "templates"
CONSTRAINTS = {"Gt": "above {}", "Ge": "at least {}", "Lt": "below {}", "Le": "at most {}"}


def configuration_page() -> str:
    """Return docs/configuration.md."""
    parts = [(TEXTS / "configuration.md").read_text(), "## At the top\n", *_table(Config, "")]
    for key, section in _sections(Config, ""):
        parts += [f"\n## {key}\n", *_table(section, f"{key}.")]
    return "\n".join(parts) + "\n"


def commands_page() -> str:
    """Return docs/commands.md."""
    parts = [(TEXTS / "commands.md").read_text()]
    for name, command in COMMANDS.items():
        parts += [f"## remuda {name}\n", f"{command.summary}\n"]
        if command.options is Config:
            parts.append("Its options are the keys of [the configuration](configuration.md).\n")
        elif command.options is not None:
            positional = f" {command.positional.upper()}" if command.positional else ""
            parts += [f"`remuda {name}{positional} [OPTIONS]`\n"]
            parts += [*_table(command.options, "", flags=True)]
            for key, section in _sections(command.options, ""):
                parts += [f"\n### {key}\n", *_table(section, f"{key}.", flags=True)]
            parts.append("")
    codes = " ".join(EXIT_CODES.split()).removeprefix("exit code: ")
    return "\n".join([*parts, f"## Exit codes\n\n{codes}"]) + "\n"


def _sections(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, type[Section]]]:
    for name, info in model.model_fields.items():
        section = _without_marks(info.annotation)
        if isinstance(section, type) and issubclass(section, Section):
            yield f"{prefix}{name}", section
            yield from _sections(section, f"{prefix}{name}.")


def _table(model: type[BaseModel], prefix: str, flags: bool = False) -> list[str]:
    rows = []
    for name, info in model.model_fields.items():
        section = _without_marks(info.annotation)
        if isinstance(section, type) and issubclass(section, Section):
            continue
        key = f"--{prefix}{name}" if flags else f"{prefix}{name}"
        default = (
            ""
            if info.is_required()
            else f"`{_plain(info.get_default(call_default_factory=True, validated_data={}))}`"
        )
        meaning = " ".join((info.description or "").split())
        kind = ", ".join([_words(info.annotation), *_bounds(info.metadata)])
        rows.append(f"| `{key}` | {_cell(kind)} | {_cell(default)} | {_cell(meaning)} |")
    if not rows:
        return []
    return ["| key | type | default | meaning |", "| --- | --- | --- | --- |", *rows]


def _without_marks(kind: Any) -> Any:
    return _without_marks(get_args(kind)[0]) if get_origin(kind) is Annotated else kind


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
        return f"list of {_words(parts[0])}"
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


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    """Write both pages to a folder."""
    folder = Path(sys.argv[1])
    (folder / "configuration.md").write_text(configuration_page())
    (folder / "commands.md").write_text(commands_page())


if __name__ == "__main__":
    main()
