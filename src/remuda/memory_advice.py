"""Choose the setting to reduce if a run does not fit into memory: the most unusual one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from remuda.config import Config, PolicyConfig
from remuda.policies.spec import PolicySpec

USUAL = {"network.recurrent": 128.0}  # substitutes for defaults of zero


def keys_of(config: Config, spec: PolicySpec, *keys: str) -> tuple[str, ...]:
    """Return keys of a policy's settings: `policies.NAME.KEY` if set there, else `policy.KEY`."""
    own = config.policies.get(spec.name, {})
    return tuple(
        dict.fromkeys(
            f"policy.{key}" if _at(own, key) is None else f"policies.{spec.name}.{key}"
            for key in keys
        )
    )


def setting_to_reduce(config: Config, keys: Sequence[str]) -> str:
    """Return the setting that is furthest above its default.

    If none is above it, the first that can be reduced at all.
    """
    tree, usual = config.model_dump(), Config().model_dump()
    above: dict[str, float] = {}
    for key in keys:
        size = _size(_at(tree, key))
        default = _size(_at(usual, key))
        if key.startswith(("policy.", "policies.")):
            section, _, rest = key.partition(".")
            name, _, own = rest.partition(".")
            whole = config.policy if section == "policy" else config.policy_of(name)
            kind = whole.algorithm
            own = rest if section == "policy" else own
            default = USUAL.get(own) or _size(_at(_usual(kind), own))
        if size > 1.0:  # what is 1 or nothing cannot be lower
            above[key] = size / max(default, 1.0)
    if not above:
        return keys[0]
    most = max(above.values())
    return next(key for key in above if above[key] == most or most <= 1.0)


def value_in_words(config: Config, key: str) -> str:
    """Return a setting's value as text; empty if it is not plain."""
    value = _at(config.model_dump(), key)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, tuple | list):
        return " ".join(str(part) for part in value)
    return ""


@cache
def _usual(algorithm: str) -> dict[str, Any]:
    return PolicyConfig.model_validate({"algorithm": algorithm}).model_dump()


def _size(value: Any) -> float:
    """Return a setting's size: a number, or the sum of all numbers in it."""
    if isinstance(value, bool) or value is None:
        return 0.0
    if isinstance(value, int | float):
        return float(value) if math.isfinite(value) else 0.0
    if isinstance(value, tuple | list):
        return sum(map(_size, value))
    return 0.0


def _at(tree: Any, key: str) -> Any:
    for part in key.split("."):
        tree = tree.get(part) if isinstance(tree, Mapping) else None
    return tree
