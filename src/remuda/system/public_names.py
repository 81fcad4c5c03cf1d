"""Packages whose public names are listed in `__init__.pyi` and imported at their first use."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

IMPORT = re.compile(r"^from (\S+) import \(?\s*(\w+)", re.MULTILINE)


def public_names(module: str, file: str) -> tuple[list[str], Callable[[str], Any]]:
    """Return a package's `__all__` and its `__getattr__` (PEP 562).

    Args:
        module: the package's `__name__`.
        file: its `__file__`. The stub beside it lists the names and their modules, for type
            checkers too.
    """
    with open(file + "i", encoding="utf-8") as stub:
        homes = {name: home for home, name in IMPORT.findall(stub.read())}

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        import sys
        from importlib import import_module

        found = getattr(import_module(homes[name]), name)
        setattr(sys.modules[module], name, found)
        return found

    return sorted(homes), find
