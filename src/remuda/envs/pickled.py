"""Games that are given as classes and functions: named, or pickled where no name will do.

A run knows its game by a name, which stands in its config.yaml. A class or function of a module is
`module:Class`. One of a script or a notebook cell is found by no other process: it is pickled by
value, and its name is `pickled:Class-DIGEST`. The pickle lies in the run's directory, beside
config.yaml, as `game-DIGEST.pkl`, and processes of the run are sent it.

A pickle runs code when it is read. It is read when the game is made: by a run that is resumed,
evaluated or asked for its policies, as `module:Class` is imported then.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import re
import sys
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from remuda.errors import UnknownGameError, UsageError

PREFIX = "pickled:"
DIGITS = 8
"""Hexadecimal digits of the digest in a name."""
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
"""The version that pickled code is of: another one cannot run it."""

_pickles: dict[str, bytes] = {}
"""By name, the pickles that this process knows."""
_objects: dict[str, object] = {}
"""By name, what they are of: what this process was given, or has read."""


def is_pickled(name: str) -> bool:
    """Whether a game's name is that of a pickle."""
    return name.startswith(PREFIX)


def without_digest(name: str) -> str:
    """A pickled game's name without what tells its code from other code; others as they are."""
    return name.partition("-")[0] if is_pickled(name) else name


def name_object(game: object) -> str:
    """A name for a class or a function, by which this process and its children find it.

    Raises:
        UsageError: it cannot be pickled.
    """
    path = import_path(game)
    if path is not None:
        return path
    data = _pickle(game)
    label = re.sub(r"\W+", "_", label_of(game)).strip("_")
    name = f"{PREFIX}{label}-{_digest(data)}"
    _pickles[name], _objects[name] = data, game
    return name


def label_of(game: object) -> str:
    """What a class, a function or a `functools.partial` of one is called."""
    while hasattr(game, "func"):
        game = game.func
    return str(getattr(game, "__name__", type(game).__name__))


def import_path(game: object) -> str | None:
    """`module:Class`, by which a fresh process can import it; None: it cannot."""
    module, name = getattr(game, "__module__", None), getattr(game, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or not _is_importable(module):
        return None
    try:
        found = attrgetter(name)(sys.modules[module])
    except AttributeError:  # within a function, or replaced
        return None
    return f"{module}:{name}" if found is game else None


def pickle_of(name: str) -> bytes:
    """The pickle of a game.

    Raises:
        UnknownGameError: this process does not know it.
    """
    if name not in _pickles:
        raise UnknownGameError(
            f"the code of {name} is not there: a game of a script or a notebook lies in its run's "
            f"directory as {file_name(name)}; open that run, or give the class or function itself "
            "to remuda.train"
        )
    return _pickles[name]


def load_object(name: str, data: bytes) -> Any:
    """The class or function in a pickle; this runs code.

    Raises:
        UnknownGameError: it is damaged, of another Python, or imports what is not there.
    """
    if name in _objects:
        return _objects[name]
    if name.rpartition("-")[2] != _digest(data):
        raise UnknownGameError(f"{file_name(name)}, the code of {name}, is damaged or another's")
    python, code = pickle.loads(data)
    if python != PYTHON:
        raise UnknownGameError(
            f"{name} was written by Python {python}, and this is Python {PYTHON}, which cannot run "
            f"its code: use Python {python}, or define the game in a module"
        )
    try:
        found = _objects[name] = pickle.loads(code)
    except (ImportError, AttributeError) as error:
        raise UnknownGameError(
            f"{name} cannot be read: {error}; what its code imports must be found here too"
        ) from None
    return found


def file_name(name: str) -> str:
    """The file in a run's directory that holds a pickled game."""
    return f"game-{name.rpartition('-')[2]}.pkl"


def read_beside(config: Path, name: str) -> None:
    """Know the game of a configuration whose pickle lies beside it; nothing of it is run yet."""
    if is_pickled(name) and name not in _pickles:
        with suppress(OSError):  # making the game raises an error then
            _pickles[name] = (config.parent / file_name(name)).read_bytes()


def _pickle(game: object) -> bytes:
    file = io.BytesIO()
    by_value = _unimportable_module(game)
    if by_value is not None:
        cloudpickle.register_pickle_by_value(by_value)
    try:
        cloudpickle.dump(game, file)
    except Exception as error:  # whatever the objects that it refers to raise
        why = " ".join(str(error).split())
        raise UsageError(
            f"the game {label_of(game)} cannot be sent to other processes: {why}; define it in a "
            "module, and let it make there what cannot be sent"
        ) from error
    finally:
        if by_value is not None:
            cloudpickle.unregister_pickle_by_value(by_value)
    return pickle.dumps((PYTHON, file.getvalue()))


def _unimportable_module(game: object) -> ModuleType | None:
    """The module that something was defined in, if it exists in this process only."""
    name = getattr(game, "__module__", None)
    module = sys.modules.get(name) if isinstance(name, str) else None
    if module is None or module.__name__ == "__main__" or _is_importable(module.__name__):
        return None
    return module


def _is_importable(module: str) -> bool:
    """Whether a fresh process that looks where this one does finds the same module."""
    if module in ("__main__", "__mp_main__") or module not in sys.modules:
        return False
    parent, where = module.rpartition(".")[0], None
    if parent:
        if not _is_importable(parent):
            return False
        where = sys.modules[parent].__path__
    found = None
    for finder in sys.meta_path:  # `importlib.util.find_spec` would ask `sys.modules` first
        found = found or finder.find_spec(module, where)
    here = getattr(sys.modules[module], "__file__", None)
    return found is not None and (found.origin, found.has_location) == (here, here is not None)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:DIGITS]
