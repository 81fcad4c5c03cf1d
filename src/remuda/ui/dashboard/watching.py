"""Episodes that are played for pages: each by a process, read as far as a page has asked."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from remuda.errors import UsageError

MOST = 3
"""Episodes at once; one more ends the one that nobody asked for longest."""
IDLE = 120.0
"""Seconds after which an episode that nobody asks for is ended."""
TURNS = 1000
"""Of an episode, at most."""
ONLY_LOOKS = (
    "the run must be asked for weights that it has not saved, and this dashboard only looks; begin "
    "it with --control, or watch those that are saved"
)


class Episode:
    """One episode, and the process that plays it; threads that ask it take turns."""

    def __init__(self, asked: Mapping[str, Any]) -> None:
        """Begin to play.

        Args:
            asked: as of `remuda.ui.dashboard.player`.
        """
        self._lock = threading.Lock()
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "remuda.ui.dashboard.player"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(dict(asked)).encode() + b"\n")
        self._process.stdin.close()
        self._lines: list[dict[str, Any]] = []
        self._over = False
        self.asked_at = time.monotonic()

    def lines(self, first: int, count: int) -> tuple[list[dict[str, Any]], bool]:
        """So many lines of what the process writes, and whether there are no more after them."""
        self.asked_at = time.monotonic()
        with self._lock:
            while len(self._lines) < first + count and not self._over:
                self._read()
            self.asked_at = time.monotonic()
            found = self._lines[first : first + count]
            return found, self._over and first + len(found) >= len(self._lines)

    def _read(self) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            self._lines.append(json.loads(line))
            return
        self._over = True
        self._process.wait()
        if self._process.returncode and not any("error" in each for each in self._lines):
            self._errors.seek(0)
            last = self._errors.read()[-500:].decode(errors="replace").strip()
            words = last.splitlines()[-1] if last else f"code {self._process.returncode}"
            self._lines.append({"error": f"the process that plays has ended: {words}"})
        self._close()

    def end(self) -> None:
        """End it; what was played stays known."""
        self._process.kill()
        with self._lock:
            self._process.wait()
            self._over = True
            self._close()

    def _close(self) -> None:
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()


class Watches:
    """The episodes that are played now."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = threading.Lock()
        self._episodes: OrderedDict[str, Episode] = OrderedDict()

    def begin(self, run: Path, asked: Mapping[str, Any]) -> str:
        """Begin an episode of a run, asked for as of the player; returns its name."""
        self.end_idle()
        name = secrets.token_urlsafe(9)
        with self._lock:
            while len(self._episodes) >= MOST:
                _, oldest = self._episodes.popitem(last=False)
                oldest.end()
            self._episodes[name] = Episode({**asked, "run": str(run), "turns": TURNS})
        return name

    def lines(self, name: str, first: int, count: int) -> tuple[list[dict[str, Any]], bool]:
        """As of `Episode`.

        Raises:
            UsageError: there is none of this name, or it was ended since nobody watched.
        """
        with self._lock:
            found = self._episodes.get(name)
            if found is None:
                raise UsageError("this episode was ended, since nobody watched it; begin it again")
            self._episodes.move_to_end(name)
        return found.lines(first, count)

    def end_idle(self) -> None:
        """End those that nobody asked for in a while."""
        now = time.monotonic()
        with self._lock:
            idle = [n for n, each in self._episodes.items() if now - each.asked_at > IDLE]
            gone = [self._episodes.pop(name) for name in idle]
        for episode in gone:
            episode.end()

    def end(self) -> None:
        """End all."""
        with self._lock:
            gone = list(self._episodes.values())
            self._episodes.clear()
        for episode in gone:
            episode.end()
