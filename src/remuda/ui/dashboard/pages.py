"""The dashboard's API: plain data from the files of runs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field

from remuda.coordinator.requests import ask
from remuda.coordinator.status import read_status
from remuda.errors import RemudaError, RunDirectoryError, UsageError
from remuda.runs.run_directory import RunDirectory
from remuda.system.checkpoint.opening import open_stream
from remuda.ui.dashboard.catalogue import ALGORITHM, Catalogue, CataloguedRun
from remuda.ui.dashboard.curves import MEAN_RETURN, Curves, RunCurves, band, read_spans, thinned
from remuda.ui.dashboard.population import PopulationPages
from remuda.ui.dashboard.watching import READ_ONLY, Watches
from remuda.ui.reports.group_names import compared, group_names

LOG_BYTES = 64 * 1024  # bytes shown from the end of a log
MOST_COLUMNS = 40  # settings in the table of runs
T = TypeVar("T")
Several = Annotated[  # a parameter that may occur several times in a query
    Sequence[str],
    BeforeValidator(lambda found: found if isinstance(found, list) else [found]),
    Field(max_length=60),
]
Seconds = Annotated[float, Field(allow_inf_nan=False)]
Axis = Literal["turns", "steps", "seconds"]  # see `remuda.runs.metrics.AXES`


class Pages:
    """The API: each public method answers the request of the same name with plain data."""

    def __init__(self, base: Path, control: bool = False) -> None:
        self.watches = Watches()
        self.catalogue, self._control = Catalogue(base, self.watches.end_idle), control
        self._curves, self._populations = Curves(), PopulationPages()

    def end(self) -> None:
        self.watches.end()
        self._populations.end()

    def runs(self, since: int = -1) -> dict[str, Any]:
        """Return the table of runs, or only its change counter if nothing changed since `since`."""
        changes = self.catalogue.changes
        if changes == since:
            return {"changes": changes}
        return {
            "changes": changes,
            "complete": self.catalogue.complete,
            "directory": str(self.catalogue.base),
            **table_of(self.catalogue.runs()),
        }

    def run(self, run: str) -> dict[str, Any]:
        """Return everything about a run except its curves."""
        known, files = self.catalogue.find(run), self.catalogue.files(run)
        status, fault = _status(files)
        curves = self._curves.of(files.metrics)
        read_bytes = curves.read_bytes  # taken first, because other threads may read more
        return {
            "run": known.row(),
            "settings": dict(known.settings),
            "running": files.is_running(),
            "status": status,
            "damaged": "; ".join(filter(None, (known.found.damaged, fault))),
            "summary": _unless_damaged(files.read_summary),
            "best": _unless_damaged(files.checkpoints.best),
            "checkpoints": len(_unless_damaged(files.checkpoints.numbers) or ()),
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

    def curves(self, run: str, axis: Axis = "turns", column: Several = ()) -> dict[str, Any]:
        curves = self._curves.of(self.catalogue.files(run).metrics)
        return {
            "complete": curves.complete,
            "columns": {name: thinned(*curves.both(axis, name)) for name in column},
        }

    def compare(
        self, run: Several = (), axis: Axis = "turns", column: str = MEAN_RETURN
    ) -> dict[str, Any]:
        """Return a column of several runs over an axis; runs that differ by seed form a band."""
        groups: dict[str, list[tuple[CataloguedRun, RunCurves]]] = {}
        for name in run:
            known = self.catalogue.find(name)
            curves = self._curves.of(self.catalogue.files(name).metrics)
            groups.setdefault(known.group or name, []).append((known, curves))
        names = group_names([compared(each[0][0].settings) for each in groups.values()])
        members = [member for each in groups.values() for member in each]
        columns = dict.fromkeys(name for _, curves in members for name in curves.names())
        return {
            "complete": all(curves.complete for _, curves in members),
            "columns": [MEAN_RETURN, *columns],
            "different": differences([known for known, _ in members]),
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
        files = self.catalogue.files(run)
        if name not in _logs(files):
            raise UsageError(f"run {run!r} has no log {name!r}")
        try:
            with open_stream(files.logs / name) as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(size - LOG_BYTES, 0))
                text = file.read(LOG_BYTES).decode(errors="replace")
        except OSError as error:
            raise RunDirectoryError(f"cannot read {name}: {error.strerror}") from None
        return {"text": text, "bytes": size, "cut": size > LOG_BYTES}

    def population(self, run: str) -> dict[str, Any]:
        return self._populations.of(self.catalogue.files(run))

    def timeline(
        self, run: str, begin: Seconds | None = None, end: Seconds | None = None
    ) -> dict[str, Any]:
        """Return the spans of each process between two times."""
        known, files = self.catalogue.find(run), self.catalogue.files(run)
        path = _trace_of(known, files, self.catalogue.base)
        if path is None:
            return {
                "none": "This run has no trace in the dashboard's directory. "
                "`remuda train ... --trace RUN/trace.json` writes one at the end of a run."
            }
        return read_spans(path).window(begin, end)

    def control(
        self,
        run: str,
        do: Literal["stop", "checkpoint", "list", "set", "list_options", "set_option"],
        values: Any = None,
        policy: Any = None,
        name: str | None = None,
        value: Any = None,
        from_turn: Annotated[int, Field(ge=0)] | None = None,
    ) -> dict[str, Any]:
        """Send a request to a run, as `remuda.coordinator.requests.ask` does."""
        if not self._control:
            raise UsageError(
                "this dashboard is read-only; start it with --control to send requests to runs"
            )
        files = self.catalogue.files(run)
        if not files.is_running():
            raise UsageError(f"{run} is not running, so it accepts no requests")
        request = {"do": do, "values": values, "policy": policy}
        request |= {"name": name, "value": value, "from_turn": from_turn}
        return {"done": ask(files.path, {k: v for k, v in request.items() if v is not None})}

    def watch(
        self,
        run: str,
        seats: dict[str, str] | None = None,
        seed: Annotated[int, Field(ge=0, lt=2**31)] = 0,
        sampled: bool = False,
        live: bool = False,
    ) -> dict[str, Any]:
        seats = seats or {}
        if any("/" in player or ":" in player for player in seats.values()):
            raise UsageError(
                "seats can be played by policies of this run or scripted policies of its game"
            )
        files = self.catalogue.files(run)
        if live and not self._control:
            raise UsageError(READ_ONLY)
        request = {"seats": seats, "seed": seed, "sampled": sampled, "live": live}
        return {"watch": self.watches.begin(files.path, request | {"may_ask": self._control})}

    def watched(
        self,
        watch: str,
        first: Annotated[int, Field(ge=0)] = 0,
        count: Annotated[int, Field(ge=0, le=200)] = 20,
    ) -> dict[str, Any]:
        lines, over = self.watches.lines(watch, first, count)
        return {"lines": lines, "over": over}

    def act(
        self, watch: str, action: int | None, first: Annotated[int, Field(ge=0)] = 0
    ) -> dict[str, Any]:
        """Take an action for a person, and return the lines after it; None: the person leaves."""
        if action is None:
            self.watches.leave(watch)
            return {"lines": [], "over": True}
        self.watches.act(watch, action)
        return self.watched(watch, first)


def _status(files: RunDirectory) -> tuple[dict[str, Any] | None, str]:
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


def _unless_damaged(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except (RemudaError, OSError, ValueError):
        return None


def _logs(files: RunDirectory) -> list[str]:
    paths = files.logs.glob("*.log")
    return sorted(path.name for path in paths if path.is_file() and not path.is_symlink())


def _trace_of(known: CataloguedRun, files: RunDirectory, base: Path) -> Path | None:
    """Return the file of a run's trace if it is inside the directory of the dashboard."""
    for path in (files.path / "trace.json", known.settings.get("trace")):
        with suppress(OSError, TypeError, ValueError):
            found = Path(path)  # type: ignore[arg-type]  # TypeError: no trace
            if found.is_file() and found.resolve().is_relative_to(base.resolve()):
                return found
    return None


