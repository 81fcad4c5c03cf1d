"""Calls to a node's agent, and what they end with."""

from __future__ import annotations

import importlib
import pickle
from types import ModuleType
from typing import Any

from remuda.errors import NodeLostError, RemudaError


class AgentTracebackError(Exception):
    """The traceback of an agent's exception, as the cause of the one that is raised here."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class RayCall:
    """A call whose answer comes by Ray."""

    def __init__(self, ray: ModuleType, answer: Any, node: str, log: str) -> None:
        """Wait for nothing."""
        self._ray, self._answer, self._node, self._log = ray, answer, node, log
        self._is_lost = False

    def done(self) -> bool:
        """Whether `result` would return, or raise, at once: a large answer is here by then."""
        try:
            return bool(self._ray.wait([self._answer], timeout=0, fetch_local=True)[0])
        except OSError:  # Ray's own process here is gone, and brings no answers any more
            self._is_lost = True
            return True

    def result(self, timeout: float | None = None) -> Any:
        """What the method returned, or raised."""
        if self._is_lost:  # asked for its answer now, Ray would end this process
            raise NodeLostError(f"node {self._node} cannot be heard")
        data = answer_of(self._ray, self._answer, self._node, timeout)
        is_fine, value = pickle.loads(data)
        if is_fine:
            return value
        raise raised_again(value, self._node, self._log) from AgentTracebackError(
            value["traceback"]
        )


class LostCall:
    """A call to a node that is gone."""

    def __init__(self, node: str) -> None:
        self._node = node

    def done(self) -> bool:
        """It is."""
        return True

    def result(self, timeout: float | None = None) -> Any:  # noqa: ARG002 - as of every call
        """Raise."""
        raise NodeLostError(f"node {self._node} is gone")


def answer_of(ray: ModuleType, answer: Any, node: str, timeout: float | None) -> Any:
    """What Ray has for a reference."""
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
    except Exception as error:  # what Ray itself raises, as where Remuda cannot be imported
        if "No module named 'remuda" in str(error):
            raise RemudaError(no_remuda(node)) from error
        raise RemudaError(f"node {node} cannot run an agent: {first_line(error)}") from error


def no_remuda(node: str) -> str:
    """What is said of a node without this library."""
    return f"node {node} has no Remuda of this version: install the same there as on this machine"


def first_line(error: Exception) -> str:
    """What an exception of Ray's says first."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason")


def raised_again(told: dict[str, Any], node: str, log: str) -> RemudaError:
    """The exception that an agent raised, of its class where that is Remuda's."""
    if told["is_own"]:
        try:
            kind: Any = importlib.import_module(told["module"])
            for part in told["name"].split("."):
                kind = getattr(kind, part)
        except (ImportError, AttributeError):
            kind = RemudaError
        if isinstance(kind, type) and issubclass(kind, RemudaError):
            error = kind.__new__(kind)  # its words are made: a class of its own makes them anew
            error.args = (told["words"],)
            error.__dict__.update(told["fields"])
            return error
    where = f"; its log is {log} there" if log else ""
    return RemudaError(f"the agent of node {node} failed: {told['name']}: {told['words']}{where}")
