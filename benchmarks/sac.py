"""SAC: returns on Pendulum and HalfCheetah, and its speed, beside Stable-Baselines3's.

python benchmarks/sac.py pendulum              20,000 steps of each of five seeds
python benchmarks/sac.py cheetah --record      200,000 steps, both libraries in turns, by seed
python benchmarks/sac.py speed                 trained steps a second of 1 and of 8 policies

Both libraries have SB3's defaults: two layers of 256, batches of 256, a learning rate of 3e-4, and
one update a step after the same number of steps. That holds in the schedules `sequential` and
`lockstep`; in `async` the actor may be up to `policy.experience.capacity` steps ahead of the
updates. Returns are greedy. With --record each run is written when it is over, and the same command
leaves out the seeds that are recorded.

`speed` has K independent policies, each with a HalfCheetah of its own. Stable-Baselines3 trains one
policy at a time, so its K runs one after another have the rate of one run, which uses all cores as
threads. Another row has one of its runs on each core, side by side.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium
import psutil
from peers import PROGRAMS, peers_python, same_packages
from pettingzoo import ParallelEnv
from recording import Results, options_of
from seeds import Run, by_seed, compare
from stacks import Watch

import remuda
from remuda.config import load_config
from remuda.training.run import train
from remuda.ui.terminal.live import PlainView

OURS, THEIRS = "Remuda", "Stable-Baselines3"
GAMES = {"pendulum": "Pendulum-v1", "cheetah": "HalfCheetah-v5"}
STARTS = 1_000
"""Steps before either library learns; Remuda's default."""
FOR_MUJOCO = ("mujoco==4.0.0", "mujoco-core==4.0.0", "glfw==2.11.0", "pyopengl==3.1.10")
PENDULUM = -160.0
FASTER = {1: 1.2, 8: 2.0}
"""How many times as fast as Stable-Baselines3, by the number of policies."""


