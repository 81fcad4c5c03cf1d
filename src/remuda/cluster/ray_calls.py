"""Calls to a node's agent, and the Ray actor that makes the agent on its node and answers calls.

The Ray actor itself does not import Ray. Arguments and results are sent as pickles, so errors keep
their messages even if a value cannot be unpickled.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from remuda.cluster.ray_code import digests, versions
from remuda.errors import NodeLostError, RemudaError
from remuda.system.loading import load


class AgentTracebackError(Exception):
    """The traceback of an agent's exception, as the cause of the exception that the caller gets."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class RayCall:
    """A call whose answer comes through Ray."""

    def __init__(self, ray: ModuleType, answer: Any, node: str, log: str) -> None:
        self._ray, self._answer, self._node, self._log = ray, answer, node, log
        self._is_lost = False

    def done(self) -> bool:
        try:
            return bool(self._ray.wait([self._answer], timeout=0, fetch_local=True)[0])
        except OSError:  # Ray's local process is dead, so no answers will arrive
            self._is_lost = True
            return True

    def result(self, timeout: float | None = None) -> Any:
        if self._is_lost:  # calling Ray now would end this process
            raise NodeLostError(f"node {self._node} cannot be reached: Ray on this machine died")
        data = answer_of(self._ray, self._answer, self._node, timeout)
        is_fine, value = pickle.loads(data)
        if is_fine:
            return value
        raise rebuilt_error(value, self._node, self._log) from AgentTracebackError(
            value["traceback"]
        )


class LostCall:
    """A call to a lost node."""

    def __init__(self, node: str) -> None:
        self._node = node

    def done(self) -> bool:
        return True

    def result(self, timeout: float | None = None) -> Any:  # noqa: ARG002 - as of every call
        raise NodeLostError(f"node {self._node} is gone")


def answer_of(ray: ModuleType, answer: Any, node: str, timeout: float | None) -> Any:
    """Return the value of a Ray reference."""
    exceptions = ray.exceptions
    try:
        return ray.get(answer, timeout=timeout)
    except exceptions.GetTimeoutError:
        raise TimeoutError(f"node {node} has not answered within {timeout:g} s") from None
    except (
        exceptions.RayActorError,
        exceptions.WorkerCrashedError,
        exceptions.NodeDiedError,
        exceptions.ObjectLostError,
        exceptions.TaskCancelledError,
    ) as error:
        if "No module named 'remuda" in str(error):
            raise RemudaError(no_remuda(node)) from error
        raise NodeLostError(f"node {node} is gone: {first_line(error)}") from error
    except Exception as error:  # raised by Ray itself, for example if Remuda cannot be imported
        if "No module named 'remuda" in str(error):
            raise RemudaError(no_remuda(node)) from error
        raise RemudaError(f"node {node} cannot run an agent: {first_line(error)}") from error


def no_remuda(node: str) -> str:
    """Return the message about a node that cannot import this version of Remuda."""
    return f"Remuda on node {node} is missing or differs: install this machine's version there"


def first_line(error: Exception) -> str:
    """Return the first line of a Ray exception's message."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason")


def rebuilt_error(error_data: dict[str, Any], node: str, log: str) -> RemudaError:
    """Rebuild the exception of an agent, with its original class if that is Remuda's."""
    if error_data["is_own"]:
        try:
            kind: Any = importlib.import_module(error_data["module"])
            for part in error_data["name"].split("."):
                kind = getattr(kind, part)
        except (ImportError, AttributeError):
            kind = RemudaError
        if isinstance(kind, type) and issubclass(kind, RemudaError):
            error = kind.__new__(kind)  # without __init__, which would rebuild the message
            error.args = (error_data["words"],)
            error.__dict__.update(error_data["fields"])
            return error
    where = f"; its log on that node is {log}" if log else ""
    return RemudaError(
        f"the agent of node {node} failed: {error_data['name']}: {error_data['words']}{where}"
    )


THREADS = 32  # concurrent calls to one agent, including calls that wait until the agent is made


class Host:
    """The Ray actor of a node: it holds the node's agent and calls the agent's methods."""

    def __init__(self, environment: Mapping[str, str | None]) -> None:
        """Set the environment, so child processes find the code and compute as on the head."""
        for name, value in environment.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        # Child processes search for modules in the same directories.
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
        """Never return: the call fails when the process dies."""
        self._never.wait()

    def make(self, agent: str, args: bytes) -> None:
        """Make the agent once; if this fails, calls report the error."""
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
        except Exception:  # user objects may raise anything
            continue
        found[name] = value
    return found


def _log() -> str:
    """Return the path of the file that receives this process's standard error."""
    try:
        return str(Path(os.readlink("/proc/self/fd/2")))
    except OSError:
        return ""
