"""Names of groups of runs: the settings in which they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from remuda.config import PolicyConfig, by_leaf
from remuda.config.algorithm_registry import BUILT_IN

Settings = Mapping[str, Any]  # by dotted key

ASIDE = {"seed", "trace", "run.directory", "run.live", "run.loggers"}  # may differ in a group
METRICS = "env.episode_metrics."  # they only record, unless evolution selects by one
FITNESS = "population.evolution.fitness"
NAMED = 3  # maximum number of settings in a name, unless more are needed to tell groups apart
ABSENT = object()  # the value of a setting that a group does not have


def compared(settings: Settings) -> dict[str, Any]:
    """Return the settings that may not differ in a group."""
    aside = () if "game/" in str(settings.get(FITNESS)) else (METRICS,)
    return {k: v for k, v in settings.items() if k not in ASIDE and not k.startswith(aside)}


def labelled_names(labels: Sequence[str], settings: Sequence[Settings]) -> list[str]:
    """Name groups by their labels; groups of one label, or of none, also by their settings.

    Groups of equal label and settings get equal names.
    """
    unique = {(label, repr(each)): each for label, each in zip(labels, settings, strict=True)}
    names = {}
    for label in dict.fromkeys(labels):
        # A group without a label is compared with all groups.
        members = {key: each for key, each in unique.items() if label in ("", key[0])}
        alone = bool(label) and len(members) == 1
        for key, name in zip(members, group_names([*members.values()]), strict=True):
            if key[0] == label:
                names[key] = label if alone else f"{label}, {name}" if label else name
    return [names[label, repr(each)] for label, each in zip(labels, settings, strict=True)]


def group_names(groups: Sequence[Settings]) -> list[str]:
    """Name groups by the settings in which they differ, or by the game if no setting differs."""
    differing = _differing(groups)
    if not differing:
        return [str(group.get("game", "")) for group in groups]
    short = _short_keys(list(differing))
    texts = {
        key: [_setting(short[key], value) for value in values] for key, values in differing.items()
    }
    needed = _needed(texts)
    names = []
    for i in range(len(groups)):
        others = [k for k in differing if k not in needed and differing[k][i] is not ABSENT]
        shown = {*needed, *others[: max(NAMED - len(needed), 0)]}
        more = len(needed) + len(others) - len(shown)
        name = ", ".join(texts[key][i] for key in differing if key in shown)
        names.append(name + (f" and {more} more" if more else ""))
    numbered = (f"{name} ({1 + names[:i].count(name)})" for i, name in enumerate(names))
    return [n if names.count(n) == 1 else other for n, other in zip(names, numbered, strict=True)]


def _differing(groups: Sequence[Settings]) -> dict[str, list[Any]]:
    """Return the settings that differ, with the value of each group.

    A policy without a setting in `policies` has the one in `policy`. Settings that all groups
    leave at the defaults of their algorithms are no differences.
    """
    found = {}
    keys = dict.fromkeys(key for group in groups for key in group)
    for key in keys:
        owner, setting = _split(key, keys)
        usual = f"policy.{setting}" if owner else key
        values = [group.get(key, group.get(usual, ABSENT)) for group in groups]
        if len({repr(value) for value in values}) < 2:
            continue
        algorithms = [
            str(group.get(f"{owner}algorithm", group.get("policy.algorithm"))) for group in groups
        ]
        defaults = [_defaults(algorithm).get(setting, ABSENT) for algorithm in algorithms]
        implied = ABSENT not in defaults and repr(defaults) == repr(values)
        if not owner or setting == "algorithm" or not implied:
            found[key] = values
    return found


def _split(key: str, keys: Mapping[str, Any]) -> tuple[str, str]:
    """Split a policy's key into its owner, `policy.` or `policies.NAME.`, and the setting."""
    if key.startswith("policy."):
        return "policy.", key.removeprefix("policy.")
    parts = key.split(".")
    for i in range(2, len(parts) if parts[0] == "policies" else 0):  # names may contain dots
        setting = ".".join(parts[i:])
        if f"policy.{setting}" in keys:
            return key.removesuffix(setting), setting
    return "", key


@cache
def _defaults(algorithm: str) -> dict[str, Any]:
    """Return the defaults of a built-in algorithm by key; of others, nothing."""
    if algorithm not in BUILT_IN:
        return {}
    return by_leaf(PolicyConfig(algorithm=algorithm).resolved())


def _short_keys(keys: Sequence[str]) -> dict[str, str]:
    """Return the last parts of keys if they are unique, otherwise whole keys."""
    endings = [key.rpartition(".")[2] for key in keys]
    return {
        key: end if endings.count(end) == 1 else key for key, end in zip(keys, endings, strict=True)
    }


def _needed(texts: Mapping[str, Sequence[str]]) -> list[str]:
    """Return settings that suffice to tell all groups apart, from their text in each group."""
    needed: list[str] = []
    classes = 1
    for key in texts:
        found = len(set(zip(*(texts[each] for each in (*needed, key)), strict=True)))
        if found > classes:
            needed.append(key)
            classes = found
    return needed


def _setting(name: str, value: Any) -> str:
    if value is ABSENT:
        return f"no {name}"
    if name == "game":
        return str(value)
    if isinstance(value, list):
        value = " ".join(map(str, value)) or "none"
    if isinstance(value, float):
        value = f"{value:.12g}"  # 9 * 0.001 becomes 0.009
    return f"{name} {value}"
