"""What the page asks the server: each answer is plain data, made from the files of runs."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.checkpoint.opening import open_stream
from remuda.coordinator.records import AXES
from remuda.coordinator.run_directory import RunDirectory
from remuda.coordinator.status import read_status
from remuda.errors import RemudaError, RunDirectoryError, UsageError
from remuda.requests import ask
from remuda.ui.comparison import ASIDE
from remuda.ui.dashboard.catalogue import Catalogue, CataloguedRun
from remuda.ui.dashboard.curves import MEAN_RETURN, Curves, RunCurves, band, thinned
from remuda.ui.dashboard.population import Populations
from remuda.ui.dashboard.spans import Traces
from remuda.ui.dashboard.watching import ONLY_LOOKS, Watches

MOST_COMPARED = 60
"""Runs whose curves are drawn together, at most."""
MOST_COLUMNS = 60
"""Curves of one run that are asked for at once, at most."""
LOG_BYTES = 64 * 1024
"""The end of a log that is shown."""
LOCAL_TRACE = "trace.json"
DONE = ("stop", "checkpoint", "list", "set")
"""What pages may ask of a run."""


class Pages:
    """Answers by run; all that they need of the directory."""

    def __init__(self, base: Path, control: bool = False) -> None:
        """Look at the runs in a directory; with `control`, they may be told what to do."""
        self.watches = Watches()
        self.catalogue, self._control = Catalogue(base, self.watches.end_idle), control
        self._curves, self._populations, self._traces = Curves(), Populations(), Traces()

    def end(self) -> None:
        """End all processes that work for pages."""
        self.watches.end()
        self._populations.end()

    def runs(self, since: int) -> dict[str, Any]:
        """The table of runs; only its number where nothing changed since."""
        changes = self.catalogue.changes
        if changes == since:
            return {"changes": changes}
        found = self.catalogue.runs()
        return {
            "changes": changes,
            "complete": self.catalogue.complete,
            "directory": str(self.catalogue.base),
            "runs": [run.row() for run in found],
        }

    def run(self, run: str) -> dict[str, Any]:
        """All of one run but its curves."""
        known, files = self.catalogue.find(run), self.catalogue.files(run)
        status, fault = _status(files)
        curves = self._curves.of(files.metrics)
        read_bytes = curves.read_bytes  # before its columns: others may read on meanwhile
        return {
            "run": known.row(),
            "settings": dict(known.settings),
            "running": files.is_running(),
            "status": status,
            "damaged": "; ".join(filter(None, (known.found.damaged, fault))),
            "summary": _summary(files),
            "best": _or_none(files.checkpoints.best),
            "checkpoints": len(_or_none(files.checkpoints.numbers) or ()),
            "logs": _logs(files),
            "columns": curves.names(),
            "every": curves.every,
            "read_bytes": read_bytes,
            "damaged_lines": curves.damaged,
            "complete": curves.complete,
            "control": self._control,
            "ledger": files.ledger.exists(),
            "trace": _trace_of(known, files, self.catalogue.base) is not None,
        }

    def curves(self, run: str, axis: str, columns: Sequence[str]) -> dict[str, Any]:
        """Columns of one run over an axis."""
        _check(axis, columns)
        curves = self._curves.of(self.catalogue.files(run).metrics)
        return {
            "complete": curves.complete,
            "columns": {name: thinned(*curves.both(axis, name)) for name in columns},
        }

    def compare(self, runs: Sequence[str], axis: str, column: str) -> dict[str, Any]:
        """A column of several runs over an axis, a band for those that differ by their seed."""
        _check(axis, (column,))
        if len(runs) > MOST_COMPARED:
            raise UsageError(f"up to {MOST_COMPARED} runs are compared; these are {len(runs)}")
        groups: dict[str, list[tuple[CataloguedRun, RunCurves]]] = {}
        for run in runs:
            known = self.catalogue.find(run)
            curves = self._curves.of(self.catalogue.files(run).metrics)
            groups.setdefault(known.group or run, []).append((known, curves))
        names = names_of_groups([each[0][0] for each in groups.values()])
        columns = dict.fromkeys(
            name for each in groups.values() for _, curves in each for name in curves.names()
        )
        return {
            "complete": all(curves.complete for each in groups.values() for _, curves in each),
            "columns": [MEAN_RETURN, *columns],
            "different": differences([known for each in groups.values() for known, _ in each]),
            "groups": [
                {
                    "name": name,
                    "runs": [known.id for known, _ in each],
                    "curve": band([curves.both(axis, column) for _, curves in each]),
                }
                for name, each in zip(names, groups.values(), strict=True)
            ],
        }

    def log(self, run: str, name: str) -> dict[str, Any]:
        """The end of one log."""
        files = self.catalogue.files(run)
        if name not in _logs(files):
            raise UsageError(f"run {run!r} has no log {name!r}")
        path = files.logs / name
        try:
            with open_stream(path) as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(size - LOG_BYTES, 0))
                text = file.read(LOG_BYTES).decode(errors="replace")
        except OSError as error:
            raise RunDirectoryError(f"cannot read {name}: {error.strerror}") from None
        return {"text": text, "bytes": size, "cut": size > LOG_BYTES}

    def population(self, run: str) -> dict[str, Any]:
        """Who earns what against whom, and who descends from whom."""
        files = self.catalogue.files(run)
        return self._populations.of(files)

    def timeline(self, run: str, begin: float | None, end: float | None) -> dict[str, Any]:
        """What each process did when, between two times in seconds."""
        known, files = self.catalogue.find(run), self.catalogue.files(run)
        path = _trace_of(known, files, self.catalogue.base)
        if path is None:
            return {
                "none": "This run has written no trace into the directory that is looked at. "
                "`remuda train ... --trace RUN/trace.json` writes one at its end."
            }
        return self._traces.of(path).window(begin, end)

    def control(self, run: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Ask something of a run that goes on, as `remuda.requests.ask` does.

        Raises:
            UsageError: the dashboard only looks, the run does not go on, or it refuses.
        """
        if not self._control:
            raise UsageError(
                "this dashboard only looks; begin it with --control to tell runs what to do"
            )
        files = self.catalogue.files(run)
        if not files.is_running():
            raise UsageError(f"{run} does not go on, so there is nothing to be told to it")
        if request.get("do") not in DONE:
            raise UsageError(f"a run is told to {', '.join(DONE)}; not {request.get('do')!r}")
        wanted = {key: request[key] for key in ("do", "values", "policy") if key in request}
        return {"done": ask(files.path, wanted)}

    def watch(
        self, run: str, seats: Mapping[str, str], seed: int, sampled: bool, live: bool
    ) -> dict[str, Any]:
        """Begin an episode of policies of a run.

        Raises:
            UsageError: weights that are not saved are asked for, and the dashboard only looks.
        """
        files = self.catalogue.files(run)
        if live and not self._control:
            raise UsageError(ONLY_LOOKS)
        asked = {"seats": dict(seats), "seed": seed, "sampled": sampled, "live": live}
        return {"watch": self.watches.begin(files.path, asked | {"may_ask": self._control})}

    def watched(self, name: str, first: int, count: int) -> dict[str, Any]:
        """So many turns of an episode."""
        lines, over = self.watches.lines(name, first, count)
        return {"lines": lines, "over": over}


