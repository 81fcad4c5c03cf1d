"""Which runs lie in a directory, kept up to date by a thread that looks at them again and again."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remuda.algorithms import BUILT_IN
from remuda.config import load_config, read_tree
from remuda.config.resolved import resolved
from remuda.coordinator.run_directory import RunDirectory
from remuda.errors import RemudaError
from remuda.loggers.common import flat
from remuda.ui.comparison import ASIDE
from remuda.ui.found_runs import FoundRun, find_runs, look_at

log = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds between two looks at what is there, when the last look took no time..."""
SHARE = 0.05
"""...and of the time between two looks, the most that looking takes: of many runs there are few."""
REST = 15.0
"""Seconds between two looks at most: the first one, before anything is known, takes longest."""
FILES = (
    *("config.yaml", "status.json", "summary.json", "metrics.jsonl", "ledger.bin", "logs", "lock"),
    *("checkpoints", "trace.json", "requests", "weights", "checkpoints/best.json"),
)
"""Those of a run that are read here."""
MOST_POLICIES = 200
"""Of a run whose configuration is validated: 0.1 seconds for these."""
LONGEST = 200
"""Letters of a setting's value that are shown."""


class UnknownRunError(RemudaError):
    """There is no such run in the directory."""


@dataclass(frozen=True)
class CataloguedRun:
    """A run of the directory.

    Attributes:
        id: its path below the directory, with slashes; `.` is the directory itself.
        found: what is known of it at a glance.
        settings: by dotted key, what its configuration comes to; where it cannot be validated, or
            not without code of the user's, what stands in the file.
        group: the same for runs that differ by nothing but their seed.
    """

    id: str
    found: FoundRun
    settings: Mapping[str, Any] = field(default_factory=dict)
    group: str = ""

    def row(self) -> dict[str, Any]:
        """Plain data, for the table of runs."""
        policy = self.settings.get("policy.algorithm")
        return {
            "id": self.id,
            "game": self.found.game,
            "algorithm": policy if isinstance(policy, str) else None,
            "seed": self.settings.get("seed"),
            "turns": self.found.turns,
            "best": self.found.best,
            "last": self.found.last,
            "state": self.found.state,
            "damaged": self.found.damaged,
            "group": self.group,
        }


