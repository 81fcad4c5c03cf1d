"""Generate the site's reference: commands, keys of the configuration, metrics, public Python.

`make site` adds these pages to those of docs/ (.site/hooks.py); none is written to disk there.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from jinja2 import Template
from pydantic.fields import FieldInfo

from remuda.config import Config, Section, describe_fields
from remuda.runs.columns import COLUMNS
from remuda.runs.metrics import SHARES
from remuda.ui.cli.main import COMMANDS, EXIT_CODES

TEXTS = Path(__file__).parents[1] / "templates"
PAGE = re.compile(r"docs/(\w+)\.md")
"""A page that a docstring names; on the site it is beside those that are generated."""
CONSTRAINTS = {"Gt": "above {}", "Ge": "at least {}", "Lt": "below {}", "Le": "at most {}"}
SHARED = "options-of-several-commands"


class Entry(NamedTuple):
    """A key or option of the reference."""

    facts: str  # type, bounds, default
    meaning: str

    def lines(self, key: str, anchor: str) -> str:
        """Return the entry under a heading, which the site's search finds, with this anchor."""
        return f"### `{key}` {{ #{anchor} }}\n\n{self.facts}\n{{ .facts }}\n\n{self.meaning}\n"


def configuration_page() -> str:
    """Return the page of all keys, in a section for each section of the configuration."""
    parts = [(TEXTS / "configuration.md").read_text(), "## At the top\n"]
    for section, model in _sections(Config).items():
        parts += [f"## {section}\n"] if section else []
        parts += [entry.lines(key, key) for key, entry in _entries(model, section).items()]
    return "\n".join(parts)


def commands_page() -> str:
    """Return the page of all commands; options that mean the same in several are listed once."""
    own = {name: each.options for name, each in COMMANDS.items() if each.options is not Config}
    options = {name: _options(model) for name, model in own.items()}
    shared = _shared(list(options.values()))
    parts = [(TEXTS / "commands.md").read_text()]
    for name, command in COMMANDS.items():
        parts += [f"## remuda {name}\n", f"{command.summary}\n"]
        if name not in own:
            parts.append("Its options are the keys of [the configuration](configuration.md).\n")
            continue
        parts.append(f"`remuda {name} {command.positional.upper()} [OPTIONS]`\n")
        links = [f"[`--{key}`](#{key})" for key in options[name] if key in shared]
        if links:
            parts.append(f"Options of [several commands](#{SHARED}): {', '.join(links)}.\n")
        for section in _sections_of_runs(own[name]):
            link = f"[key of `{section}`](configuration.md#{section})"
            parts.append(f"Each {link} is an option, too.\n")
        parts += [
            entry.lines(f"--{key}", f"{name}--{key}")
            for key, entry in options[name].items()
            if key not in shared
        ]
    parts.append("## Options of several commands\n")
    parts += [entry.lines(f"--{key}", key) for key, entry in shared.items()]
    codes = " ".join(EXIT_CODES.split()).removeprefix("exit code: ")
    return "\n".join([*parts, f"## Exit codes\n\n{codes}\n"])


def metrics_page() -> str:
    """Return the page of all columns of the metrics."""
    template = Template((TEXTS / "metrics.md").read_text(), trim_blocks=True)
    text: str = template.render(columns=COLUMNS, shares=SHARES)
    return text


def python_page() -> str:
    """Return the page of public names, whose docstrings mkdocstrings fills in."""
    return (TEXTS / "python.md").read_text()


PAGES = {
    "commands.md": commands_page,
    "configuration.md": configuration_page,
    "metrics.md": metrics_page,
    "python.md": python_page,
}
"""The generated pages by their file on the site."""


def _sections(model: type[Section], name: str = "") -> dict[str, type[Section]]:
    """Return a model and all sections below it, by their full names; its own name is empty."""
    found = {name: model}
    for key, info in model.model_fields.items():
        if _is_section(info):
            found |= _sections(info.annotation, f"{name}.{key}".lstrip("."))  # type: ignore[arg-type]
    return found


def _is_section(info: FieldInfo) -> bool:
    return isinstance(info.annotation, type) and issubclass(info.annotation, Section)


def _entries(model: type[Section], section: str = "") -> dict[str, Entry]:
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
        meaning = PAGE.sub(r"[\1.md](\1.md)", " ".join((info.description or "").split()))
        found[f"{section}.{name}".lstrip(".")] = Entry(", ".join(facts), meaning)
    return found


def _options(model: type[Section]) -> dict[str, Entry]:
    """Return the entries of a command's options, without sections that it takes from a run's."""
    left_out = _sections_of_runs(model)
    return {
        key: entry
        for section, kind in _sections(model).items()
        if section.split(".")[0] not in left_out
        for key, entry in _entries(kind, section).items()
    }


def _sections_of_runs(model: type[Section]) -> list[str]:
    """Return the names of the sections that are the same in the configuration of a run."""
    of_runs = {name: info.annotation for name, info in Config.model_fields.items()}
    return [
        name
        for name, info in model.model_fields.items()
        if _is_section(info) and of_runs.get(name) is info.annotation
    ]


def _shared(commands: list[Mapping[str, Entry]]) -> dict[str, Entry]:
    """Return the options of several commands that are the same in all that have them."""
    found: dict[str, list[Entry]] = {}
    for entries in commands:
        for key, entry in entries.items():
            found.setdefault(key, []).append(entry)
    return {key: each[0] for key, each in found.items() if len(each) > 1 and len(set(each)) == 1}


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
