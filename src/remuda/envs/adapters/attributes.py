"""Read the attributes of an environment past PettingZoo's wrappers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

NAMES = (
    *("agents", "agent_selection", "rewards", "_cumulative_rewards"),
    *("terminations", "truncations", "infos"),
)
"""The attributes that an AEC environment changes in a step."""


def reader_of(copy: Any) -> Callable[[str], Any]:
    """Return a function that reads one of `NAMES`, as `getattr(copy, name)` does.

    PettingZoo's wrappers forward an attribute by a Python call each, which takes as long as a step
    of a small game.
    """
    wrappers, inner = [], copy
    while _only_forwards(inner):
        wrappers.append(vars(inner))
        inner = inner.env

    def read(name: str) -> Any:
        for own in wrappers:
            if name in own:
                return own[name]
        return getattr(inner, name)

    return read


def _only_forwards(layer: Any) -> bool:
    """Return whether a layer reads attributes from its own dictionary, then from what it wraps."""
    try:
        from pettingzoo.utils.wrappers import BaseWrapper, OrderEnforcingWrapper
    except ImportError:
        return False
    kind: Any = type(layer)
    forwards = (BaseWrapper.__getattr__, OrderEnforcingWrapper.__getattr__)
    return (
        isinstance(layer, BaseWrapper)
        and kind.__getattr__ in forwards
        and kind.__getattribute__ is object.__getattribute__
        and not any(hasattr(kind, name) for name in NAMES)
    )
