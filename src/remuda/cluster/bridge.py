"""The bridge of a node, a process that synchronises shared memory with other nodes over TCP links.

A bridge is a worker, and is supervised and restarted like an actor or a learner. A restarted bridge
needs no saved state: both ends of a new link report which data they have.
"""

from __future__ import annotations

import errno
import logging
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from remuda.cluster import rings
from remuda.cluster.channel import Channel, Traffic
from remuda.cluster.link import GREETING, Frame, Identity, Link, LinkLostError
from remuda.cluster.nodes import Plan
from remuda.cluster.stores import Stores
from remuda.errors import RemudaError
from remuda.runtime.host import RoleContext
from remuda.system.memory.waiting import Wakeup
from remuda.types import State, Worker

log = logging.getLogger(__name__)

BRIDGE = "bridge"  # the name of the role
TICK = 0.02  # usual seconds between two rounds; a round sends all writes since the last one
BEAT = 1.0  # seconds between two empty frames on an idle link


def listen(address: str, ports: range) -> socket.socket:
    """Listen on the first free port of `ports`, or on any port if `ports` is empty."""
    for port in ports or (0,):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, port))
            listener.listen(64)
        except OSError as error:
            listener.close()
            why = error.strerror
        else:
            return listener
    raise RemudaError(
        f"cannot listen on any port of {address} ({why}); cluster.ports allows "
        f"{ports.start} to {ports.stop - 1}"
        if ports
        else f"cannot listen on {address}: {why}"
    )


@dataclass(frozen=True)
class BridgeRole:
    """The picklable arguments of a bridge; `build` makes the bridge in its process."""

    stores: Stores
    plan: Plan  # the newest placement, checked in every round
    number: int  # number of this node
    secret: bytes
    listener: socket.socket  # a restarted bridge uses the same socket
    wakeup: Wakeup
    traffic: Traffic
    weights_every: float = 0.0
    silence: float = 10.0  # seconds without data after which a link is replaced
    name: str = field(default=BRIDGE, init=False)
    parts: tuple[str, ...] = field(default=(), init=False)

    def build(self) -> Bridge:
        for experience in self.stores.experience.values():
            rings.warm_up(experience)
        return Bridge(self)

    def on_process_death(self) -> None:
        """Do nothing: other nodes release their waiting roles themselves."""


@dataclass
class Peer:
    """The connection to another node's bridge."""

    number: int
    link: Link | None = None
    channel: Channel | None = None
    next_try: float = 0.0
    next_round: float = 0.0
    next_beat: float = 0.0


