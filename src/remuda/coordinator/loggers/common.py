"""Functions that loggers share."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from remuda.errors import ConfigError
from remuda.evaluation.results import way_of
from remuda.runs.result import Result
from remuda.runs.run_directory import write_file
from remuda.system.checkpoint.opening import read_json

IDS = "loggers.json"  # file in the run directory: each logger's run id, for resumed runs


def load_package(name: str, extra: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ConfigError(
            f"{name} is not installed, and a logger needs it: pip install 'remuda-rl[{extra}]'"
        ) from None


def measured(row: Mapping[str, float]) -> dict[str, float]:
    """Return the columns of a row that have a value."""
    return {name: value for name, value in row.items() if math.isfinite(value)}


def evaluated(result: Result) -> dict[str, float]:
    """Return the means of the final evaluation, as `greedy/agent_0` or `sampled/agent_0`."""
    found: dict[str, Any] = result.evaluation.as_summary() if result.evaluation else {}
    groups: tuple[dict[str, Any], ...] = (found.get("agents", {}), found.get("policies", {}))
    way = way_of(found)
    means = {f"{way}/{name}": each["mean"] for group in groups for name, each in group.items()}
    return {name: mean for name, mean in means.items() if mean is not None}


def known_id(directory: Path, logger: str) -> str | None:
    """Return the logger's run id of an earlier session, if any."""
    try:
        found = read_json(directory / IDS).get(logger)
    except (OSError, ValueError, AttributeError):
        return None
    return found if isinstance(found, str) else None


def keep_id(directory: Path, logger: str, value: str) -> None:
    """Save the logger's run id."""
    try:
        ids = read_json(directory / IDS)
    except (OSError, ValueError):
        ids = {}
    write_file(directory / IDS, json.dumps({**ids, logger: value}).encode())
