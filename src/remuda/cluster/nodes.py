"""The interface to the nodes of a cluster: their list, one agent on each, and calls to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

HEAD = 0  # the number of this machine


@dataclass(frozen=True)
class NodeInfo:
    """A node, as it was when it joined."""

    number: int  # 0: this machine, the head; never reused
    name: str  # name for users: its host name, or a label
    address: str  # the IP address for the other nodes
    cores: int  # cores that the run may use
    memory: int  # bytes that the run may use
    gpus: int  # GPUs that the run may use
    labels: Mapping[str, str] = field(default_factory=dict)  # labels set when the node was started
    plays: bool = True  # actors may live there (`actor.nodes`)

    def has_label(self, label: str) -> bool:
        """Return whether `label` in a setting matches this node."""
        name, separator, value = label.partition("=")
        if separator:
            return self.labels.get(name) == value
        return label == self.name or label in self.labels


class Call(Protocol):
    """A possibly pending answer of an agent."""

    def done(self) -> bool:
        """Return whether `result` would return or raise at once."""

    def result(self, timeout: float | None = None) -> Any:
        """Return the result of the method."""


class Nodes(Protocol):
    """The nodes of a run, each with one agent: an object in a separate process there.

    1. A number is used once: a node that comes back gets another one.
    2. A node has at most one agent, and an agent that died is not made again.
    3. `call` never waits, neither for the node nor for other calls to it.
    4. Agents end with this process, whatever it dies of, and with `stop`.
    """

    def gather(self) -> list[NodeInfo]:
        """Wait for the first nodes of the run; the head comes first."""

    def start(self, number: int, agent: str, args: tuple[Any, ...]) -> None:
        """Make the node's agent, without waiting; what its class raises, each call to it raises."""

    def call(self, number: int, method: str, *args: Any) -> Call:
        """Call a method of the node's agent; several run at once, in threads there."""

    def lost(self) -> list[int]:
        """Return the nodes newly found to be lost."""

    def joined(self) -> list[NodeInfo]:
        """Return the newly joined nodes; they have no agent yet."""

    def give_up(self, number: int) -> None:
        """Kill the node's agent unconditionally, and count the node as lost."""

    def stop(self) -> None:
        """Kill all agents, and end everything that was started here."""
