"""`remuda train --seeds N`: one run with several seeds, in one directory, with one report."""

from __future__ import annotations

import ctypes
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remuda.config import Config, load_config, overlay
from remuda.errors import ConfigError, RemudaError, RunDirectoryError
from remuda.evaluation.results import WAYS, way_of
from remuda.runs.run_directory import RunDirectory, continues
from remuda.system.checkpoint.names import new_directory
from remuda.system.checkpoint.opening import checked, read_json
from remuda.system.checkpoint.state import sweep, write_whole
from remuda.ui.cli.commands.several_runs import ONE_OF_SEEDS, SEEDS
from remuda.ui.cli.program import HALTED, set_exit_hints
from remuda.ui.cli.resuming import without_directory

MEASURED_BY = ("evaluate_episodes", "evaluate_sampled", "evaluate_seconds")
"""Keys of `run` that determine the evaluation after training."""


@dataclass(frozen=True)
class Seeds:
    """Runs that differ only by their seed, in one directory; some may not have started."""

    directory: Path
    config: Config  # the configuration of each run, except its seed and directory
    seeds: tuple[int, ...]

    @staticmethod
    def create(config: Config, count: int) -> Seeds:
        """Create the directory: `run.directory`, or a new directory under `runs/`."""
        try:
            directory = config.run.directory or new_directory(Path("runs"), config.game, "-seeds")
        except OSError as error:
            message = f"cannot make a directory in runs: {error.strerror}"
            raise RunDirectoryError(message) from None
        if (directory / SEEDS).exists() or RunDirectory(directory).config.exists():
            raise RunDirectoryError(
                f"{directory} already contains runs; continue with `remuda train --resume "
                f"{directory}`, or name another run.directory"
            )
        seeds = Seeds(directory, config, tuple(range(config.seed, config.seed + count)))
        seeds.save()
        return seeds

    @staticmethod
    def begun(config: Config, count: int, base: Path = Path("runs")) -> Seeds | None:
        """Return the seeds that the same command started earlier; None: start new ones."""
        numbers = tuple(range(config.seed, config.seed + count))
        if config.run.directory is not None:
            if not (config.run.directory / SEEDS).is_file():
                return None
            earlier = Seeds(config.run.directory, config, numbers)
            sweep(earlier.directory)
            earlier.save()
            return earlier
        for file in sorted(base.glob(f"*/{SEEDS}"), reverse=True):
            with suppress(RemudaError):
                earlier = Seeds.open(file.parent, {})
                same = without_directory(earlier.config) == without_directory(config)
                if same and earlier.seeds == numbers and len(earlier.done()) < count:
                    return earlier
        return None

    @staticmethod
    def open(directory: Path, settings: Mapping[str, Any]) -> Seeds:
        """Open the seeds in a directory; `settings` override their configuration."""
        try:
            record = checked(read_json(directory / SEEDS), {"seeds": list, "config": dict})
        except (OSError, ValueError) as error:
            raise RunDirectoryError(f"{directory / SEEDS} is damaged: {error}") from None
        saved = load_config(record["config"]).model_dump(mode="json")
        config = load_config(overlay(saved, settings))
        sweep(directory)
        opened = Seeds(directory, config, tuple(int(seed) for seed in record["seeds"]))
        if settings:  # the new settings also apply to later resumes
            opened.save()
        return opened

    def save(self) -> None:
        plain = {"seeds": list(self.seeds), "config": self.config.model_dump(mode="json")}
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            write_whole(self.directory / SEEDS, json.dumps(plain, indent=1).encode())
        except OSError as error:
            raise RunDirectoryError(f"cannot write {self.directory}: {error.strerror}") from None

    def path(self, seed: int) -> Path:
        return self.directory / f"seed_{seed}"

    def log(self, seed: int) -> Path:
        """Return the output file of the process that trains a seed."""
        return self.directory / f"seed_{seed}.log"

    def is_done(self, seed: int) -> bool:
        """Return whether the run of a seed finished with the currently configured length."""
        run = RunDirectory(self.path(seed))
        if not run.is_finished():
            return False
        old, new = run.read_config().run, self.config.run
        return (old.turns, old.seconds) == (new.turns, new.seconds)

    def is_measured(self, seed: int) -> bool:
        """Return whether a finished run's configured evaluation was done, or has failed."""
        run = RunDirectory(self.path(seed))
        old, new = run.read_config().run, self.config.run
        result = run.summary_so_far().get("evaluation")
        if not new.evaluate_episodes:
            return True
        if result is None:
            return all(getattr(old, key) == getattr(new, key) for key in MEASURED_BY)
        if way_of(result) != WAYS[new.evaluate_sampled]:
            return False
        is_enough = result.get("asked", result["episodes"]) >= new.evaluate_episodes
        return is_enough and not (
            result.get("cut") and old.evaluate_seconds != new.evaluate_seconds
        )

    def done(self) -> list[Path]:
        return [self.path(seed) for seed in self.seeds if self.is_done(seed)]

    def config_of(self, seed: int) -> Config:
        tree = self.config.model_dump(mode="json")
        return load_config(overlay(tree, {"seed": seed, "run": {"directory": self.path(seed)}}))


def number_of(words: str, option: str) -> int:
    """Parse a whole number of at least 1, or raise a `ConfigError`."""
    if not re.fullmatch(r"[0-9]+", words) or int(words) < 1:
        raise ConfigError(f"{option} is {words!r}; it must be a whole number, 1 or more")
    return int(words)


