"""The process on each node: a Ray actor that makes the run's agent there and answers calls to it.

It imports no Ray. Pickles cross, so that unreadable values and exceptions keep their messages.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cloudpickle

from remuda.cluster.ray_code import digests, versions
from remuda.errors import RemudaError
from remuda.loading import load

THREADS = 32  # calls of one agent that run at once: a few, and those that wait until it is made


class Host:
    """The agent of a node in its process, and the calls to it."""

    def __init__(self, environment: Mapping[str, str | None]) -> None:
        """Set the environment: started processes find the code and compute as on the head."""
        for name, value in environment.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        # Processes that the agent starts look for modules where this one does.
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        self._agent: Any = None
        self._fault: Exception | None = None
        self._made = threading.Event()
        self._never = threading.Event()

    def describe(self, modules: Sequence[str]) -> dict[str, Any]:
        import psutil

        return {
            "versions": versions(),
            "digests": digests(modules),
            "memory": psutil.virtual_memory().available,
            "process": os.getpid(),
            "logs": _log(),
        }

    def watch(self) -> None:
        """Never return: the caller learns when the process is gone."""
        self._never.wait()

    def make(self, agent: str, args: bytes) -> None:
        """Make the agent, once; calls to it report a failure."""
        try:
            self._agent = load(agent, "the agent of a node")(*pickle.loads(args))
        except Exception as error:
            traceback.print_exc()
            self._fault = error
        finally:
            self._made.set()

    def call(self, method: str, args: bytes) -> bytes:
        """Call a method of the agent, once it is made, and return the pickled outcome."""
        self._made.wait()
        try:
            if self._fault is not None:
                raise self._fault
            value = getattr(self._agent, method)(*pickle.loads(args))
            data: bytes = cloudpickle.dumps((True, value))
        except Exception as error:
            if self._fault is None and not isinstance(error, RemudaError):
                traceback.print_exc()
            data = pickle.dumps((False, described(error)))
        return data


def described(error: Exception) -> dict[str, Any]:
    """Describe an exception in a form that any process can read."""
    kind = type(error)
    return {
        "module": kind.__module__,
        "name": kind.__qualname__,
        "is_own": isinstance(error, RemudaError),
        "words": " ".join(str(error).split()) if not isinstance(error, RemudaError) else str(error),
        "fields": _plain(error.__dict__),
        "traceback": "".join(traceback.format_exception(error)),
    }


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in fields.items():
        try:
            pickle.dumps(value)
        except Exception:  # whatever the objects in it raise
            continue
        found[name] = value
    return found


def _log() -> str:
    """Return the file to which this process prints, on its own machine."""
    try:
        return str(Path(os.readlink("/proc/self/fd/2")))
    except OSError:
        return ""
