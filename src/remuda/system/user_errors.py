"""Find which exceptions come from the user's code, and from which line.

A run calls code that is not Remuda's, such as games. An exception of such code is reported with
its type, file and line; a traceback through Remuda would hide that.
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
from logging import Logger
from types import FrameType

import remuda
from remuda.errors import RemudaError, UserCodeError

LONGEST = 500  # characters of an exception's message that are shown
HOME = os.path.dirname(os.path.abspath(remuda.__file__)) + os.sep
ADAPTERS = os.path.join(HOME, "envs", "adapters") + os.sep
CALLS_FACTORIES = os.path.join(ADAPTERS, "user_envs.py")  # bad options cause bad calls there
STANDARD = tuple({sysconfig.get_path(key) + os.sep for key in ("stdlib", "platstdlib")})
USED_BY_REMUDA = {
    *("cloudpickle", "imageio", "llvmlite", "matplotlib", "numba", "numpy", "PIL", "psutil"),
    *("pydantic", "pydantic_core", "rich", "safetensors", "tensorboard", "torch", "tyro", "yaml"),
}
"""Libraries that Remuda itself calls. Their exceptions are an environment's fault only if its code
called them."""


@dataclass(frozen=True)
class _Place:
    file: str
    line: int
    function: str
    package: str  # the top-level package; empty for Python's library
    is_own: bool  # true if it is neither Remuda's nor an installed library's

    def line_in_file(self) -> str:
        within = "" if self.function == "<module>" else f", in {self.function}"
        return f"line {self.line}{within}"

    def __str__(self) -> str:
        return f"{_shown(self.file)}, {self.line_in_file()}"


def where_raised(error: BaseException, libraries: bool = True) -> str | None:
    """Describe an exception of the user's code in one line: its type, file, line and message.

    An exception is the user's if its traceback has a file outside Remuda and installed libraries.
    With `libraries`, so is an exception of a library that Remuda does not use itself, such as a
    game's, or of an adapter that failed on an environment's result.

    Args:
        error: the exception; its causes count too (`raise ... from error`).
        libraries: whether libraries and adapters count.

    Returns:
        For example `ValueError in your code (game.py, line 12, in step): no food`, or None.
    """
    causes = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    for cause in causes:
        own = [place for place in _places(cause) if place.is_own]
        if own:
            return _described(cause, "your code", own)
    for cause in causes if libraries else ():
        places = list(_places(cause))
        foreign = _of_a_library(places)
        if foreign:
            return _described(cause, foreign[0].package, foreign)
        last = places[-1].file if places else ""
        if last.startswith(ADAPTERS) and last != CALLS_FACTORIES:
            code = linecache.getline(places[-1].file, places[-1].line).strip()
            return (
                "the environment does not follow its library's interface: "
                f"{type(cause).__name__}: {' '.join(str(cause).split())}, at `{code}`"
            )
    return None


@contextmanager
def naming_user_code(log: Logger | None = None, libraries: bool = True) -> Iterator[None]:
    """Raise exceptions of the user's code as a `UserCodeError` that names the line.

    Also a decorator. `log` gets the whole traceback; for `libraries` see `where_raised`.
    """
    try:
        yield
    except RemudaError:
        raise
    except Exception as error:
        message = where_raised(error, libraries)
        if message is None:
            raise
        if log is not None:
            log.error("an exception of the user's code", exc_info=error)
        raise UserCodeError(message) from error


def _described(error: BaseException, whose: str, places: list[_Place]) -> str:
    last, first = places[-1], places[0]
    where = str(last)
    if (first.file, first.line) != (last.file, last.line):
        where += f", called from {first.line_in_file() if first.file == last.file else first}"
    words = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    if not words:  # `assert x > 0` has no message
        words = linecache.getline(last.file, last.line).strip()
    if len(words) > LONGEST:
        words = f"{words[:LONGEST]}..."
    return f"{type(error).__name__} in {whose} ({where})" + (f": {words}" if words else "")


def _places(error: BaseException) -> Iterator[_Place]:
    """Yield the lines that an exception passed through, the innermost last."""
    for frame, line in traceback.walk_tb(error.__traceback__):
        file, package = frame.f_code.co_filename, _package(frame)
        own = package not in ("", "remuda") and not _is_installed(file, package)
        yield _Place(file, line, frame.f_code.co_name, package, own)
    # A file that cannot be compiled has no frame.
    if isinstance(error, SyntaxError) and error.filename:
        own = not _is_installed(error.filename, "__main__")
        yield _Place(error.filename, error.lineno or 0, "<module>", "__main__", own)


def _of_a_library(places: list[_Place]) -> list[_Place]:
    """Return the lines after Remuda's last, if Remuda called a library that only games use."""
    after: list[_Place] = []
    for place in places:
        if place.package == "remuda":
            after = []
        elif after or place.package:
            after.append(place)
    return [] if not after or after[0].package in USED_BY_REMUDA else after


def _package(frame: FrameType) -> str:
    """Return the top-level package of a frame's code; empty for Python's library."""
    file = frame.f_code.co_filename
    name = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    if not file.startswith("<") and os.path.abspath(file).startswith(HOME):
        return "remuda"
    if name in ("__main__", "__mp_main__"):
        return "__main__" if file.startswith("<") or not _in_standard_library(file) else ""
    if name in sys.stdlib_module_names or _in_standard_library(file):
        return ""
    return name or "__main__"


def _is_installed(file: str, package: str) -> bool:
    """Return whether code belongs to an installed library, not to the user."""
    if file.startswith("<"):  # typed in, or generated by a library
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
    return not installed and path.startswith(STANDARD)


def _shown(file: str) -> str:
    """Return a file's name as a user knows it."""
    if re.search(r"ipykernel_\d+", file) or file.startswith("<ipython"):
        return "a notebook cell"
    if file.startswith("<"):
        return file
    below = os.path.relpath(file) if os.path.isabs(file) else file
    return file if below.startswith(os.pardir) else below
