"""What garbage collections pass over while a run goes on."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

ITS_OWN = 1_000
"""Objects that an interpreter may lay aside itself as it starts; Python 3.12 does so with 375."""


class _State:
    """Of this process; touched by its main thread only."""

    laid_aside = False
    """Whether a run has laid objects aside beside those of others, and left them there."""


def is_laid_aside_by_others() -> bool:
    """Whether somebody chose to lay objects of this process aside."""
    return gc.get_freeze_count() > ITS_OWN


@contextmanager
def passed_over() -> Iterator[None]:
    """Inside the `with`, let garbage collections pass over all objects that were there before.

    A full one looks at all that Python holds, which with the libraries is 300,000 objects and takes
    a tenth of a second, in the middle of a tick. Where some were passed over before, by the choice
    of others, all of them stay so. What is left of an earlier run, its open files too, is not kept.
    """
    by_others = is_laid_aside_by_others()
    if by_others and _State.laid_aside:  # some of it may be garbage by now
        gc.unfreeze()
    gc.collect()
    gc.freeze()
    _State.laid_aside = by_others
    try:
        yield
    finally:
        if not by_others:
            gc.unfreeze()
