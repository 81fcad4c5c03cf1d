"""A logger for MLflow."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from remuda.config import by_leaf
from remuda.coordinator.callback import ActiveRun, Callback
from remuda.coordinator.loggers.common import evaluated, keep_id, known_id, load_package, measured
from remuda.errors import RemudaError
from remuda.runs.result import Result

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
            where = found.experiment_id if found else client.create_experiment(self._experiment)
            self._id = client.create_run(where, run_name=run.directory.name).info.run_id
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
