"""Loggers: callbacks that send metrics to a tracking service, and whose failures end no run."""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from remuda.config import by_leaf
from remuda.coordinator.callback import ActiveRun, Callback
from remuda.errors import ConfigError, RemudaError
from remuda.evaluation.results import way_of
from remuda.runs.result import Result
from remuda.runs.run_directory import write_file
from remuda.system.checkpoint.opening import read_json

IDS = "loggers.json"  # file in the run directory: each logger's run id, for resumed runs


def load_package(name: str, extra: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ConfigError(
            f"{name} is not installed, and a logger needs it: pip install -e '.[{extra}]'"
        ) from None


def measured(row: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in row.items() if math.isfinite(value)}


def evaluated(result: Result) -> dict[str, float]:
    """Return the means of the final evaluation, as `greedy/agent_0` or `sampled/agent_0`."""
    found: dict[str, Any] = result.evaluation.as_summary() if result.evaluation else {}
    groups: tuple[dict[str, Any], ...] = (found.get("agents", {}), found.get("policies", {}))
    way = way_of(found)
    means = {f"{way}/{name}": each["mean"] for group in groups for name, each in group.items()}
    return {name: mean for name, mean in means.items() if mean is not None}


def known_id(directory: Path, logger: str) -> str | None:
    found = _ids(directory).get(logger)
    return found if isinstance(found, str) else None


def keep_id(directory: Path, logger: str, value: str) -> None:
    write_file(directory / IDS, json.dumps({**_ids(directory), logger: value}).encode())


def _ids(directory: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        ids = read_json(directory / IDS)
        return ids if isinstance(ids, dict) else {}
    return {}


class WandbLogger(Callback):
    """A logger of every line of metrics, by turns, and of the final evaluation.

    W&B's files are in the run directory, under `wandb/`. WANDB_MODE, WANDB_PROJECT, WANDB_ENTITY
    and the other environment variables work as usual. A resumed run continues the same W&B run.
    """

    essential: ClassVar[bool] = False

    def __init__(self, **init: Any) -> None:
        self._wandb = load_package("wandb", "wandb")
        self._init = init
        self._run: Any = None

    def on_start(self, run: ActiveRun) -> None:
        """Start a W&B run, or continue it."""
        wandb = self._wandb
        usual = {
            "project": os.environ.get("WANDB_PROJECT") or "remuda",
            "name": os.environ.get("WANDB_NAME") or run.directory.name,
            "config": run.config.model_dump(mode="json"),
            "dir": str(run.directory),
            "id": known_id(run.directory, "wandb"),
            "resume": "allow",
            "reinit": "create_new",  # does not affect other W&B runs of this process
            "settings": wandb.Settings(console="off"),  # do not log the live view
        }
        self._run = wandb.init(**{**usual, **self._init})
        keep_id(run.directory, "wandb", self._run.id)
        self._run.define_metric("turns")
        self._run.define_metric("*", step_metric="turns")

    def on_metrics(self, run: ActiveRun, row: Mapping[str, float]) -> None:  # noqa: ARG002
        self._run.log(measured(row))

    def on_end(self, run: ActiveRun, result: Result | None) -> None:  # noqa: ARG002
        if self._run is None:
            return
        if result is not None:
            self._run.summary.update({"ended": result.ended, **evaluated(result)})
        self._run.finish(exit_code=0 if result is not None else 1)


AT_ONCE = {"metrics": 1000, "params": 100}
LONGEST = 500  # maximum characters of a parameter's value that every version of MLflow accepts


class MLflowLogger(Callback):
    """A logger of every line of metrics, by turns, and of the final evaluation.

    MLFLOW_TRACKING_URI sets the destination, MLFLOW_EXPERIMENT_NAME the experiment (default
    `remuda`). A resumed run continues the same MLflow run.
    """

    essential: ClassVar[bool] = False

    def __init__(self, tracking_uri: str | None = None, experiment: str | None = None) -> None:
        self._mlflow = load_package("mlflow", "mlflow")
        self._uri = tracking_uri
        self._experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "remuda"
        self._client: Any = None
        self._id = ""

    def on_start(self, run: ActiveRun) -> None:
        """Start an MLflow run with the configuration as its parameters, or continue it."""
        uri = self._uri or self._mlflow.get_tracking_uri()
        try:
            self._client = client = self._mlflow.MlflowClient(tracking_uri=uri)
            known = known_id(run.directory, "mlflow")
            if known is not None:
                client.update_run(known, status="RUNNING")
                self._id = known
                return
            found = client.get_experiment_by_name(self._experiment)
            experiment = (
                found.experiment_id if found else client.create_experiment(self._experiment)
            )
            self._id = client.create_run(experiment, run_name=run.directory.name).info.run_id
        except Exception as error:
            reason = " ".join(str(error).split())[:300]
            raise RemudaError(
                f"MLflow cannot start a run at {uri}: {reason}. MLFLOW_TRACKING_URI sets the "
                "server; a local database needs the whole package: pip install mlflow"
            ) from error
        keep_id(run.directory, "mlflow", self._id)
        config = by_leaf(run.config.model_dump(mode="json"))
        params = [
            self._mlflow.entities.Param(_name(key), str(value)[:LONGEST])
            for key, value in config.items()
        ]
        self._log("params", params)

    def on_metrics(self, run: ActiveRun, row: Mapping[str, float]) -> None:  # noqa: ARG002
        self._log_metrics(measured(row), int(row["turns"]))

    def on_end(self, run: ActiveRun, result: Result | None) -> None:  # noqa: ARG002
        if not self._id:
            return
        if result is not None:
            self._log_metrics(evaluated(result), result.record.turns)
            self._client.set_tag(self._id, "ended", result.ended)
        status = "FAILED" if result is None else "FINISHED" if result.finished else "KILLED"
        self._client.set_terminated(self._id, status)

    def _log_metrics(self, row: Mapping[str, float], step: int) -> None:
        now, metric = int(time.time() * 1000), self._mlflow.entities.Metric
        self._log("metrics", [metric(_name(key), x, now, step) for key, x in row.items()])

    def _log(self, kind: str, entities: list[Any]) -> None:
        size = AT_ONCE[kind]
        for first in range(0, len(entities), size):
            self._client.log_batch(self._id, **{kind: entities[first : first + size]})


def _name(key: str) -> str:
    return re.sub(r"[^\w\-. :/]", "_", key, flags=re.ASCII)


_BY_NAME: Mapping[str, Callable[[], Callback]] = {"wandb": WandbLogger, "mlflow": MLflowLogger}


def make_logger(name: str) -> Callback:
    """Create a logger from its name in `run.loggers`; environment variables configure it."""
    return _BY_NAME[name]()
