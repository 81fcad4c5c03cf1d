"""Exclude ("freeze") long-lived objects from garbage collection during a run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

ITS_OWN = 1_000
"""Maximum number of objects that the interpreter itself freezes; Python 3.12 freezes 375."""


class _State:
    """The state of this process, for its main thread only."""

    laid_aside = False  # true if a run left objects frozen, because other code had frozen some


def is_laid_aside_by_others() -> bool:
    """Return whether other code froze objects of this process."""
    return gc.get_freeze_count() > ITS_OWN


@contextmanager
def passed_over() -> Iterator[None]:
    """Exclude all existing objects from garbage collections inside the `with`.

    A full collection visits 300,000 objects of the libraries and takes a tenth of a second. If
    other code froze objects before, all objects stay frozen at the end. Garbage of an earlier run
    is collected first.
    """
    by_others = is_laid_aside_by_others()
    if by_others and _State.laid_aside:  # some frozen objects may be garbage by now
        gc.unfreeze()
    gc.collect()
    gc.freeze()
    _State.laid_aside = by_others
    try:
        yield
    finally:
        if not by_others:
            gc.unfreeze()
