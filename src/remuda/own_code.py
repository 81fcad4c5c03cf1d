"""The settings that Python gives: as one tree, with names for objects.

Objects may stand for own code, and for policies of runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from remuda.algorithms import BUILT_IN
from remuda.config import Config, Section, by_leaf, load_config, over_presets, overlay, read_config
from remuda.coordinator.run_directory import RunDirectory
from remuda.errors import UsageError
from remuda.pickled import name_object
from remuda.trained import Policy


def name_objects(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings in which names stand for the objects that may be given in their place.

    Classes and functions as `algorithm` and `network.module` of a policy, as `matchmaker` and
    `director` of a population, in its `scripted`, in `env.scripted` and `env.wrappers`; policies
    of runs as `init_from` and in `members_from`. A `Section`, as of another run's configuration,
    becomes a mapping of what was set in it, so that it can be laid over others.

    Args:
        settings: sections of a configuration.

    Raises:
        UsageError: an object cannot be sent to other processes, or a policy is of no run.
    """
    named = {name: _as_mapping(section) for name, section in settings.items()}
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
    population = _at(population, "scripted", partial(name_scripted, example="rival"), key)
    env = _at(named.get("env"), "scripted", name_scripted, "env")
    named["env"] = _at(env, "wrappers", _name_wrappers, "env")
    named[key] = population
    return {name: section for name, section in named.items() if name in settings}


def name_scripted(scripted: Any, key: str, example: str = "agent_1") -> Any:
    """Who plays without having learned, by agent or member, functions by their names.

    Args:
        scripted: the mapping.
        key: the setting, for messages...
        example: ...and whose name stands in these.

    Raises:
        UsageError: a function cannot be sent to other processes, or it is no mapping of names and
            functions.
    """
    if not isinstance(scripted, Mapping):
        raise UsageError(
            f"{key}: give who plays by name, as in {{{example!r}: 'random'}}; this is {scripted!r}"
        )
    named = {name: _name_code(who, f"{key}.{name}") for name, who in scripted.items()}
    for name, who in named.items():
        if not isinstance(who, str):
            raise UsageError(
                f"{key}.{name}: {who!r} plays nothing; give a name, such as 'random', or a "
                "function (env, agent, observations, random) to actions"
            )
    return named


def _as_mapping(value: Any) -> Any:
    """The same with mappings in place of sections, of what was set in them."""
    if isinstance(value, Section):
        return value.model_dump(exclude_unset=True)
    if isinstance(value, Mapping):
        return {name: _as_mapping(part) for name, part in value.items()}
    return value


def gone_on_with(
    path: Path, tree: Mapping[str, Any], presets: str | Sequence[str] = ()
) -> dict[str, Any]:
    """The settings of the run in `path` with those of `tree` over them.

    Raises:
        UsageError: these name another directory, or their `run` is no section; or there are presets
            among them, which are for a run that begins.
        RunDirectoryError: there is no such run.
    """
    if presets:
        raise UsageError(
            f"preset={presets!r} is for a run that begins, and resume goes on with one"
        )
    section = tree.get("run", {})
    if not isinstance(section, Mapping):
        raise UsageError(
            f"run is {section!r}; it is a section, as in run={{'turns': 100_000}}, and left out "
            "where nothing of it changes"
        )
    named = section.get("directory")
    same = named is None or (
        isinstance(named, str | Path) and Path(named).expanduser().resolve() == path.resolve()
    )
    if not same:
        raise UsageError(
            f"run.directory is {str(named)!r}, and resume goes on in {path}: leave run.directory "
            "out, or begin a run there with its weights by policy.init_from"
        )
    saved = RunDirectory.open(path).read_config().model_dump(mode="json")
    return overlay(overlay(saved, tree), {"run": {"directory": path}})


def tree_of(
    config: Path | str | Mapping[str, Any] | Config | None, presets: str | Sequence[str] = ()
) -> dict[str, Any]:
    """The settings that `train` is given as a whole, as a tree of plain data, over some presets.

    Raises:
        UsageError: they are nothing that holds settings.
        ConfigError: the file is missing or wrong, or there is no such preset.
    """
    names = [presets] if isinstance(presets, str) else presets
    if not (isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)):
        raise UsageError(f"preset is {presets!r}; give the name of one, or a list of names")
    return over_presets(names, _tree_in(config), "config")


def _tree_in(config: Path | str | Mapping[str, Any] | Config | None) -> dict[str, Any]:
    if config is None:
        return {}
    if isinstance(config, Config):  # of another run, whose directory this one does not take
        tree = config.model_dump(mode="json")
        tree["run"].pop("directory")
        return tree
    if isinstance(config, Mapping):
        return name_objects(config)
    if not isinstance(config, str | Path):
        raise UsageError(
            f"config is a file, a mapping, or a run's; this is a {type(config).__name__}"
        )
    tree = read_config(Path(config).expanduser())
    load_config(tree, str(config))  # a fault in the file is told as the file's
    return tree


def written_in(
    config: Path | str | Mapping[str, Any] | Config | None,
    settings: Mapping[str, Any],
    resumed: bool,
) -> frozenset[str]:
    """The dotted keys that a user wrote; of sections that are objects no key was written.

    Args:
        config: settings as a whole. A file of a run that begins may be another run's, in which the
            program wrote all of them; over a run that goes on it is laid since its keys count.
        settings: sections that go over these.
        resumed: whether a run goes on.
    """
    keys = set(by_leaf(settings))
    if isinstance(config, Mapping):
        keys.update(by_leaf(config))
    elif resumed and isinstance(config, str | Path):
        keys.update(by_leaf(read_config(Path(config).expanduser())))
    return frozenset(keys)


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


def _name_wrappers(value: Any, key: str) -> Any:
    if isinstance(value, list | tuple):
        return [_name_code(wrapper, key) for wrapper in value]
    return value


def _name_members(value: Any, key: str) -> Any:
    if isinstance(value, list | tuple):
        return [_name_policy(member, key) for member in value]
    return value
