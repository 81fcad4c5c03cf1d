"""Overrides for single policies, in the section `policies`, and their defaults.

The settings of a policy X come from four sources, of which later ones override earlier ones:

1. the defaults of the fields;
2. the presets of its algorithm, and the defaults of a recurrent network;
3. the keys that `policy` sets explicitly, even to their default values;
4. `policies.X`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from remuda.config.algorithm_registry import NO_ENTRIES, AlgorithmEntry, Entries, find_algorithm
from remuda.config.policy import PolicyConfig, defaults_of, with_module
from remuda.config.sections import Section, by_leaf, overlay
from remuda.errors import ConfigError

NOTHING: Mapping[str, Any] = {}
MISSING = object()


def with_own_defaults(data: Mapping[str, Any], known: Entries = NO_ENTRIES) -> dict[str, Any]:
    """Write into `policies` each policy's defaults that differ from those of `policy`.

    For keys that `policy` does not set explicitly, a policy has the defaults of its algorithm
    and network. Only the unvalidated tree shows which keys are explicit, so this function writes
    the defaults into that tree, and they are saved with it. It also writes explicit values of
    `policy` that would no longer count as explicit after saving.

    If every key of `policy` has a value, as in a saved tree, default values count as not set.
    """
    policies, policy = data.get("policies"), data.get("policy", {})
    is_section = isinstance(policy, Section)
    if isinstance(policy, Section):
        policy = policy.model_dump(exclude_unset=True)
    if not isinstance(policies, Mapping) or not isinstance(policy, Mapping):
        return dict(data)
    explicit = with_module(_plain(policy))
    entry = _entry_of(explicit, known)
    if entry is not None and (is_section or _is_whole(explicit)):
        # The explicit keys of a section include the defaults of its algorithm and network, but not
        # the defaults of fields.
        usual = _defaults(entry, explicit, {}) if is_section else _defaults(entry, explicit)
        explicit = {"algorithm": entry.name} | beyond(explicit, usual)
    filled = {
        name: _filled(explicit, _plain(own), known) if isinstance(own, Mapping) and own else own
        for name, own in policies.items()
    }
    return {**data, "policies": filled}


def _is_whole(policy: Mapping[str, Any]) -> bool:
    """Return whether every key of a policy has a value."""
    return by_leaf(PolicyConfig.model_construct().model_dump()).keys() <= by_leaf(policy).keys()


def _filled(explicit: Mapping[str, Any], own: Mapping[str, Any], known: Entries) -> dict[str, Any]:
    """Add a policy's own defaults to its overrides, except for keys explicit in `policy`."""
    merged = overlay(explicit, own)
    shared_entry, own_entry = _entry_of(explicit, known), _entry_of(merged, known)
    own = with_module(own)
    if shared_entry is None or own_entry is None:
        return own
    own_defaults, shared_defaults = _defaults(own_entry, merged), _defaults(shared_entry, explicit)
    # After saving, explicit values that equal the default of `policy` count as not set.
    lost = beyond(shared_defaults, own_defaults)
    lost = beyond(lost, beyond(lost, explicit))
    return reduce(overlay, (lost, own), beyond(own_defaults, shared_defaults, explicit))


def _plain(policy: Mapping[str, Any]) -> dict[str, Any]:
    """Convert sections of a policy to trees of their explicit keys."""
    return {
        key: value.model_dump(exclude_unset=True) if isinstance(value, Section) else value
        for key, value in policy.items()
    }


def _entry_of(policy: Mapping[str, Any], known: Entries) -> AlgorithmEntry | None:
    name = policy.get("algorithm", "iqn")
    try:
        return find_algorithm(name, known) if isinstance(name, str) else None
    except ConfigError:
        return None


def _defaults(
    entry: AlgorithmEntry, policy: Mapping[str, Any], plain: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    plain = PolicyConfig.model_construct().model_dump() if plain is None else plain
    found = defaults_of(entry, policy, plain)
    network = overlay(found, policy).get("network", {})
    if isinstance(network, Mapping) and network.get("module"):
        return overlay(found, {"network": {"hidden": ()}})
    return found


def _plain_value(value: Any) -> Any:
    return [_plain_value(part) for part in value] if isinstance(value, tuple | list) else value


def beyond(
    here: Mapping[str, Any], there: Mapping[str, Any], explicit: Mapping[str, Any] = NOTHING
) -> dict[str, Any]:
    """Return the leaves of `here` that differ from `there` and are not in `explicit`."""
    found: dict[str, Any] = {}
    for key, value in here.items():
        other, own = there.get(key, MISSING), explicit.get(key)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            below = beyond(value, other, own if isinstance(own, Mapping) else {})
            found |= {key: below} if below else {}
        elif _plain_value(value) != _plain_value(other) and key not in explicit:
            found[key] = value
    return found
