"""The games that come with Sorrel, by name, with their configuration as options.

    $ remuda train sorrel:treasurehunt --env.options.world.spawn_prob 0.01

A section of the game's configuration is an option; what is not set is as in the game's own script.
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
        world: `module:Class`; it takes the configuration, or its section `world` as arguments.
        entity: `module:Class` of what is where nothing else is.
        config: as its own script has it.
        more: by section, what it may have besides.
        is_plain: whether the world takes its section as arguments.
        file: of the configuration, where it is a file of the package; empty: it is `config`.
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
    """The games that can be named."""
    return list(EXAMPLES)


def make_sorrel(name: str, /, num_envs: int = 1, **sections: Any) -> SorrelCopies:
    """Copies of a game that comes with Sorrel.

    Args:
        name: of the game.
        num_envs: copies.
        sections: of its configuration, each a mapping of what is otherwise than in its own script.

    Raises:
        ConfigError: Sorrel is missing, has no such game, or the game has no such key.
    """
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
    """The configuration that comes with a game."""
    from importlib.resources import files

    import yaml

    package = example.environment.partition(":")[0].rpartition(".")[0]
    found: dict[str, Any] = yaml.safe_load(files(package).joinpath(example.file).read_text())
    return found


def _check(
    name: str, example: Example, usual: Mapping[str, Any], sections: Mapping[str, Any]
) -> None:
    """Refuse keys that the game would not look at.

    Raises:
        ConfigError: there is one.
    """
    for section, said in sections.items():
        known = usual.get(section)
        if not isinstance(known, Mapping):
            raise ConfigError(
                f"env.options.{section}: sorrel:{name} has no such section; it has "
                f"{', '.join(key for key, value in usual.items() if isinstance(value, Mapping))}"
            )
        if not isinstance(said, Mapping):
            raise ConfigError(f"env.options.{section} is {said!r}, and takes keys, as {section}.x")
        allowed = [*known, *example.more.get(section, ())]
        for key in said:
            if key not in allowed:
                raise ConfigError(
                    f"env.options.{section}.{key}: sorrel:{name} has no such key; it has "
                    f"{', '.join(allowed) or 'none'}"
                )
