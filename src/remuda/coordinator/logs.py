"""The log file of the coordinator's process."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from remuda.system.checkpoint.opening import APPEND, open_file
from remuda.system.processes.logs import LOG_FORMAT, level_of_children


class _LogFile(logging.FileHandler):
    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, recreating a deleted folder."""
        with suppress(OSError):
            if self.stream is None:
                Path(self.baseFilename).parent.mkdir(parents=True, exist_ok=True)
            super().emit(record)

    def _open(self) -> TextIO:  # type: ignore[override]
        return os.fdopen(open_file(Path(self.baseFilename), APPEND), "a", encoding=self.encoding)

    def close(self) -> None:
        """Close the file; on a full disk buffered lines are lost."""
        with suppress(OSError):
            super().close()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Ignore errors: a lost log needs no traceback in the terminal."""


@contextmanager
def log_to(path: Path, level: str = "info") -> Iterator[None]:
    """Log this package to a file instead of the terminal."""
    logger = logging.getLogger("remuda")
    handler = _LogFile(path, delay=True)
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    before = logger.propagate, logger.level
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(level.upper())
    try:
        with level_of_children(level):
            yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = before[0]
        logger.setLevel(before[1])
        handler.close()
