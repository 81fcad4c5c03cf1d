"""What differs for one policy: its own defaults, written out before the rest is filled in.

What holds for a policy X, the later ones over the earlier ones:

1. the defaults of the fields;
2. the presets of its algorithm, and what a recurrent network has by default;
3. what `policy` says, its default values too;
4. what `policies.X` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from remuda.algorithms import AlgorithmEntry, find_algorithm
from remuda.config.policy import OF_OWN_VALUES, OF_RECURRENT_VALUES, PolicyConfig, with_module
from remuda.config.sections import Section, overlay
from remuda.errors import ConfigError

NOTHING: Mapping[str, Any] = {}


def with_own_defaults(data: Mapping[str, Any]) -> dict[str, Any]:
    """Write the defaults of each policy of `policies` that are not those of `policy` into it.

    What nothing says has, for each policy, the default of its own algorithm and network. Only here
    it can be told what was said: once `policy` is validated, and in all that is saved of it, every
    key has a value. So what is saved holds these defaults, and they stay. It also holds what
    `policy` says otherwise than a preset of the policy's algorithm, and what `policy` says that is
    its own default but not the policy's: such a policy is read back as it was.

    In a tree in which every key of `policy` has a value, as in one that was saved, what is as it
    would be by default counts as not said.
    """
    policies, policy = data.get("policies"), data.get("policy", {})
    is_section = isinstance(policy, Section)
    if isinstance(policy, Section):
        policy = policy.model_dump(exclude_unset=True)
    if not isinstance(policies, Mapping) or not isinstance(policy, Mapping):
        return dict(data)
    said = with_module(_plain(policy))
    entry = _entry_of(said)
    if entry is not None and (is_section or _is_whole(said)):
        # A section that was made from its values holds what it has by default of its algorithm and
        # of its network as if that was said, but no plain default.
        usual = _defaults(entry, said, {}) if is_section else _defaults(entry, said)
        said = {"algorithm": entry.name} | beyond(said, usual)
    filled = {
        name: _filled(said, _plain(own)) if isinstance(own, Mapping) and own else own
        for name, own in policies.items()
    }
    return {**data, "policies": filled}


def _is_whole(policy: Mapping[str, Any]) -> bool:
    """Whether every key of a policy has a value, so that it does not tell which were said."""
    return _holds(policy, PolicyConfig.model_construct().model_dump())


def _holds(tree: Mapping[str, Any], keys: Mapping[str, Any]) -> bool:
    """Whether a tree has all keys of another."""
    for key, below in keys.items():
        if key not in tree:
            return False
        if isinstance(below, Mapping):
            there = tree[key]
            if not isinstance(there, Mapping) or not _holds(there, below):
                return False
    return True


def _filled(said: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The differences of a policy with its own defaults, where `said` of all policies does not."""
    merged = overlay(said, own)
    first, second = _entry_of(said), _entry_of(merged)
    own = with_module(own)
    if first is None or second is None:
        return own
    here, there = _defaults(second, merged), _defaults(first, said)
    # What is said and is the default of `policy` will count as not said, once all has been saved
    lost = _against(here, _against(there, said, same=True))
    return reduce(overlay, (lost, own), beyond(here, there, said))


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


def _defaults(
    entry: AlgorithmEntry, policy: Mapping[str, Any], plain: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """All that holds for a policy of this algorithm where nothing is said."""
    plain = PolicyConfig.model_construct().model_dump() if plain is None else dict(plain)
    found = reduce(overlay, entry.presets, plain)
    network = overlay(found, policy).get("network", {})
    if not isinstance(network, Mapping):
        return found
    draws = entry.takes == "transitions"
    if network.get("module"):
        if draws:
            found = reduce(overlay, (OF_OWN_VALUES, *entry.presets), plain)
        found = overlay(found, {"network": {"hidden": ()}})
    return overlay(found, OF_RECURRENT_VALUES) if draws and network.get("recurrent") else found


def _against(
    defaults: Mapping[str, Any], said: Mapping[str, Any], same: bool = False
) -> dict[str, Any]:
    """The leaves of `said` that are others in `defaults`; or those that are the same there."""
    found: dict[str, Any] = {}
    for key in defaults.keys() & said.keys():
        default, value = defaults[key], said[key]
        if isinstance(default, Mapping) and isinstance(value, Mapping):
            below = _against(default, value, same)
            found |= {key: below} if below else {}
        elif (_plain_value(value) == _plain_value(default)) is same:
            found[key] = value
    return found


def _plain_value(value: Any) -> Any:
    """Tuples as lists, as they are once they were saved."""
    return [_plain_value(part) for part in value] if isinstance(value, tuple | list) else value


def beyond(
    here: Mapping[str, Any], there: Mapping[str, Any], said: Mapping[str, Any] = NOTHING
) -> dict[str, Any]:
    """The leaves of `here` that are others in `there`, and that `said` does not have."""
    found: dict[str, Any] = {}
    for key, value in here.items():
        other, own = there.get(key), said.get(key)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            below = beyond(value, other, own if isinstance(own, Mapping) else {})
            found |= {key: below} if below else {}
        elif _plain_value(value) != _plain_value(other) and key not in said:
            found[key] = value
    return found
