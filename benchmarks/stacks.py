"""How many agent-steps a second are played and trained: stacks of independent PPO policies.

python benchmarks/stacks.py policies      2, 8, 32, 64 policies, 64 copies
python benchmarks/stacks.py one_copy      one copy of the game, 8 agents, in turn and together
python benchmarks/stacks.py floor         against update and play measured alone
python benchmarks/stacks.py own_network   eight policies, their network built in and as a module
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
from recording import Results, options_of
from torch import nn

from remuda.assembly.assembly import Assembly
from remuda.config import Config, load_config, overlay
from remuda.experience.rollout_queue import RolloutQueue
from remuda.experience.segments import Rollout
from remuda.policies.spec import make_algorithm
from remuda.population.run_spec import RunSpec
from remuda.runs.metrics import Goal, Record
from remuda.runtime.layout import make_layout
from remuda.system.rng import make_rng
from remuda.training.run import train

TIMED: dict[str, Any] = {
    "run": {"turns": 10**9, "evaluate_episodes": 0, "log_every": 0.5},
    "checkpoint": {"every": 3600, "evaluate_episodes": 0},
}
BASE: dict[str, Any] = {
    **TIMED,
    "game": "treasure_hunt",
    "env": {"num_envs": 64, "options": {"num_agents": 8}},
    "policy": {"algorithm": "ppo", "network": {"shared": True}, "ppo": {"minibatches": 4}},
}
WARM_UP = 4.0
"""Seconds of a run that are not counted."""


class Watch:
    """Keeps the records of a run, and the memory of its largest learner."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.memory = 0.0
        self.layout = ""
        self.gpu: list[tuple[float, float]] = []
        """Utilisation in percent and MiB in use, where there is a GPU."""

    def start(self, goal: Goal) -> None:
        self.layout = goal.layout

    def show(self, record: Record) -> None: ...

    def say(self, message: str) -> None:
        if not message.startswith("compiling"):  # which is over before a run begins to play
            raise RuntimeError(message)

    def close(self) -> None: ...

    def log(self, record: Record) -> None:
        self.records.append(record)
        for child in psutil.Process().children(recursive=True):
            self.memory = max(self.memory, child.memory_info().rss / 2**20)
        if shutil.which("nvidia-smi"):
            ask = ["nvidia-smi", "--query-gpu=utilization.gpu,memory.used"]
            done = subprocess.run(
                [*ask, "--format=csv,noheader,nounits"], capture_output=True, text=True, check=False
            )
            if done.returncode == 0:
                use, memory = done.stdout.splitlines()[0].split(",")
                self.gpu.append((float(use), float(memory)))

    def rates(self) -> tuple[float, float]:
        """Agent-steps played and trained a second, after the warm-up."""
        return self._rate(lambda r: r.agent_steps), self._rate(
            lambda r: sum(p.trained for p in r.policies.values())
        )

    def updates(self) -> float:
        """Updates of all a second, after the warm-up; Q-learners tell no trained steps."""
        return self._rate(lambda r: sum(p.updates for p in r.policies.values()))

    def _rate(self, counted: Callable[[Record], int]) -> float:
        kept = [r for r in self.records if r.seconds >= WARM_UP]
        if len(kept) < 2:
            raise SystemExit(f"{WARM_UP:.0f} seconds are not counted; give more --seconds")
        first, last = kept[0], kept[-1]
        return (counted(last) - counted(first)) / (last.seconds - first.seconds)


def measure(seconds: float, **tree: Any) -> Watch:
    return watched(seconds, overlay(BASE, tree))


def watched(seconds: float, tree: Mapping[str, Any]) -> Watch:
    """Train with these settings for some seconds, without evaluations."""
    watch = Watch()
    with tempfile.TemporaryDirectory() as directory:
        fixed = {"run": {"seconds": seconds, "directory": str(Path(directory) / "run")}}
        train(load_config(overlay(overlay(TIMED, tree), fixed)), watch)
    return watch


