"""The configuration that the words behind `remuda train` stand for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from remuda.config import Config, load_config, overlay, read_config
from remuda.errors import UsageError
from remuda.ui.arguments import parse_flags, take_option


def read_arguments(words: Sequence[str]) -> Config:
    """The configuration from flags over the YAML file of `--config` over the defaults.

    Raises:
        ConfigError: anything in them that is wrong, in one line.
    """
    base: dict[str, Any] = {}
    words, source = take_option(words, "--config", "the path of a YAML file")
    if source:
        base = read_config(Path(source).expanduser())
        load_config(base, source)  # a fault in the file is told as the file's
    config = load_config(overlay(base, parse_flags(words, Config, positional="game")))
    from remuda.envs.registry import find_game

    find_game(config.game)
    return config


def read_resumed(words: Sequence[str], directory: Path) -> Config:
    """The configuration of the run in `directory`, with flags over it.

    Raises:
        RunDirectoryError: there is no such run.
        ConfigError: anything in the flags that is wrong, in one line.
        UsageError: they name another directory.
    """
    from remuda.coordinator.run_directory import RunDirectory

    saved = RunDirectory.open(directory).read_config().model_dump(mode="json")
    flags = parse_flags(words, Config, positional="game")
    named = flags.get("run", {}).get("directory")
    if named is not None and Path(str(named)).expanduser().resolve() != directory.resolve():
        raise UsageError(
            f"--run.directory is {named}, and --resume goes on in {directory}: leave one of them "
            "out"
        )
    tree = overlay(saved, flags)
    return load_config(overlay(tree, {"run": {"directory": directory}}))
