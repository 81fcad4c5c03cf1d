"""The command `remuda train` and its configuration."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from remuda.config import (
    Config,
    check_presets,
    load_config,
    over_own_environment,
    over_presets,
    overlay,
    preset_tree,
    read_config,
)
from remuda.errors import ConfigError, RunDirectoryError
from remuda.system import output
from remuda.ui.cli.arguments import flags_with_several, parse_flags
from remuda.ui.cli.commands.several_runs import SEEDS
from remuda.ui.cli.program import HALTED, set_exit_hints

AUTO = "auto"  # `--resume auto`: continue the run of the same command, or start one
NEEDS = {
    "--preset": "the name of a preset",
    "--config": "the path of a YAML file",
    "--resume": "the directory of the run to continue",
    "--seeds": "the number of seeds to train",
    "--jobs": "the number of seeds to train at a time",
}
"""Options that are no keys of the configuration, and the values they need."""


class TrainOptions(NamedTuple):
    """The command line of `remuda train`."""

    flags: list[str]  # without the options of `NEEDS`
    presets: list[str]
    files: list[str]  # YAML files that override the presets, in order
    resume: str  # empty: a new run
    seeds: str
    jobs: str

    @staticmethod
    def read(words: Sequence[str]) -> TrainOptions:
        """Separate the options of `NEEDS` from the flags of the configuration."""
        flags: list[str] = []
        values: dict[str, list[str]] = {name: [] for name in NEEDS}
        rest = iter(words)
        for word in rest:
            name, equals, value = word.partition("=")
            if name not in NEEDS:
                flags.append(word)
                continue
            value = value if equals else next(rest, "")
            if not value:
                raise ConfigError(f"{name} needs {NEEDS[name]}")
            values[name].append(os.path.expanduser(value))
        for name in ("--resume", "--seeds", "--jobs"):
            if len(values[name]) > 1:
                raise ConfigError(f"{name} is set {len(values[name])} times; set it once")
        presets, files, *single = values.values()
        resume, seeds, jobs = map("".join, single)
        return TrainOptions(flags, presets, files, resume, seeds, jobs)

    def tree(self) -> dict[str, Any]:
        return parse_flags(self.flags, Config, positional="game")

    def refuse_sources(self, directory: Path) -> None:
        """Raise a `ConfigError` if `--preset` or `--config` is used to resume a run."""
        if self.presets or self.files:
            raise ConfigError(
                f"--preset and --config are for new runs; --resume continues with the settings of "
                f"{directory}, and flags override them"
            )


def train(words: Sequence[str]) -> int:
    """Train the policies of a game."""
    options = TrainOptions.read(words)
    resume, is_auto = options.resume, options.resume == AUTO
    if options.seeds or options.jobs or (resume and (Path(resume) / SEEDS).is_file()):
        return _train_seeds(words, options)
    if resume and not is_auto:
        directory = Path(resume)
        options.refuse_sources(directory)
        _announce(str(directory))
        return _train_run(read_resumed(options, directory), options, directory)
    config, path = read_arguments(words), None
    if is_auto:
        from remuda.ui.cli.resuming import resume_at_once

        path = resume_at_once(config)
        if path is not None:
            tree = config.model_dump(mode="json")
            config = load_config(overlay(tree, {"run": {"directory": path}}))
    return _train_run(config, options, path, is_auto=is_auto)


def train_one_of_seeds(words: Sequence[str]) -> int:
    """Train one of several seeds, which share one report."""
    options = TrainOptions.read(words)
    resumed = Path(options.resume) if options.resume else None
    return _train_run(read_arguments(words), options, resumed, with_report=False)


def _train_run(
    config: Config,
    options: TrainOptions,
    resumed: Path | None,
    with_report: bool = True,
    is_auto: bool = False,
) -> int:
    from remuda.runs.run_directory import RunDirectory, how_to_continue

    if resumed is None and config.run.directory is not None:
        RunDirectory.refuse_taken(config.run.directory)  # before slow imports
    _load_libraries(config)

    from remuda.config import by_leaf
    from remuda.runs.result import Result
    from remuda.training.finish import FinishHooks, missing_words
    from remuda.training.run import train as run_training
    from remuda.ui.cli.resuming import offer_to_resume
    from remuda.ui.reports.run_end import Preparation, show_files, show_results
    from remuda.ui.terminal.live import PlayProgress, make_view

    if resumed is None and not is_auto and config.run.directory is None:
        resumed = offer_to_resume(config)
        if resumed is not None:
            is_auto, config = True, read_resumed(options, resumed)
    explicit_keys = frozenset(by_leaf(options.tree()))
    if resumed and is_auto:  # the same command must not reset hyperparameters that evolved
        explicit_keys = frozenset()
    progress = PlayProgress()
    shown: list[str] = []

    def on_results(result: Result) -> None:
        progress.close()
        for note in show_results(RunDirectory.open(result.directory)):
            print(f"note: {note}")
        if not result.finished:
            print(f"{result.ended}; {how_to_continue(RunDirectory(result.directory))}")
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
        result = run_training(config, view, resumed is not None, callbacks, explicit_keys)
        progress.close()
        later = [note for note in result.notes if note not in shown]
        if with_report:
            show_files(RunDirectory.open(result.directory), later, preparation)
    finally:
        progress.close()
        preparation.end()
    if result.unsaved:
        raise RunDirectoryError(missing_words(RunDirectory.open(result.directory), result.unsaved))
    if result.signal is not None:
        return 128 + result.signal
    return HALTED if result.halted else 0


def _announce(what: str, defaults: str = "") -> None:
    """Write the first lines of a run; the imports that follow take seconds.

    `print` would start a thread, and then this process could not fork the server.
    """
    text = f"{defaults}\n" if defaults else ""
    output.write_at_once(1, f"{text}{what}: loading libraries\n".encode(errors="replace"))


def _load_libraries(config: Config) -> None:
    begun = time.monotonic()
    from remuda.system.processes.server import load_and_begin, load_libraries

    if config.schedule != "sequential" or config.env.workers > 1:
        load_and_begin(print)
    else:
        load_libraries(print)
    print(f"loaded in {time.monotonic() - begun:.1f} s; making the environment", flush=True)


def _train_seeds(words: Sequence[str], options: TrainOptions) -> int:
    from remuda.config import by_leaf
    from remuda.ui.cli.seeds import Seeds, number_of, train_seeds

    at_once = number_of(options.jobs, "--jobs") if options.jobs else 1
    flags = options.tree()
    if options.resume and options.resume != AUTO:
        directory = Path(options.resume)
        if options.seeds:
            raise ConfigError("--seeds is for new runs; --resume continues those in the directory")
        if not (directory / SEEDS).is_file():
            raise ConfigError(
                f"--jobs: {directory} is not a directory of several seeds (made by --seeds)"
            )
        if "seed" in flags or "directory" in flags.get("run", {}):
            raise ConfigError("--seed and --run.directory cannot change when seeds are resumed")
        options.refuse_sources(directory)
        seeds = Seeds.open(directory, flags)
    elif not options.seeds:
        raise ConfigError("--jobs needs --seeds: it is the number of seeds to train at a time")
    else:
        config, count = read_arguments(words), number_of(options.seeds, "--seeds")
        earlier = Seeds.begun(config, count) if options.resume else None
        seeds = earlier or Seeds.create(config, count)
    if at_once == 1:
        _load_libraries(seeds.config)
    return train_seeds(seeds, at_once, frozenset(by_leaf(flags)), options.flags)


def read_arguments(words: Sequence[str]) -> Config:
    """Return the configuration: flags override YAML files, which override presets and defaults.

    The run is announced before slow imports.
    """
    options = TrainOptions.read(words)
    base, flags = _read_sources(options), options.tree()
    tree, defaults = over_own_environment(overlay(base, flags))
    config = load_config(tree)
    _announce(f"{config.game}, {config.schedule}, seed {config.seed}", defaults)
    from remuda.envs.registry import find_game

    find_game(config.game)
    check_presets(options.presets, config.game)
    if "game" not in flags:
        _check_last_words(options.flags, config.game)
    return config


def _check_last_words(words: Sequence[str], game: str) -> None:
    """Raise a `ConfigError` if a game's name was read as the value of another option."""
    from remuda.envs.registry import is_known

    for name, (*others, last) in flags_with_several(words, Config):
        own = re.fullmatch(r"[\w./]+:\w+", last) and not any(":" in other for other in others)
        if last != game and (is_known(last) or own):
            raise ConfigError(
                f"{last!r} is read as a value of --{name}, so the game would be {game}: name the "
                "game before the options"
            )


def _read_sources(options: TrainOptions) -> dict[str, Any]:
    """Return the tree of presets and files; later ones override earlier ones."""
    own: dict[str, Any] = {}
    trees = []
    for source in options.files:
        own = overlay(own, read_config(Path(source)))
        trees.append(overlay(preset_tree(options.presets), own))
    base = over_presets(options.presets, own, " and ".join(options.files))
    try:
        load_config(base)
    except ConfigError:
        # Find the file with the error. Files are valid only together: one may need another's keys.
        for tree, source in zip(trees, options.files, strict=True):
            load_config(tree, source)
    return base


def read_resumed(options: TrainOptions, directory: Path) -> Config:
    """Return the configuration of the run in `directory`; flags override it."""
    from remuda.training.python_settings import gone_on_with

    return load_config(gone_on_with(directory, options.tree()))
