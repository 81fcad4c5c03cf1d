"""Directories in which a run's modules were found, so that it can be opened from any other one.

A run names classes and functions of the user's as `module:Class`, and pickled code imports modules
too. The directories in which Python looked for them are written beside config.yaml. They are looked
at once a module is not found otherwise, and so after all others.
"""

from __future__ import annotations

import importlib
import logging
import os
import site
import sys
import sysconfig
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from remuda.checkpoint.opening import read_json
from remuda.checkpoint.plain import checked

FILE = "code-paths.json"
LARGEST = 1 << 20
"""Bytes of the file that are read."""
log = logging.getLogger(__name__)
_directories: dict[str, None] = {}
"""Of all runs that this process opened, in their order."""
_files: dict[str, str] = {}
"""By module, the file that it was when its run was begun."""
_told: set[str] = set()


def found_here(texts: Iterable[str]) -> dict[str, object]:
    """Return what is written beside a configuration: where this process finds the user's modules.

    Args:
        texts: all texts of the configuration, some of which name code as `module:Class`.
    """
    own = [path for entry in sys.path if _is_own(path := os.path.abspath(entry or os.getcwd()))]
    files = {}
    for text in texts:
        name = text.partition(":")[0].partition(".")[0]
        file = getattr(sys.modules.get(name), "__file__", None) if ":" in text else None
        if file is not None and _is_own(os.path.dirname(file)):
            files[name] = os.path.abspath(file)
    return {"directories": list(dict.fromkeys([*own, *_directories])), "modules": files}


def read_beside(config: Path) -> None:
    """Know where the modules of a run were found; nothing is imported yet."""
    with suppress(OSError, ValueError):
        kinds = {"directories": list, "modules": dict}
        found = checked(read_json(config.parent / FILE, LARGEST), kinds)
        _directories.update(dict.fromkeys(map(str, found["directories"])))
        _files.update({str(name): str(path) for name, path in found["modules"].items()})


def add_directories() -> bool:
    """Let Python look into the directories of opened runs too; whether there were new ones."""
    new = [path for path in _directories if path not in sys.path and os.path.isdir(path)]
    sys.path.extend(new)
    importlib.invalidate_caches()
    return bool(new)


def tell_of_other_file(module: str) -> None:
    """Warn once where a module is another file than when its run was begun."""
    name = module.partition(".")[0]
    here, before = getattr(sys.modules.get(name), "__file__", None), _files.get(name)
    if here is None or before is None or name in _told or os.path.abspath(here) == before:
        return
    _told.add(name)
    log.warning("the module %s is %s here; when the run was begun it was %s", name, here, before)


def _is_own(directory: str) -> bool:
    """Whether a directory holds the user's modules, and not installed ones."""
    if not os.path.isdir(directory):
        return False
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    installed = [*map(sysconfig.get_path, names), *site.getsitepackages()]
    installed += [site.getusersitepackages(), os.path.dirname(os.path.dirname(__file__))]
    return not any(f"{directory}/".startswith(f"{each}/") for each in installed)
