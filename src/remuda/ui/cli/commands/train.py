"""The command `remuda train` and its configuration."""

from __future__ import annotations

import os
import re
import sys
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
from remuda.errors import ConfigError, RunDirectoryError, UsageError
from remuda.ui.cli.arguments import flags_with_several, parse_flags, take_option, take_options
from remuda.ui.cli.commands.several_runs import SEEDS
from remuda.ui.cli.program import HALTED, set_exit_hints


def train(words: Sequence[str]) -> int:
    """Train the policies of a game."""
    words, count = take_option(words, "--seeds", "the number of seeds to train")
    words, jobs = take_option(words, "--jobs", "the number of seeds to train at a time")
    words, resumed = take_option(words, "--resume", "the directory of the run to continue")
    resumed = os.path.expanduser(resumed)
    if resumed == AUTO:
        return _train_or_resume(words, count, jobs)
    if count or jobs or (resumed and (Path(resumed) / SEEDS).is_file()):
        return _train_seeds(words, resumed, count, jobs)
    config = read_resumed(words, Path(resumed)) if resumed else read_arguments(words)
    return _train_run(config, words, resumed, with_report=True)


def train_one_of_seeds(words: Sequence[str]) -> int:
    """Train one of several seeds, which share one report."""
    words, resumed = take_option(words, "--resume", "the directory of the run to continue")
    return _train_run(read_arguments(words), words, resumed, with_report=False)


def _train_or_resume(words: Sequence[str], count: str, jobs: str) -> int:
    if count or jobs:
        return _train_seeds(words, "", count, jobs, is_auto=True)
    config = read_arguments(words)

    from remuda.config import load_config, overlay
    from remuda.ui.cli.resuming import resume_at_once

    path = resume_at_once(config)
    if path is not None:
        tree = config.model_dump(mode="json")
        config = load_config(overlay(tree, {"run": {"directory": path}}))
    return _train_run(config, words, str(path or ""), with_report=True, is_auto=True)


def _train_run(
    config: Config, words: Sequence[str], resumed: str, with_report: bool, is_auto: bool = False
) -> int:
    from remuda.runs.run_directory import RunDirectory, way_on

    without_config = take_configs(words)[0]
    if not resumed and config.run.directory is not None:
        RunDirectory.refuse_taken(config.run.directory)  # before slow imports
    _begin_processes(config)

    from remuda.config import by_leaf
    from remuda.runs.result import Result
    from remuda.training.finish import FinishHooks, missing_words
    from remuda.training.run import train as run_training
    from remuda.ui.cli.resuming import offer_to_resume
    from remuda.ui.reports.run_end import Preparation, show_files, show_results
    from remuda.ui.terminal.live import PlayProgress, make_view

    if not resumed and not is_auto and config.run.directory is None:
        unfinished = offer_to_resume(config)
        if unfinished is not None:
            is_auto = True
            config, resumed = read_resumed(without_config, unfinished), str(unfinished)
    explicit_keys = frozenset(by_leaf(parse_flags(without_config, Config, positional="game")))
    if resumed and is_auto:  # the same command must not reset hyperparameters that evolved
        explicit_keys = frozenset()
    progress = PlayProgress()
    shown: list[str] = []

    def on_results(result: Result) -> None:
        progress.close()
        for note in show_results(RunDirectory.open(result.directory)):
            print(f"note: {note}")
        if not result.finished:
            print(f"{result.ended}; {way_on(RunDirectory(result.directory))}")
        sys.stdout.flush()
        shown.extend(result.notes)
        set_exit_hints(f"to write its report: remuda report {result.directory}")

    preparation = Preparation()

    def prepare(directory: Path, turns: int) -> None:
        hint = f"to evaluate them: remuda evaluate {directory}"
        set_exit_hints("the policies are saved", hint)
        if with_report:
            preparation.begin(RunDirectory.open(directory), turns > 0)

    callbacks = FinishHooks(progress, prepare, on_results)
    try:
        view = make_view(config.run.live)
        result = run_training(config, view, bool(resumed), callbacks, explicit_keys)
    finally:
        progress.close()
        preparation.end()
    later = [note for note in result.notes if note not in shown]
    if with_report:
        show_files(RunDirectory.open(result.directory), later, preparation.picture)
    if result.unsaved:
        raise RunDirectoryError(missing_words(RunDirectory.open(result.directory), result.unsaved))
    if result.signal is not None:
        return 128 + result.signal
    return HALTED if result.halted else 0


