"""The head's migration of roles after a node is lost or has joined."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from remuda.cluster.handover import HandoverState, handover_state_of, rings_of
from remuda.cluster.node import Node
from remuda.cluster.nodes import HEAD, Call, NodeInfo, Nodes, Placement, without
from remuda.policies.compatibility import shares_of
from remuda.policies.spec import PolicySpec
from remuda.runtime.layout import Layout
from remuda.system.checkpoint.store import Checkpoints
from remuda.types import RoleStatus


@dataclass(frozen=True)
class Move:
    """The change from one placement to the next."""

    before: Placement
    after: Placement

    @property
    def actors(self) -> list[int]:
        pairs = enumerate(zip(self.before.actors, self.after.actors, strict=True))
        return [actor for actor, (a, b) in pairs if a != b]

    @property
    def groups(self) -> list[int]:
        pairs = enumerate(zip(self.before.learners, self.after.learners, strict=True))
        return [group for group, (a, b) in pairs if a != b]

    def in_words(self, node: int, roles: Sequence[str], name: Callable[[int], str]) -> str:
        return ", ".join(
            f"{roles[role]} on {name(self.after.homes[role])}"
            for role in self.before.roles_of(node)
        )


class MoveCounts:
    """The number of moves of each role, and the reason of its last move."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[int, str]] = {}

    def note(self, role: str, why: str) -> None:
        times, _ = self._of.get(role, (0, ""))
        self._of[role] = (times + 1, why)

    def counted(self, found: Sequence[RoleStatus]) -> list[RoleStatus]:
        more = [(each, *self._of.get(each.name, (0, ""))) for each in found]
        return [
            replace(each, restarts=each.restarts + times, problem=each.problem or why)
            for each, times, why in more
        ]


def needs_of(layout: Layout, specs: Sequence[PolicySpec]) -> tuple[list[str], list[str], list[int]]:
    """Return each learner process's device, node label, and first process sharing experience."""
    devices = [layout.devices[group[0]] for group in layout.groups]
    wanted = [specs[group[0]].config.node for group in layout.groups]
    first, shares = list(range(len(layout.groups))), shares_of(specs)
    for process, group in enumerate(layout.groups):
        others = {other for i in group for other in shares[specs[i].name]}
        for earlier in range(process):
            names = {specs[i].name for i in layout.groups[earlier]}
            if names & others:
                found, joined = first[earlier], first[process]
                first = [min(found, joined) if f in (found, joined) else f for f in first]
    return devices, wanted, first


class Migration:
    """The requests for a move of roles, which go to all nodes including the head."""

    def __init__(self, node: Node, nodes: Nodes, checkpoints: Checkpoints) -> None:
        self._node, self._nodes, self._checkpoints = node, nodes, checkpoints

    def without(
        self, placement: Placement, gone: Collection[int], left: Sequence[NodeInfo]
    ) -> Placement:
        assembly = self._node.assembly
        needs = needs_of(assembly.layout, assembly.specs)
        return without(placement, gone, left, *needs)

    def ask_for_rings(
        self, move: Move, gone: Collection[int]
    ) -> tuple[dict[Any, Any], dict[int, Call]]:
        """Request moving actors' rings: from learners' nodes if `gone`, else from actors' nodes."""
        assembly, epoch = self._node.assembly, move.after.epoch
        wanted: dict[int, tuple[list[int], list[str]]] = {}
        for actor in move.actors:
            if gone:
                sources = self._learned_by(move.before, gone)
                sources.pop(move.after.actors[actor], None)  # this node already has the rings
            else:
                sources = {move.before.actors[actor]: [spec.name for spec in assembly.specs]}
            for node, names in sources.items():
                wanted.setdefault(node, ([], names))[0].append(actor)
        found = rings_of(assembly, *wanted.pop(HEAD)) if HEAD in wanted else {}
        calls = {
            node: self._nodes.call(node, "rings_of", *args, epoch) for node, args in wanted.items()
        }
        return found, calls

    def handovers(
        self, move: Move, rings: Mapping[tuple[str, int], Any], homes: tuple[int, ...]
    ) -> dict[int, HandoverState]:
        found = {}
        for node in homes:
            actors = [a for a in move.actors if move.after.actors[a] == node]
            groups = [g for g in move.groups if move.after.learners[g] == node]
            kept = self._kept(move, node) if actors else frozenset()
            own = {key: held for key, held in rings.items() if key[1] in actors}
            if not (actors or groups):
                found[node] = HandoverState()
                continue
            handover = handover_state_of(
                self._node.assembly, actors, groups, own, self._checkpoints, kept
            )
            # Actor 0 still runs on the head, and reads match results from the shards there.
            shards = {} if node == HEAD else handover.shards
            found[node] = replace(handover, shards=shards)
        return found

    def _kept(self, move: Move, node: int) -> frozenset[str]:
        assembly = self._node.assembly
        return frozenset(
            assembly.specs[i].name
            for group, homes in enumerate(
                zip(move.before.learners, move.after.learners, strict=True)
            )
            if homes == (node, node)
            for i in assembly.layout.groups[group]
        )

    def _learned_by(self, placement: Placement, gone: Collection[int]) -> dict[int, list[str]]:
        assembly = self._node.assembly
        found: dict[int, list[str]] = {}
        for group, home in enumerate(placement.learners):
            if home not in gone:
                names = [assembly.specs[i].name for i in assembly.layout.groups[group]]
                found.setdefault(home, []).extend(names)
        return found
