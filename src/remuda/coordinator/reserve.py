"""Room on the disk that a run keeps for its last weights and results."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

RESULTS = 2**20
"""Bytes for the summary and what stands beside it."""


class Reserve:
    """A file without a name that holds room: nothing is left of it, however the process ends."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None

    def hold(self, size: int) -> None:
        """Hold so many bytes, and those for the results; where that is refused, nothing."""
        self.release()
        path = self._directory / f".reserve.{os.getpid()}.tmp"
        with contextlib.suppress(OSError):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            path.unlink()
            os.posix_fallocate(self._descriptor, 0, size + RESULTS)

    def release(self) -> None:
        """Give the room back, right before it is needed."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
