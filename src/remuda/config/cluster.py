"""The configuration of a run on several machines, the nodes of a cluster of Ray's."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, NonNegativeFloat, PositiveFloat

from remuda.config.sections import Only, Section, SizeOrNone

IN_CLUSTER = Only(when=lambda config: config.cluster.used, needs="cluster.address or cluster.local")
"""Marks what is for runs on several nodes."""
SEVERAL_MACHINES = Only(when=lambda config: bool(config.cluster.address), needs="cluster.address")
"""Marks what is for nodes that are machines of their own."""
SIDE_BY_SIDE = Only(
    when=lambda config: config.cluster.used and not config.exact,
    needs="cluster.address or cluster.local, and schedule async",
)
"""Marks what would change what is learned where actor and learners work in turns."""
HIGHEST_PORT = 65535
MOST_LOCAL = 64
"""Nodes on one machine: each is three processes of Ray's and one of Remuda's at least."""


def _address(text: str) -> str:
    """Check where a cluster is looked for."""
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
    """Check a range of ports."""
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
    """Several machines, the nodes of a cluster of Ray's, for one run; see docs/cluster.md."""

    address: Annotated[str, AfterValidator(_address)] = ""
    """The Ray cluster whose nodes the run takes: `auto`, the one that this machine is a node of, or
    `host:port` of its head. Empty: none, the run stays on this machine."""
    local: Annotated[int, Field(ge=0, le=MOST_LOCAL)] = 0
    """Start so many nodes on this machine, the head among them, and end them with the run: to try
    what several machines do. 0: none."""
    nodes: Annotated[SizeOrNone, SEVERAL_MACHINES] = 0
    """Nodes that the run waits for at its start, and takes, this machine first. 0: all there are;
    those that join later are taken too."""
    ports: Annotated[str, AfterValidator(_ports), IN_CLUSTER] = ""
    """Where nodes listen for each other's weights and experience: the first and the last port,
    such as `20000-20099`, which a firewall must let through. Empty: any that are free."""
    start_limit: Annotated[PositiveFloat, IN_CLUSTER] = 60.0
    """Seconds that the nodes have to come and to say that they are ready."""
    silence: Annotated[PositiveFloat, IN_CLUSTER] = 10.0
    """Seconds without an answer after which a node is given up: it is killed as far as it can be
    reached, and what it did begins again on others."""
    shared_directory: Annotated[bool, SEVERAL_MACHINES] = False
    """The run's directory is the same under the same path on all nodes, as on a network drive:
    nodes write their parts of checkpoints there. False: parts are sent to this machine."""
    weights_every: Annotated[NonNegativeFloat, SIDE_BY_SIDE] = 0.0
    """The least seconds between two versions of a policy that are sent to another node. 0: each is
    sent that is the newest when the one before has arrived."""

    def model_post_init(self, _: Any) -> None:
        """Refuse two clusters at once."""
        if self.address and self.local:
            raise ValueError(
                f"address is {self.address!r} and local is {self.local}: a run has the nodes of a "
                "cluster that is there, or its own on this machine; set one of them"
            )

    @property
    def used(self) -> bool:
        """Whether the run has several nodes, or may have."""
        return bool(self.address or self.local)

    @property
    def one_file_system(self) -> bool:
        """Whether the run's directory is the same on all nodes."""
        return bool(self.local) or self.shared_directory

    @property
    def port_range(self) -> range | None:
        """Where nodes listen; None: on any port that is free."""
        if not self.ports:
            return None
        first, last = map(int, self.ports.split("-"))
        return range(first, last + 1)
