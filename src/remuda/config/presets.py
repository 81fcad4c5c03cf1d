"""Settings that suit a kind of world, by name, each with the reason: `--preset mpe`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from remuda.config.sections import overlay
from remuda.errors import ConfigError


@dataclass(frozen=True)
class Preset:
    """A tree of settings that goes over the defaults, and under whatever the user says."""

    suits: str
    """The worlds that it is for."""
    reason: str
    """Why they need it."""
    tree: Mapping[str, Any]


PRESETS: Mapping[str, Preset] = {
    "mpe": Preset(
        suits="MPE (`pettingzoo:mpe2...`), and other small worlds of short episodes",
        reason="Episodes of 25 steps, of which each pays: so a short horizon, and a segment for "
        "each episode; and ten passes over each rollout, in one piece, since a world in Python is "
        "slower than the network.",
        tree={
            "env": {"num_envs": 16},
            "policy": {
                "algorithm": "ppo",
                "discount": 0.95,
                "learning_rate": 5e-4,
                "network": {"shared": False},
                "experience": {"segment_length": 25},
                "ppo": {"rollout_length": 100, "epochs": 10, "minibatches": 1},
            },
        },
    ),
}
"""By name; `benchmarks/worlds.py` measures them."""


def preset_tree(names: Iterable[str]) -> dict[str, Any]:
    """The settings of some presets, each over those before it.

    Raises:
        ConfigError: there is none of a name.
    """
    tree: dict[str, Any] = {}
    for name in names:
        if name not in PRESETS:
            near = difflib.get_close_matches(name, PRESETS, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            known = "; ".join(f"{each}: for {preset.suits}" for each, preset in PRESETS.items())
            raise ConfigError(f"there is no preset {name!r}: {hint}There are: {known}")
        tree = overlay(tree, PRESETS[name].tree)
    return tree
