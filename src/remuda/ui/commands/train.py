"""The command `remuda train`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from remuda.config import Config
from remuda.errors import ConfigError, RunDirectoryError
from remuda.ui.arguments import parse_flags, take_option
from remuda.ui.commands.configuration import (
    AUTO,
    read_arguments,
    read_resumed,
    take_configs,
    without_configs,
)
from remuda.ui.commands.several_runs import SEEDS
from remuda.ui.interrupts import HALTED, set_exit_hints


def train(words: Sequence[str]) -> int:
    """Train the policies of a game."""
    words, count = take_option(words, "--seeds", "how many seeds to train")
    words, jobs = take_option(words, "--jobs", "how many seeds to train at a time")
    words, resumed = take_option(words, "--resume", "the directory of the run to continue")
    resumed = os.path.expanduser(resumed)
    if resumed == AUTO:
        return _train_or_resume(words, count, jobs)
    if count or jobs or (resumed and (Path(resumed) / SEEDS).is_file()):
        return _train_seeds(words, resumed, count, jobs)
    config = read_resumed(words, Path(resumed)) if resumed else read_arguments(words)
    return _train_run(config, words, resumed, with_report=True)


def train_one_of_seeds(words: Sequence[str]) -> int:
    """Train one of several seeds, which have one report together."""
    words, resumed = take_option(words, "--resume", "the directory of the run to continue")
    return _train_run(read_arguments(words), words, resumed, with_report=False)


def _train_or_resume(words: Sequence[str], count: str, jobs: str) -> int:
    """Continue the run that the same command began, or begin one."""
    if count or jobs:
        return _train_seeds(words, "", count, jobs, is_auto=True)
    config = read_arguments(words)

    from remuda.config import load_config, overlay
    from remuda.ui.resuming import resume_at_once

    path = resume_at_once(config)
    if path is not None:
        tree = config.model_dump(mode="json")
        config = load_config(overlay(tree, {"run": {"directory": path}}))
    return _train_run(config, words, str(path or ""), with_report=True, is_auto=True)


def _train_run(
    config: Config, words: Sequence[str], resumed: str, with_report: bool, is_auto: bool = False
) -> int:
    without_config = take_configs(words)[0]
    _begin_processes(config)

    from remuda.config import by_leaf
    from remuda.coordinator.run_directory import RunDirectory, way_on
    from remuda.finish import FinishHooks, missing_words
    from remuda.result import Result
    from remuda.training import train as run_training
    from remuda.ui.ending import show_files, show_results
    from remuda.ui.live import make_view
    from remuda.ui.preparing import Preparation
    from remuda.ui.progress import PlayProgress
    from remuda.ui.resuming import offer_to_resume

    if not resumed and not is_auto and config.run.directory is None:
        unfinished = offer_to_resume(config)
        if unfinished is not None:
            is_auto = True
            config, resumed = read_resumed(without_config, unfinished), str(unfinished)
    explicit_keys = frozenset(by_leaf(parse_flags(without_config, Config, positional="game")))
    if resumed and is_auto:  # the same command again, although settings may have evolved since
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
        set_exit_hints(f"its report can be made by: remuda report {result.directory}")

    preparation = Preparation()

    def prepare(directory: Path, turns: int) -> None:
        again = f"they can be measured by: remuda evaluate {directory}"
        set_exit_hints("the policies are saved", again)
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
    """Start to load libraries in the fork server, if the run has child processes."""
    if config.schedule != "sequential" or config.env.workers > 1:
        from remuda.forkserver.server import load_and_begin

        load_and_begin(print)


def _train_seeds(
    words: Sequence[str], resumed: str, count: str, jobs: str, is_auto: bool = False
) -> int:
    """Train several seeds of one run; `resumed` is their directory."""
    from remuda.config import by_leaf
    from remuda.ui.seeds import Seeds, number_of, train_seeds

    at_once = number_of(jobs, "--jobs") if jobs else 1
    without_config = take_configs(words)[0]
    flags = parse_flags(without_config, Config, positional="game")
    if resumed:
        if count:
            raise ConfigError("--seeds is for new runs; --resume continues those in the directory")
        if not (Path(resumed) / SEEDS).is_file():
            raise ConfigError(
                f"--jobs: {resumed} does not hold several seeds, as --seeds makes them"
            )
        if "seed" in flags or "directory" in flags.get("run", {}):
            raise ConfigError("--seed and --run.directory cannot change for seeds that continue")
        without_configs(words, Path(resumed))
        seeds = Seeds.open(Path(resumed), flags)
    elif not count:
        raise ConfigError("--jobs is for --seeds: how many of them to train at a time")
    else:
        config, number = read_arguments(words), number_of(count, "--seeds")
        found = Seeds.begun(config, number) if is_auto else None
        seeds = found or Seeds.create(config, number)
    if at_once == 1:
        _begin_processes(seeds.config)
    return train_seeds(seeds, at_once, frozenset(by_leaf(flags)), without_config)
