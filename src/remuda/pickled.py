"""Code of the user's that is given as classes and functions: named, or pickled by value.

A run knows its game, and algorithms, networks, matchmakers and directors of the user's, by names
that stand in its config.yaml. A class or function of a module is `module:Class`. One of a script or
a notebook cell is found by no other process: it is pickled by value, and its name is
`pickled:Class-DIGEST`. The pickle lies in the run's directory, beside config.yaml, as
`code-DIGEST.pkl`, and processes of the run are sent it.

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
"""The version that pickled code is of: another one cannot run it."""

PICKLES: dict[str, bytes] = {}
"""By name, the pickles that this process knows."""
OBJECTS: dict[str, object] = {}
"""By name, what they are of: what this process was given, or has read."""


def is_pickled(name: str) -> bool:
    """Whether a name is that of a pickle."""
    return name.startswith(PREFIX)


def without_digest(name: str) -> str:
    """A pickle's name without what tells its code from other code; others as they are."""
    return name.partition("-")[0] if is_pickled(name) else name


def names_in(tree: object) -> Iterator[str]:
    """The names of pickles in a tree of plain data."""
    return filter(is_pickled, texts_in(tree))


def texts_in(tree: object) -> Iterator[str]:
    """All texts in a tree of plain data, but for its keys."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, Mapping):
        for part in tree.values():
            yield from texts_in(part)
    elif isinstance(tree, list | tuple):
        for part in tree:
            yield from texts_in(part)


def without_digests(tree: Any) -> Any:
    """A tree of plain data in which the names of pickles tell nothing of their code."""
    if isinstance(tree, str):
        return without_digest(tree)
    if isinstance(tree, Mapping):
        return {key: without_digests(part) for key, part in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(without_digests(part) for part in tree)
    return tree


def with_digests_of(tree: Any, other: Any) -> Any:
    """A tree whose pickles are those of the same place in another, where they are called alike.

    So code that was mended is no difference between the two.
    """
    if isinstance(tree, str) and isinstance(other, str):
        same = is_pickled(other) and without_digest(tree) == without_digest(other)
        return other if same else tree
    if isinstance(tree, Mapping) and isinstance(other, Mapping):
        return {key: with_digests_of(part, other.get(key)) for key, part in tree.items()}
    return tree


def pickles_in(tree: object) -> dict[str, bytes]:
    """By name, the pickles that a tree names and this process knows: to be sent along with it."""
    return {name: PICKLES[name] for name in names_in(tree) if name in PICKLES}


def add_pickles(pickles: Mapping[str, bytes]) -> None:
    """Know what another process sent; nothing of it is run yet."""
    PICKLES.update(pickles)


def name_object(thing: object, what: str) -> str:
    """A name for a class or a function, by which this process and its children find it.

    Args:
        thing: the class or function.
        what: what it is, for messages: `the game`.

    Raises:
        UsageError: it cannot be pickled.
    """
    path = import_path(thing)
    if path is not None:
        return path
    data = _pickle(thing, what)
    label = re.sub(r"\W+", "_", label_of(thing)).strip("_")
    name = f"{PREFIX}{label}-{_digest(data)}"
    PICKLES[name], OBJECTS[name] = data, thing
    return name


def label_of(thing: object) -> str:
    """What a class, a function or a `functools.partial` of one is called."""
    while hasattr(thing, "func"):
        thing = thing.func
    return str(getattr(thing, "__name__", type(thing).__name__))


def import_path(thing: object) -> str | None:
    """`module:Class`, by which a fresh process can import it; None: it cannot."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or not _is_importable(module):
        return None
    try:
        found = attrgetter(name)(sys.modules[module])
    except AttributeError:  # within a function, or replaced
        return None
    return f"{module}:{name}" if found is thing else None


def pickle_of(name: str) -> bytes:
    """The pickle of that name.

    Raises:
        MissingCodeError: this process does not know it.
    """
    if name not in PICKLES:
        raise MissingCodeError(
            f"the code of {name} is not there: what is defined in a script or a notebook lies in "
            f"its run's directory as {file_name(name)}; open that run, or give the class or "
            "function itself to remuda.train"
        )
    return PICKLES[name]


def load_object(name: str, data: bytes) -> Any:
    """The class or function in a pickle; this runs code.

    Raises:
        MissingCodeError: it is damaged, of another Python, or imports what is not there.
    """
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
    """The class or function of that name; this runs code.

    Raises:
        MissingCodeError: this process does not know it, or it cannot be read here.
    """
    return load_object(name, pickle_of(name))


def file_name(name: str) -> str:
    """The file in a run's directory that holds a pickle."""
    return f"code-{_digest_in(name)}.pkl"


def read_beside(config: Path, tree: object) -> None:
    """Know the pickles that a configuration names and that lie beside it; nothing is run yet."""
    for name in names_in(tree):
        # Runs that were begun before networks could be given have one as game-DIGEST.pkl.
        for file in (file_name(name), f"game-{_digest_in(name)}.pkl"):
            if name not in PICKLES:
                with suppress(OSError):  # using it raises an error then
                    PICKLES[name] = read_file(config.parent / file)


def _pickle(thing: object, what: str) -> bytes:
    file = io.BytesIO()
    by_value = _unimportable_module(thing)
    if by_value is not None:
        cloudpickle.register_pickle_by_value(by_value)
    try:
        cloudpickle.dump(thing, file)
    except Exception as error:  # whatever the objects that it refers to raise
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
    """The module that something was defined in, if it exists in this process only."""
    name = getattr(thing, "__module__", None)
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


def _digest_in(name: str) -> str:
    return name.rpartition("-")[2]
