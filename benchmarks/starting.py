"""How long roles take to start, and for how long a start holds up the coordinator.

In turns, children are forked from the server and spawned. For a small run and one of many policies
it prints how long after its start each role was ready, the processor time that this took, and the
longest that the coordinator was busy with the start of one role: by the clock, and by its processor
time, which does not depend on what else the machine does.

    python benchmarks/starting.py [--policies 256] [--rounds 3]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil
from recording import Results, options_of

from remuda.assembly.assembly import Assembly
from remuda.config import Config, load_config
from remuda.population.run_spec import RunSpec
from remuda.runtime.layout import make_layout
from remuda.runtime.processes import ProcessRuntime
from remuda.system.checkpoint.store import Checkpoints
from remuda.system.processes import client as forkserver

BAR_BLOCKED = 0.050
"""Seconds that the start of one role may take of the coordinator."""
BAR_READY = 0.5
"""Seconds from its start in which each role after the first is to be ready."""


def small() -> Config:
    """A newcomer's run."""
    return load_config({"game": "treasure_hunt", "learners": {"processes": 2}})


def large(policies: int) -> Config:
    """Many policies in dealt seats."""
    return load_config(
        {
            "game": "treasure_hunt",
            "env": {"num_envs": 64},
            "policy": {"algorithm": "ppo", "network": {"hidden": (32,)}},
            "population": {"policies": policies, "matchmaker": "random"},
            "learners": {"processes": 2},
        }
    )


@dataclass
class Found:
    """How the roles of one run started."""

    blocked: float
    """Seconds for which the coordinator was held up at most by a role."""
    computed: float
    """The same by its processor time."""
    ready: dict[str, float]
    """Seconds from its start until a role was ready, in the order in which they were started."""
    processor: dict[str, float]
    """Seconds of processor that this took."""


def start(config: Config) -> Found:
    """Start the roles of a run, and stop them."""
    spec = RunSpec.of(config)
    layout = make_layout(config, len(spec.policies))
    parts = Assembly(spec, layout)
    blocked: list[float] = []
    computed: list[float] = []
    started: dict[str, float] = {}
    original = forkserver.start

    def timed(*arguments: object, **names: object) -> object:
        begun, computing = time.perf_counter(), time.process_time()
        process = original(*arguments, **names)  # type: ignore[arg-type]
        blocked.append(time.perf_counter() - begun)
        computed.append(time.process_time() - computing)
        started[str(names["name"])] = begun
        return process

    forkserver.start = timed  # type: ignore[assignment]
    ready: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        runtime = parts.runtime(Path(folder), Checkpoints(Path(folder) / "checkpoints"))
        assert isinstance(runtime, ProcessRuntime)

        def look() -> bool:
            for status in runtime.status():
                if status.state == "running":
                    ready.setdefault(status.name, time.perf_counter())
            return False

        try:
            runtime.start(look)
            look()
            used = {name: psutil.Process(pid).cpu_times() for name, pid in runtime.pids.items()}
        finally:
            forkserver.start = original
            runtime.stop()
    return Found(
        max(blocked),
        max(computed),
        {name: ready[name] - begun for name, begun in started.items()},
        {name: used[name].user + used[name].system for name in started},
    )


def main() -> None:
    """Measure both kinds of runs, forked and spawned in turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    options = options_of(parser)
    results = Results("starting")
    forkserver.begin()
    add_row(results, "2 policies, forked, and the server starts", [start(small())])
    for title, config in (
        ("2 policies", small()),
        (f"{options.policies} policies", large(options.policies)),
    ):
        found: dict[str, list[Found]] = {"forked": [], "spawned": []}
        for _ in range(options.rounds):
            forkserver.ProcessState.why_not = ""
            forkserver.begin()
            found["forked"].append(start(config))
            forkserver.ProcessState.server, server = None, forkserver.ProcessState.server
            forkserver.ProcessState.why_not = "the benchmark wants it so"
            found["spawned"].append(start(config))
            forkserver.ProcessState.server = server
        for way, rounds in found.items():
            add_row(results, f"{title}, {way}", rounds)
        later = median(_later(f) for f in found["forked"])
        results.bar(f"{title}: a role after the first, s", later, most=BAR_READY)
        held_up = 1e3 * median(f.blocked for f in found["forked"])
        results.bar(f"{title}: coordinator held up, ms", held_up, most=1e3 * BAR_BLOCKED)
    results.finish(options)


def add_row(results: Results, run: str, rounds: list[Found]) -> None:
    """Medians of several starts."""
    results.row(
        {
            "run": run,
            "first role ready, s": median(next(iter(f.ready.values())) for f in rounds),
            "the others, s": median(_later(f) for f in rounds),
            "processor of a role, s": median(max(f.processor.values()) for f in rounds),
            "coordinator held up, ms": 1e3 * median(f.blocked for f in rounds),
            "its processor, ms": 1e3 * median(f.computed for f in rounds),
        }
    )


def _later(found: Found) -> float:
    """Seconds that the slowest role after the first took."""
    return max(list(found.ready.values())[1:])


if __name__ == "__main__":
    main()
