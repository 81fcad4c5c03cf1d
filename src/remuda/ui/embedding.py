"""A page that opens alone: the pictures that lie beside it, put inside."""

from __future__ import annotations

import base64
import re
from pathlib import Path

from remuda.checkpoint.opening import read_file

KINDS = {".png": "image/png", ".gif": "image/gif", ".svg": "image/svg+xml"}
SOURCE = re.compile(r'src="([^":/][^":]*)"')


def with_pictures(page: str, folder: Path) -> str:
    """The page with every picture of the folder inside; one that is not there stays a name."""

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
