"""Loggers: callbacks that send metrics to a tracking service (W&B, MLflow).

If a logger fails during a run, the run reports it and continues.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remuda.coordinator.callback import Callback
    from remuda.coordinator.loggers.mlflow_logger import MLflowLogger
    from remuda.coordinator.loggers.wandb_logger import WandbLogger

__all__ = ["MLflowLogger", "WandbLogger", "make_logger"]

_HOMES = {"MLflowLogger": "mlflow_logger", "WandbLogger": "wandb_logger"}
_BY_NAME = {"wandb": "WandbLogger", "mlflow": "MLflowLogger"}


def make_logger(name: str) -> Callback:
    """Create a logger from its name in `run.loggers`; environment variables configure it."""
    made: Callback = __getattr__(_BY_NAME[name])()
    return made


def __getattr__(name: str) -> Any:
    """Import a logger when it is first used (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'remuda.coordinator.loggers' has no attribute {name!r}")
    return getattr(import_module(f"remuda.coordinator.loggers.{_HOMES[name]}"), name)