def differences(runs: Sequence[CataloguedRun]) -> dict[str, list[Any]]:
    """Return the settings that differ between runs: by dotted key, a value for each run."""
    keys = dict.fromkeys(key for run in runs for key in compared(run.settings))
    found = {key: [run.settings.get(key) for run in runs] for key in keys}
    return {key: values for key, values in found.items() if len(set(map(repr, values))) > 1}


def table_of(runs: Sequence[CataloguedRun]) -> dict[str, Any]:
    """Return a row for each run, and the settings that differ between runs of the same game."""
    values: dict[str, dict[str, set[str]]] = {}  # by key and game
    for run in {run.group: run for run in runs}.values():  # runs of a group differ by the seed
        for key, value in compared(run.settings).items():
            values.setdefault(key, {}).setdefault(run.found.game, set()).add(repr(value))
    columns = [
        key
        for key, by_game in values.items()
        if key != ALGORITHM
        and not key.startswith("run.")  # the table has the turns, and the rest does not train
        and any(len(each) > 1 for each in by_game.values())
    ][:MOST_COLUMNS]
    rows = [run.row() | {"settings": {k: run.settings.get(k) for k in columns}} for run in runs]
    return {"columns": columns, "runs": rows}


def as_json(data: Any) -> bytes:
    """Encode as JSON for browsers: NaN and infinity become null."""
    try:
        return json.dumps(data, allow_nan=False, separators=(",", ":"), default=str).encode()
    except ValueError:
        plain = json.loads(json.dumps(data, default=str), parse_constant=lambda _: None)
        return json.dumps(plain, separators=(",", ":")).encode()
