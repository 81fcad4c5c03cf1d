"""What differs for one policy: its own defaults, written out before the rest is filled in."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from remuda.algorithms import AlgorithmEntry, find_algorithm
from remuda.config.policy import OF_RECURRENT_VALUES, PolicyConfig, with_module
from remuda.config.sections import Section, overlay
from remuda.errors import ConfigError


def with_own_defaults(data: Mapping[str, Any]) -> dict[str, Any]:
    """Write the defaults of each policy of `policies` that are not those of `policy` into it.

    What nothing says has, for each policy, the default of its own algorithm and network. Only here
    it can be told what was said: once `policy` is validated, and in all that is saved of it, every
    key has a value. So what is saved holds these defaults, and they stay.

    Args:
        data: a whole tree, not yet validated; what is wrong in it is left for its check to refuse.
    """
    policies, policy = data.get("policies"), data.get("policy", {})
    if isinstance(policy, Section):
        policy = policy.model_dump(exclude_unset=True)
    if not isinstance(policies, Mapping) or not isinstance(policy, Mapping):
        return dict(data)
    said = with_module(_plain(policy))
    filled = {
        name: _filled(said, _plain(own)) if isinstance(own, Mapping) and own else own
        for name, own in policies.items()
    }
    return {**data, "policies": filled}


def _filled(said: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The differences of a policy with its own defaults, where `said` of all policies does not."""
    merged = overlay(said, own)
    first, second = _entry_of(said), _entry_of(merged)
    own = with_module(own)
    if first is None or second is None:
        return own
    here, there = _defaults(second, merged), _defaults(first, said)
    return overlay(_beyond(here, there, said), own)


def _plain(policy: Mapping[str, Any]) -> dict[str, Any]:
    """A policy in which sections that were given as such are trees of what was said in them."""
    return {
        key: value.model_dump(exclude_unset=True) if isinstance(value, Section) else value
        for key, value in policy.items()
    }


def _entry_of(policy: Mapping[str, Any]) -> AlgorithmEntry | None:
    """The algorithm of a policy; None: there is no such."""
    name = policy.get("algorithm", "iqn")
    try:
        return find_algorithm(name) if isinstance(name, str) else None
    except ConfigError:
        return None


def _defaults(entry: AlgorithmEntry, policy: Mapping[str, Any]) -> dict[str, Any]:
    """All that holds for a policy of this algorithm where nothing is said."""
    plain = PolicyConfig.model_construct().model_dump()
    found = reduce(overlay, entry.presets, plain)
    network = overlay(found, policy)["network"]
    if isinstance(network, Mapping) and network.get("module"):
        found = overlay(found, {"network": {"hidden": ()}})
    if isinstance(network, Mapping) and network.get("recurrent") and entry.takes == "transitions":
        found = overlay(found, OF_RECURRENT_VALUES)
    return found


def _beyond(
    here: Mapping[str, Any], there: Mapping[str, Any], said: Mapping[str, Any]
) -> dict[str, Any]:
    """The leaves of `here` that are others in `there`, and that `said` does not have."""
    found: dict[str, Any] = {}
    for key, value in here.items():
        other, own = there.get(key), said.get(key)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            below = _beyond(value, other, own if isinstance(own, Mapping) else {})
            found |= {key: below} if below else {}
        elif value != other and key not in said:
            found[key] = value
    return found
