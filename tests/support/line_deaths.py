"""Deaths of a process at every line of the code that is watched."""

import sys
from collections.abc import Callable, Iterator
from itertools import count
from types import ModuleType


class DiedError(BaseException):
    """The process is gone: nothing of it may clear anything away."""


def die():
    raise DiedError


class AtLine:
    """A context that runs `action` after `line` lines of the watched modules: by default it dies.

    A death ends the context quietly. `reached` says whether the code came that far. With `again`
    the action also runs at all later lines.
    """

    def __init__(
        self,
        line: int,
        modules: tuple[ModuleType, ...],
        action: Callable[[], object] = die,
        again: bool = False,
    ):
        self.line, self.left, self.action, self.again = line, line, action, again
        self.reached = False
        self._files = {module.__file__ for module in modules}

    def at_line(self, place: tuple[str, int]) -> None:
        """Count a line, which is a file and its number there."""
        self.left -= 1
        if self.left < 0 and (self.again or not self.reached):
            self.reached = True
            sys.settrace(None)
            self.action()
            sys.settrace(self._trace)

    def _trace(self, frame, event, argument):
        if frame.f_code.co_filename not in self._files:
            return None
        if event == "line":
            self.at_line((frame.f_code.co_filename, frame.f_lineno))
        return self._trace

    def __enter__(self):
        sys.settrace(self._trace)
        return self

    def __exit__(self, kind, error, trace):
        sys.settrace(None)
        return kind is DiedError


def crash_at_each_line(
    modules: tuple[ModuleType, ...],
    stride: int = 1,
    action: Callable[[], object] = die,
    again: bool = False,
) -> Iterator[AtLine]:
    """Yield a context for every line, or every `stride`th; the last is the first not reached."""
    for line in count(0, stride):
        crash = AtLine(line, modules, action, again)
        yield crash
        if not crash.reached:
            return