def policies(
    results: Results,
    seconds: float,
    rounds: int,
    counts: Sequence[int] = (2, 8, 32, 64),
    device: str = "",
) -> None:
    """The cost of an agent-step by the number of policies, in turns within one run.

    The bars are of the processor.
    """
    learners = {"devices": [device]} if device else {}
    found: dict[int, list[Watch]] = {count: [] for count in counts}
    for _ in range(rounds):
        for count in counts:
            found[count].append(
                measure(seconds, env={"options": {"num_agents": count}}, learners=learners)
            )
            played, trained = found[count][-1].rates()
            print(f"{count} policies: {played:,.0f} played, {trained:,.0f} trained", flush=True)
    trained = {n: median(w.rates()[1] for w in found[n]) for n in counts}
    base = 8 if 8 in trained else counts[0]
    for n in counts:
        results.row(
            {
                "policies": n,
                "played/s": median(w.rates()[0] for w in found[n]),
                "trained/s": trained[n],
                f"cost against {base}": trained[base] / trained[n],
                "largest process, MiB": max(w.memory for w in found[n]),
            }
            | ({"GPU: busy, MiB": _gpu(found[n])} if device else {})
        )
    print(found[base][0].layout)
    if base == 8 and not device:
        results.bar("8 policies, trained agent-steps/s", trained[8], least=150_000)
        costs = [trained[8] / trained[n] for n in counts]
        results.bar("cost of a step against 8 policies, the most", max(costs), most=1.25)


NETWORKS: dict[str, dict[str, Any]] = {
    "built in": {"hidden": [64, 64], "activation": "tanh"},
    "a module of the same layers": {"module": "stacks:features", "hidden": []},
}
"""Two layers of 64 with tanh, and the heads."""


def features(shape: tuple[int, ...]) -> nn.Module:
    """The layers as a user writes them down."""
    layers = nn.Flatten(), nn.Linear(math.prod(shape), 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()
    return nn.Sequential(*layers)


def own_network(results: Results, seconds: float, rounds: int) -> None:
    """Measure the cost of a user's network: eight policies, in turns with the built-in one."""
    found: dict[str, list[float]] = {name: [] for name in NETWORKS}
    for _ in range(rounds):
        for name, network in NETWORKS.items():
            found[name].append(measure(seconds, policy={"network": network}).rates()[1])
            print(f"{name}: {found[name][-1]:,.0f} trained", flush=True)
    for name, rates in found.items():
        results.row({"network": name, "trained/s": median(rates)})
    built_in, own = found.values()
    ratios = [one / other for one, other in zip(own, built_in, strict=True)]
    results.row({"network": "ratio, lowest", "trained/s": min(ratios)})
    results.row({"network": "ratio, highest", "trained/s": max(ratios)})
    results.bar("own network, trained, share of the built-in one", median(ratios), least=0.5)


def _gpu(watches: list[Watch]) -> str:
    seen = [reading for watch in watches for reading in watch.gpu]
    if not seen:
        return "unknown"
    return f"{median(use for use, _ in seen):.0f}%, {max(memory for _, memory in seen):,.0f}"


def one_copy(results: Results, seconds: float, rounds: int) -> None:
    """One copy of the game: agents observe one after another, or all at once."""
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for _ in range(rounds):
        for together, rates in found.items():
            env = {"num_envs": 1, "observe_together": together}
            # Nothing may wait here: the question is how fast one copy is played.
            experience = {"on_full": "overwrite"}
            watch = measure(seconds, env=env, policy={"experience": experience})
            rates.append(watch.rates())
    for together, rates in found.items():
        way = "batched observation" if together else "one after another"
        played, trained = (median(column) for column in zip(*rates, strict=True))
        results.row({"one copy, 8 agents": way, "played/s": played, "trained/s": trained})
        results.bar(f"{way}, played/s", played, least=60_000 if together else 25_000)


def _config() -> Config:
    return load_config(overlay(BASE, {"learners": {"processes": 1}}))


def _play_alone() -> float:
    """Seconds of an agent-step: environment, inference and writing, without learners."""
    config = load_config(overlay(BASE, {"policy": {"experience": {"on_full": "overwrite"}}}))
    spec = RunSpec.of(config)
    assembly = Assembly(spec, make_layout(config, len(spec.policies)))
    actor = assembly.roles()[0].build()
    return _time(actor.turn, 64 * 8)


def _update_alone() -> float:
    """Seconds of an agent-step: one update of a stack of 8, on rollouts in memory."""
    config = _config()
    run = RunSpec.of(config)
    specs = run.policies
    assembly = Assembly(run, make_layout(config, len(specs)))
    actor = assembly.roles()[0].build()
    while actor.work():
        pass
    rollout = Rollout.empty(next(iter(assembly.experience.values())), len(specs))
    steps = 0
    algorithm = make_algorithm(specs, [make_rng(0, spec.name) for spec in specs])
    for k, spec in enumerate(specs):
        steps += RolloutQueue(assembly.experience[spec.name]).take(rollout, k, 1)
        published = assembly.snapshots()[spec.name].weights
        algorithm.load(k, _tensor(published))
    return _time(lambda: algorithm.update(rollout, range(len(specs))), steps)


def _tensor(array: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(array)


def _time(work: Callable[[], object], steps: int) -> float:
    """Median seconds of one step, over five seconds of calls."""
    import torch

    torch.set_num_threads(1)
    for _ in range(3):
        work()
    times = []
    end = time.perf_counter() + 5.0
    while time.perf_counter() < end:
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) / steps)
    return median(times)


