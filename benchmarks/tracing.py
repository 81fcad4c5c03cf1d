"""Measure the cost of the timeline to the actor: `python benchmarks/tracing.py`.

One actor plays the reference game, with and without a timeline in turns of a few hundred
milliseconds, in one process; the ratio of the medians is what counts.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

from recording import Results, options_of

from remuda.assembly.assembly import Assembly
from remuda.config import load_config
from remuda.population.run_spec import RunSpec
from remuda.runtime.layout import make_layout
from remuda.system.timeline import Timeline


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=40, help="rounds to take the median of")
    parser.add_argument("--copies", type=int, default=1, help="copies of the game")
    options = options_of(parser)
    config = load_config({"env": {"num_envs": options.copies}})
    spec = RunSpec.of(config)
    assembly = Assembly(spec, make_layout(config, len(spec.policies)))
    actor = assembly.roles()[0].build()
    timeline = Timeline()
    rates: dict[bool, list[float]] = {True: [], False: []}
    turns = max(3000 // options.copies, 100)
    for _ in range(options.rounds):
        for traced in (True, False):
            actor.timer.timeline = timeline if traced else None
            began = time.perf_counter()
            for _ in range(turns):
                actor.turn()
            rates[traced].append(turns / (time.perf_counter() - began))
    traced, untraced = median(rates[True]), median(rates[False])
    results = Results("tracing")
    results.row({"copies": options.copies, "turns/s": untraced, "with a timeline": traced})
    results.bar("slower with a timeline, %", 100 * (1 - traced / untraced), most=3)
    results.finish(options)


if __name__ == "__main__":
    main()
