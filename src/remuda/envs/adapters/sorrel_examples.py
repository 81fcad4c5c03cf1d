"""The games that come with Sorrel, with their configuration as options.

    $ remuda train sorrel:treasurehunt --env.options.world.spawn_prob 0.01

A section of the game's configuration is an option; its defaults are those of the game's script.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from remuda.config import overlay
from remuda.envs.adapters.sorrel import SorrelCopies
from remuda.errors import ConfigError


@dataclass(frozen=True)
class Example:
    """A game of Sorrel's.

    Attributes:
        environment: `module:Class`.
        world: `module:Class`; its arguments are the configuration, or that of section `world`.
        entity: `module:Class` of empty places.
        config: the defaults of the game's script.
        more: by section, further keys.
        is_plain: whether the world takes its section as arguments.
        file: of the package, that holds the defaults; empty: `config` does.
    """

    environment: str
    world: str
    entity: str
    config: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    is_plain: bool = False
    file: str = ""


def _of(game: str, environment: str, world: str, **rest: Any) -> Example:
    place = f"sorrel.examples.{game}"
    entity = f"{place}.entities:EmptyEntity"
    return Example(f"{place}.env:{environment}", f"{place}.world:{world}", entity, **rest)


EXAMPLES: dict[str, Example] = {
    "treasurehunt": _of(
        "treasurehunt",
        "TreasurehuntEnv",
        "TreasurehuntWorld",
        config={
            "experiment": {"max_turns": 100},
            "model": {"agent_vision_radius": 2, "observation_spec": "rgb"},
            "world": {
                "height": 21,
                "width": 21,
                "gem_value": 10,
                "food_value": 5,
                "bone_value": -10,
                "spawn_prob": 0.005,
            },
        },
        more={"model": ("num_agents",)},
    ),
    "cleanup": _of("cleanup", "CleanupEnv", "CleanupWorld", file="configs/config.yaml"),
    "tag": Example(
        "sorrel.examples.tag.env:TagEnv",
        "sorrel.worlds:Gridworld",
        "sorrel.entities.basic_entities:EmptyEntity",
        config={
            "experiment": {"max_turns": 20},
            "model": {},
            "agent": {"num_agents": 5, "vision_radius": 4},
            "world": {"height": 11, "width": 11, "layers": 1},
        },
        is_plain=True,
    ),
    "iowa": _of(
        "iowa",
        "GamblingEnv",
        "GamblingWorld",
        config={
            "experiment": {"max_turns": 100},
            "model": {
                "agent_vision_radius": 2,
                "parameters": {"layer_size": 250, "epsilon": 0.5, "device": "cpu", "n_frames": 5},
            },
            "world": {"height": 20, "width": 20, "spawn_prob": 0.01},
        },
    ),
}


def names() -> list[str]:
    """Return the names of the games."""
    return list(EXAMPLES)


def make_sorrel(name: str, /, num_envs: int = 1, **sections: Any) -> SorrelCopies:
    """Make copies of a game that comes with Sorrel."""
    example = EXAMPLES.get(name)
    if example is None:
        raise ConfigError(f"sorrel:{name}: there is none; there are {', '.join(EXAMPLES)}")
    try:
        environment, world, entity = (
            getattr(import_module(place), attribute)
            for place, _, attribute in (
                each.partition(":") for each in (example.environment, example.world, example.entity)
            )
        )
    except ImportError as error:
        raise ConfigError(
            f"sorrel:{name} needs Sorrel and Python 3.12 ({error}): pip install 'remuda[sorrel]'"
        ) from None
    usual = _from_file(example) if example.file else dict(example.config)
    _check(name, example, usual, sections)
    config = overlay(usual, sections)

    def made() -> Any:
        if example.is_plain:
            return environment(world(**config["world"], default_entity=entity()), config)
        from omegaconf import OmegaConf

        tree = OmegaConf.create(config)
        return environment(world(config=tree, default_entity=entity()), tree)

    return SorrelCopies(made, num_envs)


def _from_file(example: Example) -> dict[str, Any]:
    from importlib.resources import files

    import yaml

    package = example.environment.partition(":")[0].rpartition(".")[0]
    found: dict[str, Any] = yaml.safe_load(files(package).joinpath(example.file).read_text())
    return found


def _check(
    name: str, example: Example, usual: Mapping[str, Any], sections: Mapping[str, Any]
) -> None:
    for section, own in sections.items():
        known = usual.get(section)
        if not isinstance(known, Mapping):
            raise ConfigError(
                f"env.options.{section}: sorrel:{name} has no such section; it has "
                f"{', '.join(key for key, value in usual.items() if isinstance(value, Mapping))}"
            )
        if not isinstance(own, Mapping):
            raise ConfigError(f"env.options.{section} is {own!r}, and takes keys, as {section}.x")
        allowed = [*known, *example.more.get(section, ())]
        for key in own:
            if key not in allowed:
                raise ConfigError(
                    f"env.options.{section}.{key}: sorrel:{name} has no such key; it has "
                    f"{', '.join(allowed) or 'none'}"
                )
