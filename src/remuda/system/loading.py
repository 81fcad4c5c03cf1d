"""Names for the user's classes and functions, and functions that load them.

A run knows its game, and the user's algorithms, networks, matchmakers and directors, by the names
in its config.yaml. A class or function of a module is `module:Class`. The directories of such
modules are saved next to config.yaml and searched last, so that the run can be opened from
anywhere. A class of a script or a notebook cell is pickled by value, and its name is
`pickled:Class-DIGEST`. The pickle is next to config.yaml too, as `code-DIGEST.pkl`, and processes
of the run get a copy.

Reading a pickle runs code. Pickles and directories of runs that the user did not make are used only
if the user allows it (`remuda.system.trust`). A game's pickle is read when the game is made, an
algorithm's when a run starts or its policies play, and a network's when the network is made;
modules are imported at the same times.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import logging
import os
import pickle
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib.machinery import PathFinder
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

import cloudpickle

import remuda
from remuda.errors import ConfigError, MissingCodeError, RemudaError, UsageError, UserCodeError
from remuda.system.checkpoint.opening import checked, read_file
from remuda.system.trust import (
    Foreign,
    add_foreign,
    allow,
    check_call,
    check_import,
    foreign,
    is_own,
)
from remuda.system.user_errors import is_installed, where_raised

T = TypeVar("T")
log = logging.getLogger(__name__)

PREFIX = "pickled:"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
"""The Python version of pickled code, which no other version can run."""

PATHS = "code-paths.json"  # the file of a run that lists the directories of its modules
LARGEST = 1 << 20  # maximum size of that file in bytes

PICKLES: dict[str, bytes] = {}  # known pickles, by their names
OBJECTS: dict[str, object] = {}  # the objects of pickles, made or read by this process
_directories: dict[str, None] = {}  # module directories of all runs opened here, in order
_foreign: dict[str, Path] = {}  # the files of pickles that this user did not sign, by their names
# The files, with their content, that list directories which this user did not sign.
_foreign_directories: dict[str, tuple[Path, bytes]] = {}
_files: dict[str, str] = {}  # the file of each module when its run started
_warned: set[str] = set()


def load(path: str, key: str) -> Any:
    """Load `module:Name` (the name may have dots), or a pickle by its name."""
    if is_pickled(path):
        try:
            return load_object(path, pickle_of(path))
        except MissingCodeError as error:
            raise MissingCodeError(f"{key}: {error}") from error
    try:
        return find_named(path)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{key}: {error}; name your own as module:Class") from None


def find_named(path: str) -> Any:
    """Import the class or function `module:Name`; the name may have dots."""
    module, _, name = path.partition(":")
    found = attrgetter(name)(import_module(module))
    check_call(path, found)
    return found


def import_module(name: str) -> Any:
    """Import a user's module, also from the directories of opened runs."""
    check_import(name)
    try:
        found = _searching(lambda: importlib.import_module(name))
        _warn_of_other_file(name)
        return found
    except RemudaError:
        raise
    except Exception as error:
        message = where_raised(error, libraries=not isinstance(error, ImportError | ValueError))
        if message is None:
            raise
        raise UserCodeError(message) from error


def _searching(find: Callable[[], T]) -> T:
    """Call `find`; if a module is missing, search the directories of opened runs and call again."""
    try:
        return find()
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        new = [
            path
            for path in _directories
            if path not in sys.path and os.path.isdir(path) and _may_search(path, module)
        ]
        if not new:
            raise
        sys.path.extend(new)
        importlib.invalidate_caches()
        return find()


def _may_search(directory: str, module: str) -> bool:
    """Return whether to search a directory; a foreign one only if it has the module."""
    if directory not in _foreign_directories:
        return True
    if not module or PathFinder.find_spec(module, [directory]) is None:
        return False
    path, data = _foreign_directories[directory]
    allow(path, data, f"opening it imports {module} from {directory}")
    del _foreign_directories[directory]
    return True


def _own_directories() -> list[str]:
    return [x for x in _directories if x in sys.path or x not in _foreign_directories]


def _warn_of_other_file(module: str) -> None:
    """Warn once if a module is another file than at the start of its run."""
    name = module.partition(".")[0]
    file, before = getattr(sys.modules.get(name), "__file__", None), _files.get(name)
    if file is None or before is None or name in _warned or os.path.abspath(file) == before:
        return
    _warned.add(name)
    log.warning("the module %s is %s here; when the run started it was %s", name, file, before)


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
    elif isinstance(tree, Mapping | list | tuple):
        for part in tree.values() if isinstance(tree, Mapping) else tree:
            yield from texts_in(part)


def called_in(tree: object) -> set[str]:
    """Return the texts such as `module:Name` in a tree of plain data."""
    return {text for text in texts_in(tree) if ":" in text}


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
    """Return `tree` with the pickle names of `other` if they differ only in the digest.

    So code that the user has corrected does not count as a difference.
    """
    if isinstance(tree, str) and isinstance(other, str):
        same = is_pickled(other) and without_digest(tree) == without_digest(other)
        return other if same else tree
    if isinstance(tree, Mapping) and isinstance(other, Mapping):
        return {key: with_digests_of(part, other.get(key)) for key, part in tree.items()}
    return tree


