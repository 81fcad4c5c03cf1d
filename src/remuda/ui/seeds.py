"""`remuda train --seeds N`: the same run with several seeds, in one directory, with one report."""

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

from remuda.checkpoint.names import new_directory
from remuda.checkpoint.opening import read_json
from remuda.checkpoint.plain import checked
from remuda.checkpoint.state import sweep, write_whole
from remuda.config import Config, load_config, overlay
from remuda.coordinator.continuing import continues
from remuda.coordinator.run_directory import RunDirectory
from remuda.errors import ConfigError, RemudaError, RunDirectoryError
from remuda.evaluation import WAYS, way_of
from remuda.ui.commands.several_runs import ONE_OF_SEEDS, SEEDS
from remuda.ui.interrupts import HALTED, tell_at_the_end
from remuda.ui.resuming import without_directory

MEASURED_BY = ("evaluate_episodes", "evaluate_sampled", "evaluate_seconds")
"""Of `run`: what play after training is asked for."""
GLANCE = 0.1
"""Seconds between two looks at runs that train beside each other."""


@dataclass(frozen=True)
class Seeds:
    """Runs that differ by their seed, in one directory; some may not have begun."""

    directory: Path
    config: Config
    """Of all of them, but for the seed and the directory."""
    seeds: tuple[int, ...]

    @staticmethod
    def create(config: Config, count: int) -> Seeds:
        """Make the directory that `config` names, or a new one under `runs/`.

        Raises:
            RunDirectoryError: it holds runs already, or cannot be written.
        """
        directory = config.run.directory or _new_directory(config)
        if (directory / SEEDS).exists() or RunDirectory(directory).config.exists():
            raise RunDirectoryError(
                f"{directory} holds runs already; go on with `remuda train --resume {directory}`, "
                "or name another run.directory"
            )
        made = Seeds(directory, config, tuple(range(config.seed, config.seed + count)))
        made.save()
        return made

    @staticmethod
    def begun(config: Config, count: int, base: Path = Path("runs")) -> Seeds | None:
        """The same seeds if they were begun before; None: they were not, or all are done.

        Those in the directory that `config` names, else the newest of this very configuration that
        are not all done.

        Raises:
            RunDirectoryError: the directory cannot be written.
        """
        wanted = tuple(range(config.seed, config.seed + count))
        if config.run.directory is not None:
            if not (config.run.directory / SEEDS).is_file():
                return None
            found = Seeds(config.run.directory, config, wanted)
            sweep(found.directory)
            found.save()
            return found
        for file in sorted(base.glob(f"*/{SEEDS}"), reverse=True):
            with suppress(RemudaError):
                found = Seeds.open(file.parent, {})
                same = without_directory(found.config) == without_directory(config)
                if same and found.seeds == wanted and len(found.done()) < count:
                    return found
        return None

    @staticmethod
    def open(directory: Path, settings: Mapping[str, Any]) -> Seeds:
        """Those that were begun before, with settings over theirs.

        Raises:
            RunDirectoryError: what is known of them is damaged.
            ConfigError: anything in the settings that is wrong.
        """
        try:
            found = checked(read_json(directory / SEEDS), {"seeds": list, "config": dict})
        except (OSError, ValueError) as error:
            raise RunDirectoryError(f"{directory / SEEDS} is damaged: {error}") from None
        saved = load_config(found["config"]).model_dump(mode="json")
        config = load_config(overlay(saved, settings))
        sweep(directory)
        opened = Seeds(directory, config, tuple(int(seed) for seed in found["seeds"]))
        if settings:  # they hold for whatever goes on later, too
            opened.save()
        return opened

    def save(self) -> None:
        """Write which seeds there are to be, and how configured.

        Raises:
            RunDirectoryError: the disk is full or not writable.
        """
        plain = {"seeds": list(self.seeds), "config": self.config.model_dump(mode="json")}
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            write_whole(self.directory / SEEDS, json.dumps(plain, indent=1).encode())
        except OSError as error:
            raise RunDirectoryError(f"cannot write {self.directory}: {error.strerror}") from None

    def path(self, seed: int) -> Path:
        """The run directory of one seed."""
        return self.directory / f"seed_{seed}"

    def is_done(self, seed: int) -> bool:
        """Whether the run of one seed reached its end, and that is the end asked for now."""
        run = RunDirectory(self.path(seed))
        if not run.is_finished():
            return False
        was, wanted = run.read_config().run, self.config.run
        return (was.turns, was.seconds) == (wanted.turns, wanted.seconds)

    def is_measured(self, seed: int) -> bool:
        """Whether what a run that is over earned is known as it is asked for now.

        That is, by play of that kind, in as many episodes or more. What was cut, or failed, is so
        again unless its limits are other ones now.
        """
        run = RunDirectory(self.path(seed))
        was, wanted = run.read_config().run, self.config.run
        found = run.summary_so_far().get("evaluation")
        if not wanted.evaluate_episodes:
            return True
        if found is None:
            return all(getattr(was, key) == getattr(wanted, key) for key in MEASURED_BY)
        if way_of(found) != WAYS[wanted.evaluate_sampled]:
            return False
        enough = found.get("asked", found["episodes"]) >= wanted.evaluate_episodes
        return enough and not (found.get("cut") and was.evaluate_seconds != wanted.evaluate_seconds)

    def done(self) -> list[Path]:
        """The runs that reached their end."""
        return [self.path(seed) for seed in self.seeds if self.is_done(seed)]

    def config_of(self, seed: int) -> Config:
        """The configuration of one of the runs."""
        tree = self.config.model_dump(mode="json")
        return load_config(overlay(tree, {"seed": seed, "run": {"directory": self.path(seed)}}))

    def prepare(self, seed: int) -> bool:
        """Whether the run of one seed has something to go on from.

        One that was begun and has no whole checkpoint begins anew; its directory is kept aside.

        Raises:
            RunDirectoryError: it is running elsewhere, or cannot be put aside.
        """
        return continues(RunDirectory(self.path(seed)), print)


