"""What Python gives as objects where a configuration has names: own code, and policies of runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from remuda.algorithms import BUILT_IN
from remuda.errors import UsageError
from remuda.pickled import name_object
from remuda.trained import Policy


def name_objects(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings in which names stand for the objects that may be given in their place.

    Classes and functions as `algorithm` and `network.module` of a policy and as `matchmaker` and
    `director` of a population; policies of runs as `init_from` and in `members_from`.

    Args:
        settings: sections of a configuration.

    Raises:
        UsageError: an object cannot be sent to other processes, or a policy is of no run.
    """
    named = dict(settings)
    if "policy" in named:
        named["policy"] = _of_policy(named["policy"], "policy")
    if isinstance(named.get("policies"), Mapping):
        named["policies"] = {
            name: _of_policy(own, f"policies.{name}") for name, own in named["policies"].items()
        }
    key = "population"
    population = _at(named.get(key), "matchmaker", _name_code, key)
    population = _at(population, "director", _name_code, key)
    population = _at(population, "members_from", _name_members, key)
    return named | ({key: population} if key in named else {})


def _of_policy(section: Any, key: str) -> Any:
    section = _at(section, "algorithm", _name_algorithm, key)
    section = _at(section, "init_from", _name_policy, key)
    network = section.get("network") if isinstance(section, Mapping) else None
    network = _at(network, "module", _name_code, f"{key}.network")
    return section if network is None else {**section, "network": network}


def _at(section: Any, name: str, named: Callable[[Any, str], Any], key: str) -> Any:
    """A section in which one setting is named; what is no section is for its check to refuse."""
    if not isinstance(section, Mapping) or name not in section:
        return section
    return {**section, name: named(section[name], f"{key}.{name}")}


def _name_code(value: Any, key: str) -> Any:
    return name_object(value, key) if callable(value) else value


def _name_algorithm(value: Any, key: str) -> Any:
    name = _name_code(value, key)
    return next((entry.name for entry in BUILT_IN.values() if entry.home == name), name)


def _name_policy(value: Any, key: str) -> Any:
    if not isinstance(value, Policy):
        return value
    if not value.reference:
        raise UsageError(
            f"{key}: {value!r} was not taken from a run; take it from one that remuda.load opens"
        )
    return value.reference


def _name_members(value: Any, key: str) -> Any:
    if isinstance(value, list | tuple):
        return [_name_policy(member, key) for member in value]
    return value
