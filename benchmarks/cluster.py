"""Runs over several nodes on this machine, by Ray: `python benchmarks/cluster.py WHAT`.

lockstep   weights and ledger over two nodes against one node and `sequential`
async      eight PPO policies: the actor on one node and learners on the other, against no nodes
slow       a game of a millisecond a turn: one node of one core against two of one core each
kill       whole nodes are killed at random moments: what it costs, and what is left behind
frozen     a whole node is stopped and continues: it is given up, or taken back, never both
traffic    bytes a trained step, frames, what bridges cost; weights of 64 policies to four nodes
calibrate  what bridges and the head do, unit by unit: what cluster_model.py goes by
soak       an hour on two nodes: the memory of every process, and Ray's object store

Everything is on one machine: its cores and its loopback are shared by all nodes. Timings
need a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import cluster_faults
import cluster_soak
import cluster_traffic
import numpy as np
from cluster_runs import HOME, Run, alone, apart, directory, pin
from recording import Results, options_of

from remuda.config import overlay
from remuda.experience.ring import CONTENTS
from remuda.runs.run_directory import RunDirectory
from remuda.system.checkpoint.store import Checkpoints

FIXED: dict[str, Any] = {
    "game": "treasure_hunt",
    "env": {"num_envs": 16, "options": {"num_agents": 4}},
    "policy": {"algorithm": "ppo", "network": {"shared": True}, "ppo": {"rollout_length": 16}},
    "policies": {"agent_3": {"algorithm": "iqn"}},
    "run": {"turns": 40_000},
}
DEALT: dict[str, Any] = {
    "game": "connect_four",
    "env": {"num_envs": 16},
    "policy": {"algorithm": "ppo", "network": {"shared": True}, "ppo": {"rollout_length": 16}},
    "population": {
        "policies": 4,
        "matchmaker": "round_robin",
        "births": {"slots": 1, "every": 300, "confidence": 0.55},
        "snapshots": {"every": 5, "keep": 3, "share": 0.3},
    },
    "run": {"turns": 60_000},
}
SPEED: dict[str, Any] = {
    "game": "treasure_hunt",
    "policy": {"algorithm": "ppo", "network": {"shared": True}, "ppo": {"minibatches": 4}},
    "env": {"num_envs": 64, "options": {"num_agents": 8}},
    "actor": {"processes": 1},
    "learners": {"processes": 1},
}
SLOW: dict[str, Any] = {
    "game": "slow_game:SlowGame",
    "env": {"num_envs": 16},
    "policy": {"algorithm": "ppo", "network": {"shared": True}, "ppo": {"rollout_length": 16}},
    "learners": {"processes": 1},
}


TIMED = "counted"
"""The entries of a part that depend on how long anything took."""


# Exact schedules.


def exact(tree: dict[str, Any]) -> dict[str, Any]:
    """Digests of what a run of an exact schedule comes to, and where its roles lived."""
    with directory() as path:
        run = Run(tree, path).train()
        files = RunDirectory.open(path)
        checkpoints = Checkpoints(files.checkpoints.path)
        number = checkpoints.numbers()[-1]
        assert run.assembly is not None
        parts = {
            part: digest(
                held({k: v for k, v in checkpoints.read(number, part).items() if k != TIMED})
            )
            for part in run.assembly.parts
            if not part.startswith("actor")
        }
        births = len(run.assembly.table.births.all) if run.assembly.table is not None else 0
        ledger = files.ledger.read_bytes() if births else b""
        orders = run.assembly.table.births.all[:, 0] if run.assembly.table is not None else [0]
        snapshots = run.assembly.snapshots()
        return {
            "parts": parts,
            "weights": {name: digest(s.weights) for name, s in snapshots.items()},
            "versions": [s.version for s in snapshots.values()],
            "ledger": hashlib.sha256(ledger).hexdigest()[:12] if births else "",
            "ledger bytes": len(ledger),
            "births": int(np.sum(orders)),
            "turns": run.records[-1].turns if run.records else 0,
            "nodes": len(set(run.runtime.placement.homes)) if run.runtime is not None else 1,
        }


def digest(state: Any) -> str:
    """Return a digest of a part of a checkpoint, whatever the order of its entries."""
    found = hashlib.sha256()

    def take(name: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key in sorted(value, key=str):
                take(f"{name}/{key}", value[key])
        elif isinstance(value, (list, tuple)):
            for i, each in enumerate(value):
                take(f"{name}/{i}", each)
        else:
            array = np.ascontiguousarray(np.asarray(value))
            if array.dtype == object:  # whole numbers of more than 64 bits, of random generators
                found.update(f"{name} {value!r}".encode())
                return
            found.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())

    take("", state)
    return found.hexdigest()[:12]


def held(state: Any) -> Any:
    """The same part, without the contents of places of a ring that hold no step.

    An actor leaves there what it wrote long ago; a ring that follows it never had that.
    """
    if isinstance(state, (list, tuple)):
        return [held(each) for each in state]
    if not isinstance(state, Mapping):
        return state
    if "committed" not in state:
        return {name: held(value) for name, value in state.items()}
    committed, kept = np.asarray(state["committed"]), dict(state)
    steps = state["actions"].shape[1]
    for name in CONTENTS:
        array = np.array(state[name])
        ends = np.where(committed > 0, committed + array.shape[1] - steps, 0)
        array[np.arange(array.shape[1]) >= ends[:, None]] = 0
        kept[name] = array
    return kept


def lockstep(results: Results, options: argparse.Namespace) -> None:
    """The same run in `sequential`, in `lockstep` here and over two nodes, and of another seed."""
    for what, whole in (("fixed seats", FIXED), ("dealt, with births", DEALT)):
        turns = round(whole["run"]["turns"] * options.scale)
        tree = overlay(whole, {"run": {"turns": turns}})
        over_two = overlay(tree, {"schedule": "lockstep", "cluster": {"local": 2}})
        ways = {
            "sequential": overlay(tree, {"schedule": "sequential"}),
            "one node": overlay(tree, {"schedule": "lockstep"}),
            "two nodes": overlay(over_two, {"learners": {"processes": 2}}),
            "two nodes, all learners on the second": overlay(
                over_two, {"policy": {"node": HOME[1]}}
            ),
            "another seed": overlay(tree, {"schedule": "sequential", "seed": 1}),
        }
        found = {}
        for way, way_tree in ways.items():
            began = time.monotonic()
            found[way] = alone(exact, way_tree)[0]
            print(f"{what}: {way}: {time.monotonic() - began:.1f} s", flush=True)
        base = found["sequential"]
        for way, each in found.items():
            unlike = [
                name for name in base["weights"] if each["weights"][name] != base["weights"][name]
            ]
            parts = [
                name for name in base["parts"] if each["parts"].get(name) != base["parts"][name]
            ]
            results.row(
                {
                    "run": f"{what}: {way}",
                    "turns": each["turns"],
                    "versions": sum(each["versions"]),
                    "births": each["births"] or None,
                    "ledger, bytes": each["ledger bytes"] or None,
                    "nodes with roles": each["nodes"],
                    "weights that differ": len(unlike),
                    "parts of checkpoints that differ": len(parts),
                    "ledger is the same": each["ledger"] == base["ledger"],
                }
            )
            if way == "sequential":
                continue
            differs = len(unlike) + len(parts) + (each["ledger"] != base["ledger"])
            if way == "another seed":  # else nothing was looked at
                results.bar(f"{what}: another seed, policies that differ", len(unlike), least=1)
                continue
            results.bar(
                f"{what}: {way}, weights, parts, ledgers that differ", differs, most=0, least=0
            )
            if way.startswith("two"):
                results.bar(f"{what}: {way}, nodes with roles", each["nodes"], most=2, least=2)
        if "population" in tree:
            results.bar(f"{what}: births", base["births"], least=1)


# Speed.


def speed(tree: dict[str, Any], seconds: float, cores: list[list[int]] | None = None) -> float:
    """Agent-steps trained a second; `cores`: those of each node, where they are held to some."""
    if cores is not None:
        pin([os.getpid()], set(cores[0]))
    with directory() as path:
        run = Run(tree, path)

        def hold(run: Run) -> None:
            for number in range(1, len(cores or [])):
                pin(run.processes_of(number), set((cores or [])[number]))

        def beside(run: Run) -> None:
            if run.cluster is not None:
                hold(run)
            run.over.wait(seconds + cluster_traffic.WARM_UP)
            run.stop()

        if cores is not None:
            run.gathered = hold
        run.train(beside)
        return run.trained_rate()


def in_turns(calls: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Measure each in turn, several times over."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for i in range(rounds):
        for name, call in calls.items():
            found[name].append(call())
            print(f"round {i + 1}: {name}: {found[name][-1]:,.0f} trained/s", flush=True)
    return found


def _tell(results: Results, found: dict[str, list[float]], base: str) -> dict[str, float]:
    """A row for each of several ways, with its ratio to the first; returns these."""
    told = {}
    for name, rates in found.items():
        ratios = [a / b for a, b in zip(rates, found[base], strict=True)]
        told[name] = median(ratios)
        results.row(
            {
                "": name,
                "trained/s": median(rates),
                "lowest": min(rates),
                "highest": max(rates),
                f"of {base}": median(ratios),
                "lowest of all": min(ratios),
                "highest of all": max(ratios),
            }
        )
    return told


def asynchronous(results: Results, options: argparse.Namespace) -> None:
    """The actor on one node and learners on the other, against the same processes without Ray."""
    ways = {
        "without Ray": SPEED,
        "learners on the second node": apart(SPEED),
        "the actor on the second node": overlay(
            apart(SPEED, learners_at=HOME[0]), {"actor": {"nodes": [HOME[1]]}}
        ),
    }
    calls = {
        name: (lambda tree=tree: alone(speed, tree, options.seconds)[0])  # type: ignore[misc]
        for name, tree in ways.items()
    }
    told = _tell(results, in_turns(calls, options.rounds), "without Ray")
    for name in list(ways)[1:]:
        results.bar(f"{name}, of the speed without Ray", told[name], least=0.9)


def slow(results: Results, options: argparse.Namespace) -> None:
    """A slow game on one core, and on two nodes of one core each."""
    one = overlay(SLOW, {"actor": {"processes": 1}})
    two = overlay(SLOW, {"actor": {"processes": 2}})
    calls: dict[str, Callable[[], float]] = {
        "one core, without Ray": lambda: alone(speed, one, options.seconds, [[0]])[0],
        "one node of one core": lambda: alone(
            speed, overlay(one, {"cluster": {"local": 1}}), options.seconds, [[0]]
        )[0],
        "two nodes of one core each": lambda: alone(
            speed, overlay(two, {"cluster": {"local": 2}}), options.seconds, [[0], [1]]
        )[0],
    }
    found = in_turns(calls, options.rounds)
    told = _tell(results, found, "one node of one core")
    results.bar(
        "a slow game on two nodes, of the speed of one",
        told["two nodes of one core each"],
        least=1.8,
    )
    plain = zip(found["two nodes of one core each"], found["one core, without Ray"], strict=True)
    results.row(
        {"": "two nodes, of one core without Ray", "trained/s": median(a / b for a, b in plain)}
    )


COMMANDS: dict[str, Callable[[Results, argparse.Namespace], None]] = {
    "lockstep": lockstep,
    "async": asynchronous,
    "slow": slow,
    "kill": cluster_faults.kill,
    "frozen": cluster_faults.frozen,
    "traffic": cluster_traffic.traffic,
    "calibrate": cluster_traffic.calibrate,
    "soak": cluster_soak.soak,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("what", choices=COMMANDS)
    add("--rounds", type=int, default=5, help="async, slow: rounds in turns")
    add("--seconds", type=float, default=None, help="of each measurement; frozen: of standstill")
    add("--minutes", type=float, default=None, help="kill, soak: how long")
    add("--kills", type=int, default=20, help="kill: how many nodes are killed")
    add("--scale", type=float, default=1.0, help="lockstep: longer or shorter runs")
    options = options_of(parser)
    if options.seconds is None:
        options.seconds = 30.0 if options.what in ("async", "slow", "frozen", "traffic") else 10.0
    if options.minutes is None:
        options.minutes = 60.0 if options.what == "soak" else 10.0
    results = Results(f"cluster.{options.what}")
    COMMANDS[options.what](results, options)
    results.finish(options)


if __name__ == "__main__":
    main()
