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
from contextlib import suppress
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
        self._send(dict(request))
        self._lines: list[dict[str, Any]] = []
        self._answered = 0  # lines that were written when the last question was answered
        self._over = False
        self.read_at = time.monotonic()

    def lines(self, first: int, count: int) -> tuple[list[dict[str, Any]], bool]:
        """Return lines of the process, and whether they are the last lines.

        They end with a question to a person until it is answered.
        """
        self.read_at = time.monotonic()
        with self._lock:
            while len(self._lines) < first + count and not self._over and self._question() is None:
                self._read()
            self.read_at = time.monotonic()
            found = self._lines[first : first + count]
            return found, self._over and first + len(found) >= len(self._lines)

    def act(self, action: int) -> None:
        """Answer the question to a person with the index of an action."""
        with self._lock:
            question = None if self._over else self._question()
            if question is None:
                raise UsageError("this episode waits for no action")
            if action not in question["allowed"]:
                raise UsageError(f"{action} is not a legal action of {question['agent']}")
            self._answered = len(self._lines)
            self._send(action)

    def _question(self) -> dict[str, Any] | None:
        if len(self._lines) <= self._answered:
            return None
        found: dict[str, Any] | None = self._lines[-1].get("question")
        return found

    def _send(self, line: Any) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the process has died, as reading its output shows
            self._process.stdin.write(json.dumps(line).encode() + b"\n")
            self._process.stdin.flush()

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
        with suppress(BrokenPipeError):
            if self._process.stdin is not None:
                self._process.stdin.close()
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
        return self._find(name).lines(first, count)

    def act(self, name: str, action: int) -> None:
        self._find(name).act(action)

    def leave(self, name: str) -> None:
        """End an episode that a person has left."""
        with self._lock:
            found = self._episodes.pop(name, None)
        if found is not None:
            found.end()

    def _find(self, name: str) -> Episode:
        with self._lock:
            found = self._episodes.get(name)
            if found is None:
                raise UsageError("this episode was ended because no page watched it; start another")
            self._episodes.move_to_end(name)
            return found

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
