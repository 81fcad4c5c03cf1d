"""Which exceptions come from the user's code, and from where in it.

A run calls code that is not Remuda's: games above all. What such code raises is told as its own,
with the type, the file and the line; a traceback through Remuda would hide that.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from logging import Logger
from types import FrameType

from remuda.errors import RemudaError, UserCodeError

LONGEST = 500
"""Characters of an exception's own words that are shown."""
USED_BY_REMUDA = {
    *("cloudpickle", "imageio", "llvmlite", "matplotlib", "numba", "numpy", "PIL", "psutil"),
    *("pydantic", "pydantic_core", "rich", "safetensors", "tensorboard", "torch", "tyro", "yaml"),
}
"""Libraries that Remuda itself calls: what they raise without the user's code between is no fault
of a game."""


@dataclass(frozen=True)
class _Place:
    """A line of code that an exception passed through."""

    file: str
    line: int
    function: str
    package: str
    """The package at the top; empty: Python's own library."""
    is_own: bool
    """Whether it lies neither in Remuda nor in an installed library."""

    def line_in_file(self) -> str:
        """The line, without the file."""
        within = "" if self.function == "<module>" else f", in {self.function}"
        return f"line {self.line}{within}"

    def __str__(self) -> str:
        return f"{_shown(self.file)}, {self.line_in_file()}"


def where_raised(error: BaseException, libraries: bool = True) -> str | None:
    """Tell an exception of the user's code in one line: its type, file, line and words.

    That is where the user's own files are among the calls that led to it: those which are neither
    Remuda's nor of an installed library. Without any, it is where Remuda called a library that it
    does not use itself, as that of a game, or the line of an adapter that could not do with what an
    environment answered.

    Args:
        error: the exception; one that it was raised from counts too (`raise ... from error`).
        libraries: whether that of such a library, and an adapter's, counts.

    Returns:
        As in `ValueError in your code (game.py, line 12, in step): no food`. None: it does not
        come from the user's code.
    """
    seen: BaseException | None = error
    while seen is not None:
        places = list(_places(seen))
        own = [place for place in places if place.is_own]
        if own:
            return _told(seen, "your code", own)
        seen = seen.__cause__
    seen = error
    while libraries and seen is not None:
        places = list(_places(seen))
        foreign = _of_a_library(places)
        if foreign:
            return _told(seen, foreign[0].package, foreign)
        if places and places[-1].file.startswith(_adapters()):
            return _told_of_an_answer(seen, places[-1])
        seen = seen.__cause__
    return None


@contextmanager
def naming_user_code(log: Logger | None = None) -> Iterator[None]:
    """Raise what the user's code raises as a `UserCodeError` that tells where; also a decorator.

    Args:
        log: where the whole traceback is kept.

    Raises:
        UserCodeError: the user's code raised; other exceptions pass as they are.
    """
    try:
        yield
    except RemudaError:
        raise
    except Exception as error:
        told = where_raised(error)
        if told is None:
            raise
        if log is not None:
            log.error("an exception of the user's code", exc_info=error)
        raise UserCodeError(told) from error


def _told(error: BaseException, whose: str, places: list[_Place]) -> str:
    last, first = places[-1], places[0]
    where = str(last)
    if (first.file, first.line) != (last.file, last.line):
        where += f", called from {first.line_in_file() if first.file == last.file else first}"
    words = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    if not words:  # `assert x > 0` says nothing but itself
        words = linecache.getline(last.file, last.line).strip()
    if len(words) > LONGEST:
        words = f"{words[:LONGEST]}..."
    return f"{type(error).__name__} in {whose} ({where})" + (f": {words}" if words else "")


def _told_of_an_answer(error: BaseException, place: _Place) -> str:
    code = linecache.getline(place.file, place.line).strip()
    return (
        "the environment does not do what its library says: "
        f"{type(error).__name__}: {' '.join(str(error).split())}, at `{code}`"
    )


def _places(error: BaseException) -> Iterator[_Place]:
    """The lines that an exception passed through, the innermost last."""
    for frame, line in traceback.walk_tb(error.__traceback__):
        file, package = frame.f_code.co_filename, _package(frame)
        own = package not in ("", "remuda") and not _is_installed(file, package)
        yield _Place(file, line, frame.f_code.co_name, package, own)
    # A file that cannot be compiled has no line that runs.
    if isinstance(error, SyntaxError) and error.filename:
        own = not _is_installed(error.filename, "__main__")
        yield _Place(error.filename, error.lineno or 0, "<module>", "__main__", own)


def _of_a_library(places: list[_Place]) -> list[_Place]:
    """What follows the last line of Remuda, where that called a library of a game's."""
    after: list[_Place] = []
    for place in places:
        if place.package == "remuda":
            after = []
        elif after or place.package:
            after.append(place)
    return [] if not after or after[0].package in USED_BY_REMUDA else after


def _package(frame: FrameType) -> str:
    """The package at the top that a frame's code belongs to; empty: Python's own library."""
    file = frame.f_code.co_filename
    name = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    if not file.startswith("<") and os.path.abspath(file).startswith(_home()):
        return "remuda"
    if name in ("__main__", "__mp_main__"):
        return "__main__" if file.startswith("<") or not _in_standard_library(file) else ""
    if name in sys.stdlib_module_names or _in_standard_library(file):
        return ""
    return name or "__main__"


def _is_installed(file: str, package: str) -> bool:
    """Whether code is of an installed library, and not the user's own file."""
    if file.startswith("<"):  # typed in, or made by a library: judged by who made it
        if package == "__main__":
            return False
        module = sys.modules.get(package)
        file = getattr(module, "__file__", None) or ""
    parts = os.path.abspath(file).split(os.sep) if file else []
    return "site-packages" in parts or "dist-packages" in parts


def _in_standard_library(file: str) -> bool:
    if file.startswith("<"):
        return file.startswith("<frozen ")
    path = os.path.abspath(file)
    installed = "site-packages" in path or "dist-packages" in path
    return not installed and path.startswith(_standard_library())


@cache
def _home() -> str:
    return os.path.dirname(os.path.abspath(__file__)) + os.sep


@cache
def _adapters() -> str:
    return os.path.join(_home(), "envs", "adapters") + os.sep


@cache
def _standard_library() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple({paths[key] + os.sep for key in ("stdlib", "platstdlib")})


def _shown(file: str) -> str:
    """A file as a user knows it."""
    if re.search(r"ipykernel_\d+", file) or file.startswith("<ipython"):
        return "a notebook cell"
    if file.startswith("<"):
        return file
    below = os.path.relpath(file) if os.path.isabs(file) else file
    return file if below.startswith(os.pardir) else below
