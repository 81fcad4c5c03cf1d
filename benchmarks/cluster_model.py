"""A model of bridges, for clusters that are not at hand: `python benchmarks/cluster_model.py WHAT`.

costs   what single things cost
check   the model against what was measured over 2, 3 and 4 nodes here
walls   what is used up first, from 4 to 1,000 nodes and from 8 to 10,000 policies

It goes by what `cluster.py calibrate` recorded: what single things cost on this machine (a look at
a word, a frame, a snapshot, a step, a poll of the head), and how much of each there is by the code
of `src/remuda/cluster`: which nodes have a link (`Placement.peers_of`), which words are sent
(`Stores`), how often (`bridge.TICK`, `channel.SLOWLY`, `member.POLL`). 1 of something is all
of it: a core of a node, or its network.

It knows nothing of what games and learners themselves take, nor of how long anything is on its way.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from recording import FIGURES, Results, options_of

from remuda.cluster.bridge import TICK
from remuda.cluster.channel import SLOWLY
from remuda.cluster.cluster import SPARE
from remuda.cluster.member import POLL
from remuda.cluster.stores import ACTORS_WORDS, LEARNERS_WORDS

NODES = (4, 16, 64, 250, 1000)
POLICIES = (8, 64, 512, 2000, 10_000)
LINK = 1.25e9
"""Bytes a second that a node's network carries each way: ten gigabits."""
MOVED = 0.9
"""A setting counts as one that moves something if no more than this share of it is left."""
WITHIN = 0.2
"""How far the model may be from what was measured."""
FAST, SLOW = len(ACTORS_WORDS) + len(LEARNERS_WORDS), 40
"""Words of a ring that are sent in every round; and of a policy's line of the scoreboard."""


@dataclass(frozen=True)
class Costs:
    """Seconds of a processor that single things take, and bytes."""

    part: float
    """A look at an array of words, of which any may have changed..."""
    word: float
    """...and at each of its words."""
    round: float
    """A round of a bridge, whatever it has to do..."""
    peer: float
    """...and for each link in it."""
    frame: float
    """A frame that is sent, with one that comes."""
    snapshot: float
    """A policy's weights that are sent to a node..."""
    byte: float
    """...and each of their bytes."""
    step: float
    """A step of an agent that crosses."""
    poll: float
    """A question of the head to a node, with its answer..."""
    entry: float
    """...and for each node in the answer."""
    match: float
    """A result of a match that the head takes."""
    step_bytes: float
    frame_bytes: float
    rounds: float
    """Rounds a second of a bridge to which something always comes: that wakes it, too."""


@dataclass(frozen=True)
class Cluster:
    """The work and the settings of a cluster."""

    nodes: int
    policies: int
    learning: float = 0.25
    """Share of the nodes where policies learn; the others play, and the head does neither."""
    actors: int = 8
    """On each node that plays."""
    steps: float = 20_000.0
    """Steps of agents a second, on each node that plays."""
    batch: float = 4096.0
    """Steps of an update, each of which is a version."""
    weights_every: float = 0.0
    snapshot: float = 5e4
    """Bytes."""
    seats: int = 8
    match: float = 800.0
    """Steps of all agents in a match."""
    dealt: bool = True
    """True for a population, dealt by all actors."""
    tick: float = TICK
    ask: float = POLL
    slowly: float = SLOWLY
    """Seconds between two rounds of a bridge, two polls, two looks at the slow words: these
    are no settings."""

    @property
    def learners(self) -> int:
        """Nodes that learn."""
        return max(1, round((self.nodes - 1) * self.learning))

    @property
    def players(self) -> int:
        """Nodes that play."""
        return max(1, self.nodes - 1 - self.learners)


def load(folder: Path = FIGURES) -> list[dict[str, Any]]:
    """The measurements."""
    try:
        record = json.loads((folder / "cluster.calibrate.json").read_text())
    except FileNotFoundError:
        raise SystemExit(
            "there is no cluster.calibrate.json: run `python benchmarks/cluster.py calibrate "
            "--record` first"
        ) from None
    rows: list[dict[str, Any]] = record["figures"]["rows"]
    return rows


