"""The entry point of a child that is spawned as a fresh interpreter."""

from __future__ import annotations

import os
from collections.abc import Sequence

from remuda.forkserver import child


def main(recipe: int, lifeline: int | None, own: Sequence[int]) -> None:
    """Ignore the parent's signals, and execute a recipe.

    `own` are descriptors that programs started by this process do not inherit: the recipe, the
    lifeline, and the one whose closing marks its end.
    """
    child.ignore_held_signals()
    for descriptor in own:
        os.set_inheritable(descriptor, False)
    child.main(recipe, lifeline)
