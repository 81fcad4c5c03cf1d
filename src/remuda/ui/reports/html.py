"""HTML pages from `templates/`, with embedded pictures."""

from __future__ import annotations

import base64
import re
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from remuda.system.checkpoint.opening import read_file
from remuda.ui.terminal.numbers import clock, rate, restarted, waited

KINDS = {".png": "image/png", ".gif": "image/gif", ".svg": "image/svg+xml"}
SOURCE = re.compile(r'src="([^":/][^":]*)"')
COMMAND = re.compile("`([^`]+)`")
MINUS = re.compile(r"(?<![^\s(])-(?=\d)")


def render(template: str, **values: Any) -> Markup:
    """Fill in a template; its values are escaped, unless they are `Markup`."""
    return Markup(_environment().get_template(template).render(values))


@cache
def _environment() -> Environment:
    found = Environment(
        loader=PackageLoader("remuda.ui"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    shown = {"clock": clock, "rate": rate, "waited": waited, "restarted": restarted}
    found.filters |= shown | {"count": "{:,}".format}
    found.filters["code"] = lambda text: Markup(COMMAND.sub(r"<code>\1</code>", str(escape(text))))
    found.filters["minus"] = lambda cell: MINUS.sub("−", str(cell))
    return found


def with_pictures(page: str, folder: Path) -> str:
    """Embed the pictures of a folder into a page as data URLs; missing pictures stay links."""

    def inside(found: re.Match[str]) -> str:
        name, path = Path(found[1]), folder / found[1]
        kind = KINDS.get(path.suffix.lower())
        if kind is None or ".." in name.parts:
            return found[0]
        try:
            data = base64.b64encode(read_file(path)).decode()
        except OSError:
            return found[0]
        return f'data-from="{found[1]}" src="data:{kind};base64,{data}"'

    return SOURCE.sub(inside, page)