def words_of_bare(policies: int, nodes: int, rounds: float) -> tuple[float, float]:
    """Parts and words that the head of bridges alone looks at each second, for each link.

    All learn on the head, and each node has one actor of a population.

    Args:
        policies: of it.
        nodes: with the head.
        rounds: a second; a link has its turn in no more than one in `TICK`.
    """
    looks = min(rounds, 1 / TICK)
    fast = policies * (len(ACTORS_WORDS) * (nodes - 1) + len(LEARNERS_WORDS) * nodes)
    table = 6 * policies**2 + policies * 20
    parts = 2 * policies * looks + 12 / SLOWLY
    return parts, fast * looks + table / SLOWLY


def fitted(rows: list[dict[str, Any]]) -> Costs:
    """Return the cost of single operations: timed separately, and the rest by least squares."""
    unit = {row["of"].removeprefix("a unit: "): 1e-9 * row["ns"] for row in rows if "ns" in row}
    word = unit["a word"]
    bare = [row for row in rows if row["of"] == "bridges alone"]
    share = "bridge of the head, % of a core"
    table, target = [], []
    for row in bare:
        peers = row["nodes"] - 1
        rounds = max(row["rounds/s"], 1.0)
        parts, words = words_of_bare(row["policies"], row["nodes"], rounds)
        known = peers * words * word
        sent = row["snapshots/s, to a node"] * peers
        frames = row["frames/s"]
        size = row["bytes of a snapshot"]
        table.append([peers * parts, rounds, rounds * peers, frames, sent, sent * size])
        target.append(row[share] / 100 - known)
    found = not_negative(np.array(table), np.array(target))
    runs = {row["nodes"]: row for row in rows if row["of"] == "a run"}
    part, a_round, peer, frame, snapshot, byte = map(float, found)
    costs = Costs(
        part=part,
        word=word,
        round=a_round,
        peer=peer,
        frame=frame,
        snapshot=snapshot,
        byte=byte,
        step=0.0,
        poll=max(row.get("a poll, ms") or 0.0 for row in runs.values()) / 1e3,
        entry=unit["a node in an answer to a poll"],
        match=unit["a result of a match"],
        step_bytes=0.0,
        frame_bytes=0.0,
        rounds=float(np.median([row["rounds/s"] for row in bare if row["counted every, s"]])),
    )
    # Steps by the smallest run: what its bridge took besides, and what came besides.
    first = runs[2]
    idle = [row for row in bare if row["counted every, s"]]
    frame_bytes = float(np.median([row["sent, bytes/s"] / row["frames/s"] for row in idle]))
    step_bytes = first["received, bytes/s"] / first["steps/s"]
    left = first[share] / 100 - run_share(first, replace(costs, step=0.0))
    return replace(
        costs,
        step=max(left / first["steps/s"], 0.0),
        step_bytes=step_bytes,
        frame_bytes=frame_bytes,
    )


def run_share(row: dict[str, Any], costs: Costs) -> float:
    """The share of a core of the head's bridge in a measured run: all learn there, none play."""
    peers, policies = row["nodes"] - 1, row["policies"]
    parts = 2 * policies / TICK
    words = policies * (len(ACTORS_WORDS) * (peers - 1) + len(LEARNERS_WORDS) * peers) / TICK
    sent = row["snapshots/s, to a node"] * peers
    return (
        peers * (parts * costs.part + words * costs.word)
        + costs.rounds * (costs.round + peers * costs.peer)
        + row["frames/s"] * costs.frame
        + sent * (costs.snapshot + row["bytes of a snapshot"] * costs.byte)
        + row["steps/s"] * costs.step
    )