def train_seeds(
    seeds: Seeds, jobs: int, explicit_keys: Collection[str], flags: Sequence[str]
) -> int:
    """Train the unfinished seeds, `jobs` at a time; return the exit code."""
    todo = [s for s in seeds.seeds if not (seeds.is_done(s) and seeds.is_measured(s))]
    resume = f"remuda train --resume {seeds.directory}"
    print(f"{len(seeds.seeds)} seeds of {seeds.config.game} in {seeds.directory}")
    if len(todo) < len(seeds.seeds):
        print(f"already done: {len(seeds.seeds) - len(todo)}")
    set_exit_hints(f"progress is saved; continue with: {resume}")
    try:
        if jobs > 1:
            caught, halted = _in_parallel(seeds, todo, jobs, flags)
        else:
            caught, halted = _one_by_one(seeds, todo, explicit_keys)
    except RemudaError as error:
        if seeds.done():
            error.args = (f"{error}. To train the other seeds: {resume}",)
        raise
    done = seeds.done()
    if done:
        _report(seeds, done)
    if len(done) < len(seeds.seeds):
        print(f"{len(done)} of {len(seeds.seeds)} seeds are done; continue with: {resume}")
    if caught is not None:
        return 128 + caught
    if len(done) < len(seeds.seeds):
        return 1
    return HALTED if halted else 0


def _report(seeds: Seeds, done: Sequence[Path]) -> None:
    from remuda.ui.reports.comparison import compare, print_comparison

    comparison = compare(done)
    print_comparison(comparison)
    try:
        print(f"report    {comparison.report(seeds.directory)}")
    except RemudaError as error:
        print(f"note: no report: {error}")


def _one_by_one(
    seeds: Seeds, todo: Sequence[int], explicit_keys: Collection[str]
) -> tuple[int | None, bool]:
    """Train in this process; return the signal that ended it, and whether a policy halted."""
    from remuda.training.finish import FinishHooks
    from remuda.training.run import train
    from remuda.ui.terminal.live import PlayProgress, make_view

    halted = False
    for number, seed in enumerate(todo, 1):
        resumed = continues(RunDirectory(seeds.path(seed)), print)
        print(f"seed {seed}: {number} of {len(todo)}", flush=True)
        progress = PlayProgress()
        try:
            view = make_view(seeds.config.run.live)
            result = train(
                seeds.config_of(seed), view, resumed, FinishHooks(progress), explicit_keys
            )
        finally:
            progress.close()
        for note in (*result.notes, *result.unsaved):
            print(f"note: {note}")
        halted = halted or bool(result.halted)
        if result.signal is not None:
            return result.signal, halted
    return None, halted


def _in_parallel(
    seeds: Seeds, todo: Sequence[int], jobs: int, flags: Sequence[str]
) -> tuple[int | None, bool]:
    """Train `jobs` seeds at a time, each in a process whose output goes to a file.

    This process forwards its first signal to the children. Ctrl-C in the terminal does not reach
    them directly, since it would count as their second signal. If this process dies, they stop
    cleanly.
    """
    from remuda.coordinator.coordinator import Signals

    waiting, codes = list(todo), dict[int, int]()
    running: dict[int, subprocess.Popen[bytes]] = {}
    signals, is_stopping = Signals(), False
    with signals.watching():
        try:
            while waiting or running:
                while waiting and len(running) < jobs and not signals.stopped():
                    seed = waiting.pop(0)
                    running[seed] = _start(seeds, seed, flags)
                    print(f"seed {seed} started; its output: {seeds.log(seed)}", flush=True)
                time.sleep(0.1)
                if signals.stopped() and not is_stopping:
                    waiting.clear()
                    is_stopping = True
                    _stop(running.values(), signals.caught or signal.SIGTERM)
                for seed in [s for s, process in running.items() if process.poll() is not None]:
                    codes[seed] = running.pop(seed).returncode
                    print(f"seed {seed}: {_ended(seeds, seed, codes[seed])}", flush=True)
        finally:
            _stop(running.values(), signal.SIGTERM)
            for process in running.values():
                process.wait()
    return signals.caught, HALTED in codes.values()


def _start(seeds: Seeds, seed: int, flags: Sequence[str]) -> subprocess.Popen[bytes]:
    resumed = continues(RunDirectory(seeds.path(seed)), print)
    file = seeds.directory / f"seed_{seed}.json"
    file.write_text(json.dumps(seeds.config_of(seed).model_dump(mode="json")))
    words = ["--config", str(file)]
    if resumed:  # the flags are repeated, so that those without effect are reported
        path = str(seeds.path(seed))
        words = [*flags, "--seed", str(seed), "--run.directory", path, *words, "--resume", path]
    with seeds.log(seed).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-c", CHILD, ONE_OF_SEEDS, *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def stop_with_parent() -> None:
    """Let this child process get SIGTERM when its parent dies (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


CHILD = """
from remuda.ui.cli.seeds import stop_with_parent
stop_with_parent()
from remuda.__main__ import main
main()
"""
PR_SET_PDEATHSIG = 1  # `prctl`: the signal that a process gets when its parent dies


def _stop(processes: Iterable[subprocess.Popen[bytes]], number: int) -> None:
    for process in processes:
        process.send_signal(number)


def _ended(seeds: Seeds, seed: int, code: int) -> str:
    if seeds.is_done(seed):
        return str(RunDirectory(seeds.path(seed)).read_summary()["ended"])
    return f"not finished (exit code {code}); {seeds.log(seed)} explains it"
