"""Disk space that a run reserves for its last weights and results."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

RESULTS = 2**20  # bytes for the summary and other results


class Reserve:
    """An unlinked file that reserves disk space until the process ends."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None

    def hold(self, size: int) -> None:
        """Reserve `size` bytes, plus `RESULTS`, if possible."""
        self.release()
        path = self._directory / f".reserve.{os.getpid()}.tmp"
        with contextlib.suppress(OSError):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            path.unlink()
            os.posix_fallocate(self._descriptor, 0, size + RESULTS)

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