def number_of(words: str, option: str) -> int:
    """A number of one at least.

    Raises:
        ConfigError: it is none.
    """
    if not re.fullmatch(r"[0-9]+", words) or int(words) < 1:
        raise ConfigError(f"{option} is {words!r}; it is a whole number, 1 or more")
    return int(words)


def train_seeds(seeds: Seeds, jobs: int, said: Collection[str], flags: Sequence[str]) -> int:
    """Train those that are not done, or not measured, `jobs` at a time; returns the exit code.

    Args:
        seeds: which there are to be.
        jobs: so many at a time.
        said: keys that the user wrote.
        flags: the words by which he wrote them.

    Raises:
        RemudaError: one of them cannot be trained; those that are done stay done.
    """
    left = [s for s in seeds.seeds if not (seeds.is_done(s) and seeds.is_measured(s))]
    go_on = f"remuda train --resume {seeds.directory}"
    print(f"{len(seeds.seeds)} seeds of {seeds.config.game} in {seeds.directory}")
    if len(left) < len(seeds.seeds):
        print(f"done already: {len(seeds.seeds) - len(left)}")
    tell_at_the_end(f"what is done is kept; go on with: {go_on}")
    try:
        if jobs > 1:
            caught, halted = _side_by_side(seeds, left, jobs, flags)
        else:
            caught, halted = _in_turn(seeds, left, said)
    except RemudaError as error:
        if seeds.done():
            error.args = (f"{error}. The other seeds: {go_on}",)
        raise
    done = seeds.done()
    if done:
        _tell(seeds, done)
    if len(done) < len(seeds.seeds):
        print(f"{len(done)} of {len(seeds.seeds)} seeds are done; go on with: {go_on}")
    if caught is not None:
        return 128 + caught
    if len(done) < len(seeds.seeds):
        return 1
    return HALTED if halted else 0


def _tell(seeds: Seeds, done: Sequence[Path]) -> None:
    from remuda.ui.comparison import compare, print_comparison

    found = compare(done)
    print_comparison(found)
    try:
        print(f"report    {found.report(seeds.directory)}")
    except RemudaError as error:
        print(f"note: no report: {error}")


