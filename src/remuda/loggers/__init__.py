"""Loggers: callbacks that send a run's metrics to a tracking service, each one small file.

A logger is not essential: if it fails while the run goes on, that is told, and the run goes on.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remuda.callbacks import Callback
    from remuda.loggers.mlflow_logger import MLflowLogger
    from remuda.loggers.wandb_logger import WandbLogger

__all__ = ["MLflowLogger", "WandbLogger", "make_logger"]

_HOMES = {"MLflowLogger": "mlflow_logger", "WandbLogger": "wandb_logger"}
_BY_NAME = {"wandb": "WandbLogger", "mlflow": "MLflowLogger"}


def make_logger(name: str) -> Callback:
    """The logger that `run.loggers` names, as its environment variables set it up.

    Raises:
        ConfigError: its package is not installed.
    """
    made: Callback = __getattr__(_BY_NAME[name])()
    return made


def __getattr__(name: str) -> Any:
    """Load a logger (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'remuda.loggers' has no attribute {name!r}")
    return getattr(import_module(f"remuda.loggers.{_HOMES[name]}"), name)
