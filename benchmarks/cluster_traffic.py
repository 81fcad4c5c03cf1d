"""Measure the traffic between nodes and its cost: of runs, and of bridges alone.

Bridges alone: the head's learners publish, or its actors count, at a set rate, and do
nothing else; the bridges are the real ones, between nodes that are processes, without Ray.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import pickle
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from cluster_runs import HOME, QUIET, Run, alone, apart, directory, processor
from recording import Results

from remuda.actor.role import ActorRole
from remuda.assembly.assembly import Assembly
from remuda.cluster.agent import NodeStatus
from remuda.cluster.bridge import listen
from remuda.cluster.channel import Count
from remuda.cluster.node import Node
from remuda.cluster.nodes import HEAD, Placement
from remuda.cluster.tables import RESULTS, write_results
from remuda.cluster.words import Words
from remuda.config import load_config, overlay
from remuda.learner.role import LearnerRole
from remuda.policies.stack import layout_checksum
from remuda.population.ledger.ledger import count as add_up
from remuda.population.members.follower_views import Shard
from remuda.runtime.layout import Layout
from remuda.system.checkpoint.store import Checkpoints
from remuda.system.processes import client as forkserver
from remuda.system.scoreboard import Play
from remuda.training.prepare import prepare

WARM_UP = 4.0
"""Seconds before anything is counted."""
BAR = 5.0
"""Percent of a core that the weights of 64 policies may take, to four nodes once a second."""
NUMBERS = 16
"""Numbers of a member of a population, or more."""
STALE = 1
"""`ppo.max_staleness` of the run that is held to it: less than is seen without it."""
PUBLISH, COUNT = "REMUDA_BENCHMARK_PUBLISH", "REMUDA_BENCHMARK_COUNT"
"""Seconds between two versions of each policy, and between two turns of an actor; 0: none."""
LOOPBACK = "127.0.0.1"
SPEED: dict[str, Any] = {
    "game": "treasure_hunt",
    "policy": {"algorithm": "ppo", "network": {"shared": True}, "ppo": {"minibatches": 4}},
    "env": {"num_envs": 64, "options": {"num_agents": 8}},
    "actor": {"processes": 1},
    "learners": {"processes": 1},
}


# Of runs.


def streamed(tree: dict[str, Any], seconds: float, polls: int = 0) -> dict[str, Any]:
    """Measure the traffic of a run, as its head counts it, after a warm-up."""
    told: dict[str, Any] = {}

    def beside(run: Run) -> None:
        run.over.wait(WARM_UP)
        first = _state(run)
        run.over.wait(seconds)
        last = _state(run)
        told.update({name: last[name] - first[name] for name in first if name != "bridges"})
        told["bridges"] = {
            node: last["bridges"][node] - used
            for node, used in first["bridges"].items()
            if node in last["bridges"]
        }
        if polls:
            told["poll"] = _polls(run, polls)
        run.stop()

    with directory() as path:
        run = Run(tree, path).train(beside)
        record = run.records[-1]
        assert run.assembly is not None
        stale = [
            p.staleness_high
            for r in run.records
            for p in r.policies.values()
            if p.staleness_high is not None
        ]
        weights = next(iter(run.assembly.snapshots().values())).weights
        told["stale 99%"] = float(np.percentile(stale, 99)) if stale else 0.0
        told["stale most"] = max(p.staleness_max for p in record.policies.values())
        told["policies"] = len(run.assembly.specs)
        told["snapshot bytes"] = weights.nbytes
        return told


def _state(run: Run) -> dict[str, Any]:
    look = run.look()
    assert look is not None
    assert run.assembly is not None
    counts = run.runtime.node.traffic.counts
    bridges = {r.node: r.pid for r in run.status() if r.name == "bridge" and r.pid is not None}
    return {
        "time": time.monotonic(),
        "trained": sum(look.trained),
        "written": sum(e.written for e in run.assembly.experience.values()),
        "turns": sum(look.turns),
        "versions": sum(look.versions),
        "bytes": int(counts[:, [Count.SENT_BYTES, Count.RECEIVED_BYTES]].sum()),
        "sent": int(counts[:, Count.SENT_BYTES].sum()),
        "frames": int(counts[:, Count.FRAMES].sum()),
        "steps in": int(counts[:, Count.STEPS_IN].sum()),
        "steps out": int(counts[:, Count.STEPS_OUT].sum()),
        "head": processor([os.getpid()]),
        "bridges": {node: processor([pid]) for node, pid in bridges.items()},
    }


def _polls(run: Run, count: int) -> float:
    """Seconds of this process that a question to a node takes, with its answer."""
    idle = processor([os.getpid()])
    run.over.wait(2.0)
    base = (processor([os.getpid()]) - idle) / 2.0
    begin, used = time.monotonic(), processor([os.getpid()])
    for _ in range(count):
        run.nodes.call(1, "poll").result(10.0)
    took, used = time.monotonic() - begin, processor([os.getpid()]) - used
    return max(used - base * took, 0.0) / count


# Bridges alone.


class Publisher(LearnerRole):
    """Publishes all of its policies now and then, and learns nothing."""

    def build(self) -> Any:
        """It builds a worker."""
        ends = [
            self.published.publisher(spec.name, layout_checksum(spec.network().shapes))
            for spec in self.specs
        ]
        reader = self.published.reader()
        weights = [reader.newest(spec.name).weights.copy() for spec in self.specs]

        def publish() -> None:
            for end, array in zip(ends, weights, strict=True):
                end.publish(array, 0, 0.0)

        return _Ticking(float(os.environ.get(PUBLISH, "0")), publish)


class Counter(ActorRole):
    """Counts turns now and then, and plays none."""

    def build(self) -> Any:
        """It builds a worker."""
        play = self.scoreboard.play(self.index)

        def count() -> None:
            play[Play.TURNS] += 1

        return _Ticking(float(os.environ.get(COUNT, "0")), count)


class _Ticking:
    done, parts = False, ()

    def __init__(self, every: float, what: Any) -> None:
        self._every, self._what, self._next = every, what, 0.0

    def work(self) -> bool:
        now = time.monotonic()
        if self._every and now >= self._next:
            self._next = max(self._next + self._every, now)
            self._what()
        return False

    def wait(self, timeout: float, interrupted: object) -> None:  # noqa: ARG002
        left = self._next - time.monotonic() if self._every else timeout
        time.sleep(min(max(left, 0.0), timeout))

    def finish(self) -> None:
        pass


def bare_tree(nodes: int, policies: int) -> dict[str, Any]:
    """Return the settings of a population of this size, dealt by an actor on each node."""
    tree = {
        "game": "treasure_hunt",
        "policy": {"algorithm": "ppo", "network": {"shared": True}, "ppo": {"rollout_length": 8}},
        "env": {"num_envs": nodes},
        "population": {"matchmaker": "round_robin", "policies": policies},
        "cluster": {"local": nodes},
    }
    return overlay(QUIET, tree)


def bare(
    others: int,
    policies: int,
    seconds: float,
    publish: float,
    count: float,
    weights_every: float,
    hidden: int = 64,
) -> dict[str, Any]:
    """Measure bridges between a head, where all policies learn, and nodes with an actor each.

    Args:
        others: nodes beside the head.
        policies: of the population.
        seconds: how long it is looked at.
        publish: seconds between two versions of all policies; 0: there are none.
        count: seconds between two turns of an actor; 0: none.
        weights_every: of the configuration.
        hidden: units of each of two layers of a policy's network.

    Returns:
        Each a second: the processor's share of each bridge, and frames, bytes of the head's.
    """
    os.environ[PUBLISH], os.environ[COUNT] = str(publish), str(count)
    tree = overlay(bare_tree(others + 1, policies), {"cluster": {"weights_every": weights_every}})
    tree = overlay(tree, {"policy": {"network": {"hidden": [hidden, hidden]}}})
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for number in range(others + 1):
        ours, theirs = context.Pipe()
        process = context.Process(target=_end, args=(number, others + 1, tree, theirs))
        process.start()
        pipes.append(ours)
        processes.append(process)
    try:
        addresses = {n: (LOOPBACK, pipe.recv()) for n, pipe in enumerate(pipes)}
        for pipe in pipes:
            pipe.send(addresses)
        for pipe in pipes:
            assert pipe.recv() == "ready"
        for pipe in pipes:
            pipe.send("go")
        time.sleep(WARM_UP)
        states = []
        for pause in (seconds, 0.0):
            for pipe in pipes:
                pipe.send("tell")
            states.append([pipe.recv() for pipe in pipes])
            time.sleep(pause)
    finally:
        for pipe in pipes:
            with suppress(OSError):
                pipe.send("stop")
        for process in processes:
            process.join(30)
            process.kill()
    first, last = states
    took = last[0]["time"] - first[0]["time"]
    counts = (last[0]["counts"] - first[0]["counts"]) / took
    versions = (last[0]["versions"] - first[0]["versions"]) / took
    return {
        "bridges": [(b["used"] - a["used"]) / took for a, b in zip(first, last, strict=True)],
        "rounds": [(b["slept"] - a["slept"]) / took for a, b in zip(first, last, strict=True)],
        "frames": float(counts[:, Count.FRAMES].sum()),
        "sent": float(counts[:, Count.SENT_BYTES].sum()),
        "received": float(counts[:, Count.RECEIVED_BYTES].sum()),
        "published": versions,
        # All that is sent but these is a few bytes.
        "arrived": float(counts[1:, Count.SENT_BYTES].min()) / first[0]["snapshot bytes"]
        if publish
        else 0.0,
        "behind": int(max(last[0]["newest"] - state["newest"] for state in last)),
        "snapshot bytes": first[0]["snapshot bytes"],
        "open": int((last[0]["counts"][:, Count.IS_OPEN] > 0).sum()),
    }


def _end(number: int, nodes: int, tree: dict[str, Any], pipe: Any) -> None:
    """One node, in a separate process."""
    forkserver.begin()
    config = load_config(tree)
    prepared = prepare(config)
    count = len(prepared.specs)
    layout = Layout((1,) * nodes, (tuple(range(count)),), ("cpu",) * count)
    assembly = Assembly(
        prepared.spec,
        layout,
        Publisher,
        Counter,
        specs=prepared.specs,
    )
    listener = listen(LOOPBACK, range(0))
    node = Node(assembly, number, nodes, bytes(32), listener)
    pipe.send(listener.getsockname()[1])
    addresses = pipe.recv()
    placement = Placement(tuple(range(nodes)), (HEAD,))
    with tempfile.TemporaryDirectory() as home:
        root = Path(home)
        runtime = node.runtime(placement, addresses, root, Checkpoints(root / "checkpoints"))
        try:
            runtime.start(lambda: False)
            pipe.send("ready")
            while True:
                runtime.run_for(0.05)
                asked = pipe.recv() if pipe.poll() else ""
                if asked == "tell":
                    pipe.send(_told(node, runtime))
                if asked == "stop":
                    return
        except EOFError:
            return
        finally:
            runtime.stop()


def _told(node: Node, runtime: Any) -> dict[str, Any]:
    pid = next(r.pid for r in runtime.status() if r.name == "bridge")
    versions = node.assembly.published.board["versions"]  # type: ignore[attr-defined]
    switches = Path(f"/proc/{pid}/status").read_text().split("\nvoluntary_ctxt_switches:")[1]
    return {
        "time": time.monotonic(),
        "used": processor([pid]),
        "slept": int(switches.split()[0]),
        "counts": node.traffic.counts.copy(),
        "versions": float(versions.sum()),
        "newest": int(versions.max()),
        "snapshot bytes": next(iter(node.assembly.snapshots().values())).weights.nbytes,
    }


# Units.


def units() -> dict[str, float]:
    """Seconds of a processor that single things take, apart from any run."""
    few, many = 2000, 1_000_000
    parts: list[tuple[Any, list[int] | slice]] = [(np.zeros(4, np.int64), [0]) for _ in range(few)]
    found = {"a part of the words": _time(_looking(Words(parts)), 50) / few}
    found["a word"] = _time(_looking(Words([(np.zeros(many, np.int64), slice(None))])), 20) / many
    size = len(Count)
    rows = [tuple(range(10**6 + n * size, 10**6 + (n + 1) * size)) for n in range(1100)]
    glances = [pickle.dumps((True, NodeStatus(traffic=tuple(rows[:n])))) for n in (100, 1100)]
    times = [_time(lambda data=data: pickle.loads(data), 50) for data in glances]  # type: ignore[misc]
    found["a node in an answer to a poll"] = (times[1] - times[0]) / 1000
    found["a result of a match"] = _results_time()
    return found


def _looking(words: Words) -> Any:
    def look() -> None:
        words.read()
        words.changed()

    return look


def _results_time() -> float:
    """Writing down what a follower elsewhere played, and adding it up; of a game of two seats."""
    policies, count = 64, 256
    shard = Shard(8, 2, policies)
    data = np.zeros(count * sum(shard.arrays[name][0].nbytes for name in RESULTS), np.uint8)
    slots = np.tile(np.arange(2, dtype=np.int64), (count, 1))
    returns, over = np.zeros((count, 2)), np.ones(count, np.bool_)
    pairs, recent = np.zeros((4, policies, policies)), np.zeros((2, policies, policies))
    numbers = np.zeros((policies, NUMBERS))

    def take() -> None:
        write_results(shard, 0, count, data)
        add_up(slots, returns, over, pairs, numbers, recent, 1.0)

    return _time(take, 200) / count


def _time(what: Any, times: int) -> float:
    """Seconds of a processor that something takes: the median of many."""
    what()
    taken = []
    for _ in range(times):
        begin = time.process_time()
        what()
        taken.append(time.process_time() - begin)
    return float(np.median(taken))


# Commands.


def traffic(results: Results, options: argparse.Namespace) -> None:
    """Bytes, frames, and what bridges cost."""
    found, _ = alone(streamed, apart(SPEED), options.seconds)
    held, _ = alone(
        streamed,
        overlay(apart(SPEED), {"policy": {"ppo": {"max_staleness": STALE}}}),
        options.seconds,
    )
    for what, each in (("8 policies", found), (f"8 policies, max_staleness {STALE}", held)):
        took = each["time"]
        shares = {node: 100 * used / took for node, used in each["bridges"].items()}
        results.row(
            {
                "run on two nodes": what,
                "trained/s": each["trained"] / took,
                "bytes a trained step": each["bytes"] / max(each["trained"], 1),
                "frames/s": each["frames"] / took,
                "bridge of the head, % of a core": shares.get(HOME[0]),
                "of the other": shares.get(HOME[1]),
                "versions behind, 99%": each["stale 99%"],
                "versions behind, most": each["stale most"],
            }
        )
    results.bar(
        f"with ppo.max_staleness {STALE}, versions behind at most", held["stale most"], most=STALE
    )
    idle = 0.0
    for what, publish in (("none", 0.0), ("each 5 times a second", 0.2)):
        each, _ = alone(bare, 4, 64, options.seconds, publish, 0.0, 1.0)
        head, worst = 100 * each["bridges"][0], 100 * max(each["bridges"][1:])
        results.row(
            {
                "run on two nodes": f"bridges alone, 64 policies to 4 nodes, published: {what}",
                "frames/s": each["frames"],
                "bridge of the head, % of a core": head,
                "of the other": worst,
                "MB/s": each["sent"] / 1e6,
                "snapshots/s, to a node": each["arrived"],
                "bytes of a snapshot": each["snapshot bytes"],
            }
        )
        if not publish:
            idle = head
            continue
        name = "64 policies to 4 nodes once a second"
        results.bar(f"{name}: what weights add to the head's bridge, %", head - idle, most=BAR)
        results.bar(f"{name}: the head's bridge in all, %", head, most=BAR)
        results.bar(f"{name}: another node's, %", worst, most=BAR)
        # Else it was not what was to be measured.
        results.bar(f"{name}: that arrive at each node a second", each["arrived"], least=0.8 * 64)


def calibrate(results: Results, options: argparse.Namespace) -> None:
    """Record the model's data: rows of settings and of measurements."""
    for what, seconds in units().items():
        results.row({"of": f"a unit: {what}", "ns": 1e9 * seconds})
        print(results.rows[-1], flush=True)
    plans = [
        # others, policies, publish, count, hidden
        (1, 8, 0.0, 0.0, 64),
        (3, 8, 0.0, 0.0, 64),
        (1, 64, 0.0, 0.0, 64),
        (3, 64, 0.0, 0.0, 64),
        (1, 8, 0.0, 0.002, 64),
        (3, 8, 0.0, 0.002, 64),
        (3, 64, 0.0, 0.002, 64),
        (2, 8, 0.1, 0.0, 64),
        (2, 64, 0.5, 0.0, 64),
        (2, 8, 0.2, 0.0, 512),
    ]
    for others, policies, publish, count, hidden in plans:
        plan = (others, policies, options.seconds, publish, count, 0.0, hidden)
        each, _ = alone(bare, *plan)
        results.row(
            {
                "of": "bridges alone",
                "nodes": others + 1,
                "policies": policies,
                "snapshots/s, to a node": each["arrived"],
                "bytes of a snapshot": each["snapshot bytes"],
                "counted every, s": count,
                "frames/s": each["frames"],
                "rounds/s": each["rounds"][0],
                "sent, bytes/s": each["sent"],
                "received, bytes/s": each["received"],
                "bridge of the head, % of a core": 100 * each["bridges"][0],
                "of another": 100 * max(each["bridges"][1:]),
            }
        )
        print(results.rows[-1], flush=True)
    for nodes in (2, 3, 4):
        tree = apart(overlay(SPEED, {"actor": {"processes": nodes - 1}}), nodes, HOME[0])
        tree = overlay(tree, {"actor": {"nodes": list(HOME[1:nodes])}})
        each, _ = alone(streamed, tree, options.seconds, 200 if nodes == 2 else 0)
        took = each["time"]
        results.row(
            {
                "of": "a run",
                "nodes": nodes,
                "policies": each["policies"],
                "snapshots/s, to a node": each["versions"] / took,
                "bytes of a snapshot": each["snapshot bytes"],
                "frames/s": each["frames"] / took,
                "sent, bytes/s": each["sent"] / took,
                "received, bytes/s": (each["bytes"] - each["sent"]) / took,
                "bridge of the head, % of a core": 100 * each["bridges"].get(HOME[0], 0.0) / took,
                "of another": 100
                * max((u for n, u in each["bridges"].items() if n != HOME[0]), default=0.0)
                / took,
                "steps/s": each["written"] / took,
                "the head's own process, % of a core": 100 * each["head"] / took,
                "a poll, ms": 1e3 * each["poll"] if "poll" in each else None,
            }
        )
        print(results.rows[-1], flush=True)