def _check(axis: str, columns: Sequence[str]) -> None:
    if axis not in AXES.values():
        raise UsageError(f"curves are drawn over {', '.join(AXES.values())}; not over {axis!r}")
    if len(columns) > MOST_COLUMNS:
        raise UsageError(f"up to {MOST_COLUMNS} columns at once; these are {len(columns)}")


def _status(files: RunDirectory) -> tuple[dict[str, Any] | None, str]:
    """The newest status with its age, and what is wrong with it."""
    if not files.status.exists():
        return None, ""
    try:
        status = read_status(files.status)
    except RemudaError as error:
        return None, str(error)
    status["age"] = time.time() - status["time"]
    for role in status["roles"]:
        role["log"] = Path(str(role.get("log") or "")).name
    return status, ""


def _summary(files: RunDirectory) -> dict[str, Any] | None:
    try:
        return files.read_summary()
    except (RemudaError, OSError):
        return None


def _or_none(ask: Any) -> Any:
    """What is asked of files that may be damaged; None: they are."""
    try:
        return ask()
    except (RemudaError, OSError, ValueError):
        return None


def _logs(files: RunDirectory) -> list[str]:
    try:
        return sorted(
            entry.name
            for entry in os.scandir(files.logs)
            if entry.is_file(follow_symlinks=False) and entry.name.endswith(".log")
        )
    except OSError:
        return []


def _trace_of(known: CataloguedRun, files: RunDirectory, base: Path) -> Path | None:
    """The file of a run's trace, where it lies in the directory that is looked at."""
    asked = known.settings.get("trace")
    for path in (files.path / LOCAL_TRACE, Path(asked) if isinstance(asked, str) else None):
        if path is None:
            continue
        try:
            if path.is_file() and path.resolve().is_relative_to(base.resolve()):
                return path
        except (OSError, ValueError):
            continue
    return None


def differences(runs: Sequence[CataloguedRun]) -> dict[str, list[Any]]:
    """By dotted key, the values of settings that are not the same in all runs, in their order."""
    keys = dict.fromkeys(key for run in runs for key in run.settings)
    found = {key: [run.settings.get(key) for run in runs] for key in keys if key not in ASIDE}
    return {key: values for key, values in found.items() if len(set(map(repr, values))) > 1}


def names_of_groups(first: Sequence[CataloguedRun]) -> list[str]:
    """What sets groups of runs apart: a few settings, or where there are none, their paths."""
    different = differences(first)
    names = []
    for place, run in enumerate(first):
        parts = [f"{_last(key)} {values[place]}" for key, values in list(different.items())[:3]]
        names.append(", ".join(parts) or run.id)
    return names if len(set(names)) == len(names) else [run.id for run in first]


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def as_json(data: Any) -> bytes:
    """As JSON that every browser reads: what is no number is null."""
    try:
        return json.dumps(data, allow_nan=False, separators=(",", ":"), default=str).encode()
    except ValueError:
        return json.dumps(_without_nan(data), allow_nan=False, default=str).encode()


def _without_nan(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {str(key): _without_nan(value) for key, value in data.items()}
    if isinstance(data, Iterable) and not isinstance(data, str | bytes):
        return [_without_nan(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return None
    return data
