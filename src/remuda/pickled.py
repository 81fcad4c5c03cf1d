"""Names for the user's classes and functions; those that no process can import are pickled.

A run knows its game, and the user's algorithms, networks, matchmakers and directors, by the names
in its config.yaml. A class or function of a module is `module:Class`. One of a script or a notebook
cell is pickled by value, and its name is `pickled:Class-DIGEST`. The pickle is in the run's
directory, beside config.yaml, as `code-DIGEST.pkl`, and processes of the run get a copy.

A pickle runs code when it is read: a game's when the game is made, an algorithm's when the
configuration is read; a network's when it is made, as `module:Class` is imported then.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from remuda.checkpoint.opening import read_file
from remuda.code_paths import add_directories
from remuda.errors import MissingCodeError, UsageError

PREFIX = "pickled:"
DIGITS = 8
"""Hexadecimal digits of the digest in a name."""
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
"""The version of pickled code: another one cannot run it."""

PICKLES: dict[str, bytes] = {}
"""The pickles that this process knows, and their names."""
OBJECTS: dict[str, object] = {}
"""The objects of pickles, made or read by this process."""


def is_pickled(name: str) -> bool:
    """Return whether a name is that of a pickle."""
    return name.startswith(PREFIX)


def without_digest(name: str) -> str:
    """Return a pickle's name without the digest of its code; other names are unchanged."""
    return name.partition("-")[0] if is_pickled(name) else name


def names_in(tree: object) -> Iterator[str]:
    """Yield the names of pickles in a tree of plain data."""
    return filter(is_pickled, texts_in(tree))


def texts_in(tree: object) -> Iterator[str]:
    """Yield all texts in a tree of plain data, except its keys."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, Mapping):
        for part in tree.values():
            yield from texts_in(part)
    elif isinstance(tree, list | tuple):
        for part in tree:
            yield from texts_in(part)


def without_digests(tree: Any) -> Any:
    """Return a tree of plain data with the digests of pickles removed."""
    if isinstance(tree, str):
        return without_digest(tree)
    if isinstance(tree, Mapping):
        return {key: without_digests(part) for key, part in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(without_digests(part) for part in tree)
    return tree


def with_digests_of(tree: Any, other: Any) -> Any:
    """Return a tree with another's pickles in place of those with the same label.

    So code that was fixed is no difference between the two.
    """
    if isinstance(tree, str) and isinstance(other, str):
        same = is_pickled(other) and without_digest(tree) == without_digest(other)
        return other if same else tree
    if isinstance(tree, Mapping) and isinstance(other, Mapping):
        return {key: with_digests_of(part, other.get(key)) for key, part in tree.items()}
    return tree


def pickles_in(tree: object) -> dict[str, bytes]:
    """Return the pickles that a tree names and this process knows, to be sent along with it."""
    return {name: PICKLES[name] for name in names_in(tree) if name in PICKLES}


def add_pickles(pickles: Mapping[str, bytes]) -> None:
    """Add pickles from another process; none of them runs yet."""
    PICKLES.update(pickles)


def name_object(thing: object, what: str) -> str:
    """Return a name by which this process and its children find a class or function."""
    path = import_path(thing)
    if path is not None:
        return path
    data = _pickle(thing, what)
    label = re.sub(r"\W+", "_", label_of(thing)).strip("_")
    name = f"{PREFIX}{label}-{_digest(data)}"
    PICKLES[name], OBJECTS[name] = data, thing
    return name


def label_of(thing: object) -> str:
    """Return the name of a class, a function or a `functools.partial` of one."""
    while hasattr(thing, "func"):
        thing = thing.func
    return str(getattr(thing, "__name__", type(thing).__name__))


def import_path(thing: object) -> str | None:
    """Return `module:Class`, by which a fresh process can import it; None: it cannot."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or not _is_importable(module):
        return None
    try:
        found = attrgetter(name)(sys.modules[module])
    except AttributeError:  # within a function, or replaced
        return None
    return f"{module}:{name}" if found is thing else None


def pickle_of(name: str) -> bytes:
    """Return the pickle of that name, or raise a `MissingCodeError`."""
    if name not in PICKLES:
        raise MissingCodeError(
            f"the code of {name} is not there: code of a script or a notebook is saved in its "
            f"run's directory as {file_name(name)}; open that run, or give the class or "
            "function itself to remuda.train"
        )
    return PICKLES[name]


def load_object(name: str, data: bytes) -> Any:
    """Return the class or function in a pickle; this runs code."""
    if name in OBJECTS:
        return OBJECTS[name]
    if _digest_in(name) != _digest(data):
        raise MissingCodeError(f"{file_name(name)}, the code of {name}, is damaged or another's")
    python, code = pickle.loads(data)
    if python != PYTHON:
        raise MissingCodeError(
            f"{name} was written by Python {python}, and this is Python {PYTHON}, which cannot run "
            f"its code: use Python {python}, or define it in a module"
        )
    try:
        try:
            found = pickle.loads(code)
        except ModuleNotFoundError:
            if not add_directories():
                raise
            found = pickle.loads(code)
        OBJECTS[name] = found
    except (ImportError, AttributeError) as error:
        raise MissingCodeError(
            f"{name} cannot be read: {error}; what its code imports must be found here too"
        ) from None
    return found


def load_named(name: str) -> Any:
    """Return the class or function of that name; this runs code."""
    return load_object(name, pickle_of(name))


def file_name(name: str) -> str:
    """Return the name of a pickle's file in a run's directory."""
    return f"code-{_digest_in(name)}.pkl"


def read_beside(config: Path, tree: object) -> None:
    """Read the pickles that a configuration names, from beside it; none of them runs yet."""
    for name in names_in(tree):
        if name not in PICKLES:
            with suppress(OSError):  # its use raises an error then
                PICKLES[name] = read_file(config.parent / file_name(name))


def _pickle(thing: object, what: str) -> bytes:
    file = io.BytesIO()
    by_value = _unimportable_module(thing)
    if by_value is not None:
        cloudpickle.register_pickle_by_value(by_value)
    try:
        cloudpickle.dump(thing, file)
    except Exception as error:  # objects that it refers to may raise anything
        why = " ".join(str(error).split())
        raise UsageError(
            f"{what} {label_of(thing)} cannot be sent to other processes: {why}; define it in a "
            "module, and let it make there what cannot be sent"
        ) from error
    finally:
        if by_value is not None:
            cloudpickle.unregister_pickle_by_value(by_value)
    return pickle.dumps((PYTHON, file.getvalue()))


def _unimportable_module(thing: object) -> ModuleType | None:
    """Return the module of something, if it exists in this process only."""
    name = getattr(thing, "__module__", None)
    module = sys.modules.get(name) if isinstance(name, str) else None
    if module is None or module.__name__ == "__main__" or _is_importable(module.__name__):
        return None
    return module


def _is_importable(module: str) -> bool:
    """Return whether a fresh process with this search path finds the same module."""
    if module in ("__main__", "__mp_main__") or module not in sys.modules:
        return False
    parent, where = module.rpartition(".")[0], None
    if parent:
        if not _is_importable(parent):
            return False
        where = sys.modules[parent].__path__
    found = None
    for finder in sys.meta_path:  # `importlib.util.find_spec` would return what is imported
        found = found or finder.find_spec(module, where)
    here = getattr(sys.modules[module], "__file__", None)
    return found is not None and (found.origin, found.has_location) == (here, here is not None)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:DIGITS]


def _digest_in(name: str) -> str:
    return name.rpartition("-")[2]
