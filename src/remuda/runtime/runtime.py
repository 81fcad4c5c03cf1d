"""`Runtime`: where the roles of a run live, as the coordinator sees it.

`InlineRuntime` holds them in the coordinator's process, `ProcessRuntime` each in one of its own.
Another, such as one that spreads them over machines, passes the same contract:
`tests/contracts/test_runtime.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from remuda.types import RoleStatus


class Runtime(Protocol):
    """Where the roles live. One session of a run starts it once and stops it once.

    1. Every role that works was brought up before any of them worked.
    2. A role has either written all of its parts of a checkpoint, or is not among those that did.
    3. After `stop` no role works, and none is left.
    """

    def start(self, stopped: Callable[[], bool], ready: Callable[[], None] = lambda: None) -> None:
        """Bring every role up, or return early when `stopped()`."""

    def run_for(self, seconds: float) -> bool:
        """Let the roles work for about so long; True when everything is played."""

    def save(self, number: int) -> set[str]:
        """Let every role write its parts of a checkpoint; returns the names of those written."""

    def settle(self, number: int) -> None:
        """Tell that a checkpoint is complete or given up."""

    def status(self) -> list[RoleStatus]:
        """How every role is doing."""

    def traffic(self) -> tuple[int, int] | None:
        """Bytes and messages that nodes have sent each other so far; None: there is one node."""

    def news(self) -> list[str]:
        """What happened since this was asked last that the user should know."""

    def stop(self) -> None:
        """Let every role finish, and make sure that all are gone."""