def not_negative(table: Any, target: Any) -> Any:
    """Least squares of relative errors with no negative answers: unknowns that would be are 0."""
    weights = 1 / np.maximum(target, 1e-3)
    free = list(range(table.shape[1]))
    while True:
        found = np.zeros(table.shape[1])
        scaled = table * weights[:, None]
        size = np.linalg.norm(scaled, axis=0)
        size[size == 0] = 1.0
        some, *_ = np.linalg.lstsq(scaled[:, free] / size[free], target * weights, rcond=None)
        found[free] = some / size[free]
        if (found >= 0).all():
            return found
        free.remove(int(np.argmin(found * size)))


def used(cluster: Cluster, costs: Costs) -> dict[str, float]:
    """Return the used share of each resource: 1 is all of a core or of a network."""
    rounds = costs.rounds * TICK / cluster.tick
    others, learners, players = cluster.nodes - 1, cluster.learners, cluster.players
    policies, own = cluster.policies, cluster.policies / learners
    actors = cluster.actors * players
    steps = cluster.steps * players
    versions = steps / cluster.batch / policies  # of each policy, a second
    if cluster.weights_every:
        versions = min(versions, 1 / cluster.weights_every)
    # No frame is made before the last is gone, so no more than one version a round crosses.
    versions = min(versions, 1 / cluster.tick)
    table = (6 * policies**2 + 20 * policies) / cluster.slowly if cluster.dealt else 0.0
    look = rounds * costs.peer + costs.frame / cluster.tick

    def told(rings: float, words: float) -> float:
        """A link in whose every round so many words of so many policies' rings are looked at."""
        return look + (rings * costs.part + words * costs.word) / cluster.tick

    send = versions * (costs.snapshot + cluster.snapshot * costs.byte)
    ring = len(ACTORS_WORDS) + len(LEARNERS_WORDS)
    head = others * (look + (cluster.dealt * players / others) * table * costs.word)
    # Lines of the scoreboard of all policies, and words of their rings, a few times a second.
    board = policies * (SLOW + ring * actors) * costs.word / cluster.slowly
    matches = steps / cluster.match * cluster.dealt
    head += board + matches * costs.match
    learner = players * told(2 * own, own * ring * actors) + told(
        0, own * SLOW * cluster.tick / cluster.slowly
    )
    learner += players * own * send + steps / learners * costs.step
    player = learners * told(own, own * cluster.actors) + told(cluster.actors, cluster.actors)
    player += policies * send + cluster.steps * costs.step
    result = 40.0 + 30.0 * cluster.seats
    return {
        "head's bridge": rounds * costs.round + head,
        "head's polls": others / cluster.ask * (costs.poll + (cluster.nodes + SPARE) * costs.entry),
        "head's network": (others * costs.frame_bytes / cluster.tick + matches * result) / LINK,
        "a learning node's bridge": rounds * costs.round + learner,
        "a learning node's network, out": players * own * versions * cluster.snapshot / LINK,
        "a learning node's network, in": steps / learners * costs.step_bytes / LINK,
        "a playing node's bridge": rounds * costs.round + player,
        "a playing node's network, in": policies * versions * cluster.snapshot / LINK,
    }


SETTINGS: dict[str, dict[str, Any]] = {
    "cluster.weights_every 1": {"weights_every": 1.0},
    "cluster.weights_every 10": {"weights_every": 10.0},
    "twice as many nodes that learn (policy.node)": {"learning": 0.5},
    "a quarter as many (policy.node)": {"learning": 0.0625},
    "actor.processes: one on each node": {"actors": 1},
    "fixed seats, no population": {"dealt": False},
    "rollouts of four times as many steps": {"batch": 4 * 4096.0},
}
"""The settings of a user, as the model knows them..."""
CONSTANTS: dict[str, dict[str, Any]] = {
    "bridge.TICK 0.2": {"tick": 0.2},
    "member.POLL 2": {"ask": 2.0},
    "channel.SLOWLY 2": {"slowly": 2.0},
}
"""...and what is in the code."""


