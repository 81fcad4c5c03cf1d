"""Worlds of JaxMARL: trained agent-steps a second beside its own programs, and the worlds alone.

python benchmarks/jax_worlds.py spread          MPE spread, 64 and 256 copies, networks of 64 x 64
python benchmarks/jax_worlds.py overcooked      cramped_room, convolutions
python benchmarks/jax_worlds.py smax            SMAX 3m, a recurrent layer of 128, PPO and MAPPO
python benchmarks/jax_worlds.py worlds          turns a second of the worlds alone

JaxMARL's programs have one network for all agents, and are timed without their compilation. Sizes,
copies, rollouts, epochs and minibatches are equal. Its repository is cloned beside the peers, or
named by --jaxmarl; its packages are installed there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from peers import PEERS, PROGRAMS
from recording import Results, options_of
from stacks import watched

from remuda.envs.registry import make_env

REPOSITORY = "https://github.com/FLAIROx/JaxMARL"
TOGETHER: dict[str, Any] = {"population": {"sharing": {"*": "team"}}}


@dataclass(frozen=True)
class Case:
    """A world with a network, in both libraries."""

    name: str
    game: str
    copies: int
    policy: Mapping[str, Any]
    program: str
    config: str
    overrides: Mapping[str, Any]
    bars: Mapping[str, float]  # of our agent-steps over theirs, by seating
    options: Mapping[str, Any] = field(default_factory=dict)
    layout: str = ""
    steps: int = 1_000_000  # of all copies, of theirs


def ppo(minibatches: int, steps: int = 128) -> dict[str, Any]:
    return {"rollout_length": steps, "epochs": 4, "minibatches": minibatches}


MPE = "jaxmarl:MPE_simple_spread_v3"
SEPARATE, SHARED = "a policy for each agent", "one shared policy"
PERCEPTRON = {"hidden": [64, 64], "activation": "tanh", "shared": False}
CONVOLUTIONS = {
    "convolutions": [[32, 5, 1], [32, 3, 1], [32, 3, 1]],
    "padding": "same",
    "layout": "hwc",
    "hidden": [64],
    "activation": "relu",
}
"""Theirs has one more layer of 64 in the value network."""
RECURRENT = {"hidden": [128], "recurrent": 128}
"""Theirs has one more layer of 128 after the recurrent one."""
CASES = {
    "spread": [
        Case(
            f"MPE spread, {copies} copies",
            MPE,
            copies,
            {"algorithm": "ppo", "network": PERCEPTRON, "ppo": ppo(4)},
            "IPPO/ippo_ff_mpe",
            "ippo_ff_mpe.yaml",
            {"NUM_ENVS": copies},
            {SEPARATE: 1.5, SHARED: 2.0},
            steps=15_600 * copies,
        )
        for copies in (64, 256)
    ],
    "overcooked": [
        Case(
            "Overcooked cramped_room",
            "jaxmarl:overcooked",
            64,
            {"algorithm": "ppo", "network": CONVOLUTIONS, "ppo": ppo(16, 256)},
            "IPPO/ippo_cnn_overcooked",
            "ippo_cnn_overcooked.yaml",
            {},
            {SEPARATE: 1.2, SHARED: 1.2},
            {"layout": "cramped_room"},
            layout="cramped_room",
            steps=2 * 64 * 256,
        )
    ],
    "smax": [
        Case(
            f"SMAX 3m, {algorithm}",
            "jaxmarl:HeuristicEnemySMAX",
            128,
            {"algorithm": algorithm, "network": RECURRENT, "ppo": ppo(4)},
            program,
            config,
            {"MAP_NAME": "3m"},
            {SEPARATE: 1.2, SHARED: 1.2},
            {
                "scenario": "3m",
                "see_enemy_actions": True,
                "walls_cause_death": True,
                "attack_mode": "closest",
            },
        )
        for algorithm, program, config in (
            ("ppo", "IPPO/ippo_rnn_smax", "ippo_rnn_smax.yaml"),
            ("mappo", "MAPPO/mappo_rnn_smax", "mappo_homogenous_rnn_smax.yaml"),
        )
    ],
}


def jax_python() -> str:
    """Return an interpreter with JaxMARL and what its programs need, installed once."""
    folder = PEERS / "jax"
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        print(f"installing JaxMARL into {folder.name}/ (once)", flush=True)
        if not python.exists():
            venv.create(folder, with_pip=True)
        packages = str(PROGRAMS / "jaxmarl_requirements.txt")
        subprocess.run([str(python), "-m", "pip", "install", "-q", "-r", packages], check=True)
        (folder / ".ready").touch()
    return str(python)


def repository(chosen: str) -> Path:
    """Return a checkout of JaxMARL's repository."""
    path = Path(chosen) if chosen else PEERS / "jaxmarl"
    if not (path / "baselines").is_dir():
        subprocess.run(["git", "clone", "--depth", "1", REPOSITORY, str(path)], check=True)
    return path


