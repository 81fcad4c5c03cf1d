"""The configuration that the words behind `remuda train` stand for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from remuda.config import (
    Config,
    check_presets,
    load_config,
    over_presets,
    overlay,
    preset_tree,
    read_config,
)
from remuda.errors import ConfigError, UsageError
from remuda.ui.arguments import parse_flags, several_values, take_options

AUTO = "auto"
"""After `--resume`: continue what the same command began, else begin; for batch queues."""


def read_arguments(words: Sequence[str]) -> Config:
    """The configuration from flags over YAML files over presets over the defaults.

    Of several files, or presets, each goes over those before it.

    Raises:
        ConfigError: anything in them that is wrong, in one line.
    """
    words, sources = take_configs(words)
    base = _read_sources(sources)
    flags = parse_flags(words, Config, positional="game")
    config = load_config(overlay(base, flags))
    from remuda.envs.registry import find_game

    find_game(config.game)
    check_presets(sources.presets, config.game)
    if "game" not in flags:
        _check_last_words(words, config.game)
    return config


OWN_GAME = re.compile(r"[\w./]+:\w+")
"""How a game of the user's own is named."""


def _check_last_words(words: Sequence[str], game: str) -> None:
    """Raise a `ConfigError` where a game that the user names is read as a value of an option.

    Args:
        words: the flags.
        game: that would be trained instead.
    """
    from remuda.envs.registry import is_known

    for name, (*others, last) in several_values(words, Config):
        own = OWN_GAME.fullmatch(last) and not any(":" in other for other in others)
        if last != game and (is_known(last) or own):
            raise ConfigError(
                f"{last!r} is read as a value of --{name}, and the game would be {game}: name the "
                "game before the options"
            )


class Sources(NamedTuple):
    """Where settings stand besides flags, in order."""

    presets: list[str]
    """Names."""
    files: list[str]
    """Paths of YAML files, which go over presets."""


def take_configs(words: Sequence[str]) -> tuple[list[str], Sources]:
    """The words without any `--preset NAME` and `--config FILE`, and these.

    Raises:
        ConfigError: one is there without a name or a file.
    """
    words, presets = take_options(words, "--preset", "the name of a preset")
    words, files = take_options(words, "--config", "the path of a YAML file")
    return words, Sources(presets, files)


def without_configs(words: Sequence[str], directory: Path) -> Sequence[str]:
    """The words behind `--resume`, among which there is no `--preset` and no `--config`.

    Raises:
        ConfigError: there is one.
    """
    words, sources = take_configs(words)
    if sources.presets or sources.files:
        raise ConfigError(
            f"--preset and --config are for runs that begin; --resume goes on with the settings of "
            f"{directory}, and flags go over them"
        )
    return words


def _read_sources(sources: Sources) -> dict[str, Any]:
    """The tree of presets and files, each over those before it.

    Raises:
        ConfigError: there is no such preset, or files leave nothing of it; a file cannot be read,
            or files are wrong together: as the fault of the first one with which they are.
    """
    own: dict[str, Any] = {}
    trees = []
    for source in sources.files:
        own = overlay(own, read_config(Path(source)))
        trees.append(overlay(preset_tree(sources.presets), own))
    base = over_presets(sources.presets, own, " and ".join(sources.files))
    try:
        load_config(base)
    except ConfigError:
        # Not before: a setting that another in this file needs may stand in the next.
        for tree, source in zip(trees, sources.files, strict=True):
            load_config(tree, source)
    return base


def read_resumed(words: Sequence[str], directory: Path) -> Config:
    """The configuration of the run in `directory`, with flags over it.

    Raises:
        RunDirectoryError: there is no such run.
        ConfigError: anything in the flags that is wrong, in one line.
        UsageError: they name another directory.
    """
    from remuda.coordinator.run_directory import RunDirectory

    saved = RunDirectory.open(directory).read_config().model_dump(mode="json")
    flags = parse_flags(without_configs(words, directory), Config, positional="game")
    named = flags.get("run", {}).get("directory")
    if named is not None and Path(str(named)).expanduser().resolve() != directory.resolve():
        raise UsageError(
            f"--run.directory is {named}, and --resume goes on in {directory}: leave one of them "
            "out"
        )
    tree = overlay(saved, flags)
    return load_config(overlay(tree, {"run": {"directory": directory}}))
