"""A catalogue of the runs in a directory, kept up to date by a thread."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remuda.config import by_leaf, load_config, read_tree
from remuda.config.algorithm_registry import BUILT_IN, Entries
from remuda.errors import RemudaError
from remuda.runs.run_directory import RunDirectory
from remuda.system.checkpoint.opening import open_stream
from remuda.ui.dashboard.curves import stamp_of
from remuda.ui.reports.group_names import compared
from remuda.ui.reports.summary import FoundRun, find_runs, summarise

log = logging.getLogger(__name__)

INTERVAL = 1.0  # minimum seconds between two scans
SHARE = 0.05  # maximum share of time spent on scans
REST = 15.0  # maximum seconds between two scans
FILES = (  # the files of a run that the dashboard reads
    *("config.yaml", "status.json", "summary.json", "metrics.jsonl", "ledger.bin", "logs", "lock"),
    *("checkpoints", "trace.json", "requests", "weights", "checkpoints/best.json"),
)
SIGNED = ("config.yaml", "status.json", "summary.json", "checkpoints")  # changed by a run
MOST_POLICIES = 200  # a larger configuration is not validated, which would take too long
ALGORITHM = "policy.algorithm"  # the setting that the table of runs always shows
LONGEST = 200  # maximum characters shown of a setting's value


class UnknownRunError(RemudaError):
    """The error for a run that is not in the directory."""


@dataclass(frozen=True)
class CataloguedRun:
    """A run in the directory."""

    id: str  # the path relative to the directory, with slashes; `.` is the directory itself
    found: FoundRun
    settings: Mapping[str, Any] = field(default_factory=dict)  # by dotted key
    group: str = ""  # equal for runs that differ only by their seed
    algorithm: str | None = None  # of the policies that learn: several with commas; None: unknown

    def row(self) -> dict[str, Any]:
        names = ("game", "turns", "best", "last", "state", "damaged")
        return {name: getattr(self.found, name) for name in names} | {
            "id": self.id,
            "algorithm": self.algorithm,
            "seed": self.settings.get("seed"),
            "group": self.group,
        }


class Catalogue:
    """The runs of one directory; one thread updates it, any thread may read it."""

    def __init__(self, base: Path, between: Callable[[], None] = lambda: None) -> None:
        self.between = between  # called at least every second between two scans
        self.base = base.absolute()
        self._real = base.resolve()
        self._runs: dict[str, CataloguedRun] = {}
        self._signatures: dict[str, tuple[Any, ...]] = {}
        self.changes = 0  # counts the changes of the catalogue
        self.complete = False  # True once all runs were scanned
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="catalogue")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self._thread.join()

    def runs(self) -> list[CataloguedRun]:
        """Return all runs, the most recently active first."""
        known = list(self._runs.values())
        return sorted(known, key=lambda run: (-(run.found.last or 0.0), run.id))

    def find(self, run: str) -> CataloguedRun:
        """Return a run by its id; only runs inside the directory have an id."""
        found = self._runs.get(run)
        if found is None:
            raise UnknownRunError(f"there is no run {run!r} in {self.base}")
        return found

    def files(self, run: str) -> RunDirectory:
        """Return the files of a run, unless it has moved out of the directory."""
        path = self.find(run).found.path
        if not self._is_inside(path):
            raise UnknownRunError(f"{run!r} is not in {self.base} any more")
        return RunDirectory(path)

    def scan(self) -> None:
        present = set()
        for path in find_runs(self.base):
            if self.stopping.is_set():
                return
            run = path.relative_to(self.base).as_posix()
            if not self._is_inside(path):  # links out of the directory are not served
                continue
            present.add(run)
            files = (path / name for name in SIGNED)
            signature = (*map(stamp_of, files), RunDirectory(path).is_running())
            if self._signatures.get(run) != signature:
                known = _read_run(run, path)
                if self._runs.get(run) != known:
                    self._runs[run] = known
                    self.changes += 1
                self._signatures[run] = signature
        for deleted in self._runs.keys() - present:
            del self._runs[deleted], self._signatures[deleted]
            self.changes += 1
        if not self.complete:
            self.complete = True
            self.changes += 1

    def _is_inside(self, path: Path) -> bool:
        """Return whether a run and its `FILES`, with links resolved, are inside the directory."""
        links = [each for each in (path / name for name in FILES) if each.is_symlink()]
        try:
            return all(each.resolve().is_relative_to(self._real) for each in (path, *links))
        except (OSError, RuntimeError):
            return False

    def _run(self) -> None:
        while not self.stopping.is_set():
            begun = time.monotonic()
            try:
                self.scan()
            except Exception:  # the next scan may succeed
                log.exception("looking for runs in %s failed", self.base)
            now = time.monotonic()
            end = now + min(max(INTERVAL, (now - begun) * (1.0 / SHARE - 1.0)), REST)
            while not self.stopping.is_set() and (left := end - time.monotonic()) > 0:
                self.between()
                self.stopping.wait(min(left, INTERVAL))


def _read_run(run: str, path: Path) -> CataloguedRun:
    try:
        settings = _settings(path)
        algorithm = _algorithm(RunDirectory(path).metrics, settings)
        return CataloguedRun(run, summarise(path), settings, _group(settings), algorithm)
    except Exception as error:  # the file may contain anything
        log.warning("cannot read the run %s", path, exc_info=error)
        words = f"{type(error).__name__}: {error}"[:LONGEST]
        return CataloguedRun(run, FoundRun(path, damaged=words))


def _settings(path: Path) -> dict[str, Any]:
    try:
        tree = read_tree(path / "config.yaml")
    except Exception:  # YAML constructors raise any exception
        return {}
    try:
        tree = _resolved(tree, RunDirectory(path).read_entries())
    except Exception as error:  # a configuration of a later version, for example
        log.debug("the settings of %s are shown without defaults: %s", path, error)
    return {str(key): _shown(value) for key, value in by_leaf(tree).items()}


def _algorithm(metrics: Path, settings: Mapping[str, Any]) -> str | None:
    """Return the algorithms of the policies that a run trains, separated by commas."""
    usual, own = settings.get(ALGORITHM), {}
    for key, value in settings.items():
        if key.startswith("policies.") and key.endswith(".algorithm"):
            own[key.removeprefix("policies.").removesuffix(".algorithm")] = value
    if not own:
        return usual if isinstance(usual, str) else None
    names = [*own, ""]  # without metrics any policy may have the algorithm of `policy`
    damage = (OSError, ValueError, LookupError, TypeError, StopIteration)
    with suppress(*damage), open_stream(metrics) as lines:
        names = list(json.loads(next(lines))["policies"])
    learning = [name for name in names if f"env.scripted.{name}" not in settings]
    found = dict.fromkeys(own.get(name, usual) for name in learning)
    return ", ".join(each for each in found if isinstance(each, str)) or None


def _resolved(tree: dict[str, Any], known: Entries) -> dict[str, Any]:
    """Resolve a configuration unless that would run the user's code or take long."""
    policies = [tree.get("policy", {}), *tree.get("policies", {}).values()]
    named = {policy["algorithm"] for policy in policies if "algorithm" in policy}
    is_known = named <= {*BUILT_IN, *known} and len(policies) <= MOST_POLICIES
    return load_config(tree, known=known).resolved() if is_known else tree


def _shown(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _group(settings: Mapping[str, Any]) -> str:
    known = sorted((key, repr(value)) for key, value in compared(settings).items())
    return hashlib.sha256(repr(known).encode()).hexdigest()[:12] if known else ""
