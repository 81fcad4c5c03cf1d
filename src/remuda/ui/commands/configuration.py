"""The configuration that the words behind `remuda train` describe."""

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
from remuda.ui.arguments import flags_with_several, parse_flags, take_options

AUTO = "auto"
"""After `--resume`: continue what the same command began, else begin; for batch queues."""


def read_arguments(words: Sequence[str]) -> Config:
    """Return the configuration: flags override YAML files, which override presets and defaults.

    Of several files, or presets, each overrides those before it.

    Raises:
        ConfigError: something in them is wrong; the message is one line.
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
"""The form of the name of a user's game."""


def _check_last_words(words: Sequence[str], game: str) -> None:
    """Raise a `ConfigError` if a game is read as a value of an option, and `game` is trained."""
    from remuda.envs.registry import is_known

    for name, (*others, last) in flags_with_several(words, Config):
        own = OWN_GAME.fullmatch(last) and not any(":" in other for other in others)
        if last != game and (is_known(last) or own):
            raise ConfigError(
                f"{last!r} is read as a value of --{name}, and the game would be {game}: name the "
                "game before the options"
            )


class Sources(NamedTuple):
    """Names of presets, and paths of YAML files that override them, in order."""

    presets: list[str]
    files: list[str]


def take_configs(words: Sequence[str]) -> tuple[list[str], Sources]:
    """Return the words without any `--preset NAME` and `--config FILE`, and these."""
    words, presets = take_options(words, "--preset", "the name of a preset")
    words, files = take_options(words, "--config", "the path of a YAML file")
    return words, Sources(presets, files)


def without_configs(words: Sequence[str], directory: Path) -> Sequence[str]:
    """Return the words behind `--resume`; a `--preset` or `--config` is a `ConfigError`."""
    words, sources = take_configs(words)
    if sources.presets or sources.files:
        raise ConfigError(
            f"--preset and --config are for new runs; --resume continues with the settings of "
            f"{directory}, and flags override them"
        )
    return words


def _read_sources(sources: Sources) -> dict[str, Any]:
    """Return the tree of presets and files, each over those before it.

    Raises:
        ConfigError: there is no such preset, or files override all of it; a file cannot be read,
            or the files are wrong together: then it names the first file with which they are.
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
        # Not before: a setting that this file needs may be in the next.
        for tree, source in zip(trees, sources.files, strict=True):
            load_config(tree, source)
    return base


def read_resumed(words: Sequence[str], directory: Path) -> Config:
    """Return the configuration of the run in `directory`, with flags over it.

    Raises:
        RunDirectoryError: there is no such run.
        ConfigError: something in the flags is wrong; the message is one line.
        UsageError: the flags name another directory.
    """
    from remuda.coordinator.run_directory import RunDirectory

    saved = RunDirectory.open(directory).read_config().model_dump(mode="json")
    flags = parse_flags(without_configs(words, directory), Config, positional="game")
    named = flags.get("run", {}).get("directory")
    if named is not None and Path(str(named)).expanduser().resolve() != directory.resolve():
        raise UsageError(
            f"--run.directory is {named}, and --resume continues in {directory}: leave one of them "
            "out"
        )
    tree = overlay(saved, flags)
    return load_config(overlay(tree, {"run": {"directory": directory}}))
