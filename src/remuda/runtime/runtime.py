"""The interface through which the coordinator runs the roles: actors and learners.

`InlineRuntime` runs all roles in the coordinator's process, `ProcessRuntime` runs each role in a
separate process, and `ClusterRuntime` runs roles on several nodes.
`tests/contracts/test_runtime.py` tests the first two. `ClusterRuntime` makes its roles from an
`Assembly`, so whole runs test it (`tests/cluster/test_two_node_runs.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from remuda.types import RoleStatus


class Runtime(Protocol):
    """A runner of a run's roles. Each session of a run starts it once and stops it once.

    1. All roles are ready before any of them works.
    2. `save` reports a role's parts only if the role has written all of them.
    3. After `stop` no role works, and no process is left.
    """

    def start(self, stopped: Callable[[], bool], ready: Callable[[], None] = lambda: None) -> None:
        """Start every role, or return early when `stopped()`."""

    def run_for(self, seconds: float) -> bool:
        """Let the roles work for about `seconds`; return True once all turns are played."""

    def save(self, number: int) -> set[str]:
        """Let every role write its parts of a checkpoint; return the names of the written parts."""

    def settle(self, number: int) -> None:
        """Announce that a checkpoint is complete or given up, if roles wait for that."""

    def status(self) -> list[RoleStatus]:
        """Return the status of every role."""

    def traffic(self) -> tuple[int, int] | None:
        """Return the bytes and messages sent between nodes so far; None if there is one node."""
        return None

    def news(self) -> list[str]:
        """Return the new messages for the user."""
        return []

    def stop(self) -> None:
        """Let every role finish, and make sure that all have ended."""