def _begin_processes(config: Config) -> None:
    if config.schedule != "sequential" or config.env.workers > 1:
        from remuda.system.processes.server import load_and_begin

        load_and_begin(print)


def _train_seeds(
    words: Sequence[str], resumed: str, count: str, jobs: str, is_auto: bool = False
) -> int:
    from remuda.config import by_leaf
    from remuda.ui.cli.seeds import Seeds, number_of, train_seeds

    at_once = number_of(jobs, "--jobs") if jobs else 1
    without_config = take_configs(words)[0]
    flags = parse_flags(without_config, Config, positional="game")
    if resumed:
        if count:
            raise ConfigError("--seeds is for new runs; --resume continues those in the directory")
        if not (Path(resumed) / SEEDS).is_file():
            raise ConfigError(
                f"--jobs: {resumed} is not a directory of several seeds (made by --seeds)"
            )
        if "seed" in flags or "directory" in flags.get("run", {}):
            raise ConfigError("--seed and --run.directory cannot change when seeds are resumed")
        without_configs(words, Path(resumed))
        seeds = Seeds.open(Path(resumed), flags)
    elif not count:
        raise ConfigError("--jobs needs --seeds: it is the number of seeds to train at a time")
    else:
        config, number = read_arguments(words), number_of(count, "--seeds")
        found = Seeds.begun(config, number) if is_auto else None
        seeds = found or Seeds.create(config, number)
    if at_once == 1:
        _begin_processes(seeds.config)
    return train_seeds(seeds, at_once, frozenset(by_leaf(flags)), without_config)


AUTO = "auto"  # `--resume auto`: continue the run of the same command, or start one


def read_arguments(words: Sequence[str]) -> Config:
    """Return the configuration: flags override YAML files, which override presets and defaults."""
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


OWN_GAME = re.compile(r"[\w./]+:\w+")  # the form of the name of a user's game


def _check_last_words(words: Sequence[str], game: str) -> None:
    """Raise a `ConfigError` if a game's name was read as the value of another option."""
    from remuda.envs.registry import is_known

    for name, (*others, last) in flags_with_several(words, Config):
        own = OWN_GAME.fullmatch(last) and not any(":" in other for other in others)
        if last != game and (is_known(last) or own):
            raise ConfigError(
                f"{last!r} is read as a value of --{name}, so the game would be {game}: name the "
                "game before the options"
            )


class Sources(NamedTuple):
    """Names of presets, and paths of YAML files that override them, in order."""

    presets: list[str]
    files: list[str]


def take_configs(words: Sequence[str]) -> tuple[list[str], Sources]:
    """Separate the `--preset NAME` and `--config FILE` options from the other words."""
    words, presets = take_options(words, "--preset", "the name of a preset")
    words, files = take_options(words, "--config", "the path of a YAML file")
    return words, Sources(presets, files)


def without_configs(words: Sequence[str], directory: Path) -> Sequence[str]:
    """Return the words; raise a `ConfigError` if `--preset` or `--config` is among them."""
    words, sources = take_configs(words)
    if sources.presets or sources.files:
        raise ConfigError(
            f"--preset and --config are for new runs; --resume continues with the settings of "
            f"{directory}, and flags override them"
        )
    return words


def _read_sources(sources: Sources) -> dict[str, Any]:
    """Return the tree of presets and files; later ones override earlier ones."""
    own: dict[str, Any] = {}
    trees = []
    for source in sources.files:
        own = overlay(own, read_config(Path(source)))
        trees.append(overlay(preset_tree(sources.presets), own))
    base = over_presets(sources.presets, own, " and ".join(sources.files))
    try:
        load_config(base)
    except ConfigError:
        # Find the file with the error. Files are valid only together: one may need another's keys.
        for tree, source in zip(trees, sources.files, strict=True):
            load_config(tree, source)
    return base


def read_resumed(words: Sequence[str], directory: Path) -> Config:
    """Return the configuration of the run in `directory`; flags override it."""
    from remuda.runs.run_directory import RunDirectory

    saved = RunDirectory.open(directory).read_config().model_dump(mode="json")
    flags = parse_flags(without_configs(words, directory), Config, positional="game")
    named = flags.get("run", {}).get("directory")
    if named is not None and Path(str(named)).expanduser().resolve() != directory.resolve():
        raise UsageError(
            f"--run.directory is {named}, but --resume continues {directory}: leave out one of them"
        )
    tree = overlay(saved, flags)
    return load_config(overlay(tree, {"run": {"directory": directory}}))
