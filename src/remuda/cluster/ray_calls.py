"""Calls to a node's agent, and the Ray actor that makes the agent on its node and answers calls.

The Ray actor itself does not import Ray. Arguments and results are sent as pickles, so errors keep
their messages even if a value cannot be unpickled.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
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
        value, trace = pickle.loads(data)
        if trace is None:
            return value
        if not isinstance(value, RemudaError):
            where = f"; its log on that node is {self._log}" if self._log else ""
            value = RemudaError(f"the agent of node {self._node} failed: {value}{where}")
        raise value from AgentTracebackError(trace)


def answer_of(ray: ModuleType, answer: Any, node: str, timeout: float | None) -> Any:
    """Return the value of a Ray reference."""
    exceptions = ray.exceptions
    lost = (
        exceptions.RayActorError,
        exceptions.WorkerCrashedError,
        exceptions.NodeDiedError,
        exceptions.ObjectLostError,
        exceptions.TaskCancelledError,
    )
    try:
        return ray.get(answer, timeout=timeout)
    except exceptions.GetTimeoutError:
        raise TimeoutError(f"node {node} has not answered within {timeout:g} s") from None
    except Exception as error:
        if "No module named 'remuda" in str(error):
            message = "is missing or differs: install this machine's version there"
            raise RemudaError(f"Remuda on node {node} {message}") from error
        why = next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason")
        if isinstance(error, lost):
            raise NodeLostError(f"node {node} is gone: {why}") from error
        raise RemudaError(f"node {node} cannot run an agent: {why}") from error  # of Ray itself


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
        return {
            "versions": versions(),
            "digests": digests(modules),
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
        """Call a method of the agent, once it is made.

        Return a pickle of the result and None, or of the error and its traceback; of an error that
        is not Remuda's, or cannot be pickled, only the text.
        """
        self._made.wait()
        try:
            if self._fault is not None:
                raise self._fault
            value = getattr(self._agent, method)(*pickle.loads(args))
            return cloudpickle.dumps((value, None))  # type: ignore[no-any-return]
        except Exception as error:
            if self._fault is None and not isinstance(error, RemudaError):
                traceback.print_exc()
            trace = "".join(traceback.format_exception(error))
            if isinstance(error, RemudaError):
                with suppress(Exception):  # its fields may hold any of the user's objects
                    return cloudpickle.dumps((error, trace))  # type: ignore[no-any-return]
            text = f"{type(error).__qualname__}: {' '.join(str(error).split())}"
            return pickle.dumps((text, trace))


def _log() -> str:
    """Return the path of the file that receives this process's standard error."""
    try:
        return os.readlink("/proc/self/fd/2")
    except OSError:
        return ""
