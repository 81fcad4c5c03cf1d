"""The placement of roles on the nodes of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from remuda.cluster.nodes import HEAD, NodeInfo


@dataclass(frozen=True)
class Placement:
    """The node of every role. Roles are numbered: the actors, then the learners."""

    actors: tuple[int, ...]  # node of each actor
    learners: tuple[int, ...]  # node of each learner process
    epoch: int = 1  # number of placements so far; nodes of different epochs have no links

    @property
    def homes(self) -> tuple[int, ...]:
        return (*self.actors, *self.learners)

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes that have a role, and the head."""
        return tuple(sorted({HEAD, *self.homes}))

    def roles_of(self, node: int) -> list[int]:
        return [role for role, home in enumerate(self.homes) if home == node]

    def in_words(self, roles: Sequence[str], name: Callable[[int], str]) -> str:
        """Describe the placement with the names of roles and nodes."""
        return "; ".join(
            f"{name(node)}: {', '.join(roles[role] for role in self.roles_of(node))}"
            for node in sorted(set(self.homes))
        )

    def peers_of(self, node: int) -> list[int]:
        """Return the nodes linked with a node: the head, and those that act or learn for it."""
        plays, learns = set(self.actors), set(self.learners)
        if node not in self.nodes:
            return []  # it has nothing to send
        peers = set(self.nodes) if node == HEAD else {HEAD}
        if node in plays:
            peers |= learns
        if node in learns:
            peers |= plays
        return sorted(peers - {node})

    def moved(self, homes: Mapping[int, int]) -> Placement:
        """Return the next placement, with these roles on other nodes."""
        found = [homes.get(role, home) for role, home in enumerate(self.homes)]
        actors = len(self.actors)
        return Placement(tuple(found[:actors]), tuple(found[actors:]), self.epoch + 1)


@dataclass(frozen=True)
class Offer:
    """A node's resources for roles."""

    number: int
    cores: int
    gpus: int = 0
    plays: bool = True  # actors may live there
    info: NodeInfo | None = None  # name and labels, if any

    @property
    def name(self) -> str:
        return self.info.name if self.info is not None else str(self.number)

    def has_label(self, label: str) -> bool:
        return self.info is not None and self.info.has_label(label)


def place(
    offers: Sequence[Offer],
    actors: int,
    devices: Sequence[str],
    wanted: Sequence[str] = (),
    beside: Sequence[int] = (),
    epoch: int = 1,
    lead: bool = False,
) -> Placement:
    """Assign a node to every role.

    Learners that need a GPU go to a node with GPUs; a policy's label has priority. All other roles
    go one after another to the node with most cores left, learners first, near their actors.
    """
    left = {offer.number: float(offer.cores) for offer in offers}
    gpus = {offer.number: offer.gpus for offer in offers}
    by_number = {offer.number: offer for offer in offers}

    def take(allowed: Sequence[int]) -> int:
        best = max(allowed, key=lambda number: (left[number], -number))
        left[best] -= 1.0
        return best

    learners: list[int] = []
    for i, device in enumerate(devices):
        label = wanted[i] if i < len(wanted) else ""
        allowed = [n for n, offer in by_number.items() if not label or offer.has_label(label)]
        if i < len(beside) and beside[i] != i:
            home = learners[beside[i]]
            if home not in allowed:
                raise LookupError(
                    f"has the label {label!r} (policy.node) beside the other policies of the same "
                    "experience.group, which are trained on one node"
                )
            allowed = [home]
        if not allowed:
            raise LookupError(f"has the label {label!r} (policy.node)")
        able = [n for n in allowed if by_number[n].gpus > 0]
        if device.startswith("cuda") and able:  # if there are too few, they share them
            most = max(gpus[n] for n in able)
            allowed = [n for n in able if gpus[n] == most]
        home = take(allowed)
        gpus[home] -= device.startswith("cuda")
        learners.append(home)
    left[HEAD] -= lead
    players = [offer.number for offer in offers if offer.plays]
    if not players:
        raise LookupError("has a label of actor.nodes")
    found = [HEAD] if lead else []
    found += [take(players) for _ in range(actors - len(found))]
    return Placement(tuple(found), tuple(learners), epoch)


def relieved(placement: Placement, offers: Sequence[Offer], new: int) -> Placement | None:
    """Give a new node actors of overloaded nodes, if there are any, the most overloaded first."""
    by_number = {offer.number: offer for offer in offers}
    if not by_number[new].plays:
        return None
    found, moved = placement, False
    while len(found.roles_of(new)) < by_number[new].cores:
        lack = {n: len(found.roles_of(n)) - o.cores for n, o in by_number.items() if n != new}
        # The first actor stays: it may lead a population.
        crowded = [n for n in lack if lack[n] > 0 and n in found.actors[1:]]
        if not crowded:
            break
        most = max(crowded, key=lambda number: lack[number])
        actor = max(a for a, home in enumerate(found.actors) if home == most and a)
        found, moved = found.moved({actor: new}), True
    return replace(found, epoch=placement.epoch + 1) if moved else None


def without(
    placement: Placement,
    gone: Collection[int],
    offers: Sequence[Offer],
    devices: Sequence[str] = (),
    wanted: Sequence[str] = (),
    beside: Sequence[int] = (),
) -> Placement:
    """Move the roles of lost nodes to the remaining ones, one to each in turn.

    Learners prefer nodes with the wanted label, and with a GPU if they train on one; see `place`.
    """
    load = {offer.number: 0 for offer in offers}
    for home in placement.homes:
        if home in load:
            load[home] += 1
    cores = {offer.number: offer.cores for offer in offers}
    homes: dict[int, int] = {}
    for role in [role for role, home in enumerate(placement.homes) if home in gone]:
        plays = role < len(placement.actors)
        fit = [o for o in offers if o.plays or not plays] or list(offers)
        learner = role - len(placement.actors)
        if not plays and learner < len(beside) and beside[learner] != learner:
            home = homes[role - learner + beside[learner]]  # it was on the same node
            load[home] += 1
            homes[role] = home
            continue
        if not plays:
            label = wanted[learner] if learner < len(wanted) else ""
            device = devices[learner] if learner < len(devices) else ""
            fit = [o for o in fit if label and o.has_label(label)] or fit
            fit = [o for o in fit if o.gpus and device.startswith("cuda")] or fit
        allowed = [o.number for o in fit]
        home = max(allowed, key=lambda number: (cores[number] - load[number], -number))
        load[home] += 1
        homes[role] = home
    return replace(placement.moved(homes))
