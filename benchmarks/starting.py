"""How long roles take to start, and for how long a start holds up the coordinator.

In turns, children are forked from the server and spawned. For a small run and one of many policies
it prints how long after its start each role was ready, the processor time that this took, and the
longest that the coordinator was busy with the start of one role: by the clock, and by its processor
time, which does not depend on what else the machine does.

    python benchmarks/starting.py [--policies 256] [--rounds 3]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import psutil

from remuda.assembly import Assembly
from remuda.checkpoint.store import Checkpoints
from remuda.config import Config, load_config
from remuda.envs.registry import make_env
from remuda.forkserver import client as forkserver
from remuda.policies.spec import policy_specs
from remuda.runtime.layout import make_layout
from remuda.runtime.processes import ProcessRuntime

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


def start(config: Config, way: str) -> None:
    """Start the roles of a run, print how it went, and stop them."""
    env = make_env(config.game, 1, **config.env.options)
    specs = policy_specs(config, env.agents)
    layout = make_layout(config, len(specs))
    parts = Assembly(config, specs, layout, facts=env.facts, agents=env.agents)
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
    print(
        f"  {way}: the coordinator was held up for {max(blocked) * 1e3:.1f} ms at most a role, "
        f"{max(computed) * 1e3:.1f} ms of processor"
    )
    for name, when in ready.items():
        cpu = used[name].user + used[name].system
        print(
            f"    {name:<28} ready after {when - started[name]:6.2f} s, {cpu:5.2f} s of processor"
        )
    print(f"    median {statistics.median(when - started[n] for n, when in ready.items()):.2f} s")


def main() -> None:
    """Measure both kinds of runs, forked and spawned in turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"bars: {BAR_BLOCKED * 1e3:.0f} ms held up, {BAR_READY} s until a role is ready")
    for title, config in (
        ("treasure_hunt", small()),
        (f"treasure_hunt, {options.policies} policies", large(options.policies)),
    ):
        print(title)
        for _ in range(options.rounds):
            forkserver._State.why_not = ""
            forkserver.begin()
            start(config, "forked ")
            forkserver._State.server, server = None, forkserver._State.server
            forkserver._State.why_not = "the benchmark wants it so"
            start(config, "spawned")
            forkserver._State.server = server


if __name__ == "__main__":
    main()
