"""Read configurations and keyword arguments, and write configurations; errors contain the key."""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from pydantic import ValidationError

from remuda.config.algorithm_registry import NO_ENTRIES, Entries
from remuda.config.faults import LONGEST_SHOWN, explain
from remuda.config.plain import RefusedYAMLError, read_yaml, write_yaml
from remuda.config.sections import Section, fault_of_path
from remuda.config.tree import Config
from remuda.errors import ConfigError, UsageError
from remuda.system.loading import read_beside

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound=Section)

# The first and the last line reveal a truncated file, which may still be valid YAML: 400 turns
# become 4, or the default. They are comments, so you can add keys below the last line by hand.
SAVED = "# Saved by Remuda"
FIRST_LINE = f"{SAVED}, as far down as the line `# end`."
LAST_LINE = "# end"


def load_config(data: Mapping[str, Any], source: str = "", known: Entries = NO_ENTRIES) -> Config:
    """Validate a tree of plain data, for example from a YAML file.

    The classes of users' algorithms are imported unless their entries are `known`.
    """
    try:
        return Config.model_validate(data, context=known)
    except ValidationError as error:
        where = f"{source}: " if source else ""
        raise ConfigError(where + explain(error, Config)) from None


def read_config(path: Path) -> dict[str, Any]:
    """Read the tree in a YAML file without validating it, and register user code next to it."""
    data = read_tree(path)
    read_beside(path, data)
    return data


def read_tree(path: Path) -> dict[str, Any]:
    """Read the tree in a YAML file without validating it or registering code."""
    import yaml

    from remuda.system.checkpoint.opening import read_file

    fault = fault_of_path(str(path))
    if fault:
        raise ConfigError(f"cannot read the configuration {str(path)[:LONGEST_SHOWN]!r}: {fault}")
    try:
        text = read_file(Path(os.path.expanduser(path)), 16 * 2**20).decode()
        if _cut_off(text):
            raise ConfigError(
                f"the configuration {path} is damaged: it is cut off, its last line, "
                f"`{LAST_LINE}`, is missing (to use it anyway, remove its first line)"
            )
        data = read_yaml(text)
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}") from None
    except RefusedYAMLError as error:
        raise ConfigError(f"the configuration {path}: {error}") from None
    except (yaml.YAMLError, ValueError) as error:  # also numbers of thousands of digits
        line = " ".join(str(error).split())
        raise ConfigError(f"the configuration {path} is not YAML: {line}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"the configuration {path} must hold keys and values, as in `seed: 1`")
    return data


def _cut_off(text: str) -> bool:
    """Return whether `config_text` wrote this text and its last line is missing."""
    # The file may have been edited by hand.
    lines = [line.rstrip() for line in text.lstrip("\ufeff").splitlines()]
    in_first = len(text) >= len(SAVED) and FIRST_LINE.startswith(text)
    return in_first or (FIRST_LINE in lines and LAST_LINE not in lines)


def write_config(config: Config, path: Path) -> None:
    """Write the whole tree as YAML, atomically."""
    from remuda.system.checkpoint.state import write_whole

    write_whole(path, config_text(config).encode())


def config_text(config: Config) -> str:
    """Format the whole tree as YAML, between two comments that reveal a truncated file."""
    return f"{FIRST_LINE}\n{write_yaml(config.model_dump(mode='json'))}{LAST_LINE}\n"


def takes_settings(model: type[Section]) -> Callable[[F], F]:
    """List a model's fields in the signature of a function that takes them as `**settings`."""

    def listed(function: F) -> F:
        whole = inspect.signature(function)
        own = [each for each in whole.parameters.values() if each.kind is not each.VAR_KEYWORD]
        fields, kinds = [], get_type_hints(model)
        for name, info in model.model_fields.items():
            default = info.get_default(call_default_factory=True, validated_data={})
            kind = kinds[name]
            if isinstance(default, Section):
                default, kind = {}, Mapping[str, Any] | kind
            parameter = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)
            fields.append(parameter.replace(default=default, annotation=kind))
        signature = whole.replace(parameters=[*own, *fields])
        function.__signature__ = signature  # type: ignore[attr-defined]
        return function

    return listed


def read_keywords(model: type[S], settings: Mapping[str, Any], function: Callable[..., Any]) -> S:
    """Validate keyword arguments; a `UsageError` names the first wrong one and what is allowed."""
    known = inspect.signature(function).parameters
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            instead = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            raise UsageError(f"{name} is no argument of {function.__name__}; {instead}")
    try:
        return model.model_validate(settings)
    except ValidationError as error:
        raise UsageError(explain(error, model)) from None