def theirs(
    program: str,
    config: str,
    overrides: Mapping[str, Any],
    layout: str,
    seeds: Sequence[int],
    checkout: str = "",
) -> list[dict[str, Any]]:
    """Train by one of JaxMARL's programs; return what it found for each seed."""
    asked = {
        "repository": str(repository(checkout)),
        "program": program,
        "config": config,
        "overrides": dict(overrides),
        "layout": layout,
        "seeds": list(seeds),
    }
    words = [jax_python(), "jaxmarl_train.py", json.dumps(asked)]
    done = subprocess.run(words, cwd=PROGRAMS, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"jaxmarl_train.py failed:\n{done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def ours(case: Case, seconds: float, seating: str) -> float:
    """Return our trained agent-steps a second."""
    tree = {
        "game": case.game,
        "env": {"num_envs": case.copies, "options": dict(case.options)},
        "policy": dict(case.policy),
        **(TOGETHER if seating == SHARED else {}),
    }
    return watched(seconds, tree).rates()[1]


def trained(results: Results, options: argparse.Namespace) -> None:
    """Compare the trained agent-steps a second, in turns."""
    for case in CASES[options.what]:
        rates: dict[str, list[float]] = {"JaxMARL": [], **{seating: [] for seating in case.bars}}
        for _ in range(options.rounds):
            overrides = {"TOTAL_TIMESTEPS": case.steps, **case.overrides}
            (their,) = theirs(
                case.program, case.config, overrides, case.layout, [0], options.jaxmarl
            )
            rates["JaxMARL"].append(their["trained"])
            for seating in case.bars:
                rates[seating].append(ours(case, options.seconds, seating))
            print(case.name, {name: f"{found[-1]:,.0f}" for name, found in rates.items()})
        for seating, least in case.bars.items():
            pairs = zip(rates[seating], rates["JaxMARL"], strict=True)
            ratios = [own / their for own, their in pairs]
            results.row(
                {
                    "world": case.name,
                    "seating": seating,
                    "trained/s": median(rates[seating]),
                    "JaxMARL's": median(rates["JaxMARL"]),
                    "ratio": median(ratios),
                    "lowest": min(ratios),
                    "highest": max(ratios),
                }
            )
            results.bar(f"{case.name}, {seating}: over JaxMARL's", median(ratios), least=least)


@dataclass(frozen=True)
class Alone:
    """A world without a policy."""

    world: str
    copies: int
    options: Mapping[str, str] = field(default_factory=dict)


ALONE = (
    Alone("MPE_simple_spread_v3", 64),
    Alone("MPE_simple_spread_v3", 256),
    Alone("overcooked", 64, {"layout": "cramped_room"}),
    Alone("HeuristicEnemySMAX", 128, {"scenario": "3m"}),
)
TURNS = 2_000


def ours_alone(case: Alone) -> float:
    """Return agent-steps a second of random actions, with resets, and observations copied out."""
    env = make_env(f"jaxmarl:{case.world}", case.copies, **case.options)
    agents, rng = env.agents, np.random.default_rng(0)
    rows = [
        np.zeros(
            (case.copies, *(agent.observation_space.shape or ())), agent.observation_space.dtype
        )
        for agent in agents
    ]
    actions = [rng.integers(0, agent.action_space.n, (TURNS, case.copies)) for agent in agents]
    everywhere = np.ones(case.copies, np.bool_)
    env.warm_up()
    env.reset(np.arange(case.copies), everywhere)
    begun = time.perf_counter()
    for turn in range(TURNS):
        for agent, row in enumerate(rows):
            env.observe(agent, row)
            env.act(agent, actions[agent][turn])
        env.end_turn()
        over = ~env.active.any(axis=1)
        if over.any():
            env.reset(np.arange(case.copies) + turn, over)
    return case.copies * TURNS * len(agents) / (time.perf_counter() - begun)


def theirs_alone(case: Alone) -> float:
    asked = {"world": case.world, "copies": case.copies, "turns": TURNS, "options": case.options}
    one_thread = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "NPROC": "1"}
    done = subprocess.run(
        [jax_python(), "jaxmarl_alone.py", json.dumps(asked)],
        cwd=PROGRAMS,
        env=os.environ | one_thread,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.splitlines()[-1])


def alone(results: Results, options: argparse.Namespace) -> None:
    """Compare agent-steps a second of the worlds alone, on one thread, in turns."""
    for case in ALONE:
        pairs = [(ours_alone(case), theirs_alone(case)) for _ in range(options.rounds)]
        ratios = [own / their for own, their in pairs]
        words = f"{case.world}, {case.copies} copies"
        print(words, [f"{own:,.0f} {their:,.0f}" for own, their in pairs], flush=True)
        results.row(
            {
                "world": words,
                "agent-steps/s": median(own for own, _ in pairs),
                "in lax.scan": median(their for _, their in pairs),
                "ratio": median(ratios),
                "lowest": min(ratios),
                "highest": max(ratios),
            }
        )
        results.bar(f"{words}: of lax.scan", median(ratios), least=0.7)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("what", choices=[*CASES, "worlds"])
    add("--rounds", type=int, default=5)
    add("--seconds", type=float, default=20.0, help="of each of our runs, with 4 to warm up")
    add("--jaxmarl", default="", help="a checkout of JaxMARL's repository")
    options = options_of(parser)
    results = Results(f"jax_worlds.{options.what}")
    (alone if options.what == "worlds" else trained)(results, options)
    results.finish(options)


if __name__ == "__main__":
    main()
