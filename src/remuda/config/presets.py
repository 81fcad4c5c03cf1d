"""Presets: named settings for a kind of environment, each with a reason (`--preset mpe`)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from remuda.config.sections import overlay
from remuda.errors import ConfigError


@dataclass(frozen=True)
class Preset:
    """A tree of settings above the defaults and below the user's."""

    suits: str
    """The environments that it is for."""
    reason: str
    """Why these settings suit them."""
    tree: Mapping[str, Any]
    game: str = ""
    """The only environment with the options in it; empty: it has no options."""


PRESETS: Mapping[str, Preset] = {
    "mpe": Preset(
        suits="MPE's speaker and listener (`pettingzoo:mpe2.simple_speaker_listener_v4`), and "
        "similar small environments in which agents must learn to communicate",
        reason="Episodes have 25 steps, and each step is rewarded: hence a short horizon and one "
        "segment per episode. An environment in Python is slower than the network: hence 15 epochs "
        "over each rollout, in one minibatch. Rollouts of many copies are large, since in small "
        "updates a speaker's messages are lost in noise and the listener ignores them. Spread and "
        "tag reach the same or more without this preset.",
        tree={
            "env": {"num_envs": 64},
            "policy": {
                "algorithm": "ppo",
                "discount": 0.95,
                "learning_rate": 7e-4,
                "network": {"activation": "relu"},
                "experience": {"segment_length": 25},
                "ppo": {"rollout_length": 50, "epochs": 15, "minibatches": 1},
            },
        },
    ),
    "pursuit": Preset(
        suits="SISL's pursuit (`pettingzoo:sisl/pursuit_v5`)",
        reason="An option of the environment gives each pursuer its own reward. By default all get "
        "the mean, which adds up to the same for the team but does not show whose catch it was. A "
        "turn costs milliseconds, so each rollout gets twice the usual epochs, with minibatches of "
        "half the size and half the learning rate. Observations, which are counts divided by ten, "
        "are normalised. Policy and value share a network, which was better in three of four seeds "
        "on a fast copy of pursuit. Evaluations sample actions, as in training: pursuers that all "
        "take their likeliest action get stuck.",
        game="pettingzoo:sisl/pursuit_v5",
        tree={
            "env": {"options": {"shared_reward": False}},
            "run": {"evaluate_sampled": True},
            "policy": {
                "algorithm": "ppo",
                "learning_rate": 5e-4,
                "network": {"shared": True},
                "ppo": {"epochs": 8, "minibatches": 8, "normalise_observations": True},
            },
        },
    ),
}
"""Named presets; `benchmarks/worlds.py` measures them."""


def over_presets(names: Iterable[str], tree: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Overlay a tree of settings on those of some presets."""
    names = list(names)
    base = preset_tree(names)
    if base and not _left_of(base, tree):
        raise ConfigError(
            f"preset {' '.join(names)} changes nothing, since {source} says all that is in it; "
            "leave one of the two out"
        )
    return overlay(base, tree)


def check_presets(names: str | Iterable[str], game: str) -> None:
    """Raise a `ConfigError` where a preset has options of another game than this."""
    for name in [names] if isinstance(names, str) else names:
        own = PRESETS[name].game
        if own and own != game:
            raise ConfigError(
                f"preset {name} is for {own}, and the game is {game}; leave the preset out, or "
                "name that game"
            )


def _left_of(base: Mapping[str, Any], tree: Mapping[str, Any]) -> bool:
    """Return whether `tree` leaves any setting of `base` unchanged."""
    for key, value in base.items():
        over = tree.get(key)
        if key not in tree or (
            isinstance(value, Mapping) and isinstance(over, Mapping) and _left_of(value, over)
        ):
            return True
    return False


def preset_tree(names: Iterable[str]) -> dict[str, Any]:
    """Overlay presets, later ones overriding earlier ones."""
    tree: dict[str, Any] = {}
    for name in names:
        if name not in PRESETS:
            near = difflib.get_close_matches(name, PRESETS, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            known = "; ".join(f"{each}: for {preset.suits}" for each, preset in PRESETS.items())
            raise ConfigError(f"there is no preset {name!r}: {hint}There are: {known}")
        tree = overlay(tree, PRESETS[name].tree)
    return tree
