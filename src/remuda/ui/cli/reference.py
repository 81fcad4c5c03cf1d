"""Generate the site's reference: commands, keys of the configuration, metrics, public Python.

`make site` adds these pages to those of docs/ (.site/hooks.py); none is written to disk there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from jinja2 import Template

from remuda.config import Config
from remuda.runs.columns import COLUMNS
from remuda.runs.metrics import SHARES
from remuda.ui.cli.main import COMMANDS, EXIT_CODES
from remuda.ui.cli.option_entries import (
    Entry,
    entries_of,
    own_entries,
    sections_of,
    sections_of_runs,
)

TEXTS = Path(__file__).parents[1] / "templates"
PAGE = re.compile(r"docs/(\w+)\.md")
"""A page that a docstring names; on the site it is beside those that are generated."""
SHARED = "options-of-several-commands"


def configuration_page() -> str:
    """Return the page of all keys, in a section for each section of the configuration."""
    parts = [(TEXTS / "configuration.md").read_text(), "## At the top\n"]
    for section, model in sections_of(Config).items():
        parts += [f"## {section}\n"] if section else []
        parts += [_lines(entry, key, key) for key, entry in entries_of(model, section).items()]
    return "\n".join(parts)


def commands_page() -> str:
    """Return the page of all commands; options that mean the same in several are listed once."""
    own = {name: each.options for name, each in COMMANDS.items() if each.options is not Config}
    options = {name: own_entries(model) for name, model in own.items()}
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
        for section in sections_of_runs(own[name]):
            link = f"[key of `{section}`](configuration.md#{section})"
            parts.append(f"Each {link} is an option, too.\n")
        parts += [
            _lines(entry, f"--{key}", f"{name}--{key}")
            for key, entry in options[name].items()
            if key not in shared
        ]
    parts.append("## Options of several commands\n")
    parts += [_lines(entry, f"--{key}", key) for key, entry in shared.items()]
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


def _lines(entry: Entry, key: str, anchor: str) -> str:
    """Return the entry under a heading, which the site's search finds, with this anchor."""
    meaning = PAGE.sub(r"[\1.md](\1.md)", entry.meaning)
    return f"### `{key}` {{ #{anchor} }}\n\n{entry.facts}\n{{ .facts }}\n\n{meaning}\n"


def _shared(commands: list[Mapping[str, Entry]]) -> dict[str, Entry]:
    """Return the options of several commands that are the same in all that have them."""
    found: dict[str, list[Entry]] = {}
    for entries in commands:
        for key, entry in entries.items():
            found.setdefault(key, []).append(entry)
    return {key: each[0] for key, each in found.items() if len(each) > 1 and len(set(each)) == 1}
