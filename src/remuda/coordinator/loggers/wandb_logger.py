"""A logger for Weights & Biases."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar

from remuda.coordinator.callback import ActiveRun, Callback
from remuda.coordinator.loggers.common import evaluated, keep_id, known_id, load_package, measured
from remuda.runs.result import Result


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
