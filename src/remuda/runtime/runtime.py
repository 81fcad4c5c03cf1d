"""`Runtime`: where the roles of a run live, as the coordinator sees it.

`InlineRuntime` holds them in the coordinator's process, `ProcessRuntime` each in a separate one.
Any other, such as one that spreads them over machines, passes the same contract:
`tests/contracts/test_runtime.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from remuda.types import RoleStatus


class Runtime(Protocol):
    """The home of the roles. One session of a run starts it once and stops it once.

    1. Every role that works was brought up before any of them worked.
    2. A role has either written all of its parts of a checkpoint, or is not among those that did.
    3. After `stop` no role works, and none is left.
    """

    def start(self, stopped: Callable[[], bool], ready: Callable[[], None] = lambda: None) -> None:
        """Bring every role up, or return early when `stopped()`."""

    def run_for(self, seconds: float) -> bool:
        """Let the roles work for about `seconds`; True when everything is played."""

    def save(self, number: int) -> set[str]:
        """Let every role write its parts of a checkpoint; return the names of those written."""

    def settle(self, number: int) -> None:
        """Announce that a checkpoint is complete or given up."""

    def status(self) -> list[RoleStatus]:
        """Return the status of every role."""

    def traffic(self) -> tuple[int, int] | None:
        """Return the bytes and messages sent between nodes so far; None if there is one node."""

    def news(self) -> list[str]:
        """Return the new messages for the user."""

    def stop(self) -> None:
        """Let every role finish, and make sure that all are gone."""
