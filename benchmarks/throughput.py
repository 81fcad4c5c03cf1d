"""How fast a run is, and where its time goes: `python benchmarks/throughput.py [--reference]`.

Every line is a real run on Treasure Hunt, warmed up and then measured for a while. Schedules are
measured in turns, round after round, and the medians are shown, so that a noisy machine harms all
alike. Epsilon is 0.1 throughout, since exploring is not cheaper here than acting.

`--reference` measures the sizes that issue and documentation speak of: one world, two agents, IQN
with 250 units, 12 quantiles, 5 frames, batch 64, and one update per 100 of a policy's own steps.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from recording import Cell, Results, options_of

from remuda.assembly.assembly import Assembly
from remuda.config import Config, load_config, overlay
from remuda.coordinator.scoreboard_reader import ScoreboardReader
from remuda.population.run_spec import RunSpec
from remuda.runs.metrics import Record
from remuda.runtime.layout import Layout, make_layout
from remuda.system.checkpoint.store import Checkpoints

BASE: dict[str, Any] = {
    "game": "treasure_hunt",
    "run": {"turns": None, "seconds": 3600},
    "policy": {"exploration": {"start": 0.1, "end": 0.1}},
}


def measure(
    config: Config, seconds: float, warm_up: float, layout: Layout | None = None
) -> tuple[Record, dict[str, float]]:
    """Run for a while; returns what happened after the warm-up, and each process's MiB.

    Without a layout it is the configured one, with no trial.
    """
    import torch

    torch.set_num_threads(1)
    spec = RunSpec.of(config)
    specs = spec.policies
    assembly = Assembly(spec, layout or make_layout(config, len(specs)))
    with tempfile.TemporaryDirectory() as logs:
        runtime = assembly.runtime(Path(logs), Checkpoints(Path(logs) / "checkpoints"))
        try:
            runtime.start(lambda: False)
            # Not before every learner trains: what comes before is no steady state.
            needed = specs[0].config.experience.learning_starts
            limit = time.monotonic() + 60
            while min(e.written for e in assembly.experience.values()) < needed:
                runtime.run_for(0.1)
                assert time.monotonic() < limit, "no experience"
            runtime.run_for(warm_up)
            board = ScoreboardReader(assembly.scoreboard, assembly.experience)
            runtime.run_for(seconds) if config.schedule == "sequential" else _sit(runtime, seconds)
            record = board.between(board.start, board.read())
            pids = getattr(runtime, "pids", {})
            memory = {name: psutil.Process(p).memory_info().rss / 2**20 for name, p in pids.items()}
            assert record.turns_per_second > 0, "nothing was played"
            return record, memory
        finally:
            runtime.stop()


def _sit(runtime: Any, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        runtime.run_for(min(end - time.monotonic(), 1.0))


def reference(seconds: float, rounds: int) -> list[dict[str, Any]]:
    """The reference sizes: overwriting, and waiting so that the replay ratio is kept exactly."""
    modes = {
        "async, overwrite": {},
        "async, wait": {"policy": {"experience": {"on_full": "wait", "capacity": 10_000}}},
        "sequential": {"schedule": "sequential"},
    }
    found: dict[str, list[tuple[Record, dict[str, float]]]] = {name: [] for name in modes}
    for _ in range(rounds):
        for name, tree in modes.items():
            found[name].append(measure(load_config(overlay(BASE, tree)), seconds, 4.0))
    return [_row(name, runs) for name, runs in found.items()]


def scaling(seconds: float, rounds: int) -> list[dict[str, Any]]:
    """Sequential against async, for 2, 4 and 8 agents, at 1 and 64 copies."""
    rows = []
    for copies in (1, 64):
        for agents in (2, 4, 8):
            found: dict[str, list[tuple[Record, dict[str, float]]]] = {}
            for _ in range(rounds):
                for schedule in ("sequential", "async"):
                    tree = {
                        "schedule": schedule,
                        "env": {"num_envs": copies, "options": {"num_agents": agents}},
                    }
                    run = measure(load_config(overlay(BASE, tree)), seconds, 2.0)
                    name = f"{agents} agents, {copies} copies, {schedule}"
                    found.setdefault(name, []).append(run)
            rows += [_row(name, runs) for name, runs in found.items()]
    return rows


def _row(name: str, runs: list[tuple[Record, dict[str, float]]]) -> dict[str, Any]:
    records = [record for record, _ in runs]
    policies = [p for record in records for p in record.policies.values()]
    trained = [
        sum(p.updates_per_second or 0.0 for p in record.policies.values())
        / record.agent_steps_per_second
        for record in records
    ]
    return {
        "name": name,
        "agent_steps_per_second": median(r.agent_steps_per_second for r in records),
        "turns_per_second": median(r.turns_per_second for r in records),
        "updates_per_second": median(p.updates_per_second or 0.0 for p in policies),
        "steps_per_update": 1 / max(median(trained), 1e-9),
        "shares": {k: median(r.shares[k] for r in records) for k in records[0].shares},
        "busy": median(p.busy or 0.0 for p in policies),
        "waits": max(r.waits for r in records),
        "learner_mib": max(
            (m for _, memory in runs for n, m in memory.items() if n != "actor"), default=0.0
        ),
    }


def as_cells(row: dict[str, Any]) -> dict[str, Cell]:
    """A row as it is printed."""
    shares = {f"{name}, %": round(100 * share) for name, share in row["shares"].items()}
    return {
        "": row["name"],
        "agent-steps/s": row["agent_steps_per_second"],
        "turns/s": row["turns_per_second"],
        "updates/s a policy": row["updates_per_second"],
        "steps an update": round(row["steps_per_update"]),
        **shares,
        "learner busy, %": round(100 * row["busy"]),
        "waits": row["waits"],
        "learner, MiB": row["learner_mib"] or None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--reference", action="store_true", help="only the reference sizes")
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds a measurement")
    parser.add_argument("--rounds", type=int, default=3, help="rounds to take the median of")
    options = options_of(parser)
    results = Results("throughput.reference" if options.reference else "throughput")
    overwrite, wait, _ = rows = reference(options.seconds, options.rounds)
    rate = "agent_steps_per_second"
    if not options.reference:
        rows = [*rows, *scaling(options.seconds, options.rounds)]
    for row in rows:
        results.row(as_cells(row))
    # Both that plays and that trains are held to it: with `wait` the replay ratio is kept.
    results.bar("async, overwrite: agent-steps/s", overwrite[rate], least=30_000)
    results.bar("async, overwrite: waits", overwrite["waits"], most=0, least=0)
    results.bar("async, wait: agent-steps/s at one update per 100", wait[rate], least=16_000)
    results.finish(options)


if __name__ == "__main__":
    main()
