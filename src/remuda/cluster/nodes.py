"""What a run asks of the nodes of a cluster: who is there, one agent on each, and calls to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

HEAD = 0
"""The number of this machine."""


@dataclass(frozen=True)
class NodeInfo:
    """One node, as it was when it joined."""

    number: int
    """0: this machine, the head. It is never that of another node, even once this one is gone."""
    name: str
    """What people call it: its host's name, or a label."""
    address: str
    """The IP by which the other nodes reach it."""
    cores: int
    """Processors that the run may use there."""
    memory: int
    """Bytes that the run may use there."""
    gpus: int
    """GPUs that the run may use there."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """What it was given by who started it, by name."""

    def has_label(self, label: str) -> bool:
        """Whether a setting that names `label` means this node."""
        name, separator, value = label.partition("=")
        if separator:
            return self.labels.get(name) == value
        return label == self.name or label in self.labels


class Call(Protocol):
    """An answer of an agent's that may be still to come."""

    def done(self) -> bool:
        """Whether `result` would return, or raise, at once."""

    def result(self, timeout: float | None = None) -> Any:
        """What the method returned."""


class Nodes(Protocol):
    """The nodes of a run, each with one agent: an object in a process of its own there.

    1. A number is given once: a node that comes back is another one.
    2. A node has one agent at most, and an agent that died is not made again.
    3. `call` never waits, neither for the node nor for other calls to it.
    4. Agents end with this process, whatever it dies of, and with `stop`.
    """

    def gather(self) -> list[NodeInfo]:
        """Wait for the nodes that the run is to begin with; the head is the first."""

    def start(self, number: int, agent: str, args: tuple[Any, ...]) -> None:
        """Make the node's agent, in a process of its own; nothing is waited for.

        Calls to it are answered once it is made. What its class raises, each call to it raises.
        """

    def call(self, number: int, method: str, *args: Any) -> Call:
        """Call a method of the node's agent; several run at once, in threads there."""

    def lost(self) -> list[int]:
        """The nodes that were found to be gone since this was asked last."""

    def joined(self) -> list[NodeInfo]:
        """The nodes that have come since this was asked last; they have no agent yet."""

    def give_up(self, number: int) -> None:
        """Kill the node's agent, whatever it does, and count the node as gone."""

    def stop(self) -> None:
        """Kill all agents, and end all that was started here; nothing of it stays."""
