"""Tells the coordinator while a role compiles, which is neither play nor silence."""

from __future__ import annotations

from typing import Any

from numba.core import event

from remuda.runtime.control import Control


class CompileListener(event.Listener):
    """Notes in a role's words when Numba begins to compile a function, and when it has done so.

    What was compiled before is loaded from the disk, and is not told.
    """

    def __init__(self, control: Control, index: int) -> None:
        self._control, self._index = control, index
        self._depth = 0

    def on_start(self, event: Any) -> None:  # noqa: ARG002
        """A function is compiled, maybe for another that calls it."""
        self._depth += 1
        self._control.tell_compiling(self._index, True)

    def on_end(self, event: Any) -> None:  # noqa: ARG002
        """It is done."""
        self._depth -= 1
        if not self._depth:
            self._control.tell_compiling(self._index, False)


def tell_compiling(control: Control, index: int) -> None:
    """From now on, tell what this process compiles as that of a role."""
    event.register("numba:compile", CompileListener(control, index))  # type: ignore[no-untyped-call]
