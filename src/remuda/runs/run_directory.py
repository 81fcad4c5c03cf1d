"""The run directory: the names and contents of a run's files, and how to continue the run."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.config import Config, load_config, read_config, write_config
from remuda.config.algorithm_registry import (
    NO_ENTRIES,
    Entries,
    entries_from_plain,
    entries_to_plain,
)
from remuda.errors import CheckpointError, RemudaError, RunDirectoryError
from remuda.policies.initial import InitialWeights
from remuda.population.members.imported import ImportedMembers
from remuda.runs.metrics import Record, read_metrics
from remuda.runs.result import checked_summary
from remuda.system import loading
from remuda.system.checkpoint.names import file_name, new_directory
from remuda.system.checkpoint.opening import (
    ANY_SIZE,
    open_file,
    read_checked,
    read_file,
    read_json,
)
from remuda.system.checkpoint.state import load_tensors, save_tensors, sweep, write_whole
from remuda.system.checkpoint.store import Checkpoints
from remuda.system.trust import SIGNATURES, as_bytes, note_names, sign
from remuda.types import Floats

if TYPE_CHECKING:
    from remuda.population.run_spec import RunSpec

NAME_ANOTHER = "; name another with --run.directory"
RESULTS = 2**20  # reserved bytes for the summary and other results
NEEDED = 8 * 2**20  # free bytes that a run needs to start: weights, metrics, plots

EXPLOIT_TARGET, PSRO_RECORD = "target.safetensors", "psro.jsonl"
"""Files that mark the directories of `remuda exploit` and `remuda psro`, with the runs inside."""

CLONED = "remuda.imitate cloned these policies, and nothing was trained here; evaluate them"
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
    return RunDirectoryError(f"another process is running {path}; see `remuda status {path}`")


@contextmanager
def writing(what: str | Path, advice: str = "") -> Iterator[None]:
    """Raise errors of the operating system as a `RunDirectoryError`."""
    try:
        yield
    except OSError as error:
        raise RunDirectoryError(f"cannot write {what}: {error.strerror or error}{advice}") from None


class Reserve:
    """An unlinked file that reserves disk space until the process ends."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None

    def hold(self, size: int) -> None:
        self.release()
        path = self._directory / f".reserve.{os.getpid()}.tmp"
        with suppress(OSError):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            path.unlink()
            os.posix_fallocate(self._descriptor, 0, size + RESULTS)

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class RunDirectory:
    """The directory of one run.

    Its files are config.yaml, environment.json (the description of its environment),
    algorithms.json (the properties of users' algorithms), code-DIGEST.pkl (pickled user code),
    code-paths.json (paths of the user's modules), code-signatures.json (of both), lock,
    metrics.jsonl, ledger.bin (matches of a population), status.json, summary.json, report.html
    with its plots, play.gif, weights/POLICY.safetensors, checkpoints/, logs/PROCESS.log and
    tensorboard/. Initial weights from other runs are in initial/, members from other runs in
    imported.safetensors. Resumes add their changes of the configuration to changes.jsonl and move
    replaced files to earlier/1/, earlier/2/ and so on. `remuda.imitate` writes its settings to
    imitation.json.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.environment = path / "environment.json"
        self.algorithms = path / "algorithms.json"
        self.metrics = path / "metrics.jsonl"
        self.ledger = path / "ledger.bin"
        self.summary = path / "summary.json"
        self.changes = path / "changes.jsonl"
        self.imitation = path / "imitation.json"
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
        path = config.run.directory
        if path is None:
            shown = loading.without_digest(config.game).removeprefix(loading.PREFIX)
            with writing("the run directory runs", NAME_ANOTHER):
                path = new_directory(Path("runs"), shown)
        RunDirectory.refuse_taken(path)
        run = RunDirectory(path.absolute())  # user code may change the current directory
        with ExitStack() as stack, writing(f"the run directory {path}", NAME_ANOTHER):
            for directory in (run.weights, run.logs, run.tensorboard):
                directory.mkdir(parents=True, exist_ok=True)
            free = os.statvfs(path).f_bavail * os.statvfs(path).f_frsize
            if free < NEEDED:
                raise RunDirectoryError(
                    f"{path} has {free / 2**20:.1f} MiB free, and a run needs "
                    f"{NEEDED / 2**20:.0f} MiB; make space, or name another run.directory"
                )
            run.lock()
            stack.callback(run.unlock)
            run.save_code(config)
            if spec is not None:
                run.save_spec(spec)
            run.save_config(config)
            stack.pop_all()
        return run

    @staticmethod
    def refuse_taken(path: Path) -> None:
        run = RunDirectory(path.absolute())
        with writing(f"the run directory {path}", NAME_ANOTHER):
            is_taken = run.config.exists()
        if is_taken:
            run.refuse_if_running()
            raise RunDirectoryError(
                f"{path} holds a run already; {how_to_continue(run)}; or name another run.directory"
            )

    @staticmethod
    def open(path: Path) -> RunDirectory:
        run = RunDirectory(Path(os.path.expanduser(path)).absolute())
        try:
            exists = run.path.exists()
        except OSError as error:
            raise RunDirectoryError(f"{path} is no run directory: {error.strerror}") from None
        if not run.config.is_file():
            why = ": it has no config.yaml"
            if not exists:
                why = ": it does not exist; `remuda runs` lists the runs"
            elif any(run.path.glob("*/config.yaml")):
                why = f" but contains runs: name one of them; `remuda runs {path}` lists them"
            raise RunDirectoryError(f"{path} is no run directory{why}")
        if not run.is_running():
            run._sweep()
        return run

    def lock(self) -> None:
        """Lock the run for this process, until the process ends."""
        file = self.path / "lock"
        advice = "; a run writes into its directory: make it writable, or copy the run elsewhere"
        with writing(file, advice):
            self._lock = open_file(file, os.O_RDWR | os.O_CREAT)
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

    def read_config(self, known: Entries | None = None) -> Config:
        """Return the configuration; `known`: entries of algorithms, None for the saved ones."""
        tree = read_config(self.config)
        if not tree:  # otherwise defaults would replace the lost values
            raise RunDirectoryError(f"{self.config} is damaged: it is empty")
        self._note_names(loading.called_in(tree))
        return load_config(tree, str(self.config), self.read_entries() if known is None else known)

    def _note_names(self, names: Collection[str]) -> None:
        """Note names of code, which are used only if this user saved them or allows it."""
        from remuda.envs.registry import is_known

        note_names(self.config, names, [name for name in names if not is_known(name)])

    def read_entries(self) -> Entries:
        """Return the saved entries of users' algorithms; empty if none are saved."""
        if not self.algorithms.exists():
            return NO_ENTRIES
        try:
            return entries_from_plain(read_json(self.algorithms))
        except (ValueError, OSError) as error:
            raise RunDirectoryError(
                f"{self.algorithms} is damaged: {error}; if you remove it, the classes are imported"
            ) from None

    def save_config(self, config: Config) -> None:
        if config.entries:
            write_file(self.algorithms, json.dumps(entries_to_plain(config.entries)).encode())
        with writing(self.config):
            write_config(config, self.config)

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
        env = EnvSpec.of(config.game, options) if env is None else env
        return RunSpec(config, env, self.imported.path)

    def save_spec(self, spec: RunSpec) -> None:
        """Write the description of the environment, unless it has spaces of user-defined types."""
        plain = spec.env.to_plain()
        if plain is None:
            self.environment.unlink(missing_ok=True)
        else:
            write_file(self.environment, json.dumps(plain).encode())

    def save_code(self, config: Config) -> None:
        """Write pickled user code and the paths of other modules; sign both, and names of code."""
        tree = config.model_dump(mode="json")
        found = json.dumps(loading.found_here(tree), indent=1).encode()
        files = {self.path / loading.PATHS: found}
        names = as_bytes(loading.called_in(tree))
        for name in loading.names_in(tree):
            files[self.path / loading.file_name(name)] = loading.pickle_of(name)
        with writing(self.path / SIGNATURES):
            # first: if this process dies here, no code is left unsigned
            sign(files | {self.config: names})
        for path, data in files.items():
            write_file(path, data)

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
        retained = {self._weights_of(policy) for policy in policies}
        for path in self.weights.glob("*.safetensors"):
            if path not in retained:
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
        why = CLONED if self.imitation.exists() else "the run has not ended"
        return read_checked(self.summary, checked_summary, why)

    def summary_so_far(self) -> dict[str, Any]:
        """Read the results of the run; empty if missing or damaged."""
        try:
            return self.read_summary()
        except RunDirectoryError:
            return {}


def write_file(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    with writing(path):
        write_whole(path, data)


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


def how_to_restart(run: RunDirectory) -> str:
    """Return how to start a new run with the same configuration, as a clause."""
    config = shlex.quote(str(run.config))
    return f"start a new run: remuda train --config {config} --run.directory NEW"


def how_to_continue(run: RunDirectory) -> str:
    """Return how to continue an unfinished run, as a clause."""
    if not can_continue(run):
        return f"it has no checkpoint to continue from: {how_to_restart(run)}"
    try:
        tree = run.read_config().model_dump(mode="json")
    except RemudaError:
        tree = {}
    if loading.is_pickled(str(tree.get("game", ""))):  # its code must be passed again
        return f'continue with: remuda.train(THE GAME, resume="{run.path}")'
    if any(loading.names_in(tree)):
        return f'pass the same code again: remuda.train(..., resume="{run.path}")'
    return f"continue with: remuda train --resume {shlex.quote(str(run.path))}"