def _in_turn(seeds: Seeds, left: Sequence[int], said: Collection[str]) -> tuple[int | None, bool]:
    """Train in this process; returns the signal that ended it, and whether a policy halted."""
    from remuda.finish import Callbacks
    from remuda.training import train
    from remuda.ui.live import make_view
    from remuda.ui.progress import Progress

    halted = False
    for seed in left:
        resumed = seeds.prepare(seed)
        print(f"seed {seed}: {left.index(seed) + 1} of {len(left)}", flush=True)
        progress = Progress()
        try:
            view = make_view(seeds.config.run.live)
            result = train(seeds.config_of(seed), view, resumed, Callbacks(progress), said)
        finally:
            progress.close()
        for note in (*result.notes, *result.unsaved):
            print(f"note: {note}")
        halted = halted or bool(result.halted)
        if result.signal is not None:
            return result.signal, halted
    return None, halted


def _side_by_side(
    seeds: Seeds, left: Sequence[int], jobs: int, flags: Sequence[str]
) -> tuple[int | None, bool]:
    """Train so many at a time, each by a command of its own whose output goes to a file.

    They are stopped by this process only, which hands on the first signal: a terminal's Ctrl-C
    does not reach them, where it would be their second. If this process dies, they stop in order.
    """
    from remuda.coordinator.coordinator import Signals

    waiting, running = list(left), dict[int, subprocess.Popen[bytes]]()
    codes: dict[int, int] = {}
    signals, told = Signals(), False
    with signals.watching():
        try:
            while waiting or running:
                while waiting and len(running) < jobs and not signals.stopped():
                    seed = waiting.pop(0)
                    running[seed] = _start(seeds, seed, flags)
                    print(f"seed {seed} begins; its output: {_log(seeds, seed)}", flush=True)
                time.sleep(GLANCE)
                if signals.stopped() and not told:
                    waiting.clear()
                    told = True
                    _stop(running.values(), signals.caught or signal.SIGTERM)
                for seed in [
                    seed for seed, process in running.items() if process.poll() is not None
                ]:
                    codes[seed] = running.pop(seed).returncode
                    print(f"seed {seed}: {_ended(seeds, seed, codes[seed])}", flush=True)
        finally:
            _stop(running.values(), signal.SIGTERM)
            for process in running.values():
                process.wait()
    return signals.caught, HALTED in codes.values()


def _start(seeds: Seeds, seed: int, flags: Sequence[str]) -> subprocess.Popen[bytes]:
    resumed = seeds.prepare(seed)
    file = seeds.directory / f"seed_{seed}.json"
    file.write_text(json.dumps(seeds.config_of(seed).model_dump(mode="json")))
    words = ["--config", str(file)]
    if resumed:  # the flags are in the file, too, and are told where they have no effect
        words = [*flags, *words, "--resume", str(seeds.path(seed))]
    with _log(seeds, seed).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-c", CHILD, ONE_OF_SEEDS, *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def stop_with_parent() -> None:
    """In the child: get SIGTERM once the process that started it is gone, where the system can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


CHILD = """
from remuda.ui.seeds import stop_with_parent
stop_with_parent()
from remuda.__main__ import main
main()
"""
PR_SET_PDEATHSIG = 1
"""Of `prctl`: the signal that a process gets when its parent dies."""


def _stop(processes: Iterable[subprocess.Popen[bytes]], number: int) -> None:
    for process in processes:
        process.send_signal(number)


def _log(seeds: Seeds, seed: int) -> Path:
    return seeds.directory / f"seed_{seed}.log"


def _ended(seeds: Seeds, seed: int, code: int) -> str:
    if seeds.is_done(seed):
        return str(RunDirectory(seeds.path(seed)).read_summary()["ended"])
    return f"not finished (exit code {code}); {_log(seeds, seed)} tells more"


def _new_directory(config: Config) -> Path:
    try:
        return new_directory(Path("runs"), config.game, "-seeds")
    except OSError as error:
        raise RunDirectoryError(f"cannot make a directory in runs: {error.strerror}") from None