def moved_by(
    cluster: Cluster, costs: Costs, wall: str, among: dict[str, dict[str, Any]]
) -> tuple[str, float]:
    """Return the setting that lowers the use most, if any, and the use it leaves."""
    found = {}
    for name, values in among.items():
        then = used(replace(cluster, **values), costs)
        found[name] = then[wall]
    best = min(found, key=lambda name: found[name])
    moves = found[best] < MOVED * used(cluster, costs)[wall]
    return best if moves else "none of these", found[best]


def check(results: Results, rows: list[dict[str, Any]], costs: Costs) -> None:
    """The model against what was measured."""
    share = "bridge of the head, % of a core"
    for row in rows:
        if "ns" in row:
            continue
        if row["of"] == "a run":
            told = 100 * run_share(row, costs)
        else:
            peers = row["nodes"] - 1
            parts, words = words_of_bare(row["policies"], row["nodes"], row["rounds/s"])
            sent = row["snapshots/s, to a node"] * peers
            told = 100 * (
                peers * (parts * costs.part + words * costs.word)
                + row["rounds/s"] * (costs.round + peers * costs.peer)
                + row["frames/s"] * costs.frame
                + sent * (costs.snapshot + row["bytes of a snapshot"] * costs.byte)
            )
        off = told / row[share] - 1 if row[share] else 0.0
        what = f"{row['of']}, {row['nodes']} nodes, {row['policies']} policies"
        results.row(
            {
                "measured": what,
                "snapshots/s": row["snapshots/s, to a node"],
                "frames/s": row["frames/s"],
                "head's bridge, % of a core": row[share],
                "by the model": told,
                "off by, %": 100 * off,
            }
        )
        if row["of"] == "a run":
            results.bar(f"{row['nodes']} nodes: off by, share", abs(off), most=WITHIN)


def told_costs(results: Results, costs: Costs) -> None:
    """Print the cost of single operations."""
    for name, cost in vars(costs).items():
        unit, times = ("bytes", 1.0) if name.endswith("_bytes") else ("us of a core", 1e6)
        unit, times = ("a second", 1.0) if name == "rounds" else (unit, times)
        results.row({"what": name.replace("_", "'s "), "cost": times * cost, "unit": unit})


def walls(results: Results, costs: Costs, options: argparse.Namespace) -> None:
    """Find the resource that is used up first, and the setting that moves it."""
    for nodes in NODES:
        for policies in POLICIES:
            cluster = Cluster(nodes, policies, steps=options.steps, snapshot=options.snapshot)
            now = used(cluster, costs)
            wall = max(now, key=lambda name: now[name])
            setting, left = moved_by(cluster, costs, wall, SETTINGS)
            constant, then = moved_by(cluster, costs, wall, CONSTANTS)
            results.row(
                {
                    "cluster": f"{nodes:,} nodes, {policies:,} policies",
                    "most used": wall,
                    "of it": now[wall],
                    "moved by": setting,
                    "then": left,
                    "in the code, by": constant,
                    "then, too": then,
                    "head's bridge": now["head's bridge"],
                    "head's polls": now["head's polls"],
                    "a learning node's bridge": now["a learning node's bridge"],
                    "a playing node's": now["a playing node's bridge"],
                }
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("what", choices=("costs", "check", "walls"))
    add("--figures", type=Path, default=FIGURES, help="the folder with cluster.calibrate.json")
    add("--steps", type=float, default=Cluster.steps, help="steps a second of a node that plays")
    add("--snapshot", type=float, default=Cluster.snapshot, help="bytes of a policy's weights")
    options = options_of(parser)
    rows = load(options.figures)
    costs = fitted(rows)
    results = Results(f"cluster_model.{options.what}")
    if options.what == "costs":
        told_costs(results, costs)
    elif options.what == "check":
        check(results, rows, costs)
    else:
        walls(results, costs, options)
    results.finish(options)


if __name__ == "__main__":
    main()
