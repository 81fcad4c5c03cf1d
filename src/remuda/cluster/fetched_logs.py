"""Logs of roles on other nodes, copied beside those of the run: `ROLE@NODE.log`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path

from remuda.cluster.nodes import Call
from remuda.errors import RemudaError

THERE = re.compile(r"\S*/remuda-node-[\w-]+/logs/(\S+)\.log")  # the path of a log on its own node


class FetchedLogs:
    """Copied log files; a full disk costs them, not the run."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._expected: dict[str, Call] = {}

    def expect(self, node: str, call: Call) -> None:
        self._expected[node] = call

    def hear(self) -> None:
        """Write the logs that have arrived; lost nodes send none."""
        for node in [node for node, call in self._expected.items() if call.done()]:
            with contextlib.suppress(RemudaError):
                self.keep(node, self._expected.pop(node).result(0.0))

    def keep(self, node: str, logs: Mapping[str, str]) -> None:
        for role, text in logs.items():
            with contextlib.suppress(OSError):
                (self._directory / f"{role}@{node}.log").write_text(text)

    def named(self, node: str, words: str) -> str:
        """Replace paths of logs on a node by the paths of their copies here."""
        return THERE.sub(lambda found: f"{self._directory}/{found[1]}@{node}.log", words)
