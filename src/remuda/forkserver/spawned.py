"""Where a child begins that is spawned as a fresh interpreter."""

from __future__ import annotations

import os
from collections.abc import Sequence

from remuda.forkserver import child


def main(recipe: int, lifeline: int | None, own: Sequence[int]) -> None:
    """Ignore what is the parent's to act on, and do what the recipe says.

    Args:
        recipe: a descriptor at the beginning of the file that `Recipe.write` wrote.
        lifeline: the read end of the parent's lifeline; None: it does not matter.
        own: descriptors that programs started by this process do not get: both of these, and the
            one whose closing tells of its end.
    """
    child.ignore_held_signals()
    for descriptor in own:
        os.set_inheritable(descriptor, False)
    child.main(recipe, lifeline)