class Code(NamedTuple):
    """The user code of a tree of plain data, as another process needs it."""

    pickles: dict[str, bytes]
    directories: tuple[str, ...]  # of modules; searched last
    files: dict[str, str]  # of modules when their run started
    foreign: Foreign


def code_of(tree: object) -> Code:
    """Return the known code that a tree refers to, to be sent with it."""
    pickles = {name: pickle_of(name) for name in names_in(tree) if name in PICKLES}
    for name in called_in(tree):
        check_call(name)  # other processes cannot ask
    return Code(pickles, tuple(_own_directories()), dict(_files), foreign())


def add_code(code: Code) -> None:
    """Add code from another process; none of it runs yet."""
    PICKLES.update(code.pickles)
    _directories.update(dict.fromkeys(code.directories))
    _files.update(code.files)
    add_foreign(code.foreign)


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
    """Return `module:Class`, by which a fresh process can import it; None if it cannot."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or not _is_importable(module):
        return None
    try:
        imported = attrgetter(name)(sys.modules[module])
    except AttributeError:  # within a function, or replaced
        return None
    return f"{module}:{name}" if imported is thing else None


def pickle_of(name: str) -> bytes:
    """Return the pickle of that name, or raise a `MissingCodeError`."""
    if name not in PICKLES:
        raise MissingCodeError(
            f"the code of {name} is missing: code of a script or a notebook is saved in its "
            f"run's directory as {file_name(name)}; open that run, or pass the class or "
            "function itself to remuda.train"
        )
    if name in _foreign:
        allow(_foreign[name], PICKLES[name])
        del _foreign[name]
    return PICKLES[name]


def load_object(name: str, data: bytes) -> Any:
    """Return the class or function in a pickle; this runs code."""
    if name in OBJECTS:
        return OBJECTS[name]
    if name.rpartition("-")[2] != _digest(data):
        raise MissingCodeError(
            f"{file_name(name)}, the code of {name}, is damaged or does not match"
        )
    python, code = pickle.loads(data)
    if python != PYTHON:
        raise MissingCodeError(
            f"{name} was written by Python {python}, and this is Python {PYTHON}, which cannot run "
            f"its code: use Python {python}, or define it in a module"
        )
    try:
        loaded = OBJECTS[name] = _searching(lambda: pickle.loads(code))
    except (ImportError, AttributeError) as error:
        raise MissingCodeError(
            f"{name} cannot be read: {error}; install here the modules that its code imports"
        ) from None
    return loaded


def file_name(name: str) -> str:
    """Return the name of a pickle's file in a run's directory."""
    _, _, digest = name.rpartition("-")
    return f"code-{digest}.pkl"


def found_here(tree: object) -> dict[str, object]:
    """Return the directories and files of the user's modules in this process, to be saved.

    `tree` is the configuration, in which texts such as `module:Class` refer to code.
    """
    own = [path for entry in sys.path if _is_own(path := os.path.abspath(entry or os.getcwd()))]
    files = {}
    for text in texts_in(tree):
        name = text.partition(":")[0].partition(".")[0]
        file = getattr(sys.modules.get(name), "__file__", None) if ":" in text else None
        if file is not None and _is_own(os.path.dirname(file)):
            files[name] = os.path.abspath(file)
    return {"directories": list(dict.fromkeys([*own, *_own_directories()])), "modules": files}


def _is_own(directory: str) -> bool:
    """Return whether a directory holds the user's modules, not installed modules."""
    above_remuda = os.path.dirname(os.path.dirname(remuda.__file__))
    is_remuda = f"{directory}/".startswith(f"{above_remuda}/")
    return os.path.isdir(directory) and not is_remuda and not is_installed(directory)


def read_beside(config: Path, tree: object) -> None:
    """Read the files next to a configuration: its pickles, and the directories of its modules.

    No code runs yet.
    """
    for name in names_in(tree):
        if name not in PICKLES:
            with suppress(OSError):  # using the missing pickle raises an error later
                path = config.parent / file_name(name)
                PICKLES[name] = read_file(path)
                if not is_own(path, PICKLES[name]):
                    _foreign[name] = path
    path = config.parent / PATHS
    with suppress(OSError, ValueError):
        kinds = {"directories": list, "modules": dict}
        data = read_file(path, LARGEST)
        paths = checked(json.loads(data), kinds)
        directories = dict.fromkeys(map(str, paths["directories"]))
        for directory in directories:
            if is_own(path, data):
                _foreign_directories.pop(directory, None)
            elif directory not in _directories:
                _foreign_directories[directory] = path, data
        _directories.update(directories)
        _files.update({str(name): str(path) for name, path in paths["modules"].items()})


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
            "module, and create there the objects that cannot be pickled"
        ) from error
    finally:
        if by_value is not None:
            cloudpickle.unregister_pickle_by_value(by_value)
    return pickle.dumps((PYTHON, file.getvalue()))


def _unimportable_module(thing: object) -> ModuleType | None:
    """Return the module of an object, if it exists in this process only."""
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
    spec = None
    for finder in sys.meta_path:  # `importlib.util.find_spec` would return the imported module
        spec = spec or finder.find_spec(module, where)
    file = getattr(sys.modules[module], "__file__", None)
    return spec is not None and (spec.origin, spec.has_location) == (file, file is not None)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:8]
