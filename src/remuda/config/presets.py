"""Presets: named settings for a kind of environment, each with a reason (`--preset mpe`)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from remuda.config.plain import read_yaml
from remuda.config.sections import by_leaf, overlay
from remuda.errors import ConfigError


@dataclass(frozen=True)
class Preset:
    """Settings that override the defaults; the user's settings override them (`presets.yaml`)."""

    suits: str
    reason: str
    tree: Mapping[str, Any]
    game: str = ""


@cache
def all_presets() -> dict[str, Preset]:
    """Return all presets and their names."""
    found = read_yaml(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    return {name: Preset(**preset) for name, preset in found.items()}


def over_presets(names: Iterable[str], tree: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Overlay a tree of settings on presets."""
    names = list(names)
    base = preset_tree(names)
    if base and by_leaf(base).keys() <= by_leaf(tree).keys():
        raise ConfigError(
            f"preset {' '.join(names)} changes nothing, since {source} sets all its keys; "
            "leave one of the two out"
        )
    return overlay(base, tree)


def over_own_environment(tree: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Overlay a new run's settings on `own_environment`, unless the game is one of Remuda's.

    Returns:
        The tree, and a message that lists the settings which come from the preset.
    """
    if ":" not in str(tree.get("game", "")):
        return dict(tree), ""
    preset = all_presets()["own_environment"].tree
    taken = [f"{key} {value}" for key, value in by_leaf(preset).items() if key not in by_leaf(tree)]
    message = f"defaults for your environment (preset own_environment): {', '.join(taken)}"
    return overlay(preset, tree), message if taken else ""


def check_presets(names: str | Iterable[str], game: str) -> None:
    """Raise a `ConfigError` if a preset is for another game."""
    for name in [names] if isinstance(names, str) else names:
        own = all_presets()[name].game
        if own and own != game:
            raise ConfigError(
                f"preset {name} is for {own}, but the game is {game}; leave the preset out, or "
                f"set game to {own}"
            )


def preset_tree(names: Iterable[str]) -> dict[str, Any]:
    """Overlay presets, later ones overriding earlier ones."""
    tree: dict[str, Any] = {}
    for name in names:
        if name not in all_presets():
            near = difflib.get_close_matches(name, all_presets(), n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            known = "; ".join(
                f"{each}: for {preset.suits}" for each, preset in all_presets().items()
            )
            raise ConfigError(f"there is no preset {name!r}: {hint}There are: {known}")
        tree = overlay(tree, all_presets()[name].tree)
    return tree
