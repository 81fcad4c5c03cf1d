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
        self._node, self._nodes = node, nodes
        self.placement, self._addresses = placement, dict(addresses)
        self._logs, self._checkpoints = FetchedLogs(logs), checkpoints
        self._silence = config.cluster.silence
        self._write_limit = config.checkpoint.write_limit
        self._local: ProcessRuntime = node.runtime(placement, addresses, logs, checkpoints)
        self._infos = {info.number: info for info in infos}
        self._members = {n: Member(n, i.name) for n, i in self._infos.items() if n != HEAD}
        self._joining = JoiningNodes(nodes, prepare)
        self._lost: dict[int, str] = {}  # nodes found lost but not handled yet, and why
        self._migration = Migration(node, nodes, checkpoints)
        self._news: list[str] = []
        self._moved = MoveCounts()
        self._reach = LinkMonitor(self._silence)
        # unfinished requests to nodes, sent while roles moved or nodes joined
        self._pending: list[tuple[int, Call]] = []
        self._stopped = False

    def start(self, stopped: Callable[[], bool], ready: Callable[[], None] = lambda: None) -> None:
        compiling = Progress(self._news.append)
        self._local.spawn()
        self._wait_for(self._call_all("start", self.placement, self._addresses), 60.0)
        while not stopped():
            self._look(0.05)
            members = self._members.values()
            compiling.see(self._local.compiled + sum(m.status.compiled for m in members))
            if self._local.is_ready and all(m.status.is_ready for m in members):
                ready()
                self._local.go()
                self._wait_for(self._call_all("go"))
                return

    def run_for(self, seconds: float) -> bool:
        self._look(seconds)
        self._news += self._reach.news(self.placement, self._members.values(), self._name)
        placement = self.placement
        if self._lost or set(self._local.here) != set(placement.roles_of(HEAD)):
            return False  # some roles have not started yet
        statuses = [m.status for n, m in self._members.items() if n in placement.nodes]
        # A node's report from an earlier epoch does not cover roles that moved there since.
        played = all(each.is_played and each.epoch == placement.epoch for each in statuses)
        return played and self._local.is_played

    def save(self, number: int) -> set[str]:
        """Let every role write its parts of a checkpoint; return the names of the written parts.

        In lockstep the request reaches the actor's node last, after all other nodes have it.
        """
        acts = self.placement.actors[0] if self._node.assembly.config.exact else HEAD
        begun = self._call_all("begin_save", number, without=acts)
        if acts != HEAD:
            self._local.want_save(number)
        self._wait_for(begun)
        if acts in self._members:
            self._wait_for({acts: self._nodes.call(acts, "begin_save", number)})
        calls = self._call_all("save", number)
        parts = self._local.save(number)
        for node, files in self._wait_for(calls, self._write_limit).items():
            for part, contents in files.items():
                if contents is not None:
                    path = self._checkpoints.partial(number) / f"{part}.safetensors"
                    path.write_bytes(contents)
                parts.add(part)
            log.info("node %d wrote %s", node, ", ".join(files) or "nothing")
        if not self._see_all(self._call_all("stamp")) and self._node.assembly.config.exact:
            return set()  # the head's counts would not match these parts
        return parts

    def settle(self, number: int) -> None:
        complete = number in self._checkpoints.numbers()
        manifest = self._checkpoints.manifest(number) if complete else None
        self._local.settle(number)
        self._wait_for(self._call_all("settle", number, manifest))

    def status(self) -> list[RoleStatus]:
        roles = [replace(role, node=self._name(HEAD)) for role in self._local.status()]
        for member in self._members.values():
            for role in member.status.roles:
                name = f"{BRIDGE}@{member.name}" if role.name == BRIDGE else role.name
                roles.append(replace(role, name=name, node=member.name))
        return [self._moved.counted(role) for role in roles]

    def describe(self) -> str:
        return self.placement.describe(self._roles, self._name)

    def traffic(self) -> tuple[int, int] | None:
        rows: list[Sequence[int]] = self._node.traffic.counts.tolist()
        for member in self._members.values():
            rows += member.status.traffic
        return sum(row[Count.SENT_BYTES] for row in rows), sum(row[Count.FRAMES] for row in rows)

    def news(self) -> list[str]:
        news, self._news = [*self._news, *self._local.news()], []
        return news

    def stop(self) -> None:
        """Stop all roles, wait for their last data, then stop all bridges."""
        if self._stopped:
            return
        self._stopped = True
        calls = self._call_all("finish")
        self._local.finish()
        # A learner may take long to publish its last update.
        self._see_all(calls, self._node.assembly.config.run.stop_limit + self._silence)
        self._fetch_logs(list(self._members))
        self._fetch_spans()
        self._wait_for(self._call_all("stop"))
        self._local.stop()
        self._nodes.stop()
        sweep_homes()

    def _name(self, number: int) -> str:
        return self._infos[number].name if number in self._infos else str(number)

    def _look(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while True:
            remaining = max(end - time.monotonic(), 0.0)
            self._local.run_for(min(remaining, POLL))
            self._lost |= dict.fromkeys(self._nodes.lost(), GONE)
            for member in self._members.values():
                self._ask(member)
            self._lose()
            self._add_joined()
            self._hear()
            if time.monotonic() >= end:
                return

    def _ask(self, member: Member) -> None:
        """Process a node's reports, and poll it again when that is due."""
        member.poll(self._nodes)
        if member.is_lost or member.number in self._lost:
            self._lost.setdefault(member.number, GONE)
            return
        if member.is_silent(self._silence):
            self._nodes.give_up(member.number)
            self._lost[member.number] = f"gave no answer for {self._silence:g} s (cluster.silence)"
            return
        reports, member.unread = member.unread, []
        for member.status in reports:
            for message in member.status.news:
                named = self._logs.named(member.name, message)
                self._news.append(f"on the node {member.name} {named}")
                self._logs.expect(member.name, self._nodes.call(member.number, "logs"))
            if member.status.fatal is not None:
                if member.number not in self.placement.nodes:
                    self._leave_out(member.number, member.status.fatal)
                    return
                self._fetch_logs([member.number])
                message = self._logs.named(member.name, str(member.status.fatal))
                raise RoleDiedError(f"on the node {member.name} {message}")

    def _leave_out(self, number: int, error: RemudaError) -> None:
        """Give up a node without roles; the run continues."""
        if number in self._members:
            self._nodes.give_up(number)
            self._lost.setdefault(number, f"cannot be used: {error}")

    def _lose(self) -> None:
        reasons, self._lost = self._lost, {}
        lost: dict[int, str] = {}
        for number, why in reasons.items():
            self._joining.lose(number)
            if (member := self._members.pop(number, None)) is not None:
                lost[number] = f"the node {member.name} {why}"
                del self._infos[number]
        if not lost or self._stopped:
            return
        names = self._roles
        roles = {n: [names[role] for role in self.placement.roles_of(n)] for n in lost}
        if not any(roles.values()):  # no node has a link with them
            self._news += lost.values()
            return
        if self._node.assembly.config.exact:
            of = (f"{what}, with {', '.join(roles[n]) or 'no role'}" for n, what in lost.items())
            raise RoleDiedError(
                f"{'; '.join(of)}; the schedule {self._node.assembly.config.schedule} cannot "
                "continue on other nodes"
            )
        remaining = [i for n, i in self._infos.items() if n not in self._joining.starting]
        after = self._migration.without(self.placement, lost.keys(), remaining)
        news = []
        for number, what in lost.items():
            log.warning("%s", what)
            for role in roles[number]:
                self._moved.note(role, what)
            to = Move(self.placement, after).describe(number, names, self._name)
            news.append(f"{what}; the run continues with {to}" if to else what)
        self._move(after, lost.keys())
        self._news += news

    def _hear(self) -> None:
        done = [each for each in self._pending if each[1].done()]
        self._pending = [each for each in self._pending if each not in done]
        for number, call in done:
            try:
                call.result(0.0)
            except NodeLostError:
                pass  # reported elsewhere
            except RemudaError as error:
                if number in self.placement.nodes:
                    raise RoleDiedError(f"roles could not be moved: {error}") from None
                self._leave_out(number, error)
        self._logs.hear()

    def _add_joined(self) -> None:
        for info, port in self._joining.prepared():
            number = info.number
            self._addresses[number] = (info.address, port)
            self._infos[number] = info
            self._members[number] = Member(number, info.name)
            start = self._nodes.call(number, "start", self.placement, self._addresses)
            self._pending += [(number, start), (number, self._nodes.call(number, "go"))]
            self._joining.starting.add(number)
        for number in self._joining.ready(self._members):
            if self._is_another_lost() or number in self._lost:
                self._joining.starting.add(number)  # try again later
            else:
                self._relieve(number)
        self._news += self._joining.news
        self._joining.news.clear()

    def _relieve(self, number: int) -> None:
        after = relieved(self.placement, list(self._infos.values()), number)
        message = f"the node {self._name(number)} joined"
        if after is not None:
            moved = Move(self.placement, after).actors
            message += f", and runs {', '.join(self._roles[actor] for actor in moved)} from now on"
            self._move(after, ())
        self._news.append(message)

    def _move(self, after: Placement, lost: Collection[int]) -> None:
        move = Move(self.placement, after)
        if not lost:
            for actor in move.actors:
                home = self.placement.actors[actor]
                if home == HEAD:
                    self._local.move([r for r in self._local.here if r != actor])
                else:
                    self._wait_for(
                        {home: self._nodes.call(home, "release_actor", actor, after.epoch)}, REACH
                    )
        rings, calls = self._migration.ask_for_rings(move, lost)
        for answer in self._wait_for(calls, REACH).values():
            rings |= answer
        homes = (HEAD, *self._members)
        handovers = self._migration.handovers(move, rings, homes)
        self.placement = after
        for number in self._members:
            args = (after, self._addresses, handovers[number])
            self._pending.append((number, self._nodes.call(number, "replace", *args)))
        self._node.replace(after, self._addresses, handovers[HEAD], self._is_another_lost)

    def _is_another_lost(self) -> bool:
        """Return whether a node with roles is lost; `_look` handles it."""
        self._lost |= dict.fromkeys(self._nodes.lost(), GONE)
        for member in self._members.values():
            member.poll(self._nodes)
            if member.is_lost:
                self._lost.setdefault(member.number, GONE)
        return bool(self._lost.keys() & self._members.keys() & set(self.placement.nodes))

    @property
    def _roles(self) -> list[str]:
        return [role.name for role in self._node.assembly.roles()]

    def _call_all(self, method: str, *args: Any, without: int = HEAD) -> dict[int, Call]:
        numbers = [number for number in self._members if number != without]
        return {number: self._nodes.call(number, method, *args) for number in numbers}

    def _wait_for(self, calls: Mapping[int, Call], limit: float | None = None) -> dict[int, Any]:
        """Wait for the answers of nodes while watching the roles here; lost nodes are left out."""

        def may_answer(number: int) -> bool:
            member = self._members.get(number)
            if calls[number].done() or member is None:
                return not calls[number].done()
            member.poll(self._nodes)
            return not (member.is_lost or member.is_silent(self._silence))

        end = time.monotonic() + (self._silence if limit is None else limit)
        while time.monotonic() < end and any(map(may_answer, calls)):
            with contextlib.suppress(RemudaError):  # a role's death: `_look` reports it
                self._local.run_for(GLANCE)
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
        end = time.monotonic() + self._silence
        stamps_here = self._node.stamps["stamps"]
        while any(stamps_here[number] < stamp for number, stamp in wanted.items()):
            if time.monotonic() > end:
                log.warning("the last writes of some nodes did not arrive")
                return False
            time.sleep(GLANCE)
        return wanted.keys() == stamps.keys() & set(linked)

    def _fetch_logs(self, numbers: Sequence[int]) -> None:
        calls = {n: self._nodes.call(n, "logs") for n in numbers}
        for number, logs in self._wait_for(calls, REACH).items():
            self._logs.keep(self._name(number), logs)

    def _fetch_spans(self) -> None:
        assembly = self._node.assembly
        if assembly.config.trace is None:
            return
        for number in self._members:
            sent = time.perf_counter()
            answers = self._wait_for({number: self._nodes.call(number, "spans")}, REACH)
            for now, spans in answers.values():
                later = (sent + time.perf_counter()) / 2 - now
                for role, spans_of_role in spans.items():
                    name = f"{role}@{self._name(number)}"
                    assembly.spans_elsewhere[name] = [
                        (span, start + later, end + later) for span, start, end in spans_of_role
                    ]
