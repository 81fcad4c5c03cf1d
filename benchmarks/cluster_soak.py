"""An hour on two nodes: does the memory of any process grow, and is Ray's object store empty."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from cluster_runs import Run, alone, apart, directory, marked
from recording import Results

EVERY = 5.0
"""Seconds between two looks at all processes."""
SETTLED = 1 / 6
"""Of the time, after which memory is to stay: of an hour, ten minutes."""
WINDOW = 0.05
"""Of the time, over which the memory at its begin and at its end is a median."""
LEAST = 10
"""Processes that there are: the run's own, four roles and bridges on two nodes, an agent, Ray's."""
TREE: dict[str, Any] = {
    "game": "treasure_hunt",
    "policy": {"algorithm": "ppo"},
    "env": {"num_envs": 64, "options": {"num_agents": 8}},
    "actor": {"processes": 1},
    "learners": {"processes": 1},
    "checkpoint": {"every": 60},
    "run": {"log_every": 1.0},
}


def watched(minutes: float) -> dict[str, Any]:
    """Memory of all processes of a run, over time, and what is in Ray's object store."""
    memory: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    store: list[tuple[int, int]] = []

    def beside(run: Run) -> None:
        roles: dict[int, str] = {}
        seconds, begin, at = minutes * 60.0, time.monotonic(), 0.0
        while at < seconds and not run.over.wait(EVERY):
            at = time.monotonic() - begin
            roles |= {r.pid: f"{r.name} on {r.node}" for r in run.status() if r.pid is not None}
            for process in marked():
                with contextlib.suppress(psutil.Error):
                    name = roles.get(process.pid) or name_of(process)
                    own = process.memory_full_info().uss  # what it shares is counted by others
                    memory[process.pid, name].append((at, own / 2**20))
            store.append(object_store(run))
        run.stop()

    with directory() as path:
        run = Run(apart(TREE), path, keeps=False).train(beside)
    return {
        "memory": dict(memory),
        "store": store,
        "turns": run.records[-1].turns,
    }


def name_of(process: psutil.Process) -> str:
    """What a process is, by its command line."""
    words = process.cmdline()
    if not words:
        return process.name()
    known = ("gcs_server", "raylet", "forkserver", "ray::", "resource_tracker", "keep(")
    line = " ".join(words)
    for word in known:
        if word in line:
            found = word if word != "ray::" else words[0]
            return "keeper of Ray's nodes" if word == "keep(" else found
    return Path(words[0]).name + " " + " ".join(Path(w).name for w in words[1:2])[:20]


def object_store(run: Run) -> tuple[int, int]:
    """Objects in the stores of all nodes, and bytes."""
    from ray._private.internal_api import node_stats

    objects = size = 0
    for node in run.nodes._ray.nodes():
        if node["Alive"]:
            told = node_stats(node["NodeManagerAddress"], node["NodeManagerPort"], False)
            objects += told.store_stats.num_local_objects
            size += told.store_stats.object_store_bytes_used
    return objects, size


def growth(samples: list[tuple[float, float]], begin: float, end: float, window: float) -> Any:
    """MiB at the begin, half way and at the end, medians over a while; None: it was not there."""
    found = []
    for start in (begin, (begin + end - window) / 2.0, end - window):
        mib = [mib for at, mib in samples if start <= at <= start + window]
        if not mib:
            return None
        found.append(median(mib))
    return found


def soak(results: Results, options: argparse.Namespace) -> None:
    """Long play on two nodes."""
    found, left = alone(watched, options.minutes)
    seconds = options.minutes * 60.0
    window = max(seconds * WINDOW, 3 * EVERY)
    worst, most, count = -100.0, "", 0
    for (_, name), samples in sorted(found["memory"].items(), key=lambda item: item[0][1]):
        told = growth(samples, seconds * SETTLED, samples[-1][0], window)
        whole = samples[0][0] <= seconds * SETTLED and samples[-1][0] >= seconds - 2 * window
        if told is None or not whole:
            continue
        count += 1
        first, middle, last = told
        percent = 100.0 * (last / first - 1.0) if first else 0.0
        results.row(
            {
                "process": name,
                "MiB of its own after a sixth": first,
                "half way": middle,
                "at the end": last,
                "growth, %": percent,
            }
        )
        if percent > worst:
            worst, most = percent, name
    results.bar("processes that were there all the time", count, least=LEAST)
    results.bar(f"growth of any process ({most}), %", worst, most=2.0)
    objects, size = map(max, zip(*found["store"], strict=True))
    last_objects, last_size = found["store"][-1]
    results.bar("objects in Ray's stores at the end", last_objects, most=0, least=0)
    results.bar("bytes in Ray's stores at the end", last_size, most=0, least=0)
    results.bar("processes left behind", len(left.processes), most=0, least=0)
    results.bar("files left behind", len(left.files), most=0, least=0)
    print(f"{found['turns']:,} turns; in the stores at most {objects} objects, {size:,} bytes")