def _side_by_side(work: Callable[[], float], cores: int) -> float:
    """The same work on every core at once, so that they share memory as in a run."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(cores, context) as pool:
        return median(future.result() for future in [pool.submit(work) for _ in range(cores)])


def floor(results: Results, seconds: float, rounds: int) -> None:
    """Compare the limit of the cores, if only playing and updating took time, with the result."""
    cores = len(psutil.Process().cpu_affinity())
    shares, rates, costs = [], [], []
    for _ in range(rounds):
        update = _side_by_side(_update_alone, cores)
        play = _side_by_side(_play_alone, cores)
        rate = measure(seconds).rates()[1]
        allowed = cores / (update + play)
        shares.append(rate / allowed)
        rates.append(rate)
        costs.append((update, play))
        print(
            f"update {update * 1e6:.2f} us, play {play * 1e6:.2f} us: {allowed:,.0f} allowed, "
            f"{rate:,.0f} reached",
            flush=True,
        )
    update, play = (median(column) for column in zip(*costs, strict=True))
    results.row({"what": "update alone, one core, us a step", "median": update * 1e6})
    results.row({"what": "play alone, one core, us a step", "median": play * 1e6})
    results.row({"what": f"allowed by {cores} cores, steps/s", "median": cores / (update + play)})
    results.row({"what": "trained, steps/s", "median": median(rates)})
    results.bar("trained, share of what is allowed", median(shares), least=0.7)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    programs = {
        "policies": policies,
        "one_copy": one_copy,
        "floor": floor,
        "own_network": own_network,
    }
    parser.add_argument("what", choices=programs)
    parser.add_argument("--seconds", type=float, default=14.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--counts", type=int, nargs="+", default=(2, 8, 32, 64))
    parser.add_argument("--device", default="", help="of the learners: cuda:0; none: as found")
    options = options_of(parser)
    more = (options.counts, options.device) if options.what == "policies" else ()
    results = Results(f"stacks.{options.what}" + (".gpu" if options.device else ""))
    programs[options.what](results, options.seconds, options.rounds, *more)
    results.finish(options)


if __name__ == "__main__":
    main()
