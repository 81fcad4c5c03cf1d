"""The logs of roles on other nodes, brought to those of the run: `ROLE@NODE.log`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path

from remuda.cluster.nodes import Call
from remuda.errors import RemudaError

THERE = re.compile(r"\S*/remuda-node-[\w-]+/logs/(\S+)\.log")
"""A log on the node that it is on."""


class FetchedLogs:
    """Files beside the head's own logs; a full disk costs them, not the run."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._expected: dict[str, Call] = {}

    def expect(self, node: str, call: Call) -> None:
        """Note that a node was asked for its logs, which nothing waits for."""
        self._expected[node] = call

    def hear(self) -> None:
        """Write down the logs that have come since; of a node that is gone none will."""
        for node in [node for node, call in self._expected.items() if call.done()]:
            with contextlib.suppress(RemudaError):
                self.keep(node, self._expected.pop(node).result(0.0))

    def keep(self, node: str, logs: Mapping[str, str]) -> None:
        """Write down a node's logs, by role."""
        for role, text in logs.items():
            with contextlib.suppress(OSError):
                (self._directory / f"{role}@{node}.log").write_text(text)

    def named(self, node: str, words: str) -> str:
        """A node's words, with the log that is brought here in place of that which is there."""
        return THERE.sub(lambda found: f"{self._directory}/{found[1]}@{node}.log", words)
