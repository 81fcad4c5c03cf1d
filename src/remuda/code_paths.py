"""Directories of a run's modules, so that the run can be opened from any other directory.

A run names the user's classes and functions as `module:Class`, and pickled code imports modules
too. The directories in which Python found them are written beside config.yaml, and searched after
all others.
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
"""Directories of all runs that this process opened, in order."""
_files: dict[str, str] = {}
"""The file of each module when its run began."""
_warned: set[str] = set()


def found_here(texts: Iterable[str]) -> dict[str, object]:
    """Return the directories and files of the user's modules in this process, to be written.

    `texts` are those of the configuration, some of which name code as `module:Class`.
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
    """Read where a run's modules were found; nothing is imported yet."""
    with suppress(OSError, ValueError):
        kinds = {"directories": list, "modules": dict}
        found = checked(read_json(config.parent / FILE, LARGEST), kinds)
        _directories.update(dict.fromkeys(map(str, found["directories"])))
        _files.update({str(name): str(path) for name, path in found["modules"].items()})


def add_directories() -> bool:
    """Let Python search the directories of opened runs too; return whether there were new ones."""
    new = [path for path in _directories if path not in sys.path and os.path.isdir(path)]
    sys.path.extend(new)
    importlib.invalidate_caches()
    return bool(new)


def warn_of_other_file(module: str) -> None:
    """Warn once if a module is another file than when its run began."""
    name = module.partition(".")[0]
    here, before = getattr(sys.modules.get(name), "__file__", None), _files.get(name)
    if here is None or before is None or name in _warned or os.path.abspath(here) == before:
        return
    _warned.add(name)
    log.warning("the module %s is %s here; when the run was begun it was %s", name, here, before)


def _is_own(directory: str) -> bool:
    """Return whether a directory holds the user's modules, not installed ones."""
    if not os.path.isdir(directory):
        return False
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    installed = [*map(sysconfig.get_path, names), *site.getsitepackages()]
    installed += [site.getusersitepackages(), os.path.dirname(os.path.dirname(__file__))]
    return not any(f"{directory}/".startswith(f"{each}/") for each in installed)
