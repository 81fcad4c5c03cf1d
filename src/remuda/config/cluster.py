"""The configuration of a run on several nodes of a Ray cluster."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, NonNegativeFloat, PositiveFloat

from remuda.config.sections import Only, Section, SizeOrNone

IN_CLUSTER = Only(when=lambda config: config.cluster.used, needs="cluster.address or cluster.local")
"""Condition: a run on several nodes."""
SEVERAL_MACHINES = Only(when=lambda config: bool(config.cluster.address), needs="cluster.address")
"""Condition: nodes that are separate machines."""
SIDE_BY_SIDE = Only(
    when=lambda config: config.cluster.used and not config.exact,
    needs="cluster.address or cluster.local, and schedule async",
)
"""Condition: a cluster in `async`; elsewhere it would change the learning result."""
HIGHEST_PORT = 65535
MOST_LOCAL = 64  # nodes on one machine: each has at least three processes of Ray and one of Remuda


def _address(text: str) -> str:
    if text.startswith("ray://"):
        raise ValueError(
            f"{text!r} is for Ray's client, which Remuda does not use: run it on a node of the "
            "cluster, with auto"
        )
    _, separator, port = text.rpartition(":")
    if text in ("", "auto") or (separator and port.isdigit() and int(port) <= HIGHEST_PORT):
        return text
    raise ValueError(
        f"{text!r} is no address; give auto, or host:port of the head as `ray start --head` "
        "prints it, such as 10.0.0.1:6379"
    )


def _ports(text: str) -> str:
    if not text:
        return text
    match = re.fullmatch(r"(\d+)-(\d+)", text)
    if match is None:
        raise ValueError(f"{text!r} is no range of ports; give the first and the last: 20000-20099")
    first, last = int(match[1]), int(match[2])
    if not 1024 <= first <= last <= HIGHEST_PORT:
        raise ValueError(
            f"{text!r} is no range of ports from 1024 to {HIGHEST_PORT}, the lower one first; "
            "give the first and the last: 20000-20099"
        )
    return text


class ClusterConfig(Section):
    """Several machines, the nodes of a Ray cluster, for one run; see docs/cluster.md."""

    address: Annotated[str, AfterValidator(_address)] = ""
    """The Ray cluster to run on: `auto`, the one that this machine belongs to, or `host:port` of
    its head. Empty: the run stays on this machine."""
    local: Annotated[int, Field(ge=0, le=MOST_LOCAL)] = 0
    """Start this many nodes on this machine, including the head, and end them with the run, to try
    out a cluster. 0: none."""
    nodes: Annotated[SizeOrNone, SEVERAL_MACHINES] = 0
    """Nodes that the run waits for at its start and uses, this machine first. 0: all nodes,
    including those that join later."""
    ports: Annotated[str, AfterValidator(_ports), IN_CLUSTER] = ""
    """Ports on which nodes receive weights and experience: the first and the last, such as
    `20000-20099`, which a firewall must let through. Empty: any free ports."""
    start_limit: Annotated[PositiveFloat, IN_CLUSTER] = 60.0
    """Seconds that nodes have to join and report ready."""
    silence: Annotated[PositiveFloat, IN_CLUSTER] = 10.0
    """Seconds without an answer after which a node is given up: its processes are killed where
    reachable, and its work restarts on other nodes."""
    shared_directory: Annotated[bool, SEVERAL_MACHINES] = False
    """The run directory has the same path on all nodes, as on a network drive, and nodes write
    their parts of checkpoints there. False: parts are sent to this machine."""
    weights_every: Annotated[NonNegativeFloat, SIDE_BY_SIDE] = 0.0
    """The least seconds between two versions of a policy sent to another node. 0: send the newest
    version as soon as the previous one has arrived."""

    def model_post_init(self, _: Any) -> None:
        """Refuse two clusters at once."""
        if self.address and self.local:
            raise ValueError(
                f"address is {self.address!r} and local is {self.local}: a run has the nodes of a "
                "cluster that is there, or its own on this machine; set one of them"
            )

    @property
    def used(self) -> bool:
        """Return whether the run has, or may have, several nodes."""
        return bool(self.address or self.local)

    @property
    def one_file_system(self) -> bool:
        """Return whether the run's directory is the same on all nodes."""
        return bool(self.local) or self.shared_directory

    @property
    def port_range(self) -> range | None:
        """Ports on which nodes receive; None for any free port."""
        if not self.ports:
            return None
        first, last = map(int, self.ports.split("-"))
        return range(first, last + 1)
