"""The run directory: the names and contents of a run's files, and how to continue the run."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from remuda.config import Config, load_config, read_config, write_config
from remuda.errors import CheckpointError, RemudaError, RunDirectoryError
from remuda.policies.initial import InitialWeights
from remuda.population.members.imported import ImportedMembers
from remuda.runs.metrics import Record, read_metrics
from remuda.runs.reserve import Reserve
from remuda.system import loading
from remuda.system.checkpoint.names import file_name, new_directory
from remuda.system.checkpoint.opening import (
    ANY_SIZE,
    NUMBER,
    Kinds,
    checked,
    checked_all,
    open_file,
    read_checked,
    read_file,
    read_json,
)
from remuda.system.checkpoint.state import load_tensors, save_tensors, sweep, write_whole
from remuda.system.checkpoint.store import Checkpoints
from remuda.types import Floats

if TYPE_CHECKING:
    from remuda.population.run_spec import RunSpec

NEEDED = 8 * 2**20  # free bytes that a run needs to start: weights, metrics, plots

SUMMARY: Kinds = {
    **dict.fromkeys(("game", "schedule", "ended", "layout", "version"), str),
    **dict.fromkeys(("seed", "turns", "agent_steps", "waits"), int),
    **dict.fromkeys(("seconds", "agent_steps_per_second", "earlier"), NUMBER),
    **dict.fromkeys(("restarts", "processors"), dict),
    **dict.fromkeys(("halted", "notes"), list),
    "evaluation": (dict, NoneType),
}
PROBED = 1.0
"""Seconds to retry a lock: processes hold it briefly to check whether the run is active."""


def _claimed(descriptor: int, how: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file, exclusive or shared (`LOCK_SH`); False if another lock prevents it."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _running(path: Path) -> RunDirectoryError:
    more = f"see `remuda status {path}`"
    return RunDirectoryError(f"another process is running {path}; {more}")


class RunDirectory:
    """The directory of one run.

    Its files are config.yaml, environment.json (the description of its environment),
    code-DIGEST.pkl (pickled user code), code-paths.json (paths of the user's modules), lock,
    metrics.jsonl, ledger.bin (matches of a population), status.json, summary.json, report.html with
    its plots, play.gif, weights/POLICY.safetensors, checkpoints/, logs/PROCESS.log and
    tensorboard/. Initial weights from other runs are in initial/, members from other runs in
    imported.safetensors. Resumes add their changes of the configuration to changes.jsonl and move
    replaced files to earlier/1/, earlier/2/ and so on.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.environment = path / "environment.json"
        self.metrics = path / "metrics.jsonl"
        self.ledger = path / "ledger.bin"
        self.summary = path / "summary.json"
        self.changes = path / "changes.jsonl"
        self.weights = path / "weights"
        self.logs = path / "logs"
        self.tensorboard = path / "tensorboard"
        self.recording = path / "play.gif"
        self.status = path / "status.json"
        self.checkpoints = Checkpoints(path / "checkpoints")
        self.initial = InitialWeights(path / "initial")
        self.imported = ImportedMembers(path / "imported.safetensors")
        self.reserve = Reserve(path)
        self._lock: int | None = None

    @staticmethod
    def create(config: Config, spec: RunSpec | None = None) -> RunDirectory:
        """Create the directory `run.directory`, or a new directory under `runs/`."""
        path = config.run.directory or Path("runs")
        try:
            if config.run.directory is None:
                shown = loading.without_digest(config.game).removeprefix(loading.PREFIX)
                path = new_directory(path, shown)
            run = RunDirectory(path.absolute())  # user code may change the current directory
            RunDirectory.refuse_taken(path)
            for directory in (run.weights, run.logs, run.tensorboard):
                directory.mkdir(parents=True, exist_ok=True)
            free = os.statvfs(path).f_bavail * os.statvfs(path).f_frsize
            if free < NEEDED:
                raise RunDirectoryError(
                    f"{path} has {free / 2**20:.1f} MiB free, and a run needs "
                    f"{NEEDED / 2**20:.0f} MiB; make space, or name another run.directory"
                )
            run.lock()
            run.save_code(config)
            if spec is not None:
                run.save_spec(spec)
            run.save_config(config)
        except RunDirectoryError:
            run.unlock()
            raise
        except OSError as error:
            raise RunDirectoryError(
                f"cannot write the run directory {path}: {error.strerror}; "
                "name another with --run.directory"
            ) from None
        return run

    @staticmethod
    def refuse_taken(path: Path) -> None:
        """Raise a RunDirectoryError if there is a run in a directory."""
        run = RunDirectory(path.absolute())
        try:
            is_taken = run.config.exists()
        except OSError as error:
            raise RunDirectoryError(
                f"cannot write the run directory {path}: {error.strerror}; "
                "name another with --run.directory"
            ) from None
        if is_taken:
            run.refuse_if_running()
            raise RunDirectoryError(
                f"{path} holds a run already; {way_on(run)}; or name another run.directory"
            )

    @staticmethod
    def open(path: Path) -> RunDirectory:
        run = RunDirectory(Path(os.path.expanduser(path)).absolute())
        try:
            is_there = run.path.exists()
        except OSError as error:
            raise RunDirectoryError(f"{path} is no run directory: {error.strerror}") from None
        if not is_there:
            raise RunDirectoryError(
                f"{path} is no run directory: it does not exist; `remuda runs` lists the runs"
            )
        if not run.config.is_file():
            if next(run.path.glob("*/config.yaml"), None) is not None:
                raise RunDirectoryError(
                    f"{path} is no run directory but contains runs: name one of them; "
                    f"`remuda runs {path}` lists them"
                )
            raise RunDirectoryError(f"{path} is no run directory: it has no config.yaml")
        if not run.is_running():
            run._sweep()
        return run

    def lock(self) -> None:
        """Lock the run for this process, until the process ends."""
        file = self.path / "lock"
        try:
            self._lock = open_file(file, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise RunDirectoryError(
                f"cannot write {file}: {error.strerror}; a run writes into its directory: make it "
                "writable, or copy the run elsewhere"
            ) from None
        until = time.monotonic() + PROBED
        while not _claimed(self._lock):
            if time.monotonic() < until:
                time.sleep(0.01)
                continue
            self.unlock()
            raise _running(self.path)
        self._sweep()

    def _sweep(self) -> None:
        for directory in (self.path, self.checkpoints.path, self.weights, self.initial.path):
            sweep(directory)

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def refuse_if_running(self) -> None:
        if self.is_running():
            raise _running(self.path)

    def is_running(self) -> bool:
        """Return whether a process is running this run; the check takes a shared lock."""
        try:
            descriptor = open_file(self.path / "lock")
        except OSError:
            return False
        try:
            return not _claimed(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)

    def is_finished(self) -> bool:
        return bool(self.summary_so_far().get("finished", False))

    def rewind(self, turns: int, records: int = 0, over: bool = False) -> list[int]:
        """Cut metrics to `turns` and the ledger to `records` for a resume; keep copies in earlier/.

        If the run is `over`, nothing is cut. Return the numbers of damaged lines of the metrics.
        """
        damaged: list[int] = []
        try:
            kept = self._earlier()
            shutil.copy2(self.config, kept)
            for path in (self.weights, self.tensorboard):
                path.mkdir(exist_ok=True)  # missing in copies without empty directories
            if self.metrics.exists() and not over:
                self._cut_metrics(turns, kept, damaged)
            if self.ledger.exists() and not over:
                from remuda.population.ledger.ledger import copy_later

                copy_later(self.ledger, records, kept / self.ledger.name)
            if self.summary.exists():
                (shutil.copy2 if over else Path.rename)(self.summary, kept / self.summary.name)
            (kept / self.weights.name).mkdir()
            for path in () if over else self.weights.glob("*.safetensors"):
                path.rename(kept / self.weights.name / path.name)
        except OSError as error:
            raise RunDirectoryError(
                f"cannot write the run directory {self.path}: {error.strerror}"
            ) from None
        except ValueError as error:
            raise RunDirectoryError(
                f"{self.metrics} is damaged: {error}; move it away to resume without it"
            ) from None
        return damaged

    def _earlier(self) -> Path:
        base = self.path / "earlier"
        base.mkdir(exist_ok=True)
        taken = [int(path.name) for path in base.iterdir() if path.name.isdecimal()]
        kept = base / str(max(taken, default=0) + 1)
        kept.mkdir()
        return kept

    def _cut_metrics(self, turns: int, kept: Path, damaged: list[int]) -> None:
        """Remove later turns and a half-written line from the metrics, after saving a copy."""
        shown = [record.turns for record in read_metrics(self.metrics, damaged)]
        data = read_file(self.metrics, ANY_SIZE)
        lines = data.splitlines(keepends=True)
        if all(count <= turns for count in shown) and data.endswith(b"\n"):
            return
        shutil.copy2(self.metrics, kept)
        counts, left = iter(shown), []
        for number, line in enumerate(lines, 1):
            if line.endswith(b"\n") and (number in damaged or next(counts) <= turns):
                left.append(line)
        write_file(self.metrics, b"".join(left))

    def read_config(self) -> Config:
        tree = read_config(self.config)
        if not tree:  # otherwise defaults would replace the lost values
            raise RunDirectoryError(f"{self.config} is damaged: it is empty")
        return load_config(tree, str(self.config))

    def save_config(self, config: Config) -> None:
        try:
            write_config(config, self.config)
        except OSError as error:
            raise RunDirectoryError(f"cannot write {self.config}: {error.strerror}") from None

    def spec(self) -> RunSpec:
        """Return the resolved settings; make an environment only if no description is saved."""
        from remuda.envs.description import EnvSpec
        from remuda.population.run_spec import RunSpec

        config = self.read_config()
        env, options = None, config.env.made_with
        if self.environment.exists():
            try:
                env = EnvSpec.from_plain(read_json(self.environment), config.game, options)
            except (ValueError, OSError) as error:
                raise RunDirectoryError(
                    f"{self.environment} is damaged: {error}; if you remove it, the environment is "
                    "described again"
                ) from None
        return RunSpec(config, EnvSpec.of(config.game, options) if env is None else env)

    def save_spec(self, spec: RunSpec) -> None:
        """Write the description of the environment, unless it has spaces of user-defined types."""
        plain = spec.env.to_plain()
        if plain is None:
            self.environment.unlink(missing_ok=True)
        else:
            write_file(self.environment, json.dumps(plain).encode())

    def save_code(self, config: Config) -> None:
        """Write pickled user code, and the paths of other modules."""
        tree = config.model_dump(mode="json")
        for name in loading.names_in(tree):
            write_file(self.path / loading.file_name(name), loading.pickle_of(name))
        found = loading.found_here(tree)
        write_file(self.path / loading.PATHS, json.dumps(found, indent=1).encode())

    def read_metrics(self, damaged: list[int] | None = None) -> tuple[Record, ...]:
        try:
            return tuple(read_metrics(self.metrics, damaged))
        except OSError as error:
            raise RunDirectoryError(f"cannot read {self.metrics}: {error.strerror}") from None
        except ValueError as error:
            raise RunDirectoryError(f"{self.metrics} is damaged: {error}") from None

    def save_weights(
        self, policy: str, tensors: Mapping[str, Floats], metadata: dict[str, str]
    ) -> None:
        """Write a policy's named parameters atomically."""
        write_file(self._weights_of(policy), save_tensors(tensors, metadata))

    def has_weights(self, policy: str) -> bool:
        """Return whether a policy's final parameters were saved."""
        return self._weights_of(policy).exists()

    def saved_policies(self, among: Sequence[str]) -> tuple[str, ...]:
        """Return the policies of the newest save; `among`: the names to look for."""
        present = tuple(name for name in among if self.has_weights(name))
        if not present:
            return ()
        # An interrupted save may have left the weights of retired policies.
        last = max(present, key=lambda name: self._weights_of(name).stat().st_mtime_ns)
        saved = self.load_weights(last)[1].get("policies")
        return present if saved is None else tuple(saved.split("\n"))

    def keep_weights(self, policies: Collection[str]) -> None:
        """Remove the saved parameters of all other policies, which have retired."""
        kept = {self._weights_of(policy) for policy in policies}
        for path in self.weights.glob("*.safetensors"):
            if path not in kept:
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    raise RunDirectoryError(f"cannot remove {path}: {error.strerror}") from None

    def _weights_of(self, policy: str) -> Path:
        return self.weights / f"{file_name(policy)}.safetensors"

    def load_weights(self, policy: str) -> tuple[dict[str, Floats], dict[str, str]]:
        """Read a policy's named parameters, and the metadata saved with them."""
        path = self._weights_of(policy)
        try:
            return load_tensors(read_file(path, ANY_SIZE))
        except FileNotFoundError:
            raise RunDirectoryError(
                f"{path} is missing: the run has not ended, or saved nothing"
            ) from None
        except (ValueError, OSError) as error:
            raise RunDirectoryError(f"{path} is damaged: {error}") from None

    def save_summary(self, summary: Mapping[str, Any]) -> None:
        write_file(self.summary, json.dumps(summary, indent=2).encode())

    def read_summary(self) -> dict[str, Any]:
        return read_checked(self.summary, _checked, "the run has not ended")

    def summary_so_far(self) -> dict[str, Any]:
        """Read the results of the run; empty if missing or damaged."""
        try:
            return self.read_summary()
        except RunDirectoryError:
            return {}


MEASURED = ("mean", "standard_error")
"""Keys of a measured value; both may be None, for example if a return was not finite."""


def _checked(data: object) -> dict[str, Any]:
    summary = checked(data, SUMMARY)
    for name in ("restarts", "processors"):
        checked(summary[name], dict.fromkeys(summary[name], NUMBER))
    evaluation = summary["evaluation"]
    if evaluation is not None:
        checked(evaluation, {"episodes": int, "agents": dict})
        for name in ("agents", "episode_metrics", "policies"):
            if name in evaluation:
                checked_all(evaluation[name], dict.fromkeys(MEASURED, (*NUMBER, NoneType)))
    return summary


def write_file(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    try:
        write_whole(path, data)
    except OSError as error:
        raise RunDirectoryError(f"cannot write {path}: {error.strerror}") from None


def can_continue(run: RunDirectory) -> bool:
    """Return whether a run has a checkpoint with a valid manifest."""
    for number in reversed(run.checkpoints.numbers()):
        try:
            run.checkpoints.manifest(number)
        except CheckpointError:
            continue
        return True
    return False


def continues(run: RunDirectory, say: Callable[[str], None]) -> bool:
    """Return whether a directory has a run to continue; move a run without a checkpoint away."""
    if not run.config.exists():
        return False
    run.refuse_if_running()
    if can_continue(run):
        return True
    aside, number = run.path.with_name(f"{run.path.name}-given-up"), 1
    while aside.exists():
        number += 1
        aside = run.path.with_name(f"{run.path.name}-given-up-{number}")
    try:
        run.path.rename(aside)
    except OSError as error:
        raise RunDirectoryError(f"cannot move {run.path}: {error.strerror}") from None
    say(f"{run.path} has no checkpoint to continue from: the run was moved to {aside} and restarts")
    return False


def begin_anew(run: RunDirectory) -> str:
    """Return how to start a new run with the same configuration, as a clause."""
    config = shlex.quote(str(run.config))
    return f"start a new run: remuda train --config {config} --run.directory NEW"


def way_on(run: RunDirectory) -> str:
    """Return how to continue an unfinished run, as a clause."""
    path = shlex.quote(str(run.path))
    if not can_continue(run):
        return f"it has no checkpoint to continue from: {begin_anew(run)}"
    try:
        tree = run.read_config().model_dump(mode="json")
    except RemudaError:
        tree = {}
    if loading.is_pickled(str(tree.get("game", ""))):  # its code must be passed again
        return f'continue with: remuda.train(THE GAME, resume="{run.path}")'
    if any(loading.names_in(tree)):
        return f'pass the same code again: remuda.train(..., resume="{run.path}")'
    return f"continue with: remuda train --resume {path}"
