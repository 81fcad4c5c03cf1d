"""Episodes that pages show. A child process for each episode plays only the turns that are read."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from remuda.errors import UsageError

MOST = 3  # simultaneous episodes; a fourth ends the least recently watched episode
IDLE = 120.0  # seconds after which an unwatched episode is ended
TURNS = 1000  # maximum turns of an episode
READ_ONLY = (
    "these weights are not saved, and a read-only dashboard cannot request them from the run; "
    "start it with --control, or watch saved weights"
)


class Episode:
    """One episode and the process that plays it (`remuda.ui.dashboard.player`)."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self._lock = threading.Lock()
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "remuda.ui.dashboard.player"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(dict(request)).encode() + b"\n")
        self._process.stdin.close()
        self._lines: list[dict[str, Any]] = []
        self._over = False
        self.read_at = time.monotonic()

    def lines(self, first: int, count: int) -> tuple[list[dict[str, Any]], bool]:
        """Return lines of the process, and whether they are the last lines."""
        self.read_at = time.monotonic()
        with self._lock:
            while len(self._lines) < first + count and not self._over:
                self._read()
            self.read_at = time.monotonic()
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
            self._lines.append({"error": f"the process that plays the episode has died: {words}"})
        self._close()

    def end(self) -> None:
        """Kill the process; turns that were read stay available."""
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
    """All episodes of a server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._episodes: OrderedDict[str, Episode] = OrderedDict()

    def begin(self, run: Path, request: Mapping[str, Any]) -> str:
        self.end_idle()
        name = secrets.token_urlsafe(9)
        with self._lock:
            while len(self._episodes) >= MOST:
                _, oldest = self._episodes.popitem(last=False)
                oldest.end()
            self._episodes[name] = Episode({**request, "run": str(run), "turns": TURNS})
        return name

    def lines(self, name: str, first: int, count: int) -> tuple[list[dict[str, Any]], bool]:
        with self._lock:
            found = self._episodes.get(name)
            if found is None:
                raise UsageError("this episode was ended because no page watched it; start another")
            self._episodes.move_to_end(name)
        return found.lines(first, count)

    def end_idle(self) -> None:
        """End the episodes that no page has watched in a while."""
        now = time.monotonic()
        self._end(lambda episode: now - episode.read_at > IDLE)

    def end(self) -> None:
        self._end(lambda _: True)

    def _end(self, chosen: Callable[[Episode], bool]) -> None:
        with self._lock:
            names = [name for name, episode in self._episodes.items() if chosen(episode)]
            ended = [self._episodes.pop(name) for name in names]
        for episode in ended:
            episode.end()
