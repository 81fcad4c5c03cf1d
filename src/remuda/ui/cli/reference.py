"""Generate pages of docs/ from the declarations of keys, options and columns of the metrics.

python -m remuda.ui.cli.reference docs
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from jinja2 import Template
from pydantic.fields import FieldInfo

from remuda.config import Config, Section, describe_fields
from remuda.runs.columns import COLUMNS
from remuda.runs.metrics import SHARES
from remuda.ui.cli.main import COMMANDS, EXIT_CODES

BAR = "\\|"  # in a cell
TEXTS = Path(__file__).parents[1] / "templates"
CONSTRAINTS = {"Gt": "above {}", "Ge": "at least {}", "Lt": "below {}", "Le": "at most {}"}


def configuration_page() -> str:
    """Return docs/configuration.md."""
    start = (TEXTS / "configuration.md").read_text()
    return "\n".join([start, "## At the top\n", *_tables(Config, "## ")]) + "\n"


def commands_page() -> str:
    """Return docs/commands.md."""
    parts = [(TEXTS / "commands.md").read_text()]
    for name, command in COMMANDS.items():
        parts += [f"## remuda {name}\n", f"{command.summary}\n"]
        if command.options is Config:
            parts.append("Its options are the keys of [the configuration](configuration.md).\n")
        else:
            parts.append(f"`remuda {name} {command.positional.upper()} [OPTIONS]`\n")
            parts += [*_tables(command.options, "### ", "--"), ""]
    codes = " ".join(EXIT_CODES.split()).removeprefix("exit code: ")
    return "\n".join([*parts, f"## Exit codes\n\n{codes}"]) + "\n"


def metrics_page() -> str:
    """Return docs/metrics.md."""
    template = Template((TEXTS / "metrics.md").read_text(), trim_blocks=True)
    text: str = template.render(columns=COLUMNS, shares=SHARES)
    return text


def _tables(
    model: type[Section], heading: str, dashes: str = "", prefix: str = ""
) -> Iterator[str]:
    """Yield the lines of a table of the model's keys, then those of its sections' tables."""
    describe_fields(model)
    rows, sections = [], {}
    for name, info in model.model_fields.items():
        key = f"{prefix}{name}"
        if isinstance(info.annotation, type) and issubclass(info.annotation, Section):
            sections[key] = info.annotation
            continue
        default = ""
        if not info.is_required():
            value = info.get_default(call_default_factory=True, validated_data={})
            default = f"`{_plain(value)}`"
        kind = ", ".join([_words(info.annotation), *_bounds(info.metadata)])
        cells = [f"`{dashes}{key}`", kind, default, " ".join((info.description or "").split())]
        rows.append(f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |")
    if rows:
        yield from ("| key | type | default | meaning |", "| --- | --- | --- | --- |", *rows)
    for key, section in sections.items():
        yield f"\n{heading}{key}\n"
        yield from _tables(section, heading, dashes, f"{key}.")


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


def main() -> None:
    """Write the pages to a folder."""
    folder = Path(sys.argv[1])
    (folder / "configuration.md").write_text(configuration_page())
    (folder / "commands.md").write_text(commands_page())
    (folder / "metrics.md").write_text(metrics_page())


if __name__ == "__main__":
    main()
