"""Conversion of settings from Python to plain data: names replace user code and policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from remuda.config import (
    Config,
    PolicyConfig,
    Section,
    by_leaf,
    load_config,
    over_presets,
    overlay,
    read_config,
)
from remuda.config.algorithm_registry import BUILT_IN, NO_ENTRIES
from remuda.config.policy import defaults_of
from remuda.errors import UsageError
from remuda.evaluation.policy import Policy
from remuda.runs.run_directory import RunDirectory
from remuda.system.loading import name_object

Settings = Path | str | Mapping[str, Any] | Config | None
"""The types that `remuda.train` accepts as `config`."""


def name_objects(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with names in place of objects.

    `NAMED` lists the settings that may be objects. A `Section`, such as one from another run's
    configuration, becomes a mapping of its explicit settings.
    """
    named = {name: _as_mapping(section) for name, section in settings.items()}
    for path, function in NAMED.items():
        named = _renamed(named, path.split("."), function, "")
    return named


def name_scripted(scripted: Any, key: str, example: str = "agent_1") -> Any:
    """Return scripted policies by agent or member, with names in place of functions."""
    if not isinstance(scripted, Mapping):
        raise UsageError(
            f"{key}: give a mapping such as {{{example!r}: 'random'}}; this is {scripted!r}"
        )
    return {name: name_policy(policy, f"{key}.{name}") for name, policy in scripted.items()}


def name_policy(policy: Any, key: str) -> str:
    """Return the name of a scripted policy, or of a function that is one."""
    named = _name_code(policy, key)
    if not isinstance(named, str):
        raise UsageError(
            f"{key}: {policy!r} is no policy; give a name, such as 'random', or a function of "
            "(env, agent, observations, rng) that returns actions"
        )
    return named


def _as_mapping(value: Any) -> Any:
    if isinstance(value, Section):
        plain = value.model_dump(exclude_unset=True)
        if isinstance(value, PolicyConfig) and "algorithm" not in plain:
            # It was filled with the defaults of an algorithm that may not be the run's.
            return _beyond(defaults_of(value.entry, plain), plain)
        return plain
    if isinstance(value, Mapping):
        return {name: _as_mapping(part) for name, part in value.items()}
    return value


def _beyond(defaults: Mapping[str, Any], plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `plain` adds to `defaults` or changes in them."""
    found = {}
    for key, value in plain.items():
        default = defaults.get(key)
        if isinstance(value, Mapping) and isinstance(default, Mapping):
            value = _beyond(default, value)  # noqa: PLW2901
            default = {}
        if key not in defaults or value != default:
            found[key] = value
    return found


def gone_on_with(
    path: Path, tree: Mapping[str, Any], presets: str | Sequence[str] = ()
) -> dict[str, Any]:
    """Return the settings of the run in `path`, overridden by `tree`."""
    if presets:
        raise UsageError(f"preset={presets!r} is for new runs only; resume continues a run")
    section = tree.get("run", {})
    if not isinstance(section, Mapping):
        raise UsageError(
            f"run is {section!r}; give a mapping, as in run={{'turns': 100_000}}, or leave it out "
            "if nothing in it changes"
        )
    named = section.get("directory")
    same = named is None or (
        isinstance(named, str | Path) and Path(named).expanduser().resolve() == path.resolve()
    )
    if not same:
        raise UsageError(
            f"run.directory is {str(named)!r}, but resume continues in {path}: leave run.directory "
            "out, or start a new run there, with policy.init_from for its first weights"
        )
    # Without the saved entries, since the classes may have been edited.
    saved = RunDirectory.open(path).read_config(known=NO_ENTRIES).model_dump(mode="json")
    return overlay(overlay(saved, tree), {"run": {"directory": path}})


def tree_of(config: Settings, presets: str | Sequence[str] = ()) -> dict[str, Any]:
    """Return a configuration as plain data, on top of the presets."""
    names = [presets] if isinstance(presets, str) else presets
    if not (isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)):
        raise UsageError(f"preset is {presets!r}; give the name of one, or a list of names")
    return over_presets(names, _tree_in(config), "config")


def _tree_in(config: Settings) -> dict[str, Any]:
    if config is None:
        return {}
    if isinstance(config, Config):  # of another run, without its directory
        tree = config.model_dump(mode="json")
        tree["run"].pop("directory")
        return tree
    if isinstance(config, Mapping):
        return name_objects(config)
    if not isinstance(config, str | Path):
        raise UsageError(
            f"config must be a file, a mapping or a run's config; it is a {type(config).__name__}"
        )
    tree = read_config(Path(config).expanduser())
    load_config(tree, str(config))  # so that the message of an error names the file
    return tree


def written_in(config: Settings, settings: Mapping[str, Any], resumed: bool) -> frozenset[str]:
    """Return the dotted keys that a user wrote, without those inside `Section` objects.

    Keys of a file count only in a resumed run: the file of a new run may be another run's
    config.yaml, in which the program wrote all keys.
    """
    keys = set(by_leaf(settings))
    if isinstance(config, Mapping):
        keys.update(by_leaf(config))
    elif resumed and isinstance(config, str | Path):
        keys.update(by_leaf(read_config(Path(config).expanduser())))
    return frozenset(keys)


def _renamed(
    tree: Any, path: Sequence[str], function: Callable[[Any, str], Any], where: str
) -> Any:
    """Replace the settings at a path; values that are not sections are refused later."""
    if not isinstance(tree, Mapping):
        return tree
    key, *rest = path
    changed = {}
    for name in tree if key == "*" else {key} & tree.keys():
        at = f"{where}.{name}" if where else name
        changed[name] = (
            _renamed(tree[name], rest, function, at) if rest else function(tree[name], at)
        )
    return {**tree, **changed}


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
            f"{key}: {value!r} is no policy of a run; use one from a run that remuda.load opens"
        )
    return value.reference


def _name_each(function: Callable[[Any, str], Any], value: Any, key: str) -> Any:
    if isinstance(value, list | tuple):
        return [function(each, key) for each in value]
    return value


OF_POLICY: dict[str, Callable[[Any, str], Any]] = {
    "algorithm": _name_algorithm,
    "init_from": _name_policy,
    "network.module": _name_code,
}
NAMED: dict[str, Callable[[Any, str], Any]] = {
    **{f"policy.{key}": function for key, function in OF_POLICY.items()},
    **{f"policies.*.{key}": function for key, function in OF_POLICY.items()},
    "population.matchmaker": _name_code,
    "population.director": _name_code,
    "population.members_from": partial(_name_each, _name_policy),
    "population.teams.*.policies": partial(_name_each, _name_policy),
    "population.scripted": partial(name_scripted, example="rival"),
    "env.scripted": name_scripted,
    "env.wrappers": partial(_name_each, _name_code),
}
"""Settings that may be objects (`*` is any name), and the functions that return their names."""