class Catalogue:
    """The runs of one directory; one thread writes it, and any may read it."""

    def __init__(self, base: Path, between: Callable[[], None] = lambda: None) -> None:
        """Begin with nothing found; `start` looks.

        Args:
            base: the directory.
            between: called by the thread between two looks, at least every second.
        """
        self.between = between
        self.base = base.absolute()
        self._real = base.resolve()
        self._runs: dict[str, CataloguedRun] = {}
        self._signatures: dict[str, tuple[Any, ...]] = {}
        self._changes = 0
        self._complete = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._look_again, daemon=True, name="catalogue")

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End looking."""
        self._stopping.set()
        self._thread.join()

    @property
    def changes(self) -> int:
        """Grows whenever something of what is known changes."""
        return self._changes

    @property
    def complete(self) -> bool:
        """Whether all runs were looked at once."""
        return self._complete

    def runs(self) -> list[CataloguedRun]:
        """All that are known, the newest sign of life first."""
        known = list(self._runs.values())
        return sorted(known, key=lambda run: (-(run.found.last or 0.0), run.id))

    def find(self, run: str) -> CataloguedRun:
        """One of them.

        Raises:
            UnknownRunError: there is none of this name. Nothing outside the directory has one.
        """
        found = self._runs.get(run)
        if found is None:
            raise UnknownRunError(f"there is no run {run!r} in {self.base}")
        return found

    def files(self, run: str) -> RunDirectory:
        """The files of one of them.

        Raises:
            UnknownRunError: there is none of this name, or it lies elsewhere by now.
        """
        path = self.find(run).found.path
        if not self._is_inside(path):
            raise UnknownRunError(f"{run!r} is not in {self.base} any more")
        return RunDirectory(path)

    def look(self) -> None:
        """Look once at all that is there."""
        present = set()
        for path in find_runs(self.base):
            if self._stopping.is_set():
                return
            run = path.relative_to(self.base).as_posix()
            if not self._is_inside(path):  # a link to elsewhere is not served
                continue
            present.add(run)
            signature = _signature(path)
            if self._signatures.get(run) != signature:
                try:
                    known = _looked_at(run, path)
                except Exception as error:  # a stranger's file may hold anything
                    log.warning("cannot read the run %s", path, exc_info=error)
                    words = f"{type(error).__name__}: {error}"[:LONGEST]
                    known = CataloguedRun(run, FoundRun(path, damaged=words))
                self._note(run, known)
                self._signatures[run] = signature
        for gone in self._runs.keys() - present:
            del self._runs[gone], self._signatures[gone]
            self._changes += 1
        if not self._complete:
            self._complete = True
            self._changes += 1

    def _note(self, run: str, known: CataloguedRun) -> None:
        if self._runs.get(run) != known:
            self._runs[run] = known
            self._changes += 1

    def _is_inside(self, path: Path) -> bool:
        """Whether a run and all of its files that are read lie in the directory, links followed."""
        links = [each for each in (path / name for name in FILES) if each.is_symlink()]
        try:
            return all(each.resolve().is_relative_to(self._real) for each in (path, *links))
        except (OSError, RuntimeError):
            return False

    def _look_again(self) -> None:
        while not self._stopping.is_set():
            begun = time.monotonic()
            try:
                self.look()
            except Exception:  # the next look may fare better; that there is none helps nobody
                log.exception("looking for runs in %s failed", self.base)
            took = time.monotonic() - begun
            self._rest(min(max(INTERVAL, took / SHARE - took), REST))

    def _rest(self, seconds: float) -> None:
        """Do what is to be done between two looks, however far apart they are."""
        end = time.monotonic() + seconds
        while not self._stopping.is_set() and (left := end - time.monotonic()) > 0:
            self.between()
            self._stopping.wait(min(left, INTERVAL))


def _looked_at(run: str, path: Path) -> CataloguedRun:
    settings = _settings(path)
    return CataloguedRun(run, look_at(path), settings, _group(settings))


def _signature(path: Path) -> tuple[Any, ...]:
    """Changes whenever what is shown of a run may have changed."""
    found: list[Any] = []
    for name in ("config.yaml", "status.json", "summary.json", "checkpoints"):
        try:
            status = os.stat(path / name)
            found.append((status.st_mtime_ns, status.st_size))
        except OSError:
            found.append(None)
    return (*found, RunDirectory(path).is_running())


def _settings(path: Path) -> dict[str, Any]:
    """What a configuration comes to, so that runs of earlier versions are like those of now."""
    try:
        tree = read_tree(path / "config.yaml")
    except Exception:  # YAML's own constructors raise anything
        return {}
    try:
        tree = _resolved(tree)
    except Exception as error:  # of a later version, or a stranger's
        log.debug("the settings of %s stand as they are in its file: %s", path, error)
    return {str(key): _shown(value) for key, value in flat(tree).items()}


def _resolved(tree: dict[str, Any]) -> dict[str, Any]:
    """The same where an algorithm is the user's own: to validate it would run the user's code.

    So too where there are very many policies, each of which takes its time.
    """
    policies = [tree.get("policy", {}), *tree.get("policies", {}).values()]
    named = {policy["algorithm"] for policy in policies if "algorithm" in policy}
    is_known = named <= BUILT_IN.keys() and len(policies) <= MOST_POLICIES
    return resolved(load_config(tree)) if is_known else tree


def _shown(value: Any) -> Any:
    """A value as JSON has it, and no longer than anyone reads."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _group(settings: Mapping[str, Any]) -> str:
    """A name for all runs of the same settings, whatever their seeds."""
    known = sorted((key, repr(value)) for key, value in settings.items() if key not in ASIDE)
    return hashlib.sha256(repr(known).encode()).hexdigest()[:12] if known else ""
