"""What other programs ask of a run that goes on: stop, save a checkpoint, train with other values.

A request is a file in the run's directory `requests/`. Whoever asks writes it under another name
and renames it, so that it is whole; the coordinator, and nobody else, reads it, removes it, does
what it says between two looks at the run, and writes the answer beside it. If the coordinator dies
between these steps the request has no answer, and the asker's patience ends; what is left in the
directory when a run begins or goes on is removed, so that nothing old is done. Who may write into
the run's directory may ask.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from remuda.callbacks import ActiveRun
from remuda.checkpoint.state import write_whole
from remuda.errors import RemudaError, UsageError

log = logging.getLogger(__name__)

FOLDER = "requests"
PATIENCE = 30.0
"""Seconds that an answer is waited for: a coordinator looks every quarter of a second, but may be
writing a large checkpoint."""
LARGEST = 1 << 16
"""Bytes of a request."""


class Requests:
    """Carries out what is asked of one run; it belongs to the coordinator's process."""

    def __init__(self, directory: Path, run: ActiveRun, say: Callable[[str], None]) -> None:
        """Begin with nothing asked; what was asked of an earlier session is forgotten.

        Args:
            directory: of the run.
            run: on which requests act.
            say: tells the user what was done.
        """
        self._folder, self._run, self._say = directory / FOLDER, run, say
        self._clear()

    def look(self) -> None:
        """Do what was asked since the last look."""
        try:
            if self._folder.is_symlink():  # it leads to what is not the run's
                return
            with os.scandir(self._folder) as entries:
                names = sorted(entry.name for entry in entries if entry.name.endswith(".request"))
        except OSError:  # nobody asked anything
            return
        for name in names:
            self._answer(self._folder / name)

    def close(self) -> None:
        """Nothing is done any more."""
        self._clear()

    def _clear(self) -> None:
        with contextlib.suppress(OSError):
            if self._folder.is_symlink():
                self._folder.unlink()
            else:
                shutil.rmtree(self._folder)

    def _answer(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                data = file.read(LARGEST)
            path.unlink()
        except OSError:
            return
        try:
            found = {"done": self._carry_out(_read(data))}
        except RemudaError as error:
            found = {"error": str(error)}
        except Exception as error:  # whatever is asked, the run goes on
            log.exception("a request failed")
            found = {"error": f"{type(error).__name__}: {error}"}
        # A full disk costs the answer, not the run.
        with contextlib.suppress(OSError):
            write_whole(path.with_suffix(".answer"), json.dumps(found).encode(), sync=False)

    def _carry_out(self, request: Mapping[str, Any]) -> Any:
        """Do it, and tell in words what was done, or what was asked for as plain data.

        Raises:
            UsageError: it cannot be done.
        """
        what = request.get("do")
        if what == "stop":
            self._run.interrupt("stopped by request")
            return "it stops, with a last checkpoint"
        if what == "checkpoint":
            self._run.save()
            return "a checkpoint will be written"
        if what == "list":
            return {name: self._run.hyperparameters(name) for name in self._run.policies}
        if what == "set":
            values, policy = request.get("values"), request.get("policy")
            if not isinstance(values, dict) or not isinstance(policy, str | None):
                raise UsageError("`values` are by name numbers, and `policy` is a name or null")
            self._run.set_hyperparameters(values, policy)
            told = ", ".join(f"{name} {value:g}" for name, value in values.items())
            self._say(f"by request: {policy or 'all policies'} train with {told} from now on")
            return f"{policy or 'all policies'}: {told}"
        raise UsageError(f"a run does stop, checkpoint, list or set; not {what!r}")


def _read(data: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError("a request is an object of JSON")
    return found


def ask(directory: Path, request: Mapping[str, Any], seconds: float = PATIENCE) -> Any:
    """Ask something of a run that goes on, and wait for what it says.

    Args:
        directory: of the run.
        request: `do`: `stop`, `checkpoint`, `list` (hyperparameters that can be set), or `set` with
            `values` by name and a `policy`, or null for all.
        seconds: that are waited for an answer.

    Returns:
        What was done, in words; of `list`, by policy the values by name.

    Raises:
        UsageError: it cannot be done, nothing is written there, or nobody answered.
    """
    folder = directory / FOLDER
    name = f"{time.time_ns():020d}-{secrets.token_hex(4)}"
    answer, asked = folder / f"{name}.answer", folder / f"{name}.request"
    try:
        if folder.is_symlink():
            raise UsageError(f"{folder} is a link; requests are written into the run's directory")
        folder.mkdir(exist_ok=True)
        part = folder / f"{name}.part"
        part.write_bytes(json.dumps(dict(request)).encode())
        part.rename(asked)
    except OSError as error:
        raise UsageError(f"cannot write into {folder}: {error.strerror}") from None
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            found = json.loads(answer.read_bytes())
            answer.unlink(missing_ok=True)
            if "error" in found:
                raise UsageError(str(found["error"]))
            return found["done"]
        time.sleep(0.05)
    asked.unlink(missing_ok=True)
    raise UsageError(f"{directory} did not answer in {seconds:.0f} s; `remuda status` tells why")
