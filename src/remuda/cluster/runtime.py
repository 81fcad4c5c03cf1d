"""The runtime of a run on several nodes, used by the coordinator.

The head is the node where the run was started; its roles are children of this process. Each other
node has an agent. The head polls the agents and never waits. A node that is silent for
`cluster.silence` seconds, or is known to be lost, is given up, and its roles move to other nodes.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from remuda.cluster.agent import sweep_homes
from remuda.cluster.bridge import BRIDGE
from remuda.cluster.channel import Count
from remuda.cluster.member import POLL, FetchedLogs, JoiningNodes, LinkMonitor, Member
from remuda.cluster.migration import Migration, Move, MoveCounts
from remuda.cluster.node import Node
from remuda.cluster.nodes import HEAD, Addresses, Call, NodeInfo, Nodes, Placement, relieved
from remuda.errors import NodeLostError, RemudaError, RoleDiedError
from remuda.runtime.processes import ProcessRuntime
from remuda.system.checkpoint.store import Checkpoints
from remuda.system.compiling import Progress
from remuda.types import RoleStatus

log = logging.getLogger(__name__)

REACH = 5.0  # seconds to wait for nodes while roles move
GONE = "is gone"  # description of a node that is known to be lost
GLANCE = 0.002  # seconds between two checks while waiting


class ClusterRuntime:
    """A `Runtime` over the nodes of a cluster."""

    def __init__(
        self,
        node: Node,
        nodes: Nodes,
        placement: Placement,
        addresses: Addresses,
        infos: Sequence[NodeInfo],
        prepare: Callable[[NodeInfo], Call],
        logs: Path,
        checkpoints: Checkpoints,
    ) -> None:
        config = node.assembly.config
        self.node, self.nodes = node, nodes
        self.placement, self.addresses = placement, dict(addresses)
        self.logs, self._checkpoints = FetchedLogs(logs), checkpoints
        self.silence = config.cluster.silence
        self.write_limit = config.checkpoint.write_limit
        self.local: ProcessRuntime = node.runtime(placement, addresses, logs, checkpoints)
        self.infos = {info.number: info for info in infos}
        self.members = {n: Member(n, i.name) for n, i in self.infos.items() if n != HEAD}
        self.joining = JoiningNodes(nodes, prepare)
        self.lost: dict[int, str] = {}  # nodes found lost but not handled yet, and why
        self.migration = Migration(node, nodes, checkpoints)
        self.unread: list[str] = []
        self.moved = MoveCounts()
        self.reach = LinkMonitor(self.silence)
        # unfinished requests to nodes, sent while roles moved or nodes joined
        self.pending: list[tuple[int, Call]] = []
        self.stopped = False

    def start(self, stopped: Callable[[], bool], ready: Callable[[], None] = lambda: None) -> None:
        compiling = Progress(self.unread.append)
        self.local.spawn()
        self._wait_for(self._call_all("start", self.placement, self.addresses), 60.0)
        while not stopped():
            self.look(0.05)
            members = self.members.values()
            compiling.see(self.local.compiled + sum(m.status.compiled for m in members))
            if self.local.is_ready and all(m.status.is_ready for m in members):
                ready()
                self.local.go()
                self._wait_for(self._call_all("go"))
                return

    def run_for(self, seconds: float) -> bool:
        self.look(seconds)
        self.unread += self.reach.news(self.placement, self.members.values(), self._name)
        placement = self.placement
        if self.lost or set(self.local.here) != set(placement.roles_of(HEAD)):
            return False  # some roles have not started yet
        statuses = [m.status for n, m in self.members.items() if n in placement.nodes]
        # A node's report from an earlier epoch does not cover roles that moved there since.
        played = all(each.is_played and each.epoch == placement.epoch for each in statuses)
        return played and self.local.is_played

    def save(self, number: int) -> set[str]:
        """Let every role write its parts of a checkpoint; return the names of the written parts.

        In lockstep the request reaches the actor's node last, after all other nodes have it.
        """
        acts = self.placement.actors[0] if self.node.assembly.config.exact else HEAD
        begun = self._call_all("begin_save", number, without=acts)
        if acts != HEAD:
            self.local.want_save(number)
        self._wait_for(begun)
        if acts in self.members:
            self._wait_for({acts: self.nodes.call(acts, "begin_save", number)})
        calls = self._call_all("save", number)
        parts = self.local.save(number)
        for node, files in self._wait_for(calls, self.write_limit).items():
            for part, contents in files.items():
                if contents is not None:
                    path = self._checkpoints.partial(number) / f"{part}.safetensors"
                    path.write_bytes(contents)
                parts.add(part)
            log.info("node %d wrote %s", node, ", ".join(files) or "nothing")
        if not self._see_all(self._call_all("stamp")) and self.node.assembly.config.exact:
            return set()  # the head's counts would not match these parts
        return parts

    def settle(self, number: int) -> None:
        complete = number in self._checkpoints.numbers()
        manifest = self._checkpoints.manifest(number) if complete else None
        self.local.settle(number)
        self._wait_for(self._call_all("settle", number, manifest))

    def status(self) -> list[RoleStatus]:
        roles = [replace(role, node=self._name(HEAD)) for role in self.local.status()]
        for member in self.members.values():
            for role in member.status.roles:
                name = f"{BRIDGE}@{member.name}" if role.name == BRIDGE else role.name
                roles.append(replace(role, name=name, node=member.name))
        return [self.moved.counted(role) for role in roles]

    def describe(self) -> str:
        return self.placement.describe(self._roles, self._name)

    def traffic(self) -> tuple[int, int] | None:
        rows: list[Sequence[int]] = self.node.traffic.counts.tolist()
        for member in self.members.values():
            rows += member.status.traffic
        return sum(row[Count.SENT_BYTES] for row in rows), sum(row[Count.FRAMES] for row in rows)

    def news(self) -> list[str]:
        news, self.unread = [*self.unread, *self.local.news()], []
        return news

    def stop(self) -> None:
        """Stop all roles, wait for their last data, then stop all bridges."""
        if self.stopped:
            return
        self.stopped = True
        calls = self._call_all("finish")
        self.local.finish()
        # A learner may take long to publish its last update.
        self._see_all(calls, self.node.assembly.config.run.stop_limit + self.silence)
        self.fetch_logs(list(self.members))
        self._fetch_spans()
        self._wait_for(self._call_all("stop"))
        self.local.stop()
        self.nodes.stop()
        sweep_homes()

    def _name(self, number: int) -> str:
        return self.infos[number].name if number in self.infos else str(number)

    def look(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while True:
            remaining = max(end - time.monotonic(), 0.0)
            self.local.run_for(min(remaining, POLL))
            self.lost |= dict.fromkeys(self.nodes.lost(), GONE)
            for member in self.members.values():
                self.ask(member)
            self._lose()
            self.add_joined()
            self._hear()
            if time.monotonic() >= end:
                return

    def ask(self, member: Member) -> None:
        """Process a node's reports, and poll it again when that is due."""
        member.poll(self.nodes)
        if member.is_lost or member.number in self.lost:
            self.lost.setdefault(member.number, GONE)
            return
        if member.is_silent(self.silence):
            self.nodes.give_up(member.number)
            self.lost[member.number] = f"gave no answer for {self.silence:g} s (cluster.silence)"
            return
        reports, member.unread = member.unread, []
        for member.status in reports:
            for message in member.status.news:
                named = self.logs.named(member.name, message)
                self.unread.append(f"on the node {member.name} {named}")
                self.logs.expect(member.name, self.nodes.call(member.number, "logs"))
            if member.status.fatal is not None:
                if member.number not in self.placement.nodes:
                    self._leave_out(member.number, member.status.fatal)
                    return
                self.fetch_logs([member.number])
                message = self.logs.named(member.name, str(member.status.fatal))
                raise RoleDiedError(f"on the node {member.name} {message}")

    def _leave_out(self, number: int, error: RemudaError) -> None:
        """Give up a node without roles; the run continues."""
        if number in self.members:
            self.nodes.give_up(number)
            self.lost.setdefault(number, f"cannot be used: {error}")

    def _lose(self) -> None:
        reasons, self.lost = self.lost, {}
        lost: dict[int, str] = {}
        for number, why in reasons.items():
            self.joining.lose(number)
            if (member := self.members.pop(number, None)) is not None:
                lost[number] = f"the node {member.name} {why}"
                del self.infos[number]
        if not lost or self.stopped:
            return
        names = self._roles
        roles = {n: [names[role] for role in self.placement.roles_of(n)] for n in lost}
        if not any(roles.values()):  # no node has a link with them
            self.unread += lost.values()
            return
        if self.node.assembly.config.exact:
            of = (f"{what}, with {', '.join(roles[n]) or 'no role'}" for n, what in lost.items())
            raise RoleDiedError(
                f"{'; '.join(of)}; the schedule {self.node.assembly.config.schedule} cannot "
                "continue on other nodes"
            )
        remaining = [i for n, i in self.infos.items() if n not in self.joining.starting]
        after = self.migration.without(self.placement, lost.keys(), remaining)
        news = []
        for number, what in lost.items():
            log.warning("%s", what)
            for role in roles[number]:
                self.moved.note(role, what)
            to = Move(self.placement, after).describe(number, names, self._name)
            news.append(f"{what}; the run continues with {to}" if to else what)
        self.move(after, lost.keys())
        self.unread += news

    def _hear(self) -> None:
        done = [each for each in self.pending if each[1].done()]
        self.pending = [each for each in self.pending if each not in done]
        for number, call in done:
            try:
                call.result(0.0)
            except NodeLostError:
                pass  # reported elsewhere
            except RemudaError as error:
                if number in self.placement.nodes:
                    raise RoleDiedError(f"roles could not be moved: {error}") from None
                self._leave_out(number, error)
        self.logs.hear()

    def add_joined(self) -> None:
        for info, port in self.joining.prepared():
            number = info.number
            self.addresses[number] = (info.address, port)
            self.infos[number] = info
            self.members[number] = Member(number, info.name)
            start = self.nodes.call(number, "start", self.placement, self.addresses)
            self.pending += [(number, start), (number, self.nodes.call(number, "go"))]
            self.joining.starting.add(number)
        for number in self.joining.ready(self.members):
            if self.is_another_lost() or number in self.lost:
                self.joining.starting.add(number)  # try again later
            else:
                self.relieve(number)
        self.unread += self.joining.news
        self.joining.news.clear()

    def relieve(self, number: int) -> None:
        after = relieved(self.placement, list(self.infos.values()), number)
        message = f"the node {self._name(number)} joined"
        if after is not None:
            moved = Move(self.placement, after).actors
            message += f", and runs {', '.join(self._roles[actor] for actor in moved)} from now on"
            self.move(after, ())
        self.unread.append(message)

    def move(self, after: Placement, lost: Collection[int]) -> None:
        move = Move(self.placement, after)
        if not lost:
            for actor in move.actors:
                home = self.placement.actors[actor]
                if home == HEAD:
                    self.local.move([r for r in self.local.here if r != actor])
                else:
                    self._wait_for(
                        {home: self.nodes.call(home, "release_actor", actor, after.epoch)}, REACH
                    )
        rings, calls = self.migration.ask_for_rings(move, lost)
        for answer in self._wait_for(calls, REACH).values():
            rings |= answer
        homes = (HEAD, *self.members)
        handovers = self.migration.handovers(move, rings, homes)
        self.placement = after
        for number in self.members:
            args = (after, self.addresses, handovers[number])
            self.pending.append((number, self.nodes.call(number, "replace", *args)))
        self.node.replace(after, self.addresses, handovers[HEAD], self.is_another_lost)

    def is_another_lost(self) -> bool:
        """Return whether a node with roles is lost; `_look` handles it."""
        self.lost |= dict.fromkeys(self.nodes.lost(), GONE)
        for member in self.members.values():
            member.poll(self.nodes)
            if member.is_lost:
                self.lost.setdefault(member.number, GONE)
        return bool(self.lost.keys() & self.members.keys() & set(self.placement.nodes))

    @property
    def _roles(self) -> list[str]:
        return [role.name for role in self.node.assembly.roles()]

    def _call_all(self, method: str, *args: Any, without: int = HEAD) -> dict[int, Call]:
        numbers = [number for number in self.members if number != without]
        return {number: self.nodes.call(number, method, *args) for number in numbers}

    def _wait_for(self, calls: Mapping[int, Call], limit: float | None = None) -> dict[int, Any]:
        """Wait for the answers of nodes while watching the roles here; lost nodes are left out."""

        def may_answer(number: int) -> bool:
            member = self.members.get(number)
            if calls[number].done() or member is None:
                return not calls[number].done()
            member.poll(self.nodes)
            return not (member.is_lost or member.is_silent(self.silence))

        end = time.monotonic() + (self.silence if limit is None else limit)
        while time.monotonic() < end and any(map(may_answer, calls)):
            with contextlib.suppress(RemudaError):  # a role's death: `_look` reports it
                self.local.run_for(GLANCE)
        answers = {}
        for number, call in calls.items():
            if not call.done():
                log.warning("node %d did not answer", number)
                continue
            try:
                answers[number] = call.result(0.0)
            except NodeLostError:
                log.warning("node %d is gone", number)
        return answers

    def _see_all(self, stamps: Mapping[int, Call], limit: float | None = None) -> bool:
        """Wait for all data that nodes wrote before these stamps; return whether it arrived."""
        linked = self.placement.nodes  # others have no role and send no data
        wanted = {n: stamp for n, stamp in self._wait_for(stamps, limit).items() if n in linked}
        end = time.monotonic() + self.silence
        stamps_here = self.node.stamps["stamps"]
        while any(stamps_here[number] < stamp for number, stamp in wanted.items()):
            if time.monotonic() > end:
                log.warning("the last writes of some nodes did not arrive")
                return False
            time.sleep(GLANCE)
        return wanted.keys() == stamps.keys() & set(linked)

    def fetch_logs(self, numbers: Sequence[int]) -> None:
        calls = {n: self.nodes.call(n, "logs") for n in numbers}
        for number, logs in self._wait_for(calls, REACH).items():
            self.logs.keep(self._name(number), logs)

    def _fetch_spans(self) -> None:
        assembly = self.node.assembly
        if assembly.config.trace is None:
            return
        for number in self.members:
            sent = time.perf_counter()
            answers = self._wait_for({number: self.nodes.call(number, "spans")}, REACH)
            for now, spans in answers.values():
                later = (sent + time.perf_counter()) / 2 - now
                for role, spans_of_role in spans.items():
                    name = f"{role}@{self._name(number)}"
                    assembly.spans_elsewhere[name] = [
                        (span, start + later, end + later) for span, start, end in spans_of_role
                    ]
