"""Slow worlds in Python: what each layout of processes makes of two cores, and which is chosen.

python benchmarks/slow_worlds.py pursuit --record
python benchmarks/slow_worlds.py rware --record
python benchmarks/slow_worlds.py cleanup --record      where Sorrel is installed

A row is a layout: one process that plays and trains in turn, `env.workers`, and each number of
actors and of learner processes, all set by hand. The last is what the trial before a run
(`run.calibrate`) chooses by itself. All take turns in a row, several rounds of it; agent-steps a
second are counted once training has begun, so players wait for learners that fall behind.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from statistics import median
from typing import Any

from recording import Results, options_of
from throughput import measure

from remuda.assembly.calibration import choose_layout
from remuda.config import Config, load_config, overlay
from remuda.envs.registry import make_env
from remuda.population.run_spec import RunSpec
from remuda.runtime.layout import Layout, make_layout

WORLDS: Mapping[str, dict[str, Any]] = {
    "pursuit": {
        "game": "pettingzoo:sisl/pursuit_v5",
        "env": {"num_envs": 8},
        "policy": {"algorithm": "ppo"},
    },
    "rware": {
        "game": "rware:rware-tiny-4ag-v2",
        "env": {"num_envs": 16},
        "policy": {"algorithm": "ppo"},
    },
    "cleanup": {"game": "sorrel:cleanup", "env": {"num_envs": 8}},
}
SEQUENTIAL = "one process"
CHOSEN = "as chosen"
CLOSE = 0.9
"""The chosen layout must reach this share of the best by hand."""


def ways(agents: int) -> dict[str, dict[str, Any]]:
    """Each layout by what it is called: the settings that ask for it."""
    found: dict[str, dict[str, Any]] = {SEQUENTIAL: {"schedule": "sequential"}}
    for learners in (1, 2) if agents > 1 else (1,):
        words = f"{learners} learner process{'es' if learners > 1 else ''}"
        common = {"schedule": "async", "learners": {"processes": learners, "threads": 1}}
        for actors in (1, 2):
            asked = {"actor": {"processes": actors}}
            name = f"{actors} actor{'s' if actors > 1 else ''}, {words}"
            found[name] = overlay(common, asked)
        asked = {"actor": {"processes": 1}, "env": {"workers": 2}}
        found[f"2 workers, {words}"] = overlay(common, asked)
    return found


def layout_of(config: Config, chosen: bool) -> Layout:
    """The layout that a run of this has, with a trial where one is to be made."""
    spec = RunSpec.of(config)
    return choose_layout(spec) if chosen else make_layout(config, len(spec.policies))


def rate(config: Config, layout: Layout, seconds: float) -> float:
    """Agent-steps a second, once training had begun."""
    record, _ = measure(config, seconds, warm_up=seconds / 4, layout=layout)
    return record.agent_steps_per_second


def main() -> None:
    """Measure, and print a row for each layout."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("world", choices=WORLDS)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run")
    parser.add_argument("--rounds", type=int, default=3)
    options = options_of(parser)
    game = WORLDS[options.world]["game"]
    base = overlay(WORLDS[options.world], {"run": {"turns": None, "seconds": 3600.0}})
    env = make_env(game, 1)
    agents = len(env.agents)
    env.close()
    found: dict[str, list[float]] = {}
    choices: list[str] = []
    for round_number in range(options.rounds):
        for name, tree in (ways(agents) | {CHOSEN: {}}).items():
            config = load_config(overlay(base, tree))
            layout = layout_of(config, name == CHOSEN)
            found.setdefault(name, []).append(rate(config, layout, options.seconds))
            if name == CHOSEN:
                choices.append(f"{len(layout.copies)} and {len(layout.groups)}")
            print(f"round {round_number}, {name}: {found[name][-1]:,.0f}", flush=True)
    results = Results(f"slow_worlds.{options.world}")
    for name, rates in found.items():
        against = [r / by_one for r, by_one in zip(rates, found[SEQUENTIAL], strict=True)]
        results.row(
            {
                "layout": f"{name} (actors and learners: {'; '.join(dict.fromkeys(choices))})"
                if name == CHOSEN
                else name,
                "agent-steps/s": median(rates),
                "least": min(rates),
                "most": max(rates),
                f"against {SEQUENTIAL}": median(against),
            }
        )
    by_hand = {name: rates for name, rates in found.items() if name != CHOSEN}
    best = max(by_hand, key=lambda name: median(by_hand[name]))
    shares = [c / b for c, b in zip(found[CHOSEN], found[best], strict=True)]
    results.bar(f"{options.world}: chosen against {best}", median(shares), least=CLOSE)
    results.finish(options)


if __name__ == "__main__":
    main()
