"""A cache of compiled functions, keyed by everything they were compiled from.

Numba's cache only checks the file of the function itself. A kernel also depends on other files:
functions that it calls, constants, the order of a NamedTuple's fields. A stale kernel would read
and write the wrong places of shared memory. Here everything that a kernel refers to is part of its
key.

The files are where Numba puts them (next to the source, under `__pycache__`). Their names contain
the processor type, so that different machines may share an installation. Any number of processes
may read and write them: each file is written under a unique name and renamed. If two write at the
same time, one of them may have to compile again.
"""

# mypy: disallow-untyped-calls=False

from __future__ import annotations

import enum
import hashlib
import inspect
import uuid
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar, cast

import llvmlite.binding
import numba
import numpy as np
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic
from numba.core.types import BaseTuple, Type

Function = TypeVar("Function", bound=Callable[..., Any])


def njit(**options: Any) -> Callable[[Function], Function]:
    """Compile a function as `numba.njit` does; `cache=True` keeps it for later processes."""
    keep = options.pop("cache", False)

    def compiled(function: Function) -> Function:
        # Read it now: before the first call the user may edit the imported file.
        _contents(inspect.getfile(function))
        kernel: Any = numba.njit(**options)(function)
        if keep and hasattr(kernel, "_cache"):  # False if NUMBA_DISABLE_JIT is set
            kernel._cache = KernelCache(kernel)
        return cast(Function, kernel)

    return compiled


class KernelCache(FunctionCache):
    """A cache of compiled functions, keyed by everything they were made from."""

    def __init__(self, kernel: Dispatcher) -> None:
        super().__init__(kernel.py_func)
        self._cache_file = KernelFiles(kernel, self._cache_path, self._impl.filename_base)

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        fields = [_fields(argument) for argument in getattr(sig, "args", sig)]
        # With NUMBA_BOUNDSCHECK=1 kernels are compiled with bounds checks, and kept separately.
        checks = bool(numba.config.BOUNDSCHECK)  # type: ignore[attr-defined]
        return (*super()._index_key(sig, codegen), repr(fields), checks)


class KernelFiles(IndexDataCacheFile):
    """The files of one kernel: an index by types of arguments, and the code compiled for each."""

    def __init__(self, kernel: Dispatcher, folder: str, base: str) -> None:
        super().__init__(folder, f"{base}-{machine()}", source_stamp=None)
        self._kernel = kernel

    def load(self, key: Any) -> Any:
        """Return the code for `key`, or None if it is missing or damaged."""
        self._find_stamp()
        try:
            return super().load(key)
        except Exception:  # unpickling may raise anything
            return None

    def save(self, key: Any, data: Any) -> None:
        """Write code under a new file name, and then add the name to the index."""
        self._find_stamp()
        try:
            overloads = dict(self._load_index())
        except Exception:
            overloads = {}
        if not overloads:
            for old in Path(self._cache_path).glob(f"{self._index_name[:-4]}.*.nbc"):
                old.unlink(missing_ok=True)
        overloads[key] = f"{self._index_name[:-4]}.{uuid.uuid4().hex[:12]}.nbc"
        self._save_data(overloads[key], data)
        self._save_index(overloads)

    def _find_stamp(self) -> None:
        # Done here because names that a kernel refers to may be undefined when it is defined.
        if self._source_stamp is None:
            self._source_stamp = digest(self._kernel)


@cache
def machine() -> str:
    """Return a short digest of the processor type and Numba's version.

    It is part of file names: on a shared installation each processor type has separate files, and a
    process removes only those of its type.
    """
    config: Any = numba.config
    name = config.CPU_NAME or llvmlite.binding.get_host_cpu_name()
    features = config.CPU_FEATURES or llvmlite.binding.get_host_cpu_features().flatten()
    words = f"{name} {features} {numba.__version__}"
    return hashlib.sha256(words.encode()).hexdigest()[:8]


def digest(kernel: Dispatcher) -> str:
    """Return a digest of everything a kernel refers to: files of functions, and values."""
    references = _References()
    references.value("", kernel)
    return hashlib.sha256("\n".join(sorted(references.found)).encode()).hexdigest()


PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic, np.dtype, Type, enum.Enum)
"""Types whose `repr` shows the complete value."""


class _References:
    """Everything that a kernel refers to, directly or indirectly, as text."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self._seen: set[int] = set()

    def value(self, name: str, value: Any) -> None:
        """Add all of `value` that a compiled function can depend on."""
        if isinstance(value, PLAIN):
            self.found.add(f"{name} = {value!r}")
        elif isinstance(value, tuple | list):
            self.found.add(f"{name}: {type(value).__qualname__} of {len(value)}")
            for position, part in enumerate(value):
                self.value(f"{name}[{position}]", part)
        elif isinstance(value, set | frozenset):  # whose order differs between processes
            self.found.add(f"{name}: {sorted(map(repr, value))!r}")
        elif isinstance(value, np.ndarray):
            contents = hashlib.sha256(value.tobytes()).hexdigest()
            self.found.add(f"{name}: {value.dtype} {value.shape} {contents}")
        elif isinstance(value, type) and issubclass(value, enum.Enum):
            self.found.add(f"{name}: {[(m.name, m.value) for m in value]!r}")
        elif isinstance(value, type):
            fields = getattr(value, "_fields", ()), getattr(value, "_field_defaults", {})
            self.found.add(f"{name}: {value.__module__}.{value.__qualname__} {fields!r}")
        elif id(value) not in self._seen:
            self._seen.add(id(value))
            if isinstance(value, Dispatcher):
                for option, choice in sorted(value.targetoptions.items()):
                    self.value(f"option {option}", choice)
                self._function(value.py_func)
            elif isinstance(value, FunctionType):
                self._function(value)
            elif isinstance(value, _Intrinsic):
                self._function(value._defn)

    def _function(self, function: Any) -> None:
        self.found.add(_contents(inspect.getfile(function)))
        names = set(_names(function.__code__))
        values = function.__globals__
        for name in names & values.keys():
            if isinstance(values[name], ModuleType):
                of_module = vars(values[name])
                for attribute in names & of_module.keys():
                    if not isinstance(of_module[attribute], ModuleType | FunctionType):
                        self.value(f"{name}.{attribute}", of_module[attribute])
            else:
                self.value(name, values[name])
        cells = function.__closure__ or ()
        for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
            self.value(name, cell.cell_contents)


def _names(code: CodeType) -> Iterable[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _fields(argument: Any) -> Any:
    """Return the field names of NamedTuples, which types of arguments do not distinguish."""
    if isinstance(argument, BaseTuple):
        inner = [_fields(part) for part in argument.types]  # type: ignore[attr-defined]
        return [getattr(argument, "fields", None), inner]
    return None


@cache
def _contents(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:  # in a notebook's cell or a zip file
        return path
