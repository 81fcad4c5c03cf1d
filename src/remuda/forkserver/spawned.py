"""Where a child begins that is spawned as a fresh interpreter."""

from __future__ import annotations

import os

from remuda.forkserver import child


def main(recipe: int, lifeline: int | None) -> None:
    """Ignore what is the parent's to act on, and do what the recipe says."""
    child.ignore_held_signals()
    for descriptor in (recipe, lifeline):
        if descriptor is not None:
            os.set_inheritable(descriptor, False)
    child.main(recipe, lifeline)
