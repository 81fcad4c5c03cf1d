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
    game: str = ""
    """The only one that has the options in it; empty: it has none."""


PRESETS: Mapping[str, Preset] = {
    "mpe": Preset(
        suits="MPE's speaker and listener (`pettingzoo:mpe2.simple_speaker_listener_v4`), and "
        "small worlds like it, in which one is to understand another",
        reason="Episodes of 25 steps, of which each pays: so a short horizon, and a segment for "
        "each episode; 15 passes over each rollout, in one piece, since a world in Python is "
        "slower than the network; and large rollouts of many copies: with fewer steps in an "
        "update a speaker's words are lost in noise, and nobody begins to listen. Spread and tag "
        "come to as much without it, or to more.",
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
        reason="Each pursuer earns what it does itself, by an option of the world: by default all "
        "earn the mean, which adds up to the same for the team and tells nobody whose catch it "
        "was. A turn costs milliseconds, so each rollout is learned from in twice as many passes "
        "as elsewhere, of half the size, at half the rate; and observations, counts divided by "
        "ten, are brought to mean 0 and deviation 1. Policy and value share a network: in "
        "trials on a quick copy of pursuit three of four seeds came to more with it. Checkpoints "
        "and the end are judged as it was learned, with actions that are drawn: pursuers that all "
        "take their likeliest step get stuck.",
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
"""By name; `benchmarks/worlds.py` measures them."""


def over_presets(names: Iterable[str], tree: Mapping[str, Any], source: str) -> dict[str, Any]:
    """A tree of settings over those of some presets."""
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
    """Whether anything is in a tree that another does not say."""
    for key, value in base.items():
        over = tree.get(key)
        if key not in tree or (
            isinstance(value, Mapping) and isinstance(over, Mapping) and _left_of(value, over)
        ):
            return True
    return False


def preset_tree(names: Iterable[str]) -> dict[str, Any]:
    """The settings of some presets, each over those before it."""
    tree: dict[str, Any] = {}
    for name in names:
        if name not in PRESETS:
            near = difflib.get_close_matches(name, PRESETS, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            known = "; ".join(f"{each}: for {preset.suits}" for each, preset in PRESETS.items())
            raise ConfigError(f"there is no preset {name!r}: {hint}There are: {known}")
        tree = overlay(tree, PRESETS[name].tree)
    return tree
