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
"""The share of the time after which memory must not grow: of an hour, ten minutes."""
POINTS = 50
"""Parts of the time after that, over each of which memory is a median."""
LEAST = 10
"""Processes that there are: the run's own, four roles and bridges on two nodes, an agent, Ray's."""
TREE: dict[str, Any] = {
    "game": "treasure_hunt",
    "policy": {"algorithm": "ppo", "network": {"shared": True}, "ppo": {"minibatches": 4}},
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
                with contextlib.suppress(psutil.Error, OSError):
                    name = roles.get(process.pid) or name_of(process)
                    memory[process.pid, name].append((at, written_by(process.pid)))
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
    """Classify a process by its command line."""
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


def written_by(pid: int) -> float:
    """MiB that a process has written, and shares with none.

    Pages of libraries are left out: whether they count as a process's own depends on who else has
    the library open just then, on the whole machine.
    """
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1]) / 1024
    raise OSError(f"process {pid} does not tell what it has written")


def line_through(samples: list[tuple[float, float]], begin: float, end: float) -> Any:
    """The line that memory follows: MiB at its begin, at its end, and how much it surely rose.

    The slope is the median of those between any two points (Theil and Sen), each a median over a
    part of the time; surely means the lower end of its 95% interval. None: it was not there then.
    """
    from scipy.stats import theilslopes

    parts: list[list[tuple[float, float]]] = [[] for _ in range(POINTS)]
    for at, mib in samples:
        if begin <= at < end:
            parts[int((at - begin) / (end - begin) * POINTS)].append((at, mib))
    points = [
        (median(at for at, _ in part), median(mib for _, mib in part)) for part in parts if part
    ]
    if len(points) < POINTS // 2:
        return None
    at, mib = zip(*points, strict=True)
    slope, intercept, low, _ = theilslopes(mib, at)
    return intercept + slope * begin, intercept + slope * end, low * (end - begin)


def soak(results: Results, options: argparse.Namespace) -> None:
    """Long play on two nodes."""
    found, left = alone(watched, options.minutes)
    seconds = options.minutes * 60.0
    begin = seconds * SETTLED
    worst, most, count = -100.0, "", 0
    for (_, name), samples in sorted(found["memory"].items(), key=lambda item: item[0][1]):
        whole = samples[0][0] <= begin and samples[-1][0] >= seconds - (seconds - begin) / 10.0
        told = line_through(samples, begin, seconds) if whole else None
        if told is None:
            continue
        count += 1
        first, last, surely = told
        percent, sure = 100.0 * (last / first - 1.0), 100.0 * surely / first
        results.row(
            {
                "process": name,
                "MiB written after a sixth": first,
                "at the end": last,
                "growth, %": percent,
                "surely": sure,
            }
        )
        if sure > worst:
            worst, most = sure, name
    results.bar("processes that were there all the time", count, least=LEAST)
    results.bar(f"sure growth of any process ({most}), %", worst, most=2.0)
    objects, size = map(max, zip(*found["store"], strict=True))
    last_objects, last_size = found["store"][-1]
    results.bar("objects in Ray's stores at the end", last_objects, most=0, least=0)
    results.bar("bytes in Ray's stores at the end", last_size, most=0, least=0)
    results.bar("processes left behind", len(left.processes), most=0, least=0)
    results.bar("files left behind", len(left.files), most=0, least=0)
    print(f"{found['turns']:,} turns; in the stores at most {objects} objects, {size:,} bytes")
