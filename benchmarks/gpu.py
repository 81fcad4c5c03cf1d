"""Compare learners on a GPU with learners on the CPU, in the same run.

python benchmarks/gpu.py                        every path, eight policies
python benchmarks/gpu.py --paths GRU --counts 8 64

In turns, path by path (`paths.py` says what they are): all learners on the processor's cores, then
all on the GPU, each laid out as a run lays itself out; and where networks are large, with an actor
on the GPU too. PPO: trained agent-steps a second; Q-learners: samples that they trained on.
"""

from __future__ import annotations

import argparse
from statistics import median
from typing import Any

from paths import PATHS, PathOfTraining, rate_of
from recording import Results, options_of, text
from stacks import Watch, measure

CHOSEN = (
    "64x64, one trunk",
    "256x256",
    "1024x1024",
    "convolutions, 5x11x11",
    "convolutions, 4x84x84",
    "GRU 64",
    "own module, 64x64",
    "DQN 64x64, 64 copies",
    "IQN 250x250, 64 copies",
)
ALL = PATHS | {"1024x1024": PathOfTraining(hidden=(1024, 1024), slow=1.5)}
PROCESSOR, GPU, BOTH = "processor", "GPU", "GPU, which acts too"
LEARNER_MIB = 4096


def is_large(path: PathOfTraining) -> bool:
    """True if choosing actions takes long."""
    return bool(path.convolutions) or max(path.hidden) > 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paths", nargs="+", default=CHOSEN, help="how their names begin")
    parser.add_argument("--counts", type=int, nargs="+", default=[8], help="of policies")
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--device", default="cuda:0")
    options = options_of(parser)
    chosen = [name for name in ALL if name.startswith(tuple(options.paths))]
    there = {"devices": [options.device]}
    devices: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
        (PROCESSOR, {"devices": ["cpu"]}, {}),
        (GPU, there, {}),
        (BOTH, there, {"device": options.device}),
    )
    found: dict[tuple[str, int], dict[str, list[Watch]]] = {
        (name, count): {
            place: [] for place, _, _ in devices if place != BOTH or is_large(ALL[name])
        }
        for name in chosen
        for count in options.counts
        if count <= ALL[name].most
    }
    for _ in range(options.rounds):
        for (name, count), places in found.items():
            for place, learners, actor in devices:
                if place not in places:
                    continue
                tree = ALL[name].tree(count) | {"learners": learners, "actor": actor}
                seconds = options.seconds * min(ALL[name].slow, 2.0)
                places[place].append(measure(seconds, **tree))
                last = places[place][-1]
                said = f"{text(rate_of(ALL[name], last))} trained, {text(last.rates()[0])} played"
                print(f"{name}, {count}, {place}: {said}", flush=True)
                print(f"    {last.layout}", flush=True)
    results = Results("gpu")
    largest = 0.0
    for (name, count), places in found.items():
        rates = {place: [rate_of(ALL[name], w) for w in those] for place, those in places.items()}
        ratios = [there / here for here, there in zip(rates[PROCESSOR], rates[GPU], strict=True)]
        memory = max(w.memory for place in places if place != PROCESSOR for w in places[place])
        largest = max(largest, memory)
        readings = [reading for w in places[GPU] for reading in w.gpu]
        results.row(
            {
                "path": name,
                "policies": count,
                **{f"{place}, trained/s": median(those) for place, those in rates.items()},
                "GPU, played/s": median(w.rates()[0] for w in places[GPU]),
                "ratio": median(ratios),
                "lowest": min(ratios),
                "largest process, MiB": memory,
                "GPU busy, %": median(use for use, _ in readings) if readings else None,
                "GPU, MiB": max((used for _, used in readings), default=None),
            }
        )
    results.bar("memory of the largest learner, MiB", largest, most=LEARNER_MIB)
    results.finish(options)


if __name__ == "__main__":
    main()