class Cheetahs(ParallelEnv):
    """A HalfCheetah for each agent. All episodes have a thousand steps."""

    metadata: dict[str, Any] = {"name": "cheetahs"}  # noqa: RUF012

    def __init__(self, num_agents: int = 1) -> None:
        self.possible_agents = [f"agent_{i}" for i in range(num_agents)]
        self.copies = {name: gymnasium.make(GAMES["cheetah"]) for name in self.possible_agents}

    def observation_space(self, agent: str) -> Any:
        return self.copies[agent].observation_space

    def action_space(self, agent: str) -> Any:
        return self.copies[agent].action_space

    def reset(self, seed: int | None = None, options: Any = None) -> Any:  # noqa: ARG002
        self.agents = list(self.possible_agents)
        seeds = [None if seed is None else seed + i for i in range(len(self.agents))]
        found = [self.copies[n].reset(seed=s)[0] for n, s in zip(self.agents, seeds, strict=True)]
        return dict(zip(self.agents, found, strict=True)), {name: {} for name in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        found = {name: self.copies[name].step(action) for name, action in actions.items()}
        columns = [{name: each[i] for name, each in found.items()} for i in range(5)]
        if any(columns[2].values()) or any(columns[3].values()):
            self.agents = []
        return tuple(columns)


def policy(steps: int) -> dict[str, Any]:
    return {
        "algorithm": "sac",
        "experience": {"learning_starts": STARTS, "capacity": steps},
    }


def ours(game: str, options: argparse.Namespace, seed: int) -> Run:
    steps = options.steps
    with tempfile.TemporaryDirectory() as directory:
        begun = time.perf_counter()
        result = remuda.train(
            f"gymnasium:{game}",
            seed=seed,
            env={"num_envs": 1},
            policy=policy(steps),
            schedule=options.schedule,
            run={
                "turns": steps,
                "directory": str(Path(directory) / "run"),
                "evaluate_episodes": options.episodes,
                "log_every": 60,
            },
            checkpoint={"every": 3600, "evaluate_episodes": 0},
            view=PlainView(),
        )
        greedy = result.evaluation
        if greedy is None:
            raise SystemExit("the run was stopped: its seed is not recorded")
        return {
            "return": float(greedy.mean(0)),
            "error": float(greedy.standard_error(0)),
            "updates": sum(each.updates for each in result.record.policies.values()),
            "seconds": time.perf_counter() - begun,
        }


def theirs(python: str, **asked: Any) -> Run:
    whole = {"game": GAMES["cheetah"], "starts": STARTS, "seconds": 0, "episodes": 0, "seed": 0}
    words = [python, str(PROGRAMS / "sb3_sac.py"), json.dumps(whole | asked)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"sb3_sac.py failed:\n{done.stderr[-2000:]}")
    found: Run = json.loads(done.stdout.splitlines()[-1])
    return found


def pendulum(results: Results, options: argparse.Namespace) -> None:
    def run(seed: int) -> Run:
        return ours(GAMES["pendulum"], options, seed)

    returns = by_seed(
        results, options, {OURS: run}, {"steps": options.steps, "schedule": options.schedule}
    )[OURS]
    good = sum(found >= PENDULUM for found in returns)
    results.bar(f"seeds with at least {PENDULUM:g}", good, least=len(returns))


def cheetah(results: Results, options: argparse.Namespace) -> None:
    steps, episodes = options.steps, options.episodes
    python = peers_python("sac_requirements.txt")

    def their_run(seed: int) -> Run:
        return theirs(python, seed=seed, steps=steps, episodes=episodes, threads=cores())

    libraries = {OURS: lambda seed: ours(GAMES["cheetah"], options, seed), THEIRS: their_run}
    found = by_seed(results, options, libraries, {"steps": steps, "schedule": options.schedule})
    compare(results, found[OURS], found[THEIRS], least=-2)


def trained(policies: int, options: argparse.Namespace) -> float:
    """Return the updates a second of all policies together; each is of one step."""
    watch = Watch()
    with tempfile.TemporaryDirectory() as directory:
        tree = {
            "game": "sac:Cheetahs",
            "env": {"num_envs": 1, "options": {"num_agents": policies}},
            "policy": policy(options.steps),
            "schedule": options.schedule,
            "run": {
                "seconds": options.seconds + options.warm_up,
                "directory": str(Path(directory) / "run"),
                "evaluate_episodes": 0,
                "log_every": 0.5,
            },
            "checkpoint": {"every": 3600, "evaluate_episodes": 0},
        }
        train(load_config(tree), watch)
    learning = [r for r in watch.records if all(p.updates > 100 for p in r.policies.values())]
    if len(learning) < 2:
        raise SystemExit("nothing was learned in time; give more --seconds")
    first, last = learning[0], learning[-1]
    updates = [sum(p.updates for p in record.policies.values()) for record in (first, last)]
    return (updates[1] - updates[0]) / (last.seconds - first.seconds)


def speed(results: Results, options: argparse.Namespace) -> None:
    """Trained steps a second, in turns."""
    python, count = peers_python("sac_requirements.txt"), cores()
    one = {"steps": options.steps, "seconds": options.seconds}
    rates: dict[str, list[float]] = {}

    def add(name: str, rate: float) -> None:
        rates.setdefault(name, []).append(rate)
        print(f"{name}: {rate:,.1f}", flush=True)

    after, beside = f"{THEIRS}, one run after another", f"{THEIRS}, a run on each core"
    for _ in range(options.rounds):
        add(after, theirs(python, threads=count, **one)["rate"])
        with ThreadPoolExecutor(count) as pool:
            runs = [pool.submit(theirs, python, threads=1, **one) for _ in range(count)]
            add(beside, sum(run.result()["rate"] for run in runs))
        for policies in FASTER:
            add(f"{OURS}, K = {policies}", trained(policies, options))
    for name, found in rates.items():
        results.row(
            {
                "library": name,
                "trained steps/s": median(found),
                "lowest": min(found),
                "highest": max(found),
                "times the peer one after another": median(found) / median(rates[after]),
                "times the peer on each core": median(found) / median(rates[beside]),
            }
        )
    for policies, least in FASTER.items():
        pairs = zip(rates[f"{OURS}, K = {policies}"], rates[after], strict=True)
        ratio = median(own / peer for own, peer in pairs)
        results.bar(f"K = {policies}: times the peer, one run after another", ratio, least=least)


def cores() -> int:
    return len(psutil.Process().cpu_affinity())


PROGRAM = {"pendulum": pendulum, "cheetah": cheetah, "speed": speed}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("what", choices=PROGRAM)
    add("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    add("--steps", type=int, help="by default 20,000 of Pendulum and 200,000 of HalfCheetah")
    add(
        "--schedule", choices=("sequential", "lockstep", "async"), help="ours; `speed` has lockstep"
    )
    add("--episodes", type=int, help="that each is judged by; 200 of Pendulum, whose starts differ")
    add("--rounds", type=int, default=5, help="of `speed`")
    add("--seconds", type=float, default=30.0, help="of each measurement of `speed`")
    add("--warm-up", type=float, default=60.0, help="seconds of our runs until they learn")
    options = options_of(parser)
    options.schedule = options.schedule or ("lockstep" if options.what == "speed" else "sequential")
    options.episodes = options.episodes or (200 if options.what == "pendulum" else 20)
    options.steps = options.steps or (20_000 if options.what == "pendulum" else 200_000)
    if options.what != "pendulum":  # our interpreter needs the physics too
        folder = same_packages("mujoco", FOR_MUJOCO)
        sys.path.append(folder)
        os.environ["PYTHONPATH"] = os.pathsep.join(
            [*filter(None, [os.environ.get("PYTHONPATH")]), folder]
        )
    results = Results(f"sac.{options.what}")
    PROGRAM[options.what](results, options)
    results.finish(options)


if __name__ == "__main__":
    main()