class Bridge:
    """A worker that sends new data to every node that needs it, in rounds.

    1. Only a role that needs data of another node waits for that node.
    2. A word is a shared 64-bit number. A reader that sees a word of another node also sees
       everything that the other node wrote before that word.
    3. A broken link is replaced, and data that the other end already has is not sent again.
    """

    done = False
    parts: tuple[str, ...] = ()

    def __init__(self, role: BridgeRole) -> None:
        self._role, self._stores = role, role.stores
        self._me = role.number
        self._listener = role.listener
        self._listener.setblocking(False)
        self._wakeups = role.stores.wakeups
        self.peers: dict[int, Peer] = {}
        self.strangers: list[Link] = []
        self._revision = -1  # no placement yet
        self._identity = Identity(role.secret, 0, self._me)
        self._homes: tuple[int, ...] = ()
        self._own: list[int] = []
        self._absent: dict[int, int] = {}

    # The interface of a worker.

    def work(self) -> bool:
        now = time.monotonic()
        if self._role.plan.revision != self._revision:
            self._adopt_placement()
        self._look_at_wakeups()
        self._accept()
        for stranger in self.strangers.copy():
            self._hear_stranger(stranger, now)
        for peer in self.peers.values():
            if peer.link is None:
                self._dial(peer, now)
            if peer.link is not None:
                self._serve(peer, now)
        return False

    def wait(self, timeout: float, interrupted: Callable[[], bool]) -> None:  # noqa: ARG002
        poll = select.poll()
        for descriptor in (*self._absent, self._listener.fileno(), self._role.wakeup.fileno()):
            poll.register(descriptor, select.POLLIN)
        links = [*(peer.link for peer in self.peers.values()), *self.strangers]
        for link in filter(None, links):
            poll.register(link.fileno(), select.POLLIN | (0 if link.is_free else select.POLLOUT))
        poll.poll(min(timeout, TICK) * 1000.0)

    def finish(self) -> None:
        """Send the remaining data and close all links; this node's roles have stopped."""
        limit = time.monotonic() + 5.0
        while time.monotonic() < limit:
            for peer in self.peers.values():
                peer.next_round = 0.0
            self.work()
            if all(p.link is None or p.link.is_free for p in self.peers.values()):
                break
            self.wait(TICK, lambda: False)
        for peer in self.peers.values():
            if peer.link is not None:
                peer.link.close()

    def state(self, part: str) -> State:
        raise KeyError(part)

    def restore(self, part: str, state: State) -> None:  # noqa: ARG002
        raise KeyError(part)

    # Links.

    def _adopt_placement(self) -> None:
        """Adopt a new placement and replace all links, because a link belongs to one placement."""
        plan = self._role.plan
        revision, newest = plan.revision, plan.read()
        for peer in self.peers.values():
            if peer.link is not None:
                peer.link.close()
        for stranger in self.strangers:
            stranger.close()
        self.strangers.clear()
        self.peers.clear()
        if newest is None:  # paused
            plan.see(revision)
            return
        self._revision, self._placement, self._addresses = newest
        homes = self._placement.homes
        self._identity = Identity(self._role.secret, self._placement.epoch, self._me)
        self.peers = {n: Peer(n) for n in self._placement.peers_of(self._me)}
        self._own = [role for role, home in enumerate(homes) if home == self._me]
        self._absent = {
            wakeup.fileno(): number
            for number, (wakeup, home) in enumerate(zip(self._wakeups, homes, strict=True))
            if home != self._me
        }
        self._homes = homes
        log.info("epoch %d: nodes %s", self._placement.epoch, sorted(self.peers))
        plan.see(self._revision)

    def _look_at_wakeups(self) -> None:
        self._role.wakeup.was_rung()
        for number in self._absent.values():
            if self._wakeups[number].was_rung():
                peer = self.peers.get(self._homes[number])
                if peer is not None and peer.channel is not None:
                    peer.channel.wakes.add(number)
                    peer.next_round = 0.0

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.strangers.append(Link(connection, self._identity))

    def _hear_stranger(self, link: Link, now: float) -> None:
        try:
            frames = list(link.frames_in())
            link.flush()
            if not link.is_open and now > link.began + GREETING:
                raise LinkLostError("it sent no greeting")
            if link.is_open and link.peer not in self.peers:
                raise LinkLostError(f"no data is exchanged with node {link.peer}")
        except LinkLostError as error:
            log.info("refused a connection: %s", error)
            link.close()
            self.strangers.remove(link)
            return
        if link.peer is None:
            return
        self.strangers.remove(link)
        peer = self.peers[link.peer]
        if peer.link is not None:  # the other end restarted before this end noticed
            self._lose(peer, "the other end restarted")
        peer.link = link
        try:
            self._open(peer, now)
            for frame in frames:
                self._take(peer, frame)
        except RemudaError as error:
            self._lose(peer, str(error))

    def _dial(self, peer: Peer, now: float) -> None:
        """Connect to a node with a lower number; nodes with higher numbers connect to this one."""
        if peer.number > self._me or now < peer.next_try:
            return
        peer.next_try = now + 0.1
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        connection.setblocking(False)
        fault = connection.connect_ex(self._addresses[peer.number])
        if fault not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
            connection.close()
            return
        peer.link = Link(connection, self._identity, peer.number)

    def _serve(self, peer: Peer, now: float) -> None:
        link = peer.link
        assert link is not None
        try:
            for frame in link.frames_in():
                if peer.channel is None:
                    self._open(peer, now)
                self._take(peer, frame)
            if link.is_open and peer.channel is None:
                self._open(peer, now)
            link.flush()
            if peer.channel is not None and link.is_free and now >= peer.next_round:
                peer.next_round = now + TICK
                news = peer.channel.news(now)
                if news is not None or now >= peer.next_beat:
                    peer.next_beat = now + BEAT
                    link.send(news or Frame())
            if now > link.heard + self._role.silence:
                raise LinkLostError(f"no data arrived for {self._role.silence:g} s")
        except RemudaError as error:
            self._lose(peer, str(error))
        self._role.traffic.note(peer.number, link, peer.channel)

    def _open(self, peer: Peer, now: float) -> None:
        assert peer.link is not None
        log.info("connected to node %d", peer.number)
        role = self._role
        # In lockstep, an actor needs the weights from the previous turn's training at once.
        every = 0.0 if self._stores.in_turns else role.weights_every
        peer.channel = Channel(self._stores, self._placement, self._me, peer.number, every)
        peer.next_round, peer.next_beat = 0.0, now + BEAT
        peer.link.send(peer.channel.holds())

    def _take(self, peer: Peer, frame: Any) -> None:
        assert peer.channel is not None
        woken = peer.channel.take(frame)
        if self._stores.in_turns:
            woken.update(self._own)
        for number in woken:
            if self._homes[number] == self._me:
                self._wakeups[number].ring()

    def _lose(self, peer: Peer, why: str) -> None:
        if peer.link is not None:
            peer.link.close()
        if peer.channel is not None:
            log.info("lost the connection to node %d: %s", peer.number, why)
            peer.channel.lose()
        peer.link = peer.channel = None


def run_bridge(worker: Worker, context: RoleContext) -> None:
    """Run rounds until bridges must finish."""
    control = context.control
    while not control.closed:
        control.beat(context.index)
        if context.save_due():
            context.save(worker)
        worker.work()
        worker.wait(BEAT, lambda: False)
