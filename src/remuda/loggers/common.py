"""What loggers have in common."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from remuda.checkpoint.opening import read_json
from remuda.coordinator.run_directory import write_file
from remuda.errors import ConfigError
from remuda.evaluation import way_of
from remuda.result import Result

IDS = "loggers.json"
"""In the run directory: by logger, the id of the run there, for a resumed run to go on with."""


def load_package(name: str, extra: str) -> ModuleType:
    """Import the package of a service."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ConfigError(
            f"{name} is not installed, and a logger needs it: pip install 'remuda[{extra}]'"
        ) from None


def measured(row: Mapping[str, float]) -> dict[str, float]:
    """The columns of a row in which something was measured."""
    return {name: value for name, value in row.items() if math.isfinite(value)}


def evaluated(result: Result) -> dict[str, float]:
    """What play after training earned, as columns `greedy/agent_0`, or `sampled/agent_0`.

    Without those that took no part. Empty: there was none.
    """
    found: dict[str, Any] = result.evaluation.as_summary() if result.evaluation else {}
    groups: tuple[dict[str, Any], ...] = (found.get("agents", {}), found.get("policies", {}))
    way = way_of(found)
    means = {f"{way}/{name}": each["mean"] for group in groups for name, each in group.items()}
    return {name: mean for name, mean in means.items() if mean is not None}


def known_id(directory: Path, logger: str) -> str | None:
    """The id under which an earlier session of the run was logged; None: it was not."""
    try:
        found = read_json(directory / IDS).get(logger)
    except (OSError, ValueError, AttributeError):
        return None
    return found if isinstance(found, str) else None


def keep_id(directory: Path, logger: str, value: str) -> None:
    """Note the id under which the run is logged."""
    try:
        ids = read_json(directory / IDS)
    except (OSError, ValueError):
        ids = {}
    write_file(directory / IDS, json.dumps({**ids, logger: value}).encode())


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The leaves of a tree by dotted key; a part of a key may have dots itself, as agents may."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found
