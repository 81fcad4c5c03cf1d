"""The head's migration of roles after a node is lost or has joined."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from remuda.cluster.handover import HandoverState, handover_state_of, rings_of
from remuda.cluster.node import Node
from remuda.cluster.nodes import HEAD, Call, Need, NodeInfo, Nodes, Placement, without
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
        homes = zip(self.before.actors, self.after.actors, strict=True)
        return [actor for actor, (before, after) in enumerate(homes) if before != after]

    def describe(self, node: int, roles: Sequence[str], name: Callable[[int], str]) -> str:
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

    def counted(self, role: RoleStatus) -> RoleStatus:
        times, why = self._of.get(role.name, (0, ""))
        return replace(role, restarts=role.restarts + times, problem=role.problem or why)


def needs_of(layout: Layout, specs: Sequence[PolicySpec]) -> list[Need]:
    """Return the needs of each learner process; `beside` is the first that shares experience."""
    first, shares = list(range(len(layout.groups))), shares_of(specs)
    for process, group in enumerate(layout.groups):
        others = {other for i in group for other in shares[specs[i].name]}
        for earlier in range(process):
            names = {specs[i].name for i in layout.groups[earlier]}
            if names & others:
                found, joined = first[earlier], first[process]
                first = [min(found, joined) if f in (found, joined) else f for f in first]
    return [
        Need(
            layout.devices[group[0]],
            specs[group[0]].config.node,
            None if first[process] == process else first[process],
        )
        for process, group in enumerate(layout.groups)
    ]


class Migration:
    """The requests for a move of roles, which go to all nodes including the head."""

    def __init__(self, node: Node, nodes: Nodes, checkpoints: Checkpoints) -> None:
        self._node, self._nodes, self._checkpoints = node, nodes, checkpoints

    def without(
        self, placement: Placement, lost: Collection[int], nodes: Sequence[NodeInfo]
    ) -> Placement:
        assembly = self._node.assembly
        return without(placement, lost, nodes, needs_of(assembly.layout, assembly.specs))

    def ask_for_rings(
        self, move: Move, lost: Collection[int]
    ) -> tuple[dict[Any, Any], dict[int, Call]]:
        """Request moving actors' rings: from learners' nodes if `lost`, else from actors' nodes."""
        assembly, epoch = self._node.assembly, move.after.epoch
        wanted: dict[int, tuple[list[int], list[str]]] = {}
        for actor in move.actors:
            if lost:
                learners = move.before.learners
                homes = set(learners) - set(lost)
                sources = {
                    home: self._policies(g for g, at in enumerate(learners) if at == home)
                    for home in sorted(homes)
                }
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
        self, move: Move, rings: Mapping[tuple[str, int], Any], nodes: tuple[int, ...]
    ) -> dict[int, HandoverState]:
        """Return the state that each node needs of the roles that move there."""
        homes = list(zip(move.before.learners, move.after.learners, strict=True))
        found = {}
        for node in nodes:
            actors = [actor for actor in move.actors if move.after.actors[actor] == node]
            arrive = [g for g, (before, after) in enumerate(homes) if after == node != before]
            stay = [g for g, (before, after) in enumerate(homes) if after == node == before]
            if not (actors or arrive):
                found[node] = HandoverState()
                continue
            handover = handover_state_of(
                self._node.assembly,
                actors,
                self._policies(arrive),
                {key: state for key, state in rings.items() if key[1] in actors},
                self._checkpoints,
                self._policies(stay) if actors else (),
            )
            # Actor 0 still runs on the head, and reads match results from the shards there.
            shards = {} if node == HEAD else handover.shards
            found[node] = replace(handover, shards=shards)
        return found

    def _policies(self, groups: Iterable[int]) -> list[str]:
        assembly = self._node.assembly
        return [assembly.specs[i].name for group in groups for i in assembly.layout.groups[group]]
